package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/alecthomas/kingpin/v2"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/server"
	"gpuvigil/internal/text"
)

func addWhy(app *kingpin.Application) (string, command) {
	cmd := app.Command("why", "Say what is wrong with a subject, since when, how sure, on what evidence, what changed before, and what to do. Exit codes as for status.")
	subject := cmd.Arg("SUBJECT", "The node (its name, or nothing), a GPU (its index, NODE/INDEX or uuid), a job, pod or other owner (job:slurm/4711), an endpoint (endpoint:URL); or pending.").String()
	job := cmd.Arg("JOB", "With pending: the job or pod that has no GPUs yet, as its scheduler calls it; none lists all. The cluster role answers.").String()
	state := addStateDir(cmd)
	return cmd.FullCommand(), func(ctx context.Context, p *program) error {
		switch {
		case *subject == "pending":
			return whyPending(ctx, p, *state, *job)
		case *job != "":
			return wrongUsage{fmt.Errorf("found %q after the subject %q: only why pending takes a job", printable(*job), printable(*subject))}
		}
		node, err := ask(ctx, *state)
		if err != nil {
			return unknown(p, err)
		}
		s, err := node.find(*subject)
		if err != nil {
			return unknown(p, err)
		}
		if err := node.printWhy(p.out, s); err != nil {
			return err
		}
		return node.exit(s.findings, cmp.Or(node.absence(asSeen), s.unread))
	}
}

// subject is what somebody asks about: its name, what is known of it, and the
// findings that concern it.
type subject struct {
	name     string
	facts    []string
	findings []server.Finding
	unread   string // why nothing is known of it now; empty: something is
}

// find takes a subject as people write it.
func (a *answer) find(text string) (subject, error) {
	name := a.snapshot.Node.Name
	if text == "" || text == name || text == "node:"+name || text == "node" {
		return subject{name: name, facts: a.nodeFacts(), findings: a.findings.Findings}, nil
	}
	if g := a.gpu(text); g != nil {
		return subject{name: fmt.Sprintf("%s/%d", name, g.Index), facts: a.gpuFacts(g), findings: a.about(func(f server.Finding) bool {
			ofOwner := func(o collector.Owner) bool { return o.String() == f.Subject.String() }
			return f.Subject == detect.Subject{Kind: "gpu", ID: g.UUID} || f.GPUIndex == g.Index || slices.ContainsFunc(g.Owners, ofOwner)
		})}, nil
	}
	if link := strings.TrimPrefix(text, "endpoint:"); len(a.served(link)) > 0 || a.targetReason(link) != "" {
		return a.endpoint(link), nil
	}
	owners := a.owners()
	if i := slices.IndexFunc(owners, func(o string) bool { _, id, _ := strings.Cut(o, ":"); return id == text }); i >= 0 {
		text = owners[i] // its kind was left out
	}
	if slices.Contains(owners, text) {
		return subject{name: text, facts: a.ownerFacts(text), findings: a.about(func(f server.Finding) bool { return f.Owner.String() == text })}, nil
	}
	if found := a.about(func(f server.Finding) bool { return f.Subject.String() == text }); len(found) > 0 {
		return subject{name: text, findings: found}, nil
	}
	known := append([]string{name}, owners...)
	for _, g := range a.snapshot.GPUs {
		known = append(known, fmt.Sprintf("%s/%d", name, g.Index))
	}
	return subject{}, fmt.Errorf("nothing is known of %q; known here: %s", printable(text), printable(strings.Join(known, ", ")))
}

// verdict returns a GPU's; unknown if the agent gives none, as before its first look.
func (a *answer) verdict(uuid string) detect.Verdict {
	for _, v := range a.findings.Verdicts {
		if v.GPU == uuid {
			return v
		}
	}
	return detect.Verdict{Name: detect.VerdictUnknown}
}

func (a *answer) about(match func(server.Finding) bool) []server.Finding {
	var out []server.Finding
	for _, f := range a.findings.Findings {
		if match(f) {
			out = append(out, f)
		}
	}
	return out
}

// gpu finds a GPU by its index, NODE/INDEX, uuid or gpu:… of these. A uuid may be
// cut short as long as it is the only one that begins so.
func (a *answer) gpu(text string) *server.GPU {
	text = strings.TrimPrefix(text, "gpu:")
	text = strings.TrimPrefix(text, a.snapshot.Node.Name+"/")
	index, err := strconv.Atoi(text)
	var begins []*server.GPU
	for i := range a.snapshot.GPUs {
		g := &a.snapshot.GPUs[i]
		if strings.EqualFold(g.UUID, text) || err == nil && g.Index == index {
			return g
		}
		if len(text) >= minUUID && strings.HasPrefix(strings.ToLower(g.UUID), strings.ToLower(text)) {
			begins = append(begins, g)
		}
	}
	if len(begins) == 1 {
		return begins[0]
	}
	return nil
}

const minUUID = len("GPU-1234")

// owners lists whoever holds or uses a GPU, as kind:id.
func (a *answer) owners() []string {
	var out []string
	add := func(o string) {
		if o != "unattributed" && !slices.Contains(out, o) {
			out = append(out, o)
		}
	}
	for _, g := range a.snapshot.GPUs {
		for _, o := range g.Owners {
			add(o.String())
		}
	}
	for _, p := range a.snapshot.Processes {
		add(p.Owner.String())
	}
	slices.Sort(out)
	return out
}

func (a *answer) nodeFacts() []string {
	r := a.snapshot.Node.Readings
	facts := []string{fmt.Sprintf("%d GPUs, CPU %s busy, busiest core %s", len(a.snapshot.GPUs), reading(r, metric.CPUBusy, "%.0f %%", 100), reading(r, metric.CPUBusiest, "%.0f %%", 100))}
	for _, s := range a.blind() {
		facts = append(facts, "source "+s.Name+" does not see: "+printable(s.Error))
	}
	return facts
}

func (a *answer) gpuFacts(g *server.GPU) []string {
	facts := []string{fmt.Sprintf("%s, %s, %s", printable(g.Model), g.UUID, gpuState(*g))}
	if g.Present {
		facts = append(facts, fmt.Sprintf("%s busy, %s of its memory, %s, %s", reading(g.Readings, metric.Utilization, "%.0f %%", 100), memoryShare(*g),
			reading(g.Readings, metric.PowerDraw, "%.0f W", 1), reading(g.Readings, metric.Temperature, "%.0f °C", 1)))
	}
	if v := a.verdict(g.UUID); v.Evidence != "" {
		facts = append(facts, fmt.Sprintf("%s since %s (%s): %s", v.Name.Words(), since(v.Since, a.snapshot.Time), v.Confidence, printable(v.Evidence)))
	}
	using, unused := holders(*g)
	if using != nil {
		facts = append(facts, "used by "+printable(some(using)))
	}
	switch {
	case unused == nil:
	case !a.seesProcesses() && len(g.Users) == 0:
		facts = append(facts, "use unknown: "+a.gpuPage().Exporter+" does not tell the processes of "+printable(some(unused)))
	default:
		facts = append(facts, "not used by "+printable(some(unused)))
	}
	var given, processes []string
	for _, to := range g.Given {
		given = append(given, "given to "+printable(withTeam(to.Owner)+" ("+strings.Join(append(nonEmpty(to.Resource), "says "+to.Source), ", ")+")"))
	}
	for _, p := range a.snapshot.Processes {
		if p.UUID == g.UUID {
			processes = append(processes, fmt.Sprintf("process %d %s, %s, %s", p.PID, printable(p.Name), printable(p.Owner.String()), reading(p.Readings, metric.ProcessMemoryUsed, "%.1f GiB", 1.0/(1<<30))))
		}
	}
	facts = append(facts, first(given, "allocations")...)
	return append(facts, first(processes, "processes")...)
}

// maxLines is how many lines of a kind a subject's facts have: a GPU may have dozens
// of processes and shares.
const maxLines = 5

// first returns the first lines, and one that counts the rest.
func first(lines []string, what string) []string {
	if more := len(lines) - maxLines; more > 0 {
		return append(lines[:maxLines:maxLines], fmt.Sprintf("and %d more %s: see /api/v1/snapshot", more, what))
	}
	return lines
}

func (a *answer) ownerFacts(owner string) []string {
	var gpus []string
	for _, g := range a.snapshot.GPUs {
		for _, o := range g.Owners {
			if o.String() == owner {
				gpus = append(gpus, fmt.Sprintf("%d (%s busy, %s)", g.Index, reading(g.Readings, metric.Utilization, "%.0f %%", 100), a.verdict(g.UUID).Name.Words()))
			}
		}
	}
	var facts []string
	if gpus != nil {
		facts = append(facts, "holds GPU "+strings.Join(gpus, ", "))
	}
	for _, w := range a.snapshot.Workloads {
		if w.Owner.String() == owner {
			facts = append(facts, workloadFacts(w)...)
		}
	}
	return facts
}

// workloadFacts says what the configuration says of an owner.
func workloadFacts(w server.Workload) []string {
	var facts []string
	for _, f := range []struct{ what, value string }{
		{"team", w.Owner.Team}, {"cost centre", w.CostCenter}, {"sensitivity", w.Sensitivity}, {"stage", w.Stage},
		{"containers", strings.Join(w.Containers, ", ")},
	} {
		if f.value != "" {
			facts = append(facts, f.what+" "+printable(f.value))
		}
	}
	if w.Critical {
		facts = append(facts, "critical: its findings are one severity higher")
	}
	return facts
}

func (a *answer) printWhy(out io.Writer, s subject) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	current := firing(s.findings)
	verdict := "nothing is wrong"
	if len(current) > 0 {
		verdict = strings.ToUpper(current[0].Severity.String()) + "  " + printable(current[0].Title)
	} else if s.unread != "" {
		verdict = "UNKNOWN: " + printable(s.unread)
	} else if len(a.blind()) > 0 {
		verdict = "UNKNOWN: not all sources see"
	}
	fmt.Fprintf(w, "%s  %s\n", printable(s.name), verdict)
	if a.snapshot.Simulated {
		fmt.Fprintf(w, "SIMULATED: these numbers are made up\n")
	}
	for _, fact := range s.facts {
		fmt.Fprintf(w, "  %s\n", fact)
	}
	for _, f := range current {
		a.printFinding(w, f)
	}
	for _, f := range s.findings {
		switch f.State {
		case detect.Pending:
			fmt.Fprintf(w, "\nnot sure yet: %s on %s since %s\n", printable(f.Title), subjectName(f), since(f.Since, a.snapshot.Time))
		case detect.Resolved:
			fmt.Fprintf(w, "\nover: %s on %s, %s, lasted %s\n", printable(f.Title), subjectName(f), since(f.Resolved, a.snapshot.Time), text.Span(f.Resolved.Sub(f.Since)))
		}
	}
	return w.Flush()
}

func (a *answer) printFinding(w io.Writer, f server.Finding) {
	now := a.snapshot.Time
	fmt.Fprintf(w, "\n%s\t%s on %s\n", strings.ToUpper(f.Severity.String()), printable(f.Title), subjectName(f))
	fmt.Fprintf(w, "since\t%s, %s (%s)\n", since(f.Since, now), f.Evidence.Confidence, printable(f.Evidence.Why))
	if f.Suppressed != "" {
		fmt.Fprintf(w, "told\tnobody: it began after the node was drained, and nothing ran on it\n")
	}
	for _, m := range a.mutedBy(f) {
		fmt.Fprintf(w, "told\t%s\n", printable(m.String()))
	}
	fmt.Fprintf(w, "owner\t%s\n", printable(ownerName(f)))
	fmt.Fprintf(w, "seen\t%s\n", printable(f.Evidence.Seen))
	if f.Evidence.Expected != "" {
		fmt.Fprintf(w, "expected\t%s\n", printable(f.Evidence.Expected))
	}
	for _, e := range f.Before {
		fmt.Fprintf(w, "before\t%s  %s\n", timeOfDay(e.Time), printable(a.named(eventText(e))))
	}
	if f.Before == nil {
		fmt.Fprintf(w, "before\tnothing changed in the ten minutes before\n")
	}
	fmt.Fprintf(w, "means\t%s\n", printable(f.Meaning))
	fmt.Fprintf(w, "do\t%s\n", printable(f.Action))
}

// named puts the GPUs' names in the place of their uuids.
func (a *answer) named(text string) string {
	for _, g := range a.snapshot.GPUs {
		text = strings.ReplaceAll(text, g.UUID, fmt.Sprintf("GPU %d", g.Index))
	}
	return text
}
