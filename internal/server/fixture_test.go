package server

import (
	"fmt"
	"log/slog"
	"math"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// world is what a server under test shows.
type world struct {
	snap     *collector.Snapshot
	view     *detect.View
	history  func(detect.Subject) []detect.History
	changes  []collector.Event
	released time.Time
	auth     bool
	full     bool // the full profile
	booked   *cost.Export
	costs    func(since, until time.Time) (*cost.Answer, error)
	series   *ProcessSeries
	muted    map[string][]Mute
}

func (w *world) server(t testing.TB) *Server {
	if w.booked == nil {
		w.booked = &cost.Export{}
	}
	return New(Config{
		Booked:        func() *cost.Export { return w.booked },
		Costs:         w.costs,
		Muted:         func() map[string][]Mute { return w.muted },
		Snapshot:      func() *collector.Snapshot { return w.snap },
		View:          func() *detect.View { return w.view },
		History:       w.history,
		Changes:       func() []collector.Event { return w.changes },
		ReleasedUntil: func() time.Time { return w.released },
		Version:       Version{"0.1.0", "abc1234", "go1.26"},
		Authenticated: func() bool { return w.auth },
		Full:          w.full,
		Processes:     w.series,
		Log:           slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
}

// soon is for tests in which age does not matter: what is of the near future does
// not go stale on a slow machine. The others run on the clock of a synctest bubble.
func soon() time.Time { return time.Now().Add(time.Hour) }

// node is a node on which much goes on: six healthy GPUs at work, one that hangs,
// one that fell off the bus, MIG, an inference server at its limit.
func node(now time.Time) *world {
	s := &collector.Snapshot{
		Time: now, Boot: now.Add(-31 * time.Hour),
		Node: collector.Node{Name: "gpu-117", Readings: collector.NewReadings(metric.Node), Versions: []collector.Version{
			{Component: "cuda", Value: "13.0"}, {Component: "driver", Value: "580.95.05"}, {Component: "kernel", Value: "6.8.0-79"}, {Component: "nvml", Value: "13.580.95.05"},
		}},
		Sources: []collector.SourceState{
			{Name: "nvml", Interval: time.Second, Duration: 3 * time.Millisecond, Last: now.Add(-200 * time.Millisecond), Samples: 9000, Expected: true},
			{Name: "host", Interval: time.Second, Duration: 400 * time.Microsecond, Last: now.Add(-300 * time.Millisecond), Samples: 9000, Expected: true},
			{Name: "inference", Interval: 5 * time.Second, Duration: 21 * time.Millisecond, Last: now.Add(-90 * time.Second), Samples: 1800, Errors: 18, Err: "GET http://10.0.0.9:8000/metrics: connection refused"},
		},
	}
	set(s.Node.Readings, metric.CPUBusy, 0.11, metric.CPUBusiest, 0.38, metric.CPUCount, 128, metric.HostMemoryCapacity, 2048<<30,
		metric.HostMemoryAvailable, 1633<<30, metric.GPUsSeen, 7, metric.GPUsExpected, 8)
	for i, v := range []float64{14.2, 13.8, 12.9} {
		s.Node.SetAt(metric.Load, i, v)
	}
	s.Node.SetAt(metric.CPUSeconds, 0, 1234.5)
	for i := range 8 {
		s.GPUs = append(s.GPUs, h100(i, now))
	}
	job := collector.Owner{Kind: "job", ID: "slurm/4711", Team: "nlp"}
	chat := collector.Owner{Kind: "pod", ID: "chat/chat-70b-0", Team: "assistants"}
	notebook := collector.Owner{Kind: "pod", ID: "vision/notebook-ana", Team: "vision"}
	for i := range 4 {
		s.GPUs[i].Owners = []collector.Owner{job}
		process(s, i, 41000+i, "python", job, 71<<30, 0.97)
	}
	s.GPUs[4].Owners = []collector.Owner{chat, {Kind: "pod", ID: "chat/reranker-1", Team: "assistants"}}
	process(s, 4, 52000, "VLLM::EngineCore", chat, 60<<30, 0.93)
	process(s, 4, 52411, "text-embeddings-router", s.GPUs[4].Owners[1], 12<<30, 0.04)
	s.GPUs[5].Owners = []collector.Owner{notebook}
	process(s, 5, 60017, "ipykernel_launcher", notebook, 9<<30, 0)
	set(s.GPUs[5].Readings, metric.Utilization, 0, metric.PowerDraw, 118, metric.MemoryUsed, 9<<30, metric.Temperature, 34)
	s.Workloads = []collector.Workload{
		{Owner: job, CostCenter: "cc-210", Stage: "training", Readings: collector.NewReadings(metric.Workload)},
		{Owner: chat, CostCenter: "cc-140", Sensitivity: "customer", Stage: "inference", Critical: true, Containers: []string{"main"}, Readings: collector.NewReadings(metric.Workload)},
	}
	give := func(gpu int, to collector.Owner, container, resource, source string) {
		g := &s.GPUs[gpu]
		g.Allocations = append(g.Allocations, collector.Allocation{UUID: g.UUID, Owner: to, Container: container, Resource: resource, Source: source})
	}
	give(0, job, "", "gres/gpu", "slurm")
	give(4, chat, "main", "nvidia.com/gpu.shared", "kubelet")
	give(5, notebook, "main", "nvidia.com/gpu", "kubelet")
	s.GPUs[3].Hung = true
	s.GPUs[3].Readings = collector.NewReadings(metric.GPU)
	s.GPUs[3].Stamp(metric.Fast, now.Add(-42*time.Second))
	s.GPUs[6].Present = false
	s.GPUs[6].Readings = collector.NewReadings(metric.GPU)
	s.GPUs[6].Stamp(metric.Fast, now.Add(-6*time.Minute))
	s.GPUs[6].Xids = []collector.XidCount{{Code: 79, Count: 1, Last: now.Add(-6 * time.Minute)}}
	s.SXids = []collector.SXidCount{
		{Switch: "0000:a9:00.0", Code: 12028, Count: 3, Last: now.Add(-time.Hour)}, {Switch: "0000:a9:00.0", Code: 20034, Fatal: true, Count: 1, Last: now.Add(-6 * time.Minute)},
	}
	mig(s, 7)
	s.Endpoints = []collector.Endpoint{{URL: "http://chat-70b.chat:8000/metrics", Engine: "vllm", Model: "llama-3.3-70b", Readings: collector.NewReadings(metric.Endpoint)}}
	set(s.Endpoints[0].Readings, metric.RequestsRunning, 64, metric.RequestsWaiting, 38, metric.QueueTimeP95, 4.1, metric.KVCacheUsage, 0.97, metric.GeneratedTokens, 1.25e6)
	s.Endpoints[0].SetAt(metric.Requests, metric.Outcomes.Index("success"), 9001)
	s.Endpoints[0].Histograms = []collector.Histogram{{Row: metric.QueueTime, Bounds: []float64{0.3, 1, 5}, Counts: []uint64{12, 40, 90, 93}, Sum: 172.5}}
	s.Targets = []collector.Target{{URL: s.Endpoints[0].URL, Readings: collector.NewReadings(metric.Target)}}
	set(s.Targets[0].Readings, metric.TargetUp, 1, metric.TargetDuration, 0.004, metric.TargetAge, 0, metric.TargetBytes, 27648)
	s.Inventory = running(now, chat)
	change := collector.Event{Time: now.Add(-time.Hour), Kind: collector.VersionEvent, Owner: chat, Component: "vllm", From: "0.10.2", To: "0.11.0"}
	return &world{snap: s, view: view(s), history: lastHour(now), changes: []collector.Event{change}}
}

func h100(i int, now time.Time) collector.GPU {
	g := collector.GPU{
		Index: i, UUID: fmt.Sprintf("GPU-%08x-0000-4000-8000-%012x", 0x5ca1ab1e+i, i), Model: "NVIDIA H100 80GB HBM3",
		PCIBusID: fmt.Sprintf("00000000:%02X:00.0", 0x1b+i), Serial: fmt.Sprintf("16514230%05d", i), VBIOS: "96.00.89.00.01", Architecture: "Hopper",
		Present: true, Readings: collector.NewReadings(metric.GPU),
		Unsupported: []*metric.Def{metric.FanSpeed},
		Dropped:     map[*metric.Def]uint64{metric.MemoryTemperature: 3},
	}
	set(g.Readings, metric.Utilization, 0.98-float64(i)/50, metric.MemoryUtilization, 0.4, metric.MemoryCapacity, 80<<30, metric.MemoryUsed, 72<<30,
		metric.PowerDraw, 640-float64(10*i), metric.PowerLimit, 700, metric.Energy, 1e9, metric.Temperature, 61+float64(i), metric.MemoryTemperature, 78,
		metric.PerformanceState, 0, metric.ProcessCount, 1)
	for c, v := range []float64{1.98e9, 1.98e9, 2.619e9, 1.545e9} {
		g.SetAt(metric.Clock, c, v)
	}
	for r := range metric.ClockReason.Values {
		g.SetAt(metric.ClockEvent, r, 0)
	}
	if i == 2 {
		g.SetAt(metric.ClockEvent, metric.ClockReason.Index("sw_power_cap"), 1)
	}
	g.Stamp(metric.Fast, now.Add(-200*time.Millisecond))
	return g
}

// set stores readings given as row, value, row, value …
func set(r collector.Readings, rowsAndValues ...any) {
	for i := 0; i < len(rowsAndValues); i += 2 {
		v, ok := rowsAndValues[i+1].(float64)
		if !ok {
			v = float64(rowsAndValues[i+1].(int))
		}
		r.Set(rowsAndValues[i].(*metric.Def), v)
	}
}

func process(s *collector.Snapshot, gpu, pid int, name string, owner collector.Owner, memory, sm float64) {
	p := collector.Process{PID: pid, Name: name, UID: 1000 + gpu, GPU: gpu, UUID: s.GPUs[gpu].UUID, Owner: owner, Readings: collector.NewReadings(metric.Process)}
	set(p.Readings, metric.ProcessMemoryUsed, memory, metric.ProcessUtilization, sm)
	s.Processes = append(s.Processes, p)
}

func mig(s *collector.Snapshot, gpu int) {
	g := &s.GPUs[gpu]
	g.MIG = true
	g.Unsupported = append(g.Unsupported, metric.Utilization, metric.MemoryUtilization)
	nan := collector.NewReadings(metric.GPU).Value(metric.Utilization)
	set(g.Readings, metric.Utilization, nan, metric.MemoryUtilization, nan, metric.PowerDraw, 320, metric.MemoryUsed, 25<<30)
	for i, p := range []string{"3g.40gb", "1g.10gb"} {
		m := collector.Instance{GPU: gpu, UUID: g.UUID, MIGUUID: fmt.Sprintf("MIG-%08x-0000-5000-8000-%012x", i, gpu), GI: 2 + i*7, Profile: p, Readings: collector.NewReadings(metric.Instance)}
		set(m.Readings, metric.MIGMemoryCapacity, []int{40 << 30, 10 << 30}[i], metric.MIGMemoryUsed, []int{21 << 30, 4 << 30}[i], metric.MIGProcesses, 1)
		s.Instances = append(s.Instances, m)
	}
	s.Instances[0].Owners = []collector.Owner{{Kind: "pod", ID: "vision/detector-2", Team: "vision"}}
	s.Instances[0].Allocations = []collector.Allocation{{UUID: s.Instances[0].UUID, MIG: s.Instances[0].MIG(), Owner: s.Instances[0].Owners[0],
		Container: "main", Resource: "nvidia.com/mig-1g.10gb", Source: "kubelet"}}
}

func view(s *collector.Snapshot) *detect.View {
	now := s.Time
	want := 0.3
	finding := func(rule rules.ID, gpu int, cause string, sev rules.Severity, state detect.State, since time.Duration, e detect.Evidence) detect.Finding {
		g := s.GPUs[gpu]
		f := detect.Finding{
			Rule: rule, Subject: detect.Subject{Kind: "gpu", ID: g.UUID}, Cause: cause, Severity: sev, State: state, Since: now.Add(-since), Fired: now.Add(-since),
			LastSeen: now, LastTrue: now, Score: 4.5, Evidence: e, Count: 100, Node: s.Node.Name, GPUIndex: gpu, GPUModel: g.Model,
		}
		if len(g.Owners) > 0 {
			f.Owner = g.Owners[0]
		}
		return f
	}
	lost := finding(rules.IDXid, 6, "xid_79", rules.Page, detect.Firing, 6*time.Minute, detect.Evidence{
		Seen: "Xid 79 (GPU has fallen off the bus); the GPU does not answer, its 7 peers do", Observed: 1, Confidence: detect.Certain, Why: "reported by the driver",
		Action: "Drain the node and power-cycle it; the second time in 30 days, replace the GPU.",
	})
	lost.Before = []collector.Event{
		{Time: now.Add(-9 * time.Minute), Kind: collector.ClocksEvent, Text: "hw_slowdown", UUID: s.GPUs[6].UUID},
		{Time: now.Add(-6 * time.Minute), Kind: collector.XidEvent, Code: 79, UUID: s.GPUs[6].UUID, Text: "pid='<unknown>', GPU has fallen off the bus."},
	}
	full := finding(rules.IDSaturatedGPU, 4, "gpu_bound", rules.Ticket, detect.Firing, 9*time.Minute, detect.Evidence{
		Seen: "GPU 90 % busy for 9 min, CPU 11 %; 38 requests wait, queue time p95 4.1 s", Expected: "queue time p95 below its usual 0.3 s",
		Observed: 4.1, Want: &want, Confidence: detect.VerySure, Why: "p = 1e-6 over 9 min",
	})
	idle := finding(rules.IDIdleGPU, 5, "held", rules.Info, detect.Pending, 12*time.Minute, detect.Evidence{Seen: "idle for 12 min", Observed: 720, Confidence: detect.Likely})
	past := finding(rules.IDXid, 2, "xid_31", rules.Ticket, detect.Resolved, 3*time.Hour, detect.Evidence{Seen: "Xid 31", Observed: 1, Confidence: detect.Certain})
	past.Resolved = now.Add(-2 * time.Hour)
	fault := finding(rules.IDXid, 1, "xid_13", rules.Info, detect.Firing, 4*time.Minute, detect.Evidence{
		Seen: "Xid 13: the application used an illegal instruction", Observed: 1, Confidence: detect.Certain, Why: "reported by the driver",
		Action: "Tell the application's owner.",
	})
	return &detect.View{
		Time: now, Findings: []detect.Finding{lost, full, idle, past, fault},
		Standings: []detect.Standing{
			{Rule: rules.IDXid, Fired: 3},
			{Rule: rules.IDMemoryLeak, Statistical: true, Promoted: true, Fired: 1, Need: 2.2, NeedPage: 4.5, CleanWeeks: 12, ProofWeeks: 33},
		},
		Incidents:      []detect.Incident{{ID: "1", Rule: rules.IDXid, Cause: "xid_79", Severity: rules.Page, State: detect.Firing, Opened: lost.Since, Members: []detect.Finding{lost}}},
		Conditions:     []detect.Condition{{Rule: rules.IDSaturatedGPU, Subject: full.Subject, Active: true}, {Rule: rules.IDSaturatedGPU, Subject: idle.Subject}},
		VersionChanges: map[string]uint64{"driver": 2},
		Verdicts:       verdicts(s),
	}
}

// verdicts gives each GPU another one.
func verdicts(s *collector.Snapshot) (all []detect.Verdict) {
	for i := range s.GPUs {
		v := detect.Verdict{GPU: s.GPUs[i].UUID, Index: s.GPUs[i].Index, Name: detect.VerdictNames[i], Since: s.Time.Add(-time.Hour),
			Evidence: "GPU 98 % busy, 560 of 700 W", Confidence: detect.VerySure}
		if !s.GPUs[i].Present {
			v.Name, v.Evidence, v.Confidence = detect.VerdictUnknown, "the driver does not answer for it", detect.Certain
		}
		if len(s.GPUs[i].Owners) > 0 {
			v.Owner = s.GPUs[i].Owners[0]
		}
		all = append(all, v)
	}
	return all
}

// lastHour draws a load that comes and goes, with a hole in it, on GPU 5 an end, and
// on GPU 6 what was before it fell off the bus.
func lastHour(now time.Time) func(detect.Subject) []detect.History {
	return func(of detect.Subject) []detect.History {
		gpu := float64(of.ID[len(of.ID)-1] - '0')
		util, power := detect.History{Reading: metric.Utilization}, detect.History{Reading: metric.PowerDraw}
		for m := range 59 {
			if gpu == 2 && m > 20 && m < 26 || gpu == 6 && m > 53 {
				continue
			}
			at := now.Add(time.Duration(m-59) * time.Minute)
			x := float64(m) + 13*gpu
			mean := math.Round(100*(0.82+0.1*math.Sin(x/3)+0.06*math.Sin(x*1.7))) / 100
			low := mean - 0.1
			if int(x)%19 == 0 {
				low = 0.3 // a checkpoint
			}
			if gpu == 5 && m > 46 {
				mean, low = 0.01, 0
			}
			util.Points = append(util.Points, detect.Point{Time: at, Min: low, Mean: mean, Max: min(mean+0.06, 1)})
			power.Points = append(power.Points, detect.Point{Time: at, Min: 110 + 500*low, Mean: 110 + 570*mean, Max: 115 + 590*mean})
		}
		return []detect.History{util, power}
	}
}
