package alert_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"

	"gpuvigil/alerting"
	"gpuvigil/alerting/alert"
	"gpuvigil/alerting/internal/example"
	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/golden"
	"gpuvigil/rules"
)

var options = alert.Options{Cluster: "c1", Labels: map[string]string{"environment": "production", "rule": "not ours"}}

// What Alertmanager is told of the commonest incidents, word by word.
func TestAlerts(t *testing.T) {
	var all []alert.Alert
	for _, i := range example.Incidents() {
		all = append(all, alert.Of(example.Message(i), options))
	}
	got, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/alerts.json", string(got)+"\n", "Alertmanager is told something else")
}

// An incident is the same alert whatever becomes of it, until it gets worse.
func TestIdentityStays(t *testing.T) {
	i := example.Of(rules.IDSaturatedGPU)
	i.Began = detect.Origin{Rule: i.Rule, Cause: i.Cause, Subject: i.Members[0].Subject, Node: i.Members[0].Node, GPUIndex: 3, Team: "inference"}
	first := alert.Of(example.Message(i), options)
	change := map[string]func(*detect.Incident){
		"new evidence": func(i *detect.Incident) { i.Members[0].Evidence.Seen = "74 °C, pid 4711" },
		"another holder": func(i *detect.Incident) {
			i.Members[0].Owner = collector.Owner{Kind: "job", ID: "slurm/9", Team: "nlp"}
		},
		"another member":          func(i *detect.Incident) { i.Members = append(i.Members, example.Incidents()[0].Members...) },
		"the root cause is known": func(i *detect.Incident) { *i = worse(*i) },
		"another index":           func(i *detect.Incident) { i.Members[0].GPUIndex = 1 },
		"the end":                 func(i *detect.Incident) { *i = example.Resolve(*i) },
	}
	for name, f := range change {
		now := i
		now.Members = append([]detect.Finding(nil), i.Members...)
		f(&now)
		got := alert.Of(example.Message(now), options)
		if diff := cmp.Diff(first.Labels, got.Labels); diff != "" {
			t.Errorf("%s makes it another alert (-before +now):\n%s", name, diff)
		}
		if !got.StartsAt.Equal(first.StartsAt) {
			t.Errorf("%s makes it begin at %s, want %s", name, got.StartsAt, first.StartsAt)
		}
	}
	i.Severity = rules.Page
	escalated := alert.Of(example.Message(i), options)
	if diff := cmp.Diff(first.Identity(), escalated.Identity()); diff != "" {
		t.Errorf("getting worse changes what it is known by (-before +now):\n%s", diff)
	}
	if first.Labels.Fingerprint() == escalated.Labels.Fingerprint() {
		t.Error("getting worse is the same alert to Alertmanager: nobody would be paged")
	}
	if escalated.As(rules.Ticket).Labels.Fingerprint() != first.Labels.Fingerprint() {
		t.Error("the alert under its former severity is not the one that was told: it could not be ended")
	}
}

// worse is the incident when its root cause turns out to be another finding.
func worse(i detect.Incident) detect.Incident {
	root := example.Incidents()[0]
	i.Rule, i.Cause = root.Rule, root.Cause
	i.Members = append(append([]detect.Finding(nil), root.Members...), i.Members...)
	return i
}

// The end is never before the beginning, which Alertmanager refuses.
func TestEnds(t *testing.T) {
	i := example.Incidents()[0]
	if a := alert.Of(example.Message(i), options); !a.EndsAt.IsZero() {
		t.Errorf("an incident that fires ends at %s", a.EndsAt)
	}
	i = example.Resolve(i)
	if a := alert.Of(example.Message(i), options); !a.EndsAt.Equal(i.Resolved) {
		t.Errorf("it ends at %s, want %s", a.EndsAt, i.Resolved)
	}
	i.Resolved = i.Opened.Add(-time.Hour)
	if a := alert.Of(example.Message(i), options); a.EndsAt.Before(a.StartsAt) {
		t.Errorf("after the clock was set back it ends at %s, before it begins at %s", a.EndsAt, a.StartsAt)
	}
}

// Whatever anybody has chosen for a name, labels and annotations are valid and bounded.
func FuzzAlert(f *testing.F) {
	f.Add("team", "caf\xe9\n\x00", "{{ .Labels }}", "Page 1!")
	f.Add("", strings.Repeat("é", 5000), "", "")
	f.Fuzz(func(t *testing.T, team, id, seen, title string) {
		i := example.Incidents()[0]
		i.Members[0].Owner.Team, i.Members[0].Subject.ID, i.Members[0].Evidence.Seen, i.Members[0].Evidence.Title = team, id, seen, title
		m := example.Message(i)
		m.Links = append(m.Links, alerting.Link{Title: title, URL: seen})
		a := alert.Of(m, alert.Options{Cluster: id})
		if err := a.Labels.Validate(); err != nil {
			t.Errorf("labels: %v", err)
		}
		if err := a.Annotations.Validate(); err != nil {
			t.Errorf("annotations: %v", err)
		}
		for _, set := range []model.LabelSet{a.Labels, a.Annotations} {
			for name, value := range set {
				if n := utf8.RuneCountInString(string(value)); n > 4000 || value == "" {
					t.Errorf("%s has %d characters", name, n)
				}
				if !model.LegacyValidation.IsValidLabelName(string(name)) {
					t.Errorf("%q is a name that an older Alertmanager refuses", name)
				}
			}
		}
	})
}
