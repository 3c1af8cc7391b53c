package backtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// TestABudgetLetsThroughWhatIsRareEnough has facts, which every budget lets through, and
// what is told from what is usual.
func TestABudgetLetsThroughWhatIsRareEnough(t *testing.T) {
	const gpus = 1000
	at := time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)
	finding := func(s rules.Severity, nats float64) detect.Finding {
		return detect.Finding{Severity: s, Surprise: nats, Fired: at}
	}
	ticket, page := surprise(gpus, 10), surprise(gpus, 1)
	if !(page > ticket && ticket > 0) {
		t.Fatalf("a page needs %.1f nats and a ticket %.1f: a page needs more", page, ticket)
	}
	for name, c := range map[string]struct {
		members []detect.Finding
		kept    int
		want    rules.Severity
	}{
		"a fact":                       {[]detect.Finding{finding(rules.Page, 0)}, 1, rules.Page},
		"not rare enough":              {[]detect.Finding{finding(rules.Ticket, ticket-0.1)}, 0, rules.Info},
		"rare enough":                  {[]detect.Finding{finding(rules.Ticket, ticket+0.1)}, 1, rules.Ticket},
		"a page rare as a ticket":      {[]detect.Finding{finding(rules.Page, ticket+0.1)}, 1, rules.Ticket},
		"a page rare enough":           {[]detect.Finding{finding(rules.Page, page+0.1)}, 1, rules.Page},
		"a fact beside what is chance": {[]detect.Finding{finding(rules.Page, 1), finding(rules.Info, 0)}, 1, rules.Info},
	} {
		got := affordable([]Told{{Incident: detect.Incident{Severity: rules.Page, Members: c.members}, First: at}}, gpus, 10)
		if len(got) != min(c.kept, 1) || len(got) == 1 && (len(got[0].Incident.Members) != c.kept || got[0].Incident.Severity != c.want) {
			t.Errorf("%s: %+v, want %d findings kept, at most a %s", name, got, c.kept, c.want)
		}
	}
}

// pastOf feeds nodes of one GPU that reports an Xid after a while, a minute each, over the
// turn of a week.
func pastOf(nodes int) Feed {
	return func(_ context.Context, observe func(time.Time, []*collector.Snapshot) error) error {
		sunday := time.Date(2026, 1, 4, 22, 0, 0, 0, time.UTC)
		for m := range 240 {
			at := sunday.Add(time.Duration(m) * time.Minute)
			var all []*collector.Snapshot
			for n := range nodes {
				s := &collector.Snapshot{Time: at, Node: collector.Node{Name: fmt.Sprintf("n%d", n), Readings: collector.NewReadings(metric.Node)}}
				g := collector.GPU{UUID: fmt.Sprintf("GPU-%d", n), Present: true, Readings: collector.NewReadings(metric.GPU)}
				s.GPUs = []collector.GPU{g}
				if m == 150+n {
					s.Events = []collector.Event{{Kind: collector.XidEvent, Time: at, UUID: g.UUID, Code: 79}}
				}
				all = append(all, s)
			}
			if err := observe(at, all); err != nil {
				return err
			}
		}
		return nil
	}
}

func TestHistoryIsTheSameWithAnyNumberOfWorkers(t *testing.T) {
	var first *Replayed
	for _, workers := range []int{1, 3} {
		r, err := History(t.Context(), HistoryOptions{Name: "x", Workers: workers}, pastOf(5))
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = r
		}
		if diff := cmp.Diff(first.weeks(), r.weeks()); diff != "" {
			t.Errorf("the weeks differ with %d workers:\n%s", workers, diff)
		}
		if diff := cmp.Diff(first.subjects(), r.subjects()); diff != "" {
			t.Errorf("the subjects differ with %d workers:\n%s", workers, diff)
		}
	}
	weeks := first.weeks()
	if len(weeks) != 2 || weeks[0].Told != [3]int{} || weeks[1].Told[rules.Page] != 5 || first.GPUs != 5 {
		t.Errorf("weeks %+v of %d GPUs: want nothing on Sunday, and five pages from Monday on", weeks, first.GPUs)
	}
	if _, err := History(t.Context(), HistoryOptions{Name: "x"}, pastOf(0)); err == nil {
		t.Error("a past without a node is a result")
	}
	broken := errors.New("the server is gone")
	r, err := History(t.Context(), HistoryOptions{Name: "x"}, func(ctx context.Context, observe func(time.Time, []*collector.Snapshot) error) error {
		return errors.Join(pastOf(1)(ctx, observe), broken)
	})
	if r == nil || !errors.Is(err, broken) {
		t.Errorf("what came before an error counts, with the error: got %v, %v", r, err)
	}
}
