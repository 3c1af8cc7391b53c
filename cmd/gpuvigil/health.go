package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"gpuvigil/internal/metric"
	"gpuvigil/internal/server"
	"gpuvigil/internal/text"
	"gpuvigil/rules"
)

// The exit codes of health, which schedulers and node-problem-detector know.
const (
	exitProblem       exitCode = 1
	exitHealthUnknown exitCode = 2
)

// asSeen lets the GPUs that are known decide how many there must be.
const asSeen = -1

// nvmlSource is the name of the source that asks the driver.
const nvmlSource = "nvml"

// healthLimit is how long the verdict may take: a prolog holds up a job's start.
const healthLimit = 900 * time.Millisecond

func addHealth(app *kingpin.Application) (string, command) {
	cmd := app.Command("health", "Say in one line whether a job may start on this node's GPUs, for Slurm's HealthCheckProgram and prolog and for node-problem-detector. "+
		"Exits 0 if they are well, 1 if not, 2 if it cannot be known. Answers within a second.")
	state := addStateDir(cmd)
	maxAge := length(cmd.Flag("max-age", "How old what the agent knows may be.").Default("1m"), time.Millisecond)
	gpus := addGPUs(cmd)
	return cmd.FullCommand(), func(ctx context.Context, p *program) error {
		ctx, cancel := context.WithTimeout(ctx, healthLimit)
		defer cancel()
		var v verdict
		node, err := ask(ctx, *state)
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("the agent has not answered within %v", healthLimit)
		}
		if err == nil {
			v = node.health(time.Now(), *maxAge, *gpus)
		} else {
			v.unknown = []string{err.Error()}
		}
		if _, err := fmt.Fprintln(p.out, v.line()); err != nil {
			return err
		}
		return v.exit()
	}
}

func addGPUs(cmd *kingpin.CmdClause) *int {
	return whole(cmd.Flag("gpus", "How many GPUs there must be, 0 if there need be none. Default: as many as were seen since the node booted or as the driver lists, "+
		"and one at least if there was one in an earlier boot or there is one on the PCI bus."), asSeen, 0)
}

// verdict is what is wrong with a node, in words.
type verdict struct {
	well     string // if nothing is
	problems []string
	unknown  []string // why the rest cannot be known
}

// line is the verdict in one line, the worst first.
func (v verdict) line() string {
	word, parts := "OK", []string{v.well}
	switch {
	case len(v.problems) > 0:
		word, parts = "PROBLEM", v.problems
	case len(v.unknown) > 0:
		word, parts = "UNKNOWN", v.unknown
	}
	return word + "  " + printable(strings.Join(parts, "; "))
}

func (v verdict) exit() error {
	switch {
	case len(v.problems) > 0:
		return exitProblem
	case len(v.unknown) > 0:
		return exitHealthUnknown
	}
	return nil
}

// health judges the parts of the node, not the work on them. What is old says
// nothing, good or bad.
func (a *answer) health(now time.Time, maxAge time.Duration, want int) verdict {
	var v verdict
	if age := now.Sub(a.snapshot.Time); age > maxAge {
		v.unknown = append(v.unknown, fmt.Sprintf("what the agent knows is %s old", text.Span(age)))
		return v
	}
	if until := a.snapshot.ReleasedUntil; until.After(now) {
		v.unknown = append(v.unknown, "the driver is released until "+timeOfDay(until))
	}
	for _, s := range a.blind() {
		if ofGPUs(s.Name) { // what others see is not about GPUs
			v.unknown = append(v.unknown, fmt.Sprintf("source %s does not see: %s", s.Name, s.Error))
		}
	}
	answering, gone := 0, a.absence(want)
	if gone != "" {
		v.problems = append(v.problems, gone)
	}
	for _, g := range a.snapshot.GPUs {
		switch present, known := g.Readings[metric.GPUPresent.Name]; {
		case g.GivenAway:
			// whoever said how many GPUs there must be counts it as missing, nobody else does
		case g.Hung:
			v.problems = append(v.problems, fmt.Sprintf("GPU %d hangs", g.Index))
		case known && present == 0 && a.gpuPage() != nil:
			v.problems = append(v.problems, fmt.Sprintf("GPU %d is not on the page of %s any more", g.Index, a.gpuPage().Exporter))
		case known && present == 0:
			v.problems = append(v.problems, fmt.Sprintf("GPU %d is lost", g.Index))
		case known:
			answering++
		case len(v.unknown) == 0 && gone == "":
			v.unknown = append(v.unknown, fmt.Sprintf("GPU %d has not been asked for", g.Index))
		}
	}
	silent := len(v.problems) > 0
	for _, f := range firing(a.findings.Findings) {
		if (f.Rule == rules.IDGPULost || f.Rule == rules.IDSuspectMonitor) && silent {
			continue // told above, of each GPU
		}
		if brokenPart(f) {
			v.problems = append(v.problems, fmt.Sprintf("%s on %s", f.Title, subjectName(f)))
		}
	}
	listed := want
	if want == asSeen { // a GPU that was lost before the agent started was never seen, but may be listed
		listed = int(a.snapshot.Node.Readings[metric.GPUsSeen.Name])
	}
	if missing := listed - answering; missing > 0 && len(v.problems) == 0 && len(v.unknown) == 0 {
		v.problems = append(v.problems, fmt.Sprintf("%d of %d GPUs answer", answering, listed))
	}
	if len(v.problems) == 0 {
		v.unknown = append(v.unknown, a.unwatched(want)...)
	}
	v.well = a.census(answering)
	return v
}

// brokenPart reports whether a finding is about a part that no job should use.
func brokenPart(f server.Finding) bool {
	r := rules.Get(f.Rule)
	return r != nil && r.Hardware && f.Severity == rules.Page
}
