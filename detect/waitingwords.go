package detect

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"gpuvigil/collector"
)

func sayLongWait(q *collector.Queue, slo time.Duration, idle *heldIdle) Evidence {
	want := slo.Seconds()
	e := Evidence{
		Title:    "Jobs wait longer than their queue declares",
		Observed: q.P90.Seconds(), Want: &want,
		Seen:     fmt.Sprintf("%s in queue %s for GPUs, one in ten for more than %s, the longest for %s", count(q.Jobs, "job waits", "jobs wait"), q.Name, span(q.P90), span(q.Longest)),
		Expected: "nine of ten wait for less than " + span(slo) + ", as the queue declares", Confidence: Certain, Why: "told by the scheduler",
		Action: "Look at who uses the queue's GPUs, and what the wait is for: more GPUs, another share, or what keeps the free ones from being used.",
	}
	if len(q.Waiting) == 0 {
		e.Seen += "; no GPU is free that is right for them"
	}
	if held := idle.words(); held != "" {
		e.Seen += "; " + held
		e.Action = "Have the GPUs released that are held idle. " + e.Action
	}
	return e
}

// sayFreeGPUs says what keeps jobs from the free GPUs: "3 jobs wait for 8×H100, 44 free:
// 31 on nodes with fewer than 8, 8 on a tainted node, 5 whose node has no CPU left;
// longest 3 h 10 min".
func sayFreeGPUs(q *collector.Queue, w *collector.Waiting, now time.Time) Evidence {
	free := make([]string, 0, len(w.Free))
	for _, f := range w.Free {
		free = append(free, strconv.Itoa(f.GPUs)+" "+freeWords(&f, w.PerNode))
	}
	asks := strconv.Itoa(w.GPUs) + "×" + w.Model
	if w.Model == "" {
		asks = count(w.GPUs, "GPU", "GPUs")
	}
	waited := now.Sub(w.Since)
	seen := fmt.Sprintf("%s in queue %s for %s, %d free: %s; longest %s", count(w.Jobs, "job waits", "jobs wait"), q.Name, asks, w.Matching(), strings.Join(free, ", "), span(waited))
	if others := otherWords(w.Other); others != "" {
		seen += "; not for them: " + others
	}
	if n := q.Jobs - w.Jobs; n > 0 {
		seen += fmt.Sprintf("; %s, too", count(n, "other job waits", "other jobs wait"))
	}
	want := 0.0
	ev := Evidence{
		Title: fmt.Sprintf("%s for %s while %d are free", count(w.Jobs, "job waits", "jobs wait"), asks, w.Matching()),
		Seen:  seen, Expected: "no job waits while enough GPUs that are right for it are free",
		Observed: waited.Seconds(), Want: &want, Confidence: Certain, Why: "told by the scheduler",
	}
	if len(w.Free) > 0 {
		ev.Action = freeAction(&w.Free[0])
	}
	return ev
}

// freeWords says where GPUs are that are right for jobs that want so many on one node.
func freeWords(f *collector.Free, asked int) string {
	node := "on " + count(f.Nodes, "node", "nodes")
	switch f.Cause {
	case "fragmented":
		return fmt.Sprintf("on %s with fewer than %d", count(f.Nodes, "node", "nodes"), asked)
	case "tainted":
		return "on " + count(f.Nodes, "tainted node", "tainted nodes")
	case "cpu":
		return node + " without CPUs left"
	case "memory":
		return node + " without memory left"
	case "pods":
		return node + " that may have no pod more"
	case "topology":
		return node + " that their affinity, spread or volumes exclude"
	}
	return node + " with nothing in the way"
}

// otherWords says why free GPUs are not for the jobs.
func otherWords(other []collector.Free) string {
	var parts []string
	for _, f := range other {
		words := map[string]string{
			"wrong_model": "of another model", "wrong_mig_profile": "of another MIG profile", "selector": "behind another label", "tainted": "in tainted pools",
			"not_ready": "on nodes that are not ready", "planned": "kept for a job that comes first", "powered_down": "on nodes that are powered down",
		}[f.Cause]
		if words == "" {
			words = "on nodes that are " + f.Cause
		}
		parts = append(parts, strconv.Itoa(f.GPUs)+" "+words)
	}
	return strings.Join(parts, ", ")
}

func freeAction(f *collector.Free) string {
	switch f.Cause {
	case "fragmented":
		return "Move small jobs together so that whole nodes become free, most of all on " + f.Node + "."
	case "tainted":
		return "Untaint " + f.Node + ", or let the jobs tolerate its taint."
	case "cpu", "memory", "pods":
		return "Lower what jobs on " + f.Node + " ask for beside GPUs: its " + f.Cause + " is used up."
	case "topology":
		return "Loosen the jobs' affinity, spread or volumes, which keep them off " + f.Node + "."
	}
	return "Find out why the scheduler does not start them on " + f.Node + ": a job that comes first, a reservation, a limit that it does not tell, or a scheduler that stands still."
}

// WaitingWords says of each kind of free GPUs that are right for a job where they are, and
// of the others why they are not for it; empty if there are none.
func WaitingWords(w *collector.Waiting) (blocked []string, other string) {
	for _, f := range w.Free {
		blocked = append(blocked, fmt.Sprintf("%d %s, most of them on %s", f.GPUs, freeWords(&f, w.PerNode), f.Node))
	}
	return blocked, otherWords(w.Other)
}

// WaitingHelp says what would help a job that is in a state of metric.QueueState and has
// so many before it.
func WaitingHelp(state string, w *collector.Waiting, before int) string {
	switch state {
	case "running", "starting":
		return "Nothing: it has its GPUs."
	case "limited":
		return "A quota or limit of its account, QOS, queue or array keeps it, which is by design: wait for what that already has, or ask who sets it. More GPUs would not start it."
	case "dependent":
		return "Wait for what it depends on: other jobs, the rest of its group, or a claim."
	case "scheduled":
		return "Release it, or wait for its time: somebody holds it, or it asked to begin later."
	case "suspended":
		return "Resume it: somebody suspended it."
	case "other":
		return "Look at what the scheduler says of it: it is none of the known reasons, or it has not looked at it yet."
	}
	short := w.GPUs - w.Matching()
	switch {
	case short <= 0:
		return freeAction(&w.Free[0])
	case len(w.Other) > 0 && w.Matching() == 0:
		return fmt.Sprintf("Wait until %s of what it asks for, or let it ask for less: those that are free are none that it may use.", count(short, "GPU becomes free", "GPUs become free"))
	case before > 0:
		return fmt.Sprintf("Wait for its turn: %s before it, and %s than are free now.", count(before, "job comes", "jobs come"), count(short, "GPU more is needed", "GPUs more are needed"))
	}
	return fmt.Sprintf("Wait until %s, or ask for fewer.", count(short, "GPU more becomes free", "GPUs more become free"))
}
