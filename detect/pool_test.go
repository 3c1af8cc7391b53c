package detect

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/rules"
)

// poolStage plays the nodes of some pools to a Pool, one minute a step.
type poolStage struct {
	t       *testing.T
	pool    *Pool
	now     time.Time
	step    time.Duration
	version map[string]string // of the driver, by node
	in      func(node string) string
	found   map[string]Observation // that hold, by subject and cause
	worst   rules.Severity
	ever    []string // what has held, as first seen
}

func newPoolStage(t *testing.T, nodes int, step time.Duration) *poolStage {
	p := &poolStage{t: t, pool: NewPool(PoolConfig{}), now: day, step: step, version: map[string]string{}, in: func(string) string { return "H100/692" }}
	for i := range nodes {
		p.version[nodeName(i)] = "570.86"
	}
	return p
}

func nodeName(i int) string { return fmt.Sprintf("gpu-%03d", i) }

// run plays so long; move says what changes at each step, by the share of the time.
func (p *poolStage) run(d time.Duration, move func(done float64)) {
	begin := p.now
	for end := p.now.Add(d); p.now.Before(end); {
		p.now = p.now.Add(p.step)
		move(p.now.Sub(begin).Seconds() / d.Seconds())
		for node, v := range p.version {
			p.pool.Add(PoolRow{node, p.in(node), "driver", v, p.now})
		}
		p.found = map[string]Observation{}
		p.pool.Judge(p.now, func(o Observation) {
			if !o.valid() {
				p.t.Fatalf("an observation that the engine would refuse: %+v", o)
			}
			if o.Score >= 1 {
				key := o.Subject.ID + " " + o.Cause
				if len(p.ever) == 0 || p.ever[len(p.ever)-1] != key {
					p.ever = append(p.ever, key)
				}
				p.found[key] = o
				p.worst = max(p.worst, o.Severity)
			}
		})
	}
}

// to brings the first share of n nodes to a version.
func (p *poolStage) to(version string, n int) func(float64) {
	return func(done float64) {
		for i := range int(float64(n) * min(done, 1)) {
			p.version[nodeName(i)] = version
		}
	}
}

func still(float64) {}

func (p *poolStage) silent(why string) {
	p.t.Helper()
	if len(p.ever) > 0 {
		p.t.Errorf("%s: found %v", why, p.ever)
	}
}

func (p *poolStage) one(subject, seen string) {
	p.t.Helper()
	o, ok := p.found[subject]
	if len(p.found) != 1 || !ok || !strings.Contains(o.Evidence.Seen, seen) {
		p.t.Errorf("found %+v, want only %s: …%s…", p.found, subject, seen)
	}
}

func TestRollOutThatMovesIsNoFinding(t *testing.T) {
	for _, step := range []time.Duration{time.Minute, 10 * time.Minute} {
		p := newPoolStage(t, 200, step)
		p.run(time.Hour, still)
		p.run(6*time.Hour, p.to("580.65", 200))
		p.run(6*time.Hour, still)
		p.silent("200 nodes that took a new driver over six hours")
		p.run(6*time.Hour, p.to("580.82", 200))
		p.silent("the next driver")
	}
}

func TestRollOutThatIsStuck(t *testing.T) {
	p := newPoolStage(t, 200, time.Minute)
	p.run(time.Hour, still)
	p.run(3*time.Hour, p.to("580.65", 90))
	p.run(119*time.Minute, still)
	p.silent("a roll-out that paused for less than two hours")
	p.run(2*time.Minute, still)
	p.one("H100/692/driver rollout_stuck", "570.86 on 110 nodes; 580.65 on 90 nodes (gpu-000, gpu-001, gpu-002, gpu-003 …); nothing has moved for 2 h")
	data, err := p.pool.Save()
	if err != nil {
		t.Fatal(err)
	}
	p.pool = NewPool(PoolConfig{})
	if err := p.pool.Restore(data); err != nil {
		t.Fatal(err)
	}
	p.run(time.Minute, still)
	p.one("H100/692/driver rollout_stuck", "nothing has moved for 2 h")
	p.run(time.Hour, p.to("580.65", 200))
	if len(p.found) > 0 {
		t.Errorf("once it went on, it is still told: %v", p.found)
	}
}

func TestRollOutThatIsTakenBack(t *testing.T) {
	p := newPoolStage(t, 200, time.Minute)
	p.run(time.Hour, still)
	p.run(3*time.Hour, p.to("580.65", 100))
	p.run(time.Hour, p.to("570.86", 100))
	p.run(5*time.Hour, still)
	p.silent("a roll-out that was taken back")
	for range 3 { // and now again and again
		p.run(time.Hour, p.to("580.65", 20))
		p.run(time.Hour, p.to("570.86", 20))
	}
	p.one("H100/692/driver rollout_flapping", "back and forth")
	p.run(25*time.Hour, still)
	if len(p.found) > 0 {
		t.Errorf("a day later it is still told: %v", p.found)
	}
}

func TestMinorityIsFoundWithinItsOwnPool(t *testing.T) {
	p := newPoolStage(t, 200, time.Minute)
	p.in = func(node string) string {
		if node >= "gpu-100" {
			return "A100/900"
		}
		return "H100/692"
	}
	for i := 100; i < 200; i++ {
		p.version[nodeName(i)] = "535.104"
	}
	p.run(3*time.Hour, still)
	p.silent("two pools of different models with different drivers")
	p.version["gpu-150"] = "535.86"
	p.run(90*time.Minute, still)
	p.silent("a node that took another driver an hour and a half ago")
	p.run(time.Hour, still)
	p.one("A100/900/driver rollout_stuck", "535.104 on 99 nodes; 535.86 on 1 node (gpu-150)")

	q := newPoolStage(t, 20, time.Minute)
	q.version["gpu-007"] = "535.86" // it was so before anybody looked
	q.run(3*time.Hour, still)
	q.one("H100/692/driver pool_minority", "570.86 on 19 nodes; 535.86 on 1 node (gpu-007); for 2 h")
	if q.worst != rules.Ticket {
		t.Errorf("a driver that differs is %s, want a ticket", q.worst)
	}
}

// Nodes that are off, and pools that are upgraded by new nodes.
func TestNodesThatComeAndGo(t *testing.T) {
	p := newPoolStage(t, 20, time.Minute)
	p.run(time.Hour, still)
	p.version["gpu-003"] = "535.86"
	p.run(time.Minute, still)
	delete(p.version, "gpu-003") // it is off now
	p.run(5*time.Hour, still)
	p.silent("the only node that differs is off")

	rng := rand.New(rand.NewPCG(1, 2))
	p = newPoolStage(t, 200, time.Minute)
	p.run(time.Hour, still)
	next := 200
	p.run(8*time.Hour, func(done float64) {
		for range 200 {
			old := nodeName(rng.IntN(200))
			if float64(next-200) < 200*done && p.version[old] == "570.86" {
				delete(p.version, old)
				p.version[nodeName(next)] = "580.65"
				next++
			}
		}
	})
	p.silent("a pool whose nodes were replaced one by one")
}

func TestFirmwareOfAPoolIsInformation(t *testing.T) {
	s := node(day, 2)
	s.GPUs[0].BoardPart, s.GPUs[1].BoardPart = "692", "692"
	s.Node.Versions = append(s.Node.Versions, collector.Version{Component: "vbios", Value: "96.00.74"})
	if rows := PoolRows(s); len(rows) != 2 || rows[1] != (PoolRow{"n1", "H100/692", "vbios", "96.00.74", day}) {
		t.Fatalf("a node with a driver, what comes with it, and a VBIOS gives %+v", rows)
	}
	pool := NewPool(PoolConfig{})
	worst, found := rules.Info, 0
	for m := range 150 {
		now := day.Add(time.Duration(m) * time.Minute)
		for i := range 10 {
			version := "96.00.74"
			if i == 4 {
				version = "96.00.99"
			}
			pool.Add(PoolRow{nodeName(i), "H100/692", "vbios", version, now})
		}
		pool.Judge(now, func(o Observation) {
			if o.Score >= 1 {
				found++
				worst = max(worst, o.Severity)
			}
		})
	}
	if found == 0 || worst != rules.Info {
		t.Errorf("a VBIOS that one of ten nodes has was found %d times, at worst as %s; want information", found, worst)
	}
	if got := PoolRows(&collector.Snapshot{}); got != nil {
		t.Errorf("a node without GPUs gives %v", got)
	}
}

func TestPoolIsBounded(t *testing.T) {
	pool := NewPool(PoolConfig{})
	for i := range mostPools + 10 {
		pool.Add(PoolRow{"n", fmt.Sprint("pool", i), "driver", "1", day})
	}
	pool.Add(PoolRow{"", "p", "driver", "1", day})
	if len(pool.groups) != mostPools || len(pool.order) != mostPools {
		t.Errorf("%d pools are kept, want %d", len(pool.groups), mostPools)
	}
	pool.Judge(day.Add(nodeForgotten+time.Hour), func(Observation) {})
	if len(pool.groups) != 0 || len(pool.order) != 0 {
		t.Errorf("%d pools are kept whose nodes have been gone for a week", len(pool.groups))
	}
	for _, bad := range []string{"", "{}", `{"version":9}`, `{"version":1,"groups":[null,{"nodes":[null]}]}`} {
		if err := pool.Restore([]byte(bad)); (err == nil) != strings.Contains(bad, "null") {
			t.Errorf("the memory %s gives %v", bad, err)
		}
	}
}
