package fleet

import (
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// agents is a cluster whose nodes have agents.
type agents struct {
	t      testing.TB
	role   *Fleet
	now    time.Time
	names  []string
	told   map[string][]collector.Told // by node
	driver map[string]string
	away   map[string]bool
	owner  map[string]collector.Owner
	edit   func(node string, s *collector.Snapshot)
	said   []detect.Incident
}

func clusterRole(t testing.TB, cfg Config) *Fleet {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return New(cfg)
}

func newAgents(t testing.TB, n int) *agents {
	a := &agents{t: t, role: clusterRole(t, Config{}), now: now, told: map[string][]collector.Told{}, driver: map[string]string{}, away: map[string]bool{}, owner: map[string]collector.Owner{}}
	for i := range n {
		a.names = append(a.names, fmt.Sprintf("gpu-%03d", i))
	}
	return a
}

func (a *agents) snapshots() []*collector.Snapshot {
	var out []*collector.Snapshot
	for _, name := range a.names {
		if a.away[name] {
			continue
		}
		s := &collector.Snapshot{Time: a.now, Node: collector.Node{Name: name, Readings: collector.NewReadings(metric.Node)}, Agent: &collector.Agent{Instance: name + ":9836", Findings: a.told[name]}}
		driver := a.driver[name]
		if driver == "" {
			driver = "580.82.07"
		}
		s.Node.Versions = []collector.Version{{Component: "driver", Value: driver}}
		for i := range 8 {
			g := collector.GPU{Index: i, UUID: fmt.Sprintf("GPU-%s-%d", name, i), Model: "NVIDIA H100", Present: true, Readings: collector.NewReadings(metric.GPU)}
			if o := a.owner[name]; o.Kind != "" {
				g.Owners = []collector.Owner{o}
			}
			s.GPUs = append(s.GPUs, g)
		}
		if a.edit != nil {
			a.edit(name, s)
		}
		out = append(out, s)
	}
	return out
}

func (a *agents) run(d time.Duration) {
	for end := a.now.Add(d); a.now.Before(end); {
		a.now = a.now.Add(30 * time.Second)
		a.said = append(a.said, a.role.Observe(a.now, a.snapshots())...)
	}
}

func (a *agents) says(node, rule, severity, subject, cause string) {
	a.told[node] = append(a.told[node], collector.Told{Rule: rule, Severity: severity, Subject: subject, Cause: cause, Since: a.now, Observed: 1, Expected: math.NaN(), Score: 1})
}

// open are the incidents that are open.
func (a *agents) open() []detect.Incident {
	var out []detect.Incident
	for _, in := range a.role.View().Incidents {
		if in.State == detect.Firing {
			out = append(out, in)
		}
	}
	return out
}

func (a *agents) only() detect.Incident {
	a.t.Helper()
	all := a.open()
	if len(all) != 1 {
		a.t.Fatalf("%d incidents are open, want one: %s", len(all), namesOf(all))
	}
	return all[0]
}

func namesOf(all []detect.Incident) string {
	var out []string
	for _, in := range all {
		out = append(out, fmt.Sprintf("%s/%s of %d on %s", in.Rule, in.Cause, len(in.Members), in.Members[0].Node))
	}
	return strings.Join(out, "; ")
}

// ids are the different incidents that people were told of.
func (a *agents) ids() map[string]bool {
	out := map[string]bool{}
	for _, in := range a.said {
		out[in.ID] = true
	}
	return out
}

// A driver that is rolled out over 200 nodes, one every half minute, is one incident and
// so one message, which grows.
func TestRollOutOver200NodesIsOneIncident(t *testing.T) {
	a := newAgents(t, 200)
	a.run(20 * time.Minute)
	for _, name := range a.names {
		a.driver[name] = "580.95.05"
		a.says(name, "version_changed", "info", "node:"+name, "driver")
		a.run(30 * time.Second)
	}
	a.run(5 * time.Minute)
	in := a.only()
	if len(a.ids()) != 1 || in.Nodes != 200 || len(in.Members) != 200 || in.Rule != rules.IDVersionChanged {
		t.Errorf("a roll-out over 200 nodes was told as %d incidents; the open one has %d findings on %d nodes", len(a.ids()), len(in.Members), in.Nodes)
	}
}

// A page of each of 200 agents in the same minute wakes nobody 200 times: one incident
// says that it is so, and that what they share is to be suspected.
func TestPageOfEachOf200AgentsIsOneIncident(t *testing.T) {
	a := newAgents(t, 200)
	a.run(20 * time.Minute)
	for i, name := range a.names {
		a.says(name, "gpu_lost", "page", fmt.Sprintf("gpu:GPU-%s-%d", name, i%8), "gone")
		a.says(name, "xid", "page", fmt.Sprintf("gpu:GPU-%s-%d", name, i%8), fmt.Sprintf("xid_%d", []int{79, 62, 119}[i%3]))
		if i == 10 {
			a.run(30 * time.Second) // the others are scraped a little later
		}
	}
	a.run(5 * time.Minute)
	in := a.only()
	if len(a.ids()) != 1 || in.Rule != rules.IDSuspectMonitor || in.Severity != rules.Page || in.Nodes != 200 {
		t.Errorf("told as %d incidents, the open one is %s of %d nodes", len(a.ids()), in.Rule, in.Nodes)
	}
	if said := in.Members[0].Evidence.Title; !strings.Contains(said, "200 of 200 nodes began to be at fault at once") {
		t.Errorf("the head of the incident says %q, want on how many nodes it began", said)
	}
	clear(a.told)
	a.run(15 * time.Minute)
	if left := a.open(); len(left) != 0 {
		t.Errorf("all is over, and %s still is open", namesOf(left))
	}
}

// What is there when the role is started is no news of it.
func TestFirstLookIsNoFlip(t *testing.T) {
	a := newAgents(t, 40)
	for _, name := range a.names {
		a.says(name, "pcie_link", "ticket", "gpu:GPU-"+name+"-0", "degraded")
	}
	a.run(5 * time.Minute)
	if in := a.only(); in.Rule != "pcie_link" || in.Nodes != 40 {
		t.Errorf("40 nodes with the same fault at the start are told as %s of %d nodes", in.Rule, in.Nodes)
	}
}

// Faults of their own stay apart; a chain on one GPU is one.
func TestFaultsOfNodesStayApart(t *testing.T) {
	a := newAgents(t, 100)
	a.run(20 * time.Minute)
	a.says("gpu-003", "xid", "page", "gpu:GPU-gpu-003-3", "xid_79")
	a.run(2 * time.Minute)
	a.says("gpu-003", "gpu_lost", "page", "gpu:GPU-gpu-003-3", "gone")
	a.says("gpu-007", "gpu_memory", "ticket", "gpu:GPU-gpu-007-1", "remap_failed")
	a.run(5 * time.Minute)
	if all := a.open(); len(all) != 2 || all[0].Rule != rules.IDXid || len(all[0].Members) != 2 {
		t.Errorf("open are %s, want the lost GPU with what follows from it, and the memory of another node", namesOf(all))
	}
}

// 63 of a job's 64 GPUs spin: its eight nodes say it each for itself, and one finding says
// it of the job, with the suspect.
func TestHungJobOverNodesIsOneFinding(t *testing.T) {
	a := newAgents(t, 10)
	job := collector.Owner{Kind: "job", ID: "slurm/4711", Team: "nlp"}
	for _, name := range a.names[:8] {
		a.owner[name] = job
	}
	a.edit = func(node string, s *collector.Snapshot) {
		for i := range s.GPUs {
			util, watts := 1.0, 150.0
			if node == "gpu-005" && i == 5 {
				util, watts = 0, 110
			}
			s.GPUs[i].Set(metric.Utilization, util)
			s.GPUs[i].Set(metric.PowerDraw, watts)
			s.GPUs[i].Set(metric.PowerLimit, 700)
		}
	}
	a.run(20 * time.Minute)
	a.says("gpu-000", "job_hung", "page", "job:slurm/4711", "collective")
	for _, name := range a.names[1:3] {
		a.says(name, "job_hung", "page", "job:slurm/4711", "collective")
	}
	// On three of eight nodes it may still be that GPUs wait for the others.
	a.edit = func(edit func(string, *collector.Snapshot)) func(string, *collector.Snapshot) {
		return func(node string, s *collector.Snapshot) {
			edit(node, s)
			if node > "gpu-002" && len(a.told[node]) == 0 {
				for i := range s.GPUs {
					s.GPUs[i].Set(metric.Utilization, 0.8)
					s.GPUs[i].Set(metric.PowerDraw, 600)
				}
			}
		}
	}(a.edit)
	a.run(5 * time.Minute)
	if all := a.open(); len(all) != 0 {
		t.Errorf("a job that hangs on 3 of its 8 nodes is told: %s", namesOf(all))
	}
	for _, name := range a.names[3:8] {
		a.says(name, "job_hung", "page", "job:slurm/4711", "collective")
	}
	a.run(5 * time.Minute)
	in := a.only()
	f := in.Members[0]
	if len(in.Members) != 1 || f.Rule != rules.IDJobHung || in.Severity != rules.Page || !strings.Contains(f.Evidence.Title, "63 of its 64 GPUs spin") ||
		!strings.Contains(f.Evidence.Seen, "suspect: gpu-005/5, 0 % utilization") || f.Node != "gpu-005" || f.Owner != job {
		t.Errorf("told as %d findings, the first: %s on %s: %s; %s", len(in.Members), f.Rule, f.Node, f.Evidence.Title, f.Evidence.Seen)
	}
}

// A GPU that falls off the bus stops its job on all nodes: one incident, with the GPU on
// top.
func TestLostGPUHeadsTheJobThatItStops(t *testing.T) {
	a := newAgents(t, 10)
	job := collector.Owner{Kind: "job", ID: "slurm/4711"}
	for _, name := range a.names[:8] {
		a.owner[name] = job
	}
	a.run(20 * time.Minute)
	a.says("gpu-005", "xid", "page", "gpu:GPU-gpu-005-5", "xid_79")
	a.run(6 * time.Minute)
	for _, name := range a.names[:8] {
		if name != "gpu-005" {
			a.says(name, "job_stalled", "page", "job:slurm/4711", "no_progress")
		}
	}
	a.says("gpu-005", "job_stalled", "page", "job:slurm/4711", "no_progress")
	a.run(5 * time.Minute)
	if in := a.only(); in.Rule != rules.IDXid || len(in.Members) != 2 || in.Members[1].Rule != rules.IDJobStalled {
		t.Errorf("open is %s, want the lost GPU with the job that it stopped", namesOf([]detect.Incident{in}))
	}
}

// What the nodes of an incident share, and others have not, is said.
func TestIncidentSaysWhatItsNodesShare(t *testing.T) {
	a := newAgents(t, 100)
	c := &Cluster{}
	for _, name := range a.names {
		c.Nodes = append(c.Nodes, Node{Name: name, Shared: []collector.Label{{Name: "rack", Value: "r" + name[4:6]}, {Name: "zone", Value: "z1"}}})
	}
	a.role = clusterRole(t, Config{Schedulers: []Scheduler{{Name: "x", Latest: func() *Cluster { return c }}}})
	a.run(20 * time.Minute)
	for _, name := range a.names[30:38] {
		a.says(name, "network_port", "ticket", "port:"+name+"/mlx5_0/1", "down")
	}
	a.run(2 * time.Minute)
	if in := a.only(); in.Nodes != 8 || in.Common != "rack r03 (8 of the 10 nodes with it)" {
		t.Errorf("an incident on %d nodes of one rack says that they share %q", in.Nodes, in.Common)
	}
}

// Nodes that nothing is heard of any more are told: one as a ticket, many as one page; one
// that nobody used not at all.
func TestSilentNodes(t *testing.T) {
	a := newAgents(t, 20)
	for _, name := range a.names[:19] {
		a.owner[name] = collector.Owner{Kind: "job", ID: "slurm/" + name}
	}
	a.run(20 * time.Minute)
	a.away["gpu-019"] = true
	a.run(30 * time.Minute)
	if all := a.open(); len(all) != 0 {
		t.Errorf("a node that nobody used was taken away, which is told: %s", namesOf(all))
	}
	a.away["gpu-004"] = true
	a.run(10 * time.Minute)
	if in := a.only(); in.Severity != rules.Ticket || in.Members[0].Subject.ID != "gpu-004" {
		t.Errorf("a node that is silent is told as %s of %s", in.Severity, in.Members[0].Subject)
	}
	for _, name := range a.names[5:15] {
		a.away[name] = true
	}
	a.run(10 * time.Minute)
	if all := a.open(); len(all) != 2 && len(all) != 1 || all[0].Severity != rules.Page || all[0].Members[0].Subject.Kind != "cluster" {
		t.Errorf("ten nodes of twenty are silent, told is %s", namesOf(all))
	}
}

// A role that is started again goes on where it stopped.
func TestRestartKeepsIncidents(t *testing.T) {
	a := newAgents(t, 50)
	a.run(20 * time.Minute)
	a.says("gpu-003", "xid", "page", "gpu:GPU-gpu-003-3", "xid_79")
	for _, name := range a.names {
		a.says(name, "version_changed", "info", "node:"+name, "driver")
	}
	a.run(5 * time.Minute)
	before := a.open()
	parts, _ := a.role.Save(a.now.Add(time.Minute))
	a.role = clusterRole(t, Config{})
	for part, data := range parts {
		if err := a.role.Restore(part, data); err != nil {
			t.Fatalf("restore %s: %v", part, err)
		}
	}
	a.said = nil
	a.now = a.now.Add(3 * time.Minute)
	a.run(10 * time.Minute)
	if len(a.said) > 0 {
		t.Errorf("after a restart people are told again of %s", namesOf(a.said))
	}
	ids := func(all []detect.Incident) (out []string) {
		for _, in := range all {
			out = append(out, in.ID)
		}
		return out
	}
	if diff := cmp.Diff(ids(before), ids(a.open())); diff != "" {
		t.Errorf("the open incidents are others after a restart (-before +after):\n%s", diff)
	}
	clear(a.told)
	a.run(5 * time.Minute)
	if left := a.open(); len(left) > 0 {
		t.Errorf("what is over stays open after a restart: %s", namesOf(left))
	}
	if err := a.role.Restore(gatherPart, []byte("{")); err == nil {
		t.Error("a damaged part is taken up")
	}
}

// A second replica that sees the same calls an incident the same, and so does one that has
// lost its state.
func TestReplicasCallIncidentsTheSame(t *testing.T) {
	ids := func(offset time.Duration) map[string]bool {
		a := newAgents(t, 30)
		a.run(20 * time.Minute)
		at := a.now
		a.now = a.now.Add(offset)
		a.told["gpu-003"] = []collector.Told{{Rule: "xid", Severity: "page", Subject: "gpu:GPU-gpu-003-3", Cause: "xid_79", Since: at, Score: 1}}
		a.run(2 * time.Minute)
		return a.ids()
	}
	if diff := cmp.Diff(ids(0), ids(13*time.Second)); diff != "" {
		t.Errorf("two replicas call one incident by other names:\n%s", diff)
	}
}

// The result does not depend on how many nodes are judged at once.
func TestJudgingIsTheSameInParallel(t *testing.T) {
	play := func(workers int) []detect.Incident {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(workers))
		f := newSynthetic(12)
		role := clusterRole(t, Config{})
		var told []detect.Incident
		for range 60 {
			told = append(told, role.Observe(f.next())...)
		}
		return told
	}
	one, many := play(1), play(8)
	if len(one) == 0 {
		t.Fatal("nothing was found in nodes with faults, so nothing is compared")
	}
	if diff := cmp.Diff(one, many); diff != "" {
		t.Errorf("with eight workers other incidents come out than with one:\n%s", diff)
	}
}
