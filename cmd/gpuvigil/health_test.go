package main

import (
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/scrape"
	"gpuvigil/detect"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/server"
	"gpuvigil/rules"
)

// fakeAgent answers on an agent's socket with a node of two GPUs, and returns the
// state directory.
func fakeAgent(t *testing.T, change func(*collector.Snapshot, *detect.View)) string {
	t.Helper()
	now := time.Now()
	s := &collector.Snapshot{
		Time: now, Node: collector.Node{Name: "gpu-01", Readings: collector.NewReadings(metric.Node)},
		Sources: []collector.SourceState{
			{Name: "nvml", Interval: time.Minute, Last: now, Expected: true},
			{Name: "inference", Interval: time.Minute, Err: "connection refused", Expected: true},
		},
	}
	for i := range 2 {
		g := collector.GPU{Index: i, UUID: "GPU-" + string(rune('a'+i)), Present: true, Readings: collector.NewReadings(metric.GPU)}
		g.Set(metric.GPUPresent, 1)
		s.GPUs = append(s.GPUs, g)
	}
	v := &detect.View{Time: now}
	change(s, v)
	dir := t.TempDir()
	socket, err := server.ListenSocket(t.Context(), filepath.Join(dir, socketName))
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, socket, server.New(server.Config{
		Snapshot: func() *collector.Snapshot { return s }, View: func() *detect.View { return v }, Log: slog.New(slog.DiscardHandler),
	}).SocketHandler())
	return dir
}

func serveOn(t *testing.T, socket net.Listener, h http.Handler) {
	t.Helper()
	agent := &http.Server{Handler: h}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = agent.Serve(socket) // returns when the test closes it
	}()
	t.Cleanup(func() {
		if err := agent.Close(); err != nil {
			t.Error(err)
		}
		<-ended
	})
}

func fires(rule rules.ID, severity rules.Severity, title string) detect.Finding {
	return detect.Finding{Rule: rule, Subject: detect.Subject{Kind: "gpu", ID: "GPU-b"}, Cause: "a_cause", Severity: severity, State: detect.Firing,
		Node: "gpu-01", GPUIndex: 1, Evidence: detect.Evidence{Title: title}}
}

// givenAway passes a GPU on to a virtual machine.
func givenAway(s *collector.Snapshot, _ *detect.View) {
	s.GPUs[1].Present, s.GPUs[1].Bound = false, "vfio-pci"
	s.GPUs[1].Set(metric.GPUPresent, 0)
}

// without takes the driver and what it told away.
func without(s *collector.Snapshot) {
	s.GPUs = nil
	s.Sources[0].Err, s.Sources[0].Last, s.Sources[0].Expected = "no NVIDIA driver: not on this machine", time.Time{}, false
}

// onPage has the GPUs come from an exporter's page.
func onPage(s *collector.Snapshot) {
	s.Sources[0].Name = scrape.GPUSource
	s.Pages = []collector.Page{{Source: scrape.GPUSource, URL: "http://127.0.0.1:9400/metrics", Exporter: scrape.DCGM, Names: "until 4.8", Utilization: "percent", GPUs: true}}
}

// onBus says how many GPUs each driver has, in the order of metric.PCIDriver.
func onBus(s *collector.Snapshot, by ...float64) {
	for i, n := range by {
		s.Node.SetAt(metric.PCIGPUs, i, n)
	}
}

func TestHealth(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*collector.Snapshot, *detect.View)
		args   []string
		code   int
		line   string
	}{
		"well": {func(*collector.Snapshot, *detect.View) {}, nil, 0, "OK  2 GPUs\n"},
		"lost": {func(s *collector.Snapshot, _ *detect.View) {
			s.GPUs[1].Present = false
			s.GPUs[1].Set(metric.GPUPresent, 0)
		}, nil, 1, "PROBLEM  GPU 1 is lost\n"},
		"given to a virtual machine":             {givenAway, nil, 0, "OK  1 GPUs\n"},
		"given to a virtual machine, and missed": {givenAway, []string{"--gpus=2"}, 1, "PROBLEM  1 of 2 GPUs answer\n"},
		"hung":                                   {func(s *collector.Snapshot, _ *detect.View) { s.GPUs[0].Hung = true }, nil, 1, "PROBLEM  GPU 0 hangs\n"},
		"fewer":                                  {func(*collector.Snapshot, *detect.View) {}, []string{"--gpus=8"}, 1, "PROBLEM  2 of 8 GPUs answer\n"},
		"lost before the agent": {func(s *collector.Snapshot, _ *detect.View) {
			s.Node.Set(metric.GPUsSeen, 3)
		}, nil, 1, "PROBLEM  2 of 3 GPUs answer\n"},
		"not on the exporter's page": {func(s *collector.Snapshot, _ *detect.View) {
			onPage(s)
			s.GPUs[1].Present = false
			s.GPUs[1].Set(metric.GPUPresent, 0)
		}, nil, 1, "PROBLEM  GPU 1 is not on the page of dcgm-exporter any more\n"},
		"well, by the exporter's page": {func(s *collector.Snapshot, _ *detect.View) { onPage(s); onBus(s, 2) }, nil, 0, "OK  2 GPUs\n"},
		"the exporter's page is gone": {func(s *collector.Snapshot, _ *detect.View) {
			onPage(s)
			s.Pages = nil
			s.Sources[0].Err, s.Sources[0].Last = "read the GPUs from the page http://127.0.0.1:9400/metrics: connection refused", time.Time{}
			for i := range s.GPUs {
				s.GPUs[i].Readings = collector.NewReadings(metric.GPU)
			}
		}, nil, 2, "UNKNOWN  source gpu_exporter does not see: read the GPUs from the page http://127.0.0.1:9400/metrics: connection refused\n"},
		"page": {func(_ *collector.Snapshot, v *detect.View) {
			v.Findings = []detect.Finding{fires(rules.IDXid, rules.Page, "The power management unit halted (Xid 62)")}
		}, nil, 1, "PROBLEM  The power management unit halted (Xid 62) on gpu-01/1\n"},
		"lost, and found to be": {func(s *collector.Snapshot, v *detect.View) {
			s.GPUs[1].Present = false
			s.GPUs[1].Set(metric.GPUPresent, 0)
			v.Findings = []detect.Finding{fires(rules.IDGPULost, rules.Page, "GPU lost")}
		}, nil, 1, "PROBLEM  GPU 1 is lost\n"},
		"found to be lost, and not asked for since": {func(s *collector.Snapshot, v *detect.View) {
			s.GPUs[1].Readings = collector.NewReadings(metric.GPU)
			v.Findings = []detect.Finding{fires(rules.IDGPULost, rules.Page, "GPU lost")}
		}, nil, 1, "PROBLEM  GPU lost on gpu-01/1\n"},
		"all lost at once": {func(s *collector.Snapshot, v *detect.View) {
			for i := range s.GPUs {
				s.GPUs[i].Present = false
				s.GPUs[i].Set(metric.GPUPresent, 0)
			}
			v.Findings = []detect.Finding{fires(rules.IDSuspectMonitor, rules.Page, "No GPU of the node answers")}
		}, nil, 1, "PROBLEM  GPU 0 is lost; GPU 1 is lost\n"},
		"the work on it": {func(_ *collector.Snapshot, v *detect.View) {
			over := fires(rules.IDXid, rules.Page, "over")
			over.State = detect.Resolved
			v.Findings = []detect.Finding{fires(rules.IDXid, rules.Info, "an application's error"), fires(rules.IDIdleGPU, rules.Ticket, "idle"), over}
		}, nil, 0, "OK  2 GPUs\n"},
		"blind": {func(s *collector.Snapshot, _ *detect.View) {
			s.Sources[0].Err, s.Sources[0].Last = "driver/library version mismatch", time.Time{}
		}, nil, 2, "UNKNOWN  source nvml does not see: driver/library version mismatch\n"},
		"blind, and lost before": {func(s *collector.Snapshot, v *detect.View) {
			s.Sources[0].Err = "timeout"
			v.Findings = []detect.Finding{fires(rules.IDXid, rules.Page, "The GPU has fallen off the bus (Xid 79)")}
		}, nil, 1, "PROBLEM  The GPU has fallen off the bus (Xid 79) on gpu-01/1\n"},
		"nobody has asked": {func(s *collector.Snapshot, _ *detect.View) {
			s.GPUs[0].Readings = collector.NewReadings(metric.GPU)
		}, nil, 2, "UNKNOWN  GPU 0 has not been asked for\n"},
		"old":     {func(s *collector.Snapshot, _ *detect.View) { s.Time = s.Time.Add(-10 * time.Minute) }, nil, 2, "UNKNOWN  what the agent knows is 10 min old\n"},
		"old, ok": {func(s *collector.Snapshot, _ *detect.View) { s.Time = s.Time.Add(-10 * time.Minute) }, []string{"--max-age=1h"}, 0, "OK  2 GPUs\n"},
		"no driver, no GPU": {func(s *collector.Snapshot, _ *detect.View) {
			without(s)
			onBus(s, 0, 0, 0, 0)
		}, nil, 0, "OK  no GPU was ever seen here, and the PCI bus has none\n"},
		"no driver, and it is unknown what is on the bus": {func(s *collector.Snapshot, _ *detect.View) { without(s) }, nil, 0, "OK  no GPU was ever seen here\n"},
		"no driver, but GPUs": {func(s *collector.Snapshot, _ *detect.View) {
			without(s)
			onBus(s, 0, 0, 1, 7)
		}, nil, 1, "PROBLEM  8 NVIDIA GPUs are on the PCI bus and no driver answers for them\n"},
		"no driver, but GPUs that no job needs": {func(s *collector.Snapshot, _ *detect.View) {
			without(s)
			onBus(s, 0, 0, 0, 1)
		}, []string{"--gpus=0"}, 0, "OK  no GPU was ever seen here\n"},
		"no driver, and GPUs that are wanted": {func(s *collector.Snapshot, _ *detect.View) { without(s) }, []string{"--gpus=8"}, 1, "PROBLEM  0 of 8 GPUs answer\n"},
		"no driver, but GPUs for virtual machines": {func(s *collector.Snapshot, _ *detect.View) {
			without(s)
			onBus(s, 0, 4, 0, 0)
		}, nil, 0, "OK  no GPU for this host: 4 on the PCI bus are for virtual machines\n"},
		"no driver any more": {func(s *collector.Snapshot, _ *detect.View) {
			gpus := s.GPUs
			without(s)
			for _, g := range gpus {
				g.Present, g.Readings = false, collector.NewReadings(metric.GPU)
				s.GPUs = append(s.GPUs, g)
			}
		}, nil, 1, "PROBLEM  no driver answers any more for the 2 GPUs that were seen since the node booted\n"},
		"no driver since the boot": {func(s *collector.Snapshot, _ *detect.View) {
			without(s)
			s.GPUsBefore = 8
		}, nil, 1, "PROBLEM  no GPU is here, and before the node booted there were 8\n"},
		"no driver since the boot, as it should be": {func(s *collector.Snapshot, _ *detect.View) {
			without(s)
			s.GPUsBefore = 8
		}, []string{"--gpus=0"}, 0, "OK  no GPU was ever seen here\n"},
		"a driver that lists no GPU": {func(s *collector.Snapshot, _ *detect.View) {
			s.GPUs = nil
			onBus(s, 8, 0, 0, 0)
		}, nil, 1, "PROBLEM  8 NVIDIA GPUs are on the PCI bus and the driver lists none\n"},
		"a library without its kernel module": {func(s *collector.Snapshot, _ *detect.View) {
			s.GPUs, s.Sources[0].Err, s.Sources[0].Last = nil, "driver not loaded", time.Time{}
			onBus(s, 0, 0, 0, 8)
		}, nil, 1, "PROBLEM  8 NVIDIA GPUs are on the PCI bus and no driver answers for them\n"},
		"the driver is being asked": {func(s *collector.Snapshot, _ *detect.View) {
			s.GPUs, s.Sources[0].Err, s.Sources[0].Last = nil, "the child starts", time.Time{}
			onBus(s, 8, 0, 0, 0)
		}, nil, 2, "UNKNOWN  source nvml does not see: the child starts\n"},
		"nobody watches the GPUs": {func(s *collector.Snapshot, _ *detect.View) {
			s.GPUs, s.Sources = nil, nil
			onBus(s, 2, 0, 0, 0)
		}, nil, 2, "UNKNOWN  2 NVIDIA GPUs are on the PCI bus and this agent does not watch them (nvml.enabled)\n"},
		"some of those on the bus": {func(s *collector.Snapshot, _ *detect.View) { onBus(s, 8, 0, 0, 0) }, nil, 0, "OK  2 GPUs, of 8 on the PCI bus\n"},
		"no GPU":                   {func(s *collector.Snapshot, _ *detect.View) { s.GPUs, s.Sources = nil, nil }, nil, 0, "OK  no GPU was ever seen here\n"},
		"text of others": {func(s *collector.Snapshot, _ *detect.View) {
			s.Sources[0].Err = "a\nb\x1b[2J"
		}, nil, 2, "UNKNOWN  source nvml does not see: a b [2J\n"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := gpuvigil(t, append([]string{"health", "--state.dir=" + fakeAgent(t, c.change)}, c.args...)...)
			if code != c.code || out != c.line || errs != "" {
				t.Errorf("exit %d and %q %q, want %d and %q", code, out, errs, c.code, c.line)
			}
		})
	}
}

// TestStatusMissesTheGPUs: without a driver that is expected there is no blind source
// and no finding, and yet all is not well where there were GPUs.
func TestStatusMissesTheGPUs(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*collector.Snapshot)
		args   []string
		code   int
		says   string
	}{
		"no driver any more": {func(s *collector.Snapshot) {
			gpus := s.GPUs
			without(s)
			s.GPUs = gpus
		}, nil, 3, "gpu-01  no driver answers any more for the 2 GPUs that were seen since the node booted\n"},
		"no driver, but GPUs": {func(s *collector.Snapshot) {
			without(s)
			onBus(s, 0, 0, 1, 7)
		}, nil, 3, "gpu-01  8 NVIDIA GPUs are on the PCI bus and no driver answers for them\n"},
		"no driver, no GPU": {func(s *collector.Snapshot) {
			without(s)
			onBus(s, 0, 0, 0, 0)
		}, nil, 0, "gpu-01  nothing is wrong\n"},
		"a node that is meant to have none": {func(s *collector.Snapshot) {
			without(s)
			onBus(s, 0, 0, 1, 7)
		}, []string{"--gpus=0"}, 0, "gpu-01  nothing is wrong\n"},
		"fewer than there must be": {func(*collector.Snapshot) {}, []string{"--gpus=8"}, 3, "gpu-01  2 of 8 GPUs answer\n"},
		"as many as there must be": {func(*collector.Snapshot) {}, []string{"--gpus=2"}, 0, "gpu-01  nothing is wrong\n"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, _ := gpuvigil(t, append([]string{"status", "--state.dir=" + fakeAgent(t, func(s *collector.Snapshot, _ *detect.View) {
				s.Sources = s.Sources[:1]
				c.change(s)
			})}, c.args...)...)
			if code != c.code || !strings.HasPrefix(out, c.says) {
				t.Errorf("exit %d and %q, want %d and %q first", code, out, c.code, c.says)
			}
		})
	}
}

func TestHealthWithoutAnAnswer(t *testing.T) {
	if code, out, _ := gpuvigil(t, "health", "--state.dir="+t.TempDir()); code != 2 || !strings.HasPrefix(out, "UNKNOWN  ") || strings.Count(out, "\n") != 1 {
		t.Errorf("without an agent: exit %d, %q, want 2 and why in one line", code, out)
	}
	dir := t.TempDir()
	socket, err := server.ListenSocket(t.Context(), filepath.Join(dir, socketName))
	if err != nil {
		t.Fatal(err)
	}
	silent := make(chan struct{})
	t.Cleanup(func() { close(silent) })
	serveOn(t, socket, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-silent:
		case <-r.Context().Done():
		}
	}))
	if code, out, _ := gpuvigil(t, "health", "--state.dir="+dir); code != 2 || out != "UNKNOWN  the agent has not answered within 900ms\n" {
		t.Errorf("an agent that hangs: exit %d, %q, want 2 and that it has not answered", code, out)
	}
}
