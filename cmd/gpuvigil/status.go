package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"gpuvigil/detect"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/server"
	"gpuvigil/rules"
)

// The exit codes of status and why.
const (
	exitTicket  exitCode = 1
	exitPage    exitCode = 2
	exitUnknown exitCode = 3
)

// askLimit bounds a question to the running agent.
const askLimit = 10 * time.Second

func addStatus(app *kingpin.Application) (string, command) {
	cmd := app.Command("status", "Say how this node is: what is wrong, the GPUs, the sources. Exits 0 if nothing is wrong, 1 for a ticket, 2 for a page, 3 if it cannot be known.")
	state := addStateDir(cmd)
	gpus := addGPUs(cmd)
	return cmd.FullCommand(), func(ctx context.Context, p *program) error {
		node, err := ask(ctx, *state)
		if err != nil {
			return unknown(p, err)
		}
		missing := node.missing(*gpus)
		if err := node.printStatus(p.out, missing); err != nil {
			return err
		}
		return node.exit(node.findings.Findings, missing)
	}
}

// unknown says why nothing is known; monitoring systems take exit code 3 for that.
func unknown(p *program, err error) error {
	if _, err := fmt.Fprintf(p.out, "UNKNOWN  %v\n", err); err != nil {
		return err
	}
	return exitUnknown
}

// answer is what the running agent says of its node.
type answer struct {
	snapshot *server.Snapshot
	findings *server.Findings
}

func ask(ctx context.Context, stateFlag string) (*answer, error) {
	client, err := agentClient(stateFlag)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	snapshot, err := client.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	findings, err := client.Findings(ctx)
	if err != nil {
		return nil, err
	}
	return &answer{snapshot: snapshot, findings: findings}, nil
}

// firing returns those of the findings that fire; the worst come first.
func firing(findings []server.Finding) []server.Finding {
	var out []server.Finding
	for _, f := range findings {
		if f.State == detect.Firing {
			out = append(out, f)
		}
	}
	return out
}

// exit gives the exit code for the findings: the worst that fires decides. An
// agent that sees nothing, or misses GPUs that must be there, does not know that
// nothing is wrong.
func (a *answer) exit(findings []server.Finding, missing string) error {
	worst := rules.Info
	for _, f := range firing(findings) {
		worst = max(worst, f.Severity)
	}
	switch {
	case worst == rules.Page:
		return exitPage
	case worst == rules.Ticket:
		return exitTicket
	case len(a.blind()) > 0, missing != "":
		return exitUnknown
	}
	return nil
}

// blind lists the sources that are expected and do not see.
func (a *answer) blind() []server.Source {
	var out []server.Source
	for _, s := range a.snapshot.Sources {
		if s.Expected && !s.Up {
			out = append(out, s)
		}
	}
	return out
}

func (a *answer) printStatus(out io.Writer, missing string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	now := a.snapshot.Time
	fmt.Fprintf(w, "%s\n", a.headline(missing))
	for _, f := range firing(a.findings.Findings) {
		fmt.Fprintf(w, "%s\t%s\t%s\tsince %s\t%s\t%s\t%s\n", strings.ToUpper(f.Severity.String()), subjectName(f), printable(f.Title),
			since(f.Since, now), f.Evidence.Confidence, printable(ownerName(f)), a.incidentName(f))
		for _, m := range a.mutedBy(f) {
			fmt.Fprintf(w, "  %s\n", printable(m.String()))
		}
	}
	if len(a.snapshot.GPUs) > 0 {
		fmt.Fprintf(w, "\nGPU\tmodel\tbusy\tmemory\tpower\ttemperature\towner\tstate\tverdict\n")
	}
	for _, g := range a.snapshot.GPUs {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", g.Index, printable(g.Model),
			reading(g.Readings, metric.Utilization, "%.0f %%", 100), memoryShare(g), reading(g.Readings, metric.PowerDraw, "%.0f W", 1),
			reading(g.Readings, metric.Temperature, "%.0f °C", 1), printable(gpuOwner(g, a.seesProcesses())), a.gpuState(g), a.verdict(g.UUID).Name.Words())
	}
	fmt.Fprintf(w, "\nsource\tsees\tlast sample\n")
	for _, s := range a.snapshot.Sources {
		sees, note := "yes", ""
		if !s.Up {
			sees, note = "NO", "  "+printable(s.Error)
			if !s.Expected {
				sees = "not here"
			}
		}
		if unread := a.unreadTargets(); unread != "" && s.Name == "inference" && s.Up {
			note = "  " + printable(unread)
		}
		for _, p := range a.snapshot.Pages {
			if p.Source == s.Name && s.Up {
				note = "  " + printable(p.String())
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s%s\n", s.Name, sees, since(s.Last, now), note)
	}
	if need := a.need(); need != "" {
		fmt.Fprintf(w, "\n%s\n", need)
	}
	return w.Flush()
}

// mutedBy returns what keeps people from being told of the incident that a finding
// belongs to.
func (a *answer) mutedBy(f server.Finding) []server.Mute {
	for _, i := range a.findings.Incidents {
		if i.State == detect.Firing && slices.ContainsFunc(i.Members, func(m detect.Finding) bool { return m.Key() == f.Key() }) {
			return a.findings.Muted[i.ID]
		}
	}
	return nil
}

// need says what the alert budget asks of the rules that tell by statistics, empty if
// there are none.
func (a *answer) need() string {
	n := 0
	var s detect.Standing
	for _, r := range a.findings.Rules {
		if r.Statistical {
			s = r
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("alert budget, rules that tell by statistics: %d; a finding takes %.1f nats, a page %.1f nats and %.0f clean GPU-weeks (gpuvigil promote)", n, s.Need, s.NeedPage, s.ProofWeeks)
}

// missing says which GPUs that must be there are not.
func (a *answer) missing(want int) string {
	if gone := a.absence(want); gone != "" || a.snapshot.ReleasedUntil.After(a.snapshot.Time) {
		return gone
	}
	answering := 0
	for _, g := range a.snapshot.GPUs {
		if g.Present && !g.Hung {
			answering++
		}
	}
	if answering < want {
		return fmt.Sprintf("%d of %d GPUs answer", answering, want)
	}
	return ""
}

// gpuState is how the GPU is. One that nobody has asked for since the agent started, or
// that is not on an exporter's page any more, may be well.
func (a *answer) gpuState(g server.GPU) string {
	_, asked := g.Readings[metric.GPUPresent.Name]
	switch {
	case g.Present, g.GivenAway:
	case !asked:
		return "not seen"
	case a.gpuPage() != nil:
		return "not listed"
	}
	return gpuState(g)
}

// headline is the node's state in one line.
func (a *answer) headline(missing string) string {
	var parts []string
	if n := len(firing(a.findings.Findings)); n == 1 {
		parts = append(parts, "1 finding")
	} else if n > 1 {
		parts = append(parts, fmt.Sprintf("%d findings", n))
	}
	if blind := a.blind(); len(blind) > 0 {
		var names []string
		for _, s := range blind {
			names = append(names, s.Name)
		}
		parts = append(parts, "blind: "+strings.Join(names, ", "))
	}
	if missing != "" {
		parts = append(parts, missing)
	}
	if len(parts) == 0 {
		parts = []string{"nothing is wrong"}
	}
	if until := a.snapshot.ReleasedUntil; !until.IsZero() {
		parts = append(parts, "the driver is released until "+timeOfDay(until))
	}
	if a.snapshot.Simulated {
		parts = append(parts, "SIMULATED")
	}
	return printable(a.snapshot.Node.Name) + "  " + strings.Join(parts, "; ")
}

// incidentName names the incident of a finding as ack and snooze take it, with what a
// person said of it.
func (a *answer) incidentName(f server.Finding) string {
	for _, i := range a.findings.Incidents {
		for k := range i.Members {
			if i.State != detect.Firing || i.Members[k].Key() != f.Key() {
				continue
			}
			if m, ok := a.findings.Marks[i.ID]; ok {
				return "incident " + shortID(i.ID) + ", " + printable(m.String())
			}
			return "incident " + shortID(i.ID)
		}
	}
	return ""
}
