package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuvigil/internal/metric"
)

// troubled is the past of two nodes, as two replicas of a Prometheus saw it, with all that a
// database can have of it: either replica was away for ten minutes, both for an hour, samples
// came out of order, both nodes were rebooted at once. Only one GPU was ever at fault.
type troubled struct {
	begin, fault time.Time
}

const troubledLength = 180 * time.Minute

// counters are those that begin anew with a reboot, with what they were before.
var counters = map[string]float64{"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 2, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": 1000, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 500}

// replica is one of the two, which scrapes at times of its own.
func (p troubled) replica(name string) *generated {
	reboot := p.begin.Add(150 * time.Minute)
	names := append([]string{"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"}, meaningful...)
	return &generated{nodes: 2, names: names, external: []string{"prometheus_replica", name},
		value: func(name string, node, gpu int, at time.Time) float64 {
			before, counts := counters[name]
			switch {
			case name == "DCGM_FI_DEV_XID_ERRORS" && node == 0 && gpu == 3 && !at.Before(p.fault):
				return 79
			case counts && at.Before(reboot):
				return before
			case counts:
				return 0
			case name == "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" && at.Before(reboot):
				return float64(at.Unix()-p.begin.Unix()+1e6) * 560e3
			case name == "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION":
				return float64(at.Unix()-reboot.Unix()) * 560e3
			}
			return busy(name, node, gpu, at)
		}}
}

// has reports whether the replica scraped at a time.
func (p troubled) has(name string, at time.Time) bool {
	in := func(from, to time.Duration) bool {
		since := at.Sub(p.begin)
		return since >= from*time.Minute && since < to*time.Minute
	}
	return !in(60, 120) && !in(150, 154) && !(name == "a" && in(20, 30)) && !(name == "b" && in(40, 50))
}

func (p troubled) write(t *testing.T, url string) {
	t.Helper()
	type scrape struct {
		of *generated
		at time.Time
	}
	var all []scrape
	a, b := p.replica("a"), p.replica("b")
	for at := p.begin; at.Before(p.begin.Add(troubledLength)); at = at.Add(15 * time.Second) {
		if p.has("a", at) {
			all = append(all, scrape{a, at})
		}
		if p.has("b", at) {
			all = append(all, scrape{b, at.Add(7 * time.Second)})
		}
	}
	for k := range all { // for ten minutes each scrape comes after the next of its replica
		if since := all[k].at.Sub(p.begin); since > 130*time.Minute && since < 140*time.Minute && k%4 < 2 {
			all[k], all[k+2] = all[k+2], all[k]
		}
	}
	for _, s := range all {
		s.of.send(t, url, s.at)
	}
}

// engines are what the same must come out of.
func engines(t *testing.T) map[string]func(*testing.T) *engine {
	return map[string]func(*testing.T) *engine{
		"Prometheus": func(t *testing.T) *engine {
			return newPrometheus(t, "storage: {tsdb: {out_of_order_time_window: 1h}}\n")
		},
		"VictoriaMetrics": func(t *testing.T) *engine { return newVictoria(t) },
	}
}

// api is the URL of the engine's remote write.
func (e *engine) remoteWrite() string { return "http://" + e.address + "/api/v1/write" }

// flush makes a VictoriaMetrics show what it has taken, which it does by itself some seconds
// later.
func flush(t *testing.T, e *engine) {
	t.Helper()
	if err := answers("http://" + e.address + "/internal/force_flush"); err != nil {
		t.Fatal(err)
	}
}

// A past of which a database has what troubled it is replayed as what happened: no GPU is
// there twice, nothing is found where samples are missing, late or begin anew, and the one
// fault is found once.
func TestTroubledPast(t *testing.T) {
	t.Parallel()
	for name, make := range engines(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := make(t)
			e.start(t)
			begin := time.Now().Add(-troubledLength - 10*time.Minute).Truncate(time.Minute)
			p := troubled{begin: begin, fault: begin.Add(165 * time.Minute)}
			p.write(t, e.remoteWrite())
			if name == "VictoriaMetrics" {
				flush(t, e)
			}
			out := filepath.Join(t.TempDir(), "out.json")
			code, said := runs(t, nil, binary, "backtest", "--prometheus.url=http://"+e.address, "--step=30s", "--json="+out,
				fmt.Sprintf("--from=%d", begin.Unix()), fmt.Sprintf("--to=%d", begin.Add(troubledLength).Unix()))
			if code != 0 {
				t.Fatalf("it ends with %d:\n%s", code, said)
			}
			content, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				Incidents []struct{ Rule, Node, Subject, Severity, Time, Cause string }
				History   struct{ GPUs int }
			}
			if err := json.Unmarshal(content, &got); err != nil {
				t.Fatal(err)
			}
			if got.History.GPUs != 16 {
				t.Errorf("it sees %d GPUs, there are 16", got.History.GPUs)
			}
			if len(got.Incidents) != 1 || got.Incidents[0].Rule != "xid" || got.Incidents[0].Node != generatedNode(0) {
				t.Errorf("it tells %+v, want the Xid alone\n%s", got.Incidents, said)
			}
		})
	}
}

// A VictoriaMetrics that a pair of replicas writes to is read as a Prometheus is, and when it
// is started anew.
func TestFleetReadsVictoriaMetrics(t *testing.T) {
	t.Parallel()
	e := newVictoria(t)
	e.start(t)
	fleet := newFaulty(2)
	other := fleet.generated
	fleet.external, other.external = []string{"prometheus_replica", "a"}, []string{"prometheus_replica", "b"}
	feedEngine(t, e, &fleet.generated, &other)
	role := startFleet(t, "fleet: {prometheus: {url: 'http://"+e.address+"', interval: 5s, timeout: 5s, warm_start: 0s}}\n", "127.0.0.1:0")
	knows := func() error {
		n, err := role.number(metric.FleetGPUs.Name)
		if err == nil && n != 16 {
			err = fmt.Errorf("it knows %v GPUs, there are 16", n)
		}
		twice, err2 := role.number(metric.FleetStrangers.Name)
		if err2 == nil && twice != 0 {
			err2 = fmt.Errorf("GPUs were found in two nodes %v times", twice)
		}
		return errors.Join(err, err2)
	}
	eventually(t, "the role knows the GPUs of a pair of replicas once", knows)
	e.end()
	eventually(t, "the role says that the engine is gone", func() error { return shows("http://"+role.address+"/metrics", "vigil_promql_up 0\n") })
	e.start(t)
	eventually(t, "the role reads it again", func() error { return shows("http://"+role.address+"/metrics", "vigil_promql_up 1\n") })
	fleet.fall(0, 79)
	eventually(t, "the role finds the fault", func() error {
		return shows("http://"+role.address+"/metrics", `vigil_fleet_finding{node="`+generatedNode(0)+`",rule="xid",severity="page",`)
	})
	if page, err := role.get("/metrics"); err != nil || strings.Count(page, metric.FleetFinding.Name+"{") != 1 {
		t.Errorf("%v, there are other findings:\n%s", err, strings.Join(grep(page, metric.FleetFinding.Name), "\n"))
	}
	if err := knows(); err != nil {
		t.Error(err)
	}
}

// feedEngine sends fleets' samples each second until the test ends, while the engine runs.
func feedEngine(t *testing.T, e *engine, fleets ...*generated) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			for _, f := range fleets {
				if err := f.requests(time.Now(), func(body []byte) error { return post(e.remoteWrite(), body) }); err != nil {
					t.Logf("the engine does not take samples: %v", err)
				}
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
	})
}

// A role that starts knows what a server has of the last hours: what is at fault since before
// the start is told with its beginning.
func TestFleetStartsWithThePast(t *testing.T) {
	t.Parallel()
	e := newVictoria(t)
	e.start(t)
	begin := time.Now().Add(-troubledLength).Truncate(time.Minute)
	p := troubled{begin: begin, fault: begin.Add(172 * time.Minute)} // a finding of an Xid ends after a quarter of an hour
	p.write(t, e.remoteWrite())
	flush(t, e)
	a, b := p.replica("a"), p.replica("b")
	feedEngine(t, e, a, b)
	role := startFleet(t, "fleet: {prometheus: {url: 'http://"+e.address+"', interval: 5s, timeout: 5s, warm_start: 3h}}\n", "127.0.0.1:0")
	eventually(t, "the role has the fault with its beginning", func() error {
		type finding struct {
			Node, Rule, State string
			Since             time.Time
		}
		var got struct{ Findings []finding }
		if err := asks("http://"+role.address+"/api/v1/findings", &got); err != nil {
			return err
		}
		all := fmt.Sprintf("%+v", got.Findings)
		got.Findings = slices.DeleteFunc(got.Findings, func(f finding) bool { return f.State == "resolved" }) // the nodes were silent for an hour
		if len(got.Findings) != 1 || got.Findings[0].Rule != "xid" || got.Findings[0].State != "firing" {
			return fmt.Errorf("it has %s, want the Xid alone to be so still", all)
		}
		if off := got.Findings[0].Since.Sub(p.fault).Abs(); off > 2*time.Minute {
			return fmt.Errorf("it is taken to have begun at %v, it did at %v", got.Findings[0].Since, p.fault)
		}
		if n, err := role.number(metric.FleetLooks.Name); err != nil || n < 3 {
			return fmt.Errorf("the role has looked %v times at the present, %v", n, err)
		}
		return nil
	})
}
