package alertmanager

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"

	"gpuvigil/alerting/alert"
	"gpuvigil/detect"
	"gpuvigil/internal/text"
)

const silenceID = "00000000-0000-4000-8000-000000000001"

// An answer of a real Alertmanager is read: who is silenced, and until when.
func TestRealAnswer(t *testing.T) {
	content, err := os.ReadFile("testdata/get-v2-alerts.json")
	if err != nil {
		t.Fatal(err)
	}
	f := newFakeServer(t)
	f.answers["/api/v2/alerts"] = string(content)
	f.answers["/api/v2/silence/"+silenceID] = `{"id":"` + silenceID + `","endsAt":"2026-09-01T02:00:00.000Z","comment":"being\nreplaced","createdBy":"hunter2"}`
	b := newBench(t, f)
	mutes, err := b.targets[0].look(t.Context(), map[string]string{"00f067aa0ba902b7": "incident-1", "ffffffffffffffff": "incident-2"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]Mute{"incident-1": {{By: BySilence, ID: silenceID, Until: time.Date(2026, 9, 1, 2, 0, 0, 0, time.UTC), Comment: "being replaced"}}}
	if diff := cmp.Diff(want, mutes); diff != "" {
		t.Errorf("what is silenced (-want +got):\n%s", diff)
	}
}

// Alerts are known by the fingerprint that Alertmanager makes of their labels; what is
// not ours is left out.
func TestMutes(t *testing.T) {
	f := newFakeServer(t)
	b := newBench(t, f)
	b.cfg.Options = alert.Options{Cluster: "c1"}
	b.start(b.cfg)
	b.incidents = many(3)
	b.after(0)
	ours := func(k int) model.Fingerprint {
		return alert.Of(messageOf(&b.incidents[k]), b.cfg.Options).Labels.Fingerprint()
	}
	suppressed := `{"fingerprint":"%s","status":{"state":"suppressed","silencedBy":[],"inhibitedBy":[%s],"mutedBy":[%s]}}`
	f.set(func() {
		f.answers["/api/v2/alerts"] = "[" + strings.Join([]string{
			fmt.Sprintf(suppressed, ours(0), `"abc"`, `"nights"`),
			fmt.Sprintf(suppressed, "0123456789abcdef", `"abc"`, ``),
			`{"fingerprint":"` + ours(2).String() + `","status":{"state":"active","silencedBy":[],"inhibitedBy":[],"mutedBy":[]}}`,
		}, ",") + "]"
	})
	mutes, err := b.look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]Mute{"many-0": {{By: ByInhibition, ID: "abc"}, {By: ByTime, ID: "nights"}}}
	if diff := cmp.Diff(want, mutes); diff != "" {
		t.Errorf("what is kept from people (-want +got):\n%s", diff)
	}
	if asked := f.asked[0]; !strings.Contains(asked, "source%3D%22gpuvigil%22") || !strings.Contains(asked, "cluster%3D%22c1%22") {
		t.Errorf("it asks for %s, want our alerts of this cluster only", asked)
	}
	b.mutes = mutes
	for way, want := range map[string]int{BySilence: 0, ByInhibition: 1, ByTime: 1} {
		if n := b.mutedBy(way); n != want {
			t.Errorf("%d incidents are muted by %s, want %d", n, way, want)
		}
	}
}

// What cannot be read is not taken for unmuted or muted: the next one is asked.
func TestLookAsksTheNext(t *testing.T) {
	broken, good := newFakeServer(t), newFakeServer(t)
	broken.answers["/api/v2/alerts"] = "<html>login</html>"
	b := newBench(t, broken, good)
	b.incidents = many(1)
	b.after(0)
	if _, err := b.look(t.Context()); err == nil {
		t.Error("two answers that are none give no error")
	}
	fp := alert.Of(messageOf(&b.incidents[0]), alert.Options{}).Labels.Fingerprint()
	good.set(func() {
		good.answers["/api/v2/alerts"] = `[{"fingerprint":"` + fp.String() + `","status":{"state":"suppressed","inhibitedBy":["x"]}}]`
	})
	mutes, err := b.look(t.Context())
	if err != nil || len(mutes["many-0"]) != 1 {
		t.Errorf("the second Alertmanager's answer gives %v, %v", mutes, err)
	}
}

// A sender that runs tells a change at once, reads back, and ends when it is told to.
func TestRun(t *testing.T) {
	f := newFakeServer(t)
	f.answers["/api/v2/alerts"] = `[]`
	b := newBench(t, f)
	var changed atomic.Bool
	b.cfg.Look = 10 * time.Millisecond
	b.cfg.Incidents = func() []detect.Incident {
		if changed.Load() {
			return many(1)
		}
		return nil
	}
	b.start(b.cfg)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	changed.Store(true)
	for deadline := time.Now().Add(30 * time.Second); f.open(t, time.Now()) != "page xid"; time.Sleep(time.Millisecond) {
		if b.Poke(); time.Now().After(deadline) {
			t.Fatal("a change is not told before the next repetition")
		}
	}
	asked := func() int { f.mu.Lock(); defer f.mu.Unlock(); return len(f.asked) }
	for deadline := time.Now().Add(30 * time.Second); asked() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is not read back how alerts stand")
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	good, bad := newFakeServer(t), newFakeServer(t)
	good.answers["/api/v2/status"] = `{"cluster":{"status":"ready","peers":[{"name":"a"},{"name":"b"}]},"versionInfo":{"version":"0.35.0"}}`
	said, err := newBench(t, good).Check(t.Context())
	if err != nil || !strings.Contains(said, "Alertmanager 0.35.0 at 127.0.0.1:") || !strings.Contains(said, "cluster ready with 2 members") {
		t.Errorf("of an Alertmanager that listens it says %q, %v", said, err)
	}
	if said, err = newBench(t, good, bad).Check(t.Context()); err == nil || said == "" {
		t.Errorf("of two, one of which does not know the API, it says %q, %v", said, err)
	}
}

// Whatever answers, nothing is said but in bounded, clean words, and nothing breaks.
func FuzzLook(f *testing.F) {
	content, err := os.ReadFile("testdata/get-v2-alerts.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(content), `{"endsAt":"2026-09-01T02:00:00.000Z","comment":"x"}`)
	f.Add(`[{"fingerprint":"00f067aa0ba902b7","status":{"state":"suppressed","silencedBy":["../../x",""],"mutedBy":["a\u0000b"]}}]`, `{}`)
	f.Add(`[null,{"status":null}]`, `[]`)
	f.Fuzz(func(t *testing.T, alerts, one string) {
		var all []gettable
		if json.Unmarshal([]byte(alerts), &all) != nil {
			return
		}
		mutes, err := mutesOf(all, map[string]string{"00f067aa0ba902b7": "incident-1"}, func(id string) (s silence, err error) {
			if url.PathEscape(id) != id || strings.Contains(id, ".") || id == "" {
				t.Errorf("it asks for the silence %q", id)
			}
			return s, json.Unmarshal([]byte(one), &s)
		})
		if err != nil && len(mutes) > 0 {
			t.Errorf("it says %v and fails with %v", mutes, err)
		}
		for _, m := range mutes["incident-1"] {
			if len(mutes) > 1 || len(mutes["incident-1"]) > maxMutes || text.Clean(m.ID, commentSize) != m.ID || text.Clean(m.Comment, commentSize) != m.Comment {
				t.Errorf("it says %+v", m)
			}
		}
	})
}
