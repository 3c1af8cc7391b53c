package rules

import (
	"slices"
	"strings"
	"testing"
	"time"

	"gpuvigil/internal/metric"
)

func TestBookIsComplete(t *testing.T) {
	seen := map[ID]bool{}
	for _, r := range All() {
		if err := r.Validate(All()); err != nil {
			t.Error(err)
		}
		if seen[r.ID] {
			t.Errorf("rule %q is in the book twice", r.ID)
		}
		seen[r.ID] = true
		if Get(r.ID) != r {
			t.Errorf("Get(%q) does not return the book's entry", r.ID)
		}
	}
	for _, id := range []ID{IDSaturatedGPU, IDIdleGPU, IDVersionChanged, IDXid} {
		if !seen[id] {
			t.Errorf("the book lacks %q", id)
		}
	}
	if Get("no_such_rule") != nil {
		t.Error("Get returned a rule for an id that the book does not have")
	}
}

// Only certain faults, and jobs that have stopped, may wake somebody out of the box.
func TestOnlyFaultsAndStoppedJobsMayPage(t *testing.T) {
	pages := []ID{IDXid, IDSuspectMonitor, IDGPULost, IDSXid, IDJobHung, IDJobStalled}
	for _, r := range All() {
		if r.Pages != slices.Contains(pages, r.ID) {
			t.Errorf("rule %q: may page is %t", r.ID, r.Pages)
		}
	}
}

func TestValidateFindsWhatIsMissing(t *testing.T) {
	good := func() Rule { return *Get(IDSaturatedGPU) }
	for name, c := range map[string]struct {
		spoil func(*Rule)
		want  string
	}{
		"id":          {func(r *Rule) { r.ID = "Saturated GPU" }, "the id must match"},
		"title":       {func(r *Rule) { r.Title = "" }, "no title"},
		"meaning":     {func(r *Rule) { r.Meaning = "" }, "no meaning"},
		"action":      {func(r *Rule) { r.Action = "" }, "no action"},
		"unit":        {func(r *Rule) { r.Unit = "" }, "no unit"},
		"runbook":     {func(r *Rule) { r.Runbook = "" }, "no runbook"},
		"hold":        {func(r *Rule) { r.Hold = 0 }, "no hold time"},
		"for":         {func(r *Rule) { r.For = -time.Second }, "cannot hold for -1s"},
		"severity":    {func(r *Rule) { r.Severity = 9 }, "severity 9 is unknown"},
		"page":        {func(r *Rule) { r.Severity = Page }, "not on the list of rules that may page"},
		"hides self":  {func(r *Rule) { r.HiddenBy = []ID{IDSaturatedGPU} }, "hides itself"},
		"hidden by ?": {func(r *Rule) { r.HiddenBy = []ID{"gone"} }, `hidden by "gone"`},
		"no watch":    {func(r *Rule) { r.Watch = nil }, "watches no reading"},
		"counter":     {func(r *Rule) { r.Watch = []*metric.Def{metric.Energy} }, "no plain gauge"},
		"dimension":   {func(r *Rule) { r.Watch = []*metric.Def{metric.Clock} }, "no plain gauge"},
	} {
		t.Run(name, func(t *testing.T) {
			r := good()
			c.spoil(&r)
			if err := r.Validate(All()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error about %q", err, c.want)
			}
		})
	}
}

func TestSeverityText(t *testing.T) {
	for _, want := range []Severity{Info, Ticket, Page} {
		var got Severity
		text, err := want.MarshalText()
		if err == nil {
			err = got.UnmarshalText(text)
		}
		if err != nil || got != want {
			t.Errorf("%s read back as %s, error %v", want, got, err)
		}
	}
	var s Severity
	if err := s.UnmarshalText([]byte("warning")); err == nil || !strings.Contains(err.Error(), "info, ticket or page") {
		t.Errorf("severity warning: error %v does not say what is allowed", err)
	}
}
