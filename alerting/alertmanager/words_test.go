package alertmanager

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/detect"
	"gpuvigil/rules"
)

func TestATestMessageComesToEachOfTheAlertmanagers(t *testing.T) {
	good, bad := newFakeServer(t), newFakeServer(t)
	bad.status = http.StatusUnauthorized
	b := newBench(t, good, bad)
	sent := b.Try(t.Context(), "gpu-117")
	if len(sent) != 2 || !sent[0].Good || sent[0].What != "was delivered" || sent[1].Good || !strings.Contains(sent[1].What, "http_401") {
		t.Errorf("said is %+v", sent)
	}
	if got := good.open(t, time.Now().Add(time.Minute)); got != "info test" {
		t.Errorf("Alertmanager has firing: %q", got)
	}
	if got := good.open(t, time.Now().Add(testFires+time.Minute)); got != "" {
		t.Errorf("a test goes on: %q", got)
	}
}

func TestADigestIsAnAlertForAnHour(t *testing.T) {
	one, other := newFakeServer(t), newFakeServer(t)
	b := newBench(t, one, other)
	digest := func(kind string) alerting.Message {
		now := time.Now()
		return alerting.Message{Node: "gpu-117", Incident: detect.Incident{ID: "digest-" + kind, Rule: "digest", Cause: kind, Severity: rules.Info, State: detect.Firing, Opened: now, Updated: now},
			Words: &alerting.Text{Headline: "Daily digest of gpu-117", Lines: []alerting.Line{{Label: "Cost", Text: "12 GPU-h"}}}}
	}
	if ref, err := b.Digests().Notify(t.Context(), digest("daily"), ""); err != nil || ref == "" {
		t.Fatalf("the digest: %q, %v", ref, err)
	}
	if _, err := b.Digests().Notify(t.Context(), digest("weekly"), ""); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*fakeServer{one, other} {
		if got := f.open(t, time.Now().Add(50*time.Minute)); got != "info digest, info digest" {
			t.Errorf("of a daily and a weekly digest Alertmanager has firing: %q", got)
		}
		if got := f.open(t, time.Now().Add(61*time.Minute)); got != "" {
			t.Errorf("a digest would be repeated: %q", got)
		}
		for _, p := range f.alerts {
			if p.Annotations["summary"] != "Daily digest of gpu-117" || p.Annotations["cost"] != "12 GPU-h" || p.Annotations["description"] != "Cost: 12 GPU-h" {
				t.Errorf("it says %v", p.Annotations)
			}
		}
	}
	one.set(func() { one.status = http.StatusInternalServerError })
	if _, err := b.Digests().Notify(t.Context(), digest("daily"), ""); err != nil {
		t.Errorf("one of two has it: %v", err)
	}
	other.set(func() { other.status = http.StatusInternalServerError })
	if _, err := b.Digests().Notify(t.Context(), digest("daily"), ""); err == nil {
		t.Error("a digest that no Alertmanager took counts as sent")
	}
}

// What people know of is followed to its end by the next process, also while it is snoozed.
func TestWhatWasThereBeforeIsFollowedThoughItMayNotBeTold(t *testing.T) {
	f := newFakeServer(t)
	before := newBench(t, f)
	before.incidents = []detect.Incident{incidentOf(0, rules.Page)}
	if err := before.round(); err != nil {
		t.Fatal(err)
	}
	labels := labelsOf(t, f)[0].Clone()
	f.set(func() {
		labels["severity"] = "ticket" // it got worse since
		f.answers["/api/v2/alerts"] = `[{"labels":` + jsonOf(t, labels) + `,"status":{"state":"active"}}]`
	})

	after := newBench(t, f)
	after.allowed = false
	after.now = before.now.Add(time.Minute)
	after.incidents = []detect.Incident{before.incidents[0], incidentOf(1, rules.Ticket)}
	if err := after.round(); err != nil {
		t.Fatal(err)
	}
	if got := f.open(t, after.now.Add(endsAhead*time.Minute-time.Second)); got != "" {
		t.Errorf("before it is known what was there, what may not be told is repeated: %q", got)
	}
	after.recall(t.Context())
	after.after(time.Minute)
	after.after(time.Minute)
	if got := f.open(t, after.now.Add(3*time.Minute)); got != "page xid" {
		t.Errorf("what people know of, and nothing else, goes on while it is snoozed; Alertmanager has firing: %q", got)
	}
	if !strings.Contains(strings.Join(f.asked, " "), "source") {
		t.Errorf("others' alerts are asked for, too: %v", f.asked)
	}
}
