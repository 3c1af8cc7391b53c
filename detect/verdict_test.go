package detect

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// scene is what a test makes of a node: GPUs that do the same for one owner, and their
// host. Ratios that are NaN are not told.
type scene struct {
	gpus                         int
	owner                        collector.Owner
	process                      string // none if empty
	util, sm, tensor, dram       float64
	codec, watts, limit, clock   float64
	board                        float64 // the board's own limit
	nvlink, pcie                 float64 // bytes a second, each way
	cpu, core, io                float64
	read, remote, write          float64 // of the workload, bytes a second
	held, loader                 float64
	blind                        bool // nothing is told of the workload
	running, waiting, kv         float64
	served                       bool
	also                         func(s *collector.Snapshot)
	now                          time.Time
	links, pcieSum               float64 // counters
	readSum, remoteSum, writeSum float64
	heldSum, ioSum               float64
}

var nan = math.NaN()

// atWork is a training at full power on eight GPUs with profiling metrics.
func atWork() scene {
	return scene{
		gpus: 8, owner: job, process: "python3", util: 0.99, sm: 0.88, tensor: 0.5, dram: 0.45, watts: 690, limit: 700, board: 700, clock: 1500e6,
		nvlink: 105e9, pcie: 5e8, cpu: 0.2, core: 0.5, io: 0.01, read: 1e6, remote: 0, write: 1e3, codec: nan, loader: nan, running: nan, waiting: nan, kv: nan,
	}
}

// apply makes the snapshot that of the scene.
func (c *scene) apply(s *collector.Snapshot) {
	*s = *node(s.Time, c.gpus)
	dt := 0.0
	if !c.now.IsZero() {
		dt = s.Time.Sub(c.now).Seconds()
	}
	c.now = s.Time
	c.links += c.nvlink * dt
	c.pcieSum += c.pcie * dt
	c.readSum += c.read * dt
	c.remoteSum += c.remote * dt
	c.writeSum += c.write * dt
	c.heldSum += c.held * dt
	c.ioSum += c.io * dt
	for i := range s.GPUs {
		c.dress(s, &s.GPUs[i])
	}
	s.Node.Set(metric.CPUBusy, c.cpu)
	s.Node.Set(metric.CPUBusiest, c.core)
	s.Node.SetAt(metric.PressureSome, pressureIO, c.ioSum)
	if c.owner.Kind != "" && !c.blind {
		w := collector.Workload{Owner: c.owner, Readings: collector.NewReadings(metric.Workload)}
		w.Stamp(metric.Slow, s.Time)
		w.SetAt(metric.WorkloadBlockBytes, readFrom, c.readSum)
		w.SetAt(metric.WorkloadBlockBytes, written, c.writeSum)
		w.SetAt(metric.WorkloadNetworkFileBytes, readFrom, c.remoteSum)
		w.SetAt(metric.WorkloadNetworkFileBytes, written, 0)
		w.SetAt(metric.WorkloadPressure, ofCgroupIO, c.ioSum)
		w.Set(metric.WorkloadCPUThrottled, c.heldSum)
		w.Set(metric.WorkloadLoaderWait, c.loader)
		s.Workloads = append(s.Workloads, w)
	}
	if c.served {
		var uuids []string
		for i := range s.GPUs {
			uuids = append(uuids, s.GPUs[i].UUID)
		}
		e := endpoint(s, uuids...)
		e.Set(metric.RequestsRunning, c.running)
		e.Set(metric.RequestsWaiting, c.waiting)
		e.Set(metric.KVCacheUsage, c.kv)
	}
	if c.also != nil {
		c.also(s)
	}
}

func (c *scene) dress(s *collector.Snapshot, g *collector.GPU) {
	if c.owner.Kind != "" {
		g.Owners = []collector.Owner{c.owner}
	}
	for d, v := range map[*metric.Def]float64{
		metric.Utilization: c.util, metric.SMActivity: c.sm, metric.TensorActivity: c.tensor, metric.DRAMActivity: c.dram,
		metric.DecoderUtilization: c.codec, metric.PowerDraw: c.watts, metric.PowerLimit: c.limit, metric.PowerDefaultLimit: c.board,
		metric.NVLinks: 18, metric.NVLinksUp: 18, metric.PCIeGeneration: 5, metric.PCIeWidth: 16, metric.ProcessCount: 0,
	} {
		g.Set(d, v)
	}
	g.SetAt(metric.Clock, 1, c.clock)
	for i := range 2 {
		g.SetAt(metric.NVLinkBytes, i, c.links)
		g.SetAt(metric.PCIeBytes, i, c.pcieSum)
	}
	for i := range metric.ClockReason.Values {
		g.SetAt(metric.ClockEvent, i, 0)
	}
	if c.process != "" {
		g.Set(metric.ProcessCount, 1)
		s.Processes = append(s.Processes, collector.Process{PID: 100 + g.Index, Name: c.process, UUID: g.UUID, GPU: g.Index, Owner: c.owner})
	}
}

// play runs a scene for so long.
func (st *stage) play(c *scene, d time.Duration) {
	st.t.Helper()
	c.now = time.Time{}
	st.set = c.apply
	st.run(d)
}

// verdict returns GPU 0's.
func (st *stage) verdict() Verdict {
	st.t.Helper()
	v := st.e.View().Verdicts
	if len(v) == 0 {
		st.t.Fatal("there is no verdict")
	}
	return v[0]
}

// only plays a scene in which no other verdicts may show.
func (st *stage) only(c *scene, d time.Duration, allowed ...VerdictName) {
	st.t.Helper()
	c.now = time.Time{}
	st.set = c.apply
	for end := st.now.Add(d); st.now.Before(end); {
		st.run(st.step)
		if v := st.verdict(); !slices.Contains(allowed, v.Name) {
			st.t.Fatalf("at %s the verdict is %s (%s) for a while, want only %v", st.now.Format(time.TimeOnly), v.Name, v.Evidence, allowed)
		}
	}
}

func (st *stage) mustBe(want VerdictName, words ...string) {
	st.t.Helper()
	v := st.verdict()
	if v.Name != want {
		st.t.Errorf("at %s the verdict is %s (%s), want %s", st.now.Format(time.TimeOnly), v.Name, v.Evidence, want)
	}
	for _, w := range words {
		if !strings.Contains(v.Evidence, w) {
			st.t.Errorf("%s: the evidence lacks %q: %s", v.Name, w, v.Evidence)
		}
	}
}

// Each verdict is reached from a training at full power, and left for it again, at each
// pace of samples.
func TestVerdicts(t *testing.T) {
	change := func(f func(*scene)) scene {
		c := atWork()
		f(&c)
		return c
	}
	for name, c := range map[string]struct {
		scene scene
		want  VerdictName
		words []string
	}{
		"training at full power": {change(func(c *scene) {
			c.watts = 698
			c.also = func(s *collector.Snapshot) {
				for i := range s.GPUs {
					s.GPUs[i].SetAt(metric.ClockEvent, reasonCapped, 1)
				}
			}
		}), VerdictComputeBound, []string{"SMs 88 %", "698 of 700 W"}},
		"training without profiling metrics": {change(func(c *scene) { c.sm, c.tensor, c.dram = nan, nan, nan }), VerdictComputeBound, []string{"GPU 99 % busy"}},
		"decoding tokens":                    {change(func(c *scene) { c.sm, c.tensor, c.dram, c.watts = 0.9, 0.08, 0.78, 420 }), VerdictMemoryBound, []string{"memory bandwidth 78 %"}},
		"loader held back by its CPU quota":  {change(func(c *scene) { c.util, c.sm, c.tensor, c.watts, c.held = 0.4, 0.3, 0.1, 300, 2.5 }), VerdictCPUStarved, []string{"held back by its CPU quota 250 % of the time"}},
		"loader on a full CPU":               {change(func(c *scene) { c.util, c.sm, c.tensor, c.watts, c.cpu = 0.4, 0.3, 0.1, 300, 0.97 }), VerdictCPUStarved, []string{"CPU 97 %"}},
		"loader on one pegged core":          {change(func(c *scene) { c.util, c.sm, c.tensor, c.watts, c.core = 0.4, 0.3, 0.1, 300, 1 }), VerdictCPUStarved, []string{"busiest core 100 %"}},
		"loader on a slow disk":              {change(func(c *scene) { c.util, c.sm, c.tensor, c.watts, c.io, c.read = 0.4, 0.3, 0.1, 300, 0.6, 2e8 }), VerdictDiskStarved, []string{"200.0 MB/s"}},
		"loader on a slow NFS server":        {change(func(c *scene) { c.util, c.sm, c.tensor, c.watts, c.loader, c.remote = 0.4, 0.3, 0.1, 300, 0.5, 9e7 }), VerdictNetworkStarved, []string{"network file systems 90.0 MB/s"}},
		"loader that waits for nobody knows what": {change(func(c *scene) {
			c.util, c.sm, c.tensor, c.watts = 0.4, 0.3, 0.1, 300
			c.blind = true
		}), VerdictHostBound, []string{"the cause is not known", "does not see NFS, Lustre or FUSE"}},
		"endpoint without requests": {change(func(c *scene) {
			c.owner, c.util, c.sm, c.tensor, c.dram, c.watts, c.nvlink = pod, 0, 0, 0, 0, 118, 0
			c.served, c.running, c.waiting, c.kv = true, 0, 0, 0
		}), VerdictRequestStarved, []string{"0.0 requests inside"}},
		"tensor-parallel server without requests": {change(func(c *scene) {
			c.owner, c.util, c.sm, c.tensor, c.dram, c.watts, c.nvlink = pod, 1, 0.15, 0, 0.01, 134, 0
			c.served, c.running, c.waiting, c.kv = true, 0, 0, 0
		}), VerdictRequestStarved, nil},
		"endpoint with some requests": {change(func(c *scene) {
			c.owner, c.util, c.sm, c.tensor, c.dram, c.watts, c.nvlink = pod, 0.6, 0.4, 0.1, 0.3, 300, 0
			c.served, c.running, c.waiting, c.kv = true, 6, 0, 0.3
		}), VerdictHealthy, []string{"6.0 requests inside"}},
		"endpoint with a full KV cache": {change(func(c *scene) {
			c.owner, c.util, c.sm, c.tensor, c.dram, c.watts, c.nvlink = pod, 1, 0.9, 0.1, 0.7, 400, 0
			c.served, c.running, c.waiting, c.kv = true, 64, 38, 0.99
		}), VerdictVRAMBound, []string{"KV cache 99 %", "38.0 waiting"}},
		"slowed down by the power brake": {change(func(c *scene) { c.also = reason("hw_power_brake", 1) }), VerdictThrottledPower, []string{"hw_power_brake"}},
		"under a lowered limit": {change(func(c *scene) {
			c.limit, c.watts = 400, 396
			c.also = reason("sw_power_cap", 1)
		}), VerdictThrottledPower, []string{"its limit is 57 % of the board's"}},
		"hot":                         {change(func(c *scene) { c.also = reason("sw_thermal", 1) }), VerdictThrottledThermal, []string{"sw_thermal"}},
		"too hot for the hardware":    {change(func(c *scene) { c.also = reason("hw_thermal", 1) }), VerdictThrottledThermal, []string{"hw_thermal"}},
		"slowed down by the hardware": {change(func(c *scene) { c.also = reason("hw_slowdown", 1) }), VerdictThrottledHardware, []string{"hw_slowdown"}},
		"full links":                  {change(func(c *scene) { c.sm, c.tensor, c.dram, c.watts, c.nvlink = 0.35, 0.15, 0.25, 400, 200e9 }), VerdictCommunicationBound, []string{"NVLink 200.0 GB/s", "44 %"}},
		"rank that waits for others":  {change(func(c *scene) { c.util, c.sm, c.tensor, c.dram, c.watts, c.nvlink = 1, 0.2, 0.05, 0.05, 220, 20e9 }), VerdictCommunicationBound, nil},
		"transcoding":                 {change(func(c *scene) { c.util, c.sm, c.tensor, c.dram, c.watts, c.codec = 0.3, 0.1, 0, 0.1, 150, 0.99 }), VerdictEncoderBound, []string{"99 %"}},
		"offloading over PCIe":        {change(func(c *scene) { c.util, c.sm, c.tensor, c.dram, c.watts, c.pcie = 0.7, 0.3, 0.1, 0.2, 300, 52e9 }), VerdictPCIeBound, []string{"PCIe 52.0 GB/s"}},
		"notebook that computes a little": {change(func(c *scene) {
			c.owner, c.process, c.util, c.sm, c.tensor, c.watts = user, "ipykernel_launcher", 0.4, 0.3, 0.1, 300
		}), VerdictHealthy, nil},
		"context open and nothing to do": {change(func(c *scene) { c.util, c.sm, c.tensor, c.dram, c.watts, c.nvlink, c.owner = 0, 0, 0, 0, 118, 0, user }), VerdictIdleHeld, []string{"118 of 700 W"}},
		"given away without a process":   {change(func(c *scene) { c.util, c.sm, c.tensor, c.dram, c.watts, c.nvlink, c.process = 0, 0, 0, 0, 71, 0, "" }), VerdictHeldWithoutProcess, nil},
		"nobody's": {change(func(c *scene) {
			c.util, c.sm, c.tensor, c.dram, c.watts, c.nvlink, c.process = 0, 0, 0, 0, 71, 0, ""
			c.owner = collector.Owner{}
		}), VerdictFree, []string{"no process and no owner"}},
		"driver that does not answer": {change(func(c *scene) {
			c.also = func(s *collector.Snapshot) {
				for i := range s.GPUs {
					s.GPUs[i].Present = false
				}
			}
		}), VerdictUnknown, []string{"does not answer"}},
		"nobody told who has it": {change(func(c *scene) {
			c.util, c.sm, c.tensor, c.dram, c.watts, c.nvlink, c.process = 0, 0, 0, 0, 71, 0, ""
			c.owner = collector.Owner{}
			c.also = func(s *collector.Snapshot) {
				for i := range s.GPUs {
					s.GPUs[i].Set(metric.ProcessCount, nan)
				}
			}
		}), VerdictUnknown, []string{"not told who has it"}},
	} {
		for _, step := range []time.Duration{time.Second, 15 * time.Second, time.Minute} {
			t.Run(name+" at "+step.String(), func(t *testing.T) {
				st := newStage(t, DetectorConfig{}, step)
				work, scene := atWork(), c.scene
				st.play(&work, 8*time.Minute)
				st.mustBe(VerdictComputeBound)
				if step == time.Second {
					work.gpus, scene.gpus = 2, 2
				}
				st.only(&scene, 9*time.Minute, VerdictComputeBound, c.want)
				st.mustBe(c.want, c.words...)
				between := c.want
				if between == VerdictFree || between == VerdictHeldWithoutProcess {
					between = VerdictUnknown // from the moment at which a process opens it
				}
				st.only(&work, 9*time.Minute, VerdictComputeBound, c.want, between)
				st.mustBe(VerdictComputeBound)
				for _, in := range st.told {
					if in.Rule != rules.IDThrottledGPU && in.Rule != rules.IDIdleGPU && in.Rule != rules.IDGPULost {
						t.Errorf("told %s of %s: %s", in.State, in.Rule, in.Members[0].Evidence.Seen)
					}
				}
			})
		}
	}
}

// What the verdict says of a queue is of the last minutes, and once it is gone for minutes
// so is the verdict.
func TestVerdictEndsWithItsCondition(t *testing.T) {
	for _, step := range []time.Duration{time.Second, 15 * time.Second} {
		st := newStage(t, DetectorConfig{}, step)
		c := atWork()
		c.gpus, c.owner, c.util, c.sm, c.tensor, c.dram, c.watts, c.nvlink = 1, pod, 1, 0.5, 0.1, 0.5, 400, 0
		c.served, c.running, c.waiting, c.kv = true, 64, 24.9, 0.99
		st.play(&c, 20*time.Minute)
		st.mustBe(VerdictVRAMBound, "24.9 waiting", "over the last ")
		c.waiting, c.kv = 0, 0.5
		turn := 0
		c.also = func(s *collector.Snapshot) { // what comes instead does not stand still
			if turn++; turn*int(step)/int(40*time.Second)%2 == 0 {
				s.GPUs[0].Set(metric.DRAMActivity, 0.8)
			}
		}
		st.play(&c, 3*time.Minute)
		if v := st.verdict(); v.Name == VerdictVRAMBound && strings.Contains(v.Evidence, "24.9") {
			t.Errorf("three minutes after the queue emptied the evidence is still of before: %s", v.Evidence)
		}
		st.play(&c, 2*time.Minute)
		if v := st.verdict(); v.Name == VerdictVRAMBound {
			t.Errorf("five minutes after the KV cache emptied the verdict still is %s, %s: %s", v.Name, v.Confidence, v.Evidence)
		}
	}
}

// That nobody has a GPU open is a fact, which ends with the first process.
func TestCertainVerdictEndsWithItsFact(t *testing.T) {
	for name, owner := range map[string]collector.Owner{"free": {}, "held": job} {
		st := newStage(t, DetectorConfig{}, time.Second)
		c := atWork()
		c.gpus, c.owner, c.process = 1, owner, ""
		c.util, c.sm, c.tensor, c.dram, c.watts, c.nvlink = 0, 0, 0, 0, 71, 0
		st.play(&c, 20*time.Minute)
		if v := st.verdict().Name; v != VerdictFree && v != VerdictHeldWithoutProcess {
			t.Fatalf("%s: without a process the verdict is %s", name, v)
		}
		c.process, c.util, c.sm, c.watts = "sweep.py", 0.62, 0.5, 400
		st.play(&c, 2*judgeEvery)
		st.mustBe(VerdictUnknown, "a process has opened it")
		st.play(&c, 3*time.Minute)
		if v := st.verdict(); v.Name == VerdictUnknown || !strings.Contains(v.Evidence, "GPU 62 % busy") {
			t.Errorf("%s: three minutes after a process opened it the verdict is %s: %s", name, v.Name, v.Evidence)
		}
	}
}

// A GPU that is given away, or taken back, is so at once.
func TestVerdictFollowsTheOwner(t *testing.T) {
	st := newStage(t, DetectorConfig{}, time.Second)
	c := atWork()
	c.gpus, c.owner, c.process = 1, collector.Owner{}, ""
	c.util, c.sm, c.tensor, c.dram, c.watts, c.nvlink = 0, 0, 0, 0, 71, 0
	st.play(&c, 20*time.Minute)
	st.mustBe(VerdictFree)
	c.owner = job
	st.play(&c, judgeEvery)
	st.mustBe(VerdictHeldWithoutProcess)
	c.owner = collector.Owner{}
	st.play(&c, judgeEvery)
	st.mustBe(VerdictFree)
}

// What a GPU tells is not said to be missing: it has only just come back.
func TestUnknownSaysWhatIsMissing(t *testing.T) {
	st := newStage(t, DetectorConfig{}, time.Second)
	c := atWork()
	c.gpus = 1
	st.play(&c, 20*time.Minute)
	c.also = func(s *collector.Snapshot) {
		s.GPUs[0].Present, s.GPUs[0].Readings = false, collector.NewReadings(metric.GPU)
	}
	st.play(&c, 10*time.Minute)
	st.mustBe(VerdictUnknown, "does not answer")
	c.also, c.util, c.sm = nil, 0, nan
	st.play(&c, judgeEvery)
	st.mustBe(VerdictUnknown, "less than two minutes of readings since it answers again")
	c.util = nan
	st.play(&c, 10*time.Minute)
	st.mustBe(VerdictUnknown, "neither its utilization nor its SM activity is told")
}

// reason sets a clock event reason for a share of the snapshots.
func reason(name string, share float64) func(*collector.Snapshot) {
	due := 0.0
	return func(s *collector.Snapshot) {
		if due += share; due < 1 {
			return
		}
		due--
		for i := range s.GPUs {
			s.GPUs[i].SetAt(metric.ClockEvent, metric.ClockReason.Index(name), 1)
		}
	}
}
