package alerting_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/alerting/internal/example"
	"gpuvigil/collector"
	"gpuvigil/rules"
)

// tells fails the test unless the message tells the parts, in their order.
func tells(t *testing.T, m alerting.Message, parts ...string) {
	t.Helper()
	said := alerting.Render(m).String()
	rest := said
	for _, part := range parts {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Errorf("the message does not tell %q, or not in its place:\n%s", part, said)
			return
		}
		rest = after
	}
}

// The messages that people on call asked for, line by line.

func TestSketchGPULost(t *testing.T) {
	i := example.Of(rules.IDXid)
	i.Members[0].Before = []collector.Event{{Time: example.Start.Add(-4 * time.Minute), Kind: collector.XidEvent, UUID: i.Members[0].Subject.ID, Code: 74}}
	m := example.Message(i)
	m.Context.Owners, m.Context.GPUs = []collector.Owner{{Kind: "job", ID: "slurm/llama-ft", Team: "nlp"}}, 64
	m.Context.Lost = &alerting.Lost{Since: example.Start.Add(-38 * time.Minute), GPUHours: 41, Cost: 103, Currency: "USD"}
	tells(t, m,
		"PAGE gpu-117/3 has fallen off the bus (Xid 79), 03:12 UTC\n",
		"Who: job slurm/llama-ft, team nlp, 64 GPUs here\n",
		"Seen: Xid 79 at 03:12:04 UTC", "7 of 8 GPUs answer\n",
		"Before: 03:08:04 Xid 74 on this GPU\n",
		"Lost: 41 GPU-hours since the checkpoint of 02:34 UTC, about 103 USD\n",
		"First: Drain the node and power-cycle it; the second time in 30 days, have the GPU replaced.\n",
		"Page: http", "Dashboard: http", "Runbook: http")
}

func TestSketchJobHung(t *testing.T) {
	i := example.Of(rules.IDJobHung)
	i.Members[0].Before = []collector.Event{{Time: example.Start.Add(-time.Minute), Kind: collector.FabricEvent, Text: "mlx5_2 down"}}
	i.Updated = example.Start.Add(30 * time.Minute)
	m := example.Message(i)
	m.Context.Money = &alerting.Money{Currency: "USD", PerHour: 160, GPUs: 64}
	tells(t, m,
		"PAGE job slurm/4711 on gpu-117 hangs: 7 of its 8 GPUs here spin, 03:12 UTC\n",
		"Who: job slurm/4711, team nlp",
		"Seen: 7 of 8 GPUs at 100 % utilization and 234 of 1000 W", "links at 701 MB/s (at work 197 GB/s)",
		"suspect: GPU 5, 0 % utilization",
		"Expected: above 300 W", "How sure: very sure",
		"Before: 03:11:04 fabric manager: mlx5_2 down\n",
		"Cost: about 80.00 USD by 03:42 UTC; 160 USD an hour for 64 GPUs\n",
		"First: Take a stack of process 31977 on GPU 5, then restart the job from its last checkpoint.\n")
}

func TestSketchInferenceAtItsLimit(t *testing.T) {
	m := example.Message(example.Of(rules.IDSaturatedGPU))
	tells(t, m,
		"TICKET gpu-117/3: KV cache full while the CPU idles, 03:12 UTC\n",
		"Who: pod serving/chat-70b-0, team inference, 1 GPU here\n", "Serves: chat-70b (vllm)\n",
		"GPU 98 % busy for 10 min, CPU 11 %, 38 requests waiting, queue-time p95 4.1 s, KV cache 97 %",
		"Expected: queue-time p95 below its SLO of 1 s\n",
		"Cost: about 2.50 USD an hour for one more like it, with 1 GPU\n",
		"First:", "add replicas; scale on waiting requests instead of CPU usage.\n")
	m = example.Message(example.Of(rules.IDQueueing))
	tells(t, m, "TICKET chat-70b on gpu-117", "about 1 more replica is needed", "for one more like it")
}

func TestSketchIdleAndHeld(t *testing.T) {
	i := example.Of(rules.IDIdleGPU)
	root := &i.Members[0]
	root.Since = example.Start.Add(-8 * time.Hour)
	i = example.Join(i, 2)
	m := example.Message(i)
	m.Context.Money = &alerting.Money{Currency: "USD", PerHour: 7.5, GPUs: 3}
	tells(t, m,
		"TICKET gpu-117/3 +2: GPU held but idle, 19:12 UTC\n",
		"Who: job slurm/4711, team nlp",
		"Seen: GPU under 5 % busy for 8 h 10 min, 116 W", "9.4 GPU-hours idle in 24 h\n",
		"Expected: at work within 30 min, or released",
		"Cost: about 60.50 USD by 03:16 UTC; 7.50 USD an hour for 3 GPUs\n",
		"First: Ask the holder to release the GPU",
		"Also: gpu-117/4; gpu-117/5\n")
	i = example.Resolve(i)
	m.Incident = i
	tells(t, m, "RESOLVED gpu-117/3 +2", "Lasted: 8 h 14 min", "Cost: about 61.75 USD in all; 7.50 USD an hour for 3 GPUs\n")
}

func TestSketchPendingWhileFree(t *testing.T) {
	tells(t, example.Message(example.Of(rules.IDWaitingJobs)),
		"TICKET queue slurm/batch: 3 jobs wait for 8×H100 while 44 are free, 03:12 UTC\n",
		"31 on 6 nodes with fewer than 8", "8 on 1 tainted node", "5 on 2 nodes without CPUs left", "longest 3 h 25 min",
		"Expected: no job waits while enough GPUs that are right for it are free\n",
		"First: Move small jobs together so that whole nodes become free, most of all on gpu-12.\n")
}

// TestMoneyIsOnlyWhereItIsAboutMoney holds that a version that changed is told without
// what the node costs, and that nothing is said of a price that is not known.
func TestMoneyIsOnlyWhereItIsAboutMoney(t *testing.T) {
	for _, i := range example.Incidents() {
		m := example.Message(i)
		m.Context.Money = &alerting.Money{Currency: "USD", PerHour: 20, GPUs: 8}
		about := map[rules.ID]bool{
			rules.IDXid: true, rules.IDSuspectMonitor: true, rules.IDGPULost: true, rules.IDSXid: true, rules.IDNVLink: true, rules.IDJobHung: true, rules.IDJobStalled: true,
			rules.IDSaturatedGPU: true, rules.IDQueueing: true, rules.IDIdleGPU: true, rules.IDDrainedOccupied: true, rules.IDSpend: true, rules.IDUnallocated: true, rules.IDWaitingJobs: true,
		}[i.Rule]
		if said := strings.Contains(alerting.Render(m).String(), "\nCost: "); said != about {
			t.Errorf("the %s of %s says what it costs: %v, want %v", i.Severity, i.Rule, said, about)
		}
		m.Context.Money = nil
		if strings.Contains(alerting.Render(m).String(), "\nCost: ") {
			t.Errorf("%s says what it costs though no price is known", i.Rule)
		}
	}
}

// TestWhatAFaultEndedIsStillNamed holds that a message names the work behind a fault when
// nothing is left of it.
func TestWhatAFaultEndedIsStillNamed(t *testing.T) {
	before := example.Message(example.Of(rules.IDXid)).Context
	after := alerting.Context{Cluster: "eu-1"}.Following(&before)
	m := example.Message(example.Resolve(example.Of(rules.IDXid)))
	m.Context = after
	tells(t, m, "Who: job slurm/4711, team nlp, 8 GPUs here\n", "Lost: 5.1 GPU-hours", "Cost: about 4.67 USD in all")
	more := alerting.Context{GPUs: 16, Owners: before.Owners, Money: &alerting.Money{Currency: "USD", PerHour: 40, GPUs: 16}}.Following(&before)
	if more.GPUs != 16 || more.Money.PerHour != 40 {
		t.Errorf("an incident that has grown is told as it was: %+v", more)
	}
}

// TestARollOutIsOneReadableMessage holds that 200 nodes with a new driver are told as that.
func TestARollOutIsOneReadableMessage(t *testing.T) {
	i := example.Of(rules.IDVersionChanged)
	for k := range 199 {
		f := i.Members[0]
		f.Node = fmt.Sprintf("gpu-%d", 118+k)
		f.Subject.ID = f.Node
		i.Members = append(i.Members, f)
	}
	tells(t, example.Message(i), "INFO gpu-117 +199: Driver version changed, 03:12 UTC\n",
		"Also: gpu-118; gpu-119; gpu-120; gpu-121; gpu-122; and 194 more\n", "Where: cluster eu-1, 200 nodes, first of all gpu-117\n")
}

func TestTeamsBehindManyOwnersAreNamed(t *testing.T) {
	m := example.Message(example.Of(rules.IDSuspectMonitor))
	m.Context.Owners = nil
	for _, team := range []string{"a", "b", "c", "a", "d", "e", "d"} {
		m.Context.Owners = append(m.Context.Owners, collector.Owner{Kind: "pod", ID: "x/" + team, Team: team})
	}
	tells(t, m, "Who: pod x/a, team a; pod x/b, team b; pod x/c, team c; and 4 more; together 8 GPUs here\n", "Teams: d; e\n")
}

func TestAnAmountIsWrittenAsElsewhere(t *testing.T) {
	for x, want := range map[float64]string{0: "0.00 USD", 9.5: "9.50 USD", 103.2: "103 USD", 1234: "1234 USD"} {
		if got := alerting.Amount(x, "USD"); got != want {
			t.Errorf("Amount(%g) = %q, want %q", x, got, want)
		}
	}
	if got := alerting.Amount(math.Inf(1), "a very long name"); len(got) > 20 {
		t.Errorf("an odd amount is %q", got)
	}
}
