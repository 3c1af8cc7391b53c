package e2e

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector/scrape"
	"gpuvigil/internal/metric"
)

var (
	scale     = flag.Duration("scale", 0, "how long TestScale watches each fleet; `make scale` takes 150 s")
	scaleGPUs = flag.String("scale-gpus", "100,1000,10000", "GPUs of the fleets of TestScale")
	scaleWay  = flag.String("scale-way", "receive,query", "how they come to the role")
)

const (
	scaleSeries = 60      // of each GPU
	scaleMemory = 3 << 30 // bytes that the largest fleet may take
)

// sixty are the names of as many metrics: those that mean something, and others that are
// understood.
func sixty() []string {
	names := slices.Clone(meaningful)
	for _, n := range scrape.NewNames().OfGPUs() {
		if len(names) < scaleSeries && strings.HasPrefix(n, "DCGM_FI_") && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}

// TestScale measures what the role costs on one processor for fleets of several sizes, from
// remote write at 15 s and by queries at 30 s. It takes the real time that it is told to take,
// and so only runs when it is told to.
func TestScale(t *testing.T) {
	if *scale <= 0 {
		t.Skip("only with -scale: it measures, and takes its time")
	}
	for _, way := range strings.Split(*scaleWay, ",") {
		for _, n := range strings.Split(*scaleGPUs, ",") {
			gpus, err := strconv.Atoi(n)
			if err != nil {
				t.Fatal(err)
			}
			t.Run(way+"/"+n, func(t *testing.T) { measureScale(t, way, gpus) })
		}
	}
}

func measureScale(t *testing.T, way string, gpus int) {
	fleet := generated{nodes: (gpus + 7) / 8, names: sixty(), value: busy}
	env := []string{"GOMAXPROCS=1", fmt.Sprintf("GOMEMLIMIT=%d", scaleMemory*8/10)}
	interval := 15 * time.Second
	config := "fleet: {receive: {enabled: true, grace: 5s}}\n"
	if way == "query" {
		interval = 30 * time.Second
		config = "fleet: {prometheus: {url: '" + startStandIn(t, &fleet, 15*time.Second) + "', timeout: 1m, warm_start: 0s}}\n"
	}
	role, err := launchAgent(options{command: "fleet", file: fleetFile(t, config), state: shortDir(t) + "/state", env: env})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		role.end()
		if t.Failed() {
			t.Logf("the role's log:\n%s", role.log)
		}
	}()
	stop := make(chan struct{})
	sender := make(chan error, 1)
	if way == "receive" {
		go func() { sender <- keepSending(&fleet, "http://"+role.address+"/api/v1/write", stop) }()
	} else {
		sender <- nil
	}
	looks := func() float64 {
		n, err := role.number(metric.FleetLooks.Name)
		if err != nil {
			return 0 // the page may wait for the processor
		}
		return n
	}
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(time.Second) {
		n, err := role.number(metric.FleetGPUs.Name)
		if err == nil && int(n) == fleet.nodes*8 && looks() >= 3 {
			break
		}
		if time.Now().After(deadline) || role.gone() {
			t.Fatalf("the role knows %v of %d GPUs, %v", n, fleet.nodes*8, err)
		}
	}
	began, from, before := processorOf(t, role.server), looks(), time.Now()
	time.Sleep(*scale)
	used, took, looked := processorOf(t, role.server)-began, time.Since(before), looks()-from
	close(stop)
	if err := <-sender; err != nil {
		t.Errorf("the samples are not all taken: %v", err)
	}
	peak := peakOf(t, role.server)
	series := float64(fleet.nodes * 8 * scaleSeries)
	samples := series * looked * interval.Seconds() / 15
	share := used.Seconds() / (looked * interval.Seconds())
	t.Logf("%s: %d GPUs, %d series each 15 s: %.0f looks in %v, %.1f%% of a processor, %.2f µs a sample, %.1f µs a GPU and look, %.0f MiB at most, %.0f KiB a GPU",
		way, fleet.nodes*8, fleet.nodes*8*scaleSeries, looked, took.Round(time.Second), 100*share, used.Seconds()*1e6/samples, used.Seconds()*1e6/(looked*float64(fleet.nodes*8)),
		float64(peak)/(1<<20), float64(peak)/(1<<10)/float64(fleet.nodes*8))
	if share > 1 {
		t.Errorf("the role takes %.2f processors for %d GPUs, want one at most", share, fleet.nodes*8)
	}
	if peak > scaleMemory {
		t.Errorf("the role takes %d MiB for %d GPUs, want 3 GiB at most", peak>>20, fleet.nodes*8)
	}
}

// keepSending sends the fleet each 15 s until it is told to stop.
func keepSending(fleet *generated, url string, stop <-chan struct{}) error {
	next := time.Now().Truncate(15 * time.Second)
	for {
		at := next
		if err := fleet.requests(at, func(body []byte) error {
			for tries := 0; ; tries++ {
				err := post(url, body)
				if err == nil || tries > 20 || !strings.Contains(err.Error(), "503") {
					return err
				}
				time.Sleep(200 * time.Millisecond)
			}
		}); err != nil {
			return err
		}
		for next = next.Add(15 * time.Second); time.Until(next) < -15*time.Second; next = next.Add(15 * time.Second) {
		}
		select {
		case <-stop:
			return nil
		case <-time.After(time.Until(next)):
		}
	}
}

// processorOf is the processor time of a process so far.
func processorOf(t *testing.T, s *server) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100 on Linux
}

// peakOf is the most memory that a process has held, in bytes.
func peakOf(t *testing.T, s *server) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatal("the kernel does not say how much memory the process has held")
	return 0
}
