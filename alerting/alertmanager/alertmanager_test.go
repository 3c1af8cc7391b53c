package alertmanager

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/alerting"
	"gpuvigil/alerting/alert"
	"gpuvigil/alerting/internal/example"
	"gpuvigil/alerting/post"
	"gpuvigil/detect"
	"gpuvigil/rules"
)

func messageOf(i *detect.Incident) alerting.Message { return example.Message(*i) }

func join(set []string) string {
	slices.Sort(set)
	return strings.Join(set, ", ")
}

// An incident fires there as long as it does, without a gap, and ends at once.
func TestRepeatsUntilTheEnd(t *testing.T) {
	f := newFakeServer(t)
	b := newBench(t, f)
	b.incidents = []detect.Incident{incidentOf(0, rules.Page)}
	for range 30 {
		b.after(time.Minute)
		// It would be firing also if the next two repetitions were lost.
		if got := f.open(t, b.now.Add(3*time.Minute)); got != "page xid" {
			t.Fatalf("while the incident goes on, Alertmanager has firing: %q", got)
		}
	}
	if n := len(labelsOf(t, f)); n != 1 {
		t.Errorf("one incident became %d alerts: %v", n, labelsOf(t, f))
	}
	resolved := example.Resolve(b.incidents[0])
	resolved.Resolved = b.now
	b.incidents = []detect.Incident{resolved}
	b.after(time.Second)
	if got := f.open(t, b.now); got != "" {
		t.Errorf("a second after its end Alertmanager still has firing: %q", got)
	}
	if got := f.open(t, b.now.Add(-2*time.Second)); got != "page xid" {
		t.Errorf("it ended earlier than the incident did: %q", got)
	}
	told := func() int { f.mu.Lock(); defer f.mu.Unlock(); return f.posts }
	before := told()
	b.after(10 * time.Minute)
	if told() != before+1 {
		t.Error("the end is not repeated after 10 minutes: an Alertmanager that was down then would not hear of it")
	}
	b.after(10 * time.Minute)
	if told() != before+1 {
		t.Error("the end is repeated for ever")
	}
}

// Getting worse ends the alert of the lesser severity and begins that of the greater.
func TestEscalation(t *testing.T) {
	f := newFakeServer(t)
	b := newBench(t, f)
	b.incidents = []detect.Incident{incidentOf(1, rules.Ticket)}
	b.after(time.Minute)
	b.incidents = []detect.Incident{incidentOf(1, rules.Page)}
	b.after(time.Minute)
	if got := f.open(t, b.now); got != "page saturated_gpu" {
		t.Errorf("after it got worse Alertmanager has firing: %q, want the page only", got)
	}
	for _, p := range f.alerts {
		if !p.StartsAt.Equal(example.Start) {
			t.Errorf("the alert of severity %s begins at %s, want the incident's beginning %s", p.Labels["severity"], p.StartsAt, example.Start)
		}
	}
}

// What ended while nobody ran, or just before, ends there after a restart.
func TestRestart(t *testing.T) {
	f := newFakeServer(t)
	b := newBench(t, f)
	b.incidents = []detect.Incident{incidentOf(0, rules.Page), incidentOf(1, rules.Ticket)}
	b.after(time.Minute)
	before := labelsOf(t, f)
	resolved := example.Resolve(b.incidents[1])
	resolved.Resolved = b.now
	b.incidents[1] = resolved
	b.now = b.now.Add(time.Minute)
	b.start(b.cfg)
	b.after(0)
	if got := f.open(t, b.now); got != "page xid" {
		t.Errorf("after a restart Alertmanager has firing: %q, want what goes on only", got)
	}
	if diff := cmp.Diff(len(before), len(labelsOf(t, f))); diff != "" {
		t.Errorf("a restart made other alerts of the same incidents: %v, before %v", labelsOf(t, f), before)
	}
}

// A gate decides about the beginning; what was told is followed to its end.
func TestGate(t *testing.T) {
	f := newFakeServer(t)
	b := newBench(t, f)
	b.incidents, b.allowed = []detect.Incident{incidentOf(0, rules.Page)}, false
	b.after(time.Minute)
	if got := f.open(t, b.now); got != "" {
		t.Errorf("what is kept back was sent: %q", got)
	}
	b.allowed = true
	b.after(time.Minute)
	b.allowed = false
	b.after(10 * time.Minute)
	if got := f.open(t, b.now); got != "page xid" {
		t.Errorf("what was told and goes on is not firing any more: %q", got)
	}
	resolved := example.Resolve(b.incidents[0])
	resolved.Resolved = b.now
	b.incidents = []detect.Incident{resolved}
	b.after(time.Second)
	if got := f.open(t, b.now); got != "" {
		t.Errorf("its end was kept back: %q", got)
	}
	drained := incidentOf(1, rules.Ticket)
	drained.Members[0].Suppressed = "drained"
	b.incidents, b.allowed = []detect.Incident{drained}, true
	b.after(time.Minute)
	if got := f.open(t, b.now); got != "" {
		t.Errorf("what nobody is to be told of was sent: %q", got)
	}
}

// One Alertmanager that is down delays no other, and is told all when it is back.
func TestOneIsDown(t *testing.T) {
	up, down := newFakeServer(t), newFakeServer(t)
	down.status = http.StatusBadGateway
	b := newBench(t, down, up)
	b.incidents = []detect.Incident{incidentOf(0, rules.Page)}
	if err := b.round(); err == nil {
		t.Fatal("an answer of 502 is taken for success")
	}
	if got := up.open(t, b.now); got != "page xid" {
		t.Errorf("the Alertmanager that is up has firing: %q", got)
	}
	b.now = b.now.Add(20 * time.Minute)
	s := b.targets[0].status(b.now)
	if s.Waiting != 1 || s.OldestAge != 20*time.Minute || s.Failures != 1 || s.Receiver == b.targets[1].name {
		t.Errorf("the Alertmanager that is down stands so: %+v, want one alert that waits for 20 minutes under a name of its own", s)
	}
	down.set(func() { down.status = 0 })
	b.after(0)
	if got := down.open(t, b.now); got != "page xid" {
		t.Errorf("once it is back it has firing: %q", got)
	}
	if s := b.targets[0].status(b.now); s.Waiting != 0 || s.OldestAge != 0 || s.LastError != "" {
		t.Errorf("once it is back it stands so: %+v", s)
	}
}

func TestPausesAfterFailures(t *testing.T) {
	f := newFakeServer(t)
	b := newBench(t, f)
	target := b.targets[0]
	var pauses []time.Duration
	for range 12 {
		pause, failed := target.settle(errors.New("down"), b.now)
		if !failed {
			t.Fatal("a failure is taken for a success")
		}
		pauses = append(pauses, pause)
	}
	if pauses[0] > 2*time.Second || pauses[11] < 40*time.Second || pauses[11] > 80*time.Second {
		t.Errorf("pauses after failures are %v, want them to grow from a second to the minute between repetitions", pauses)
	}
	if pause, _ := target.settle(&alerting.Wait{For: 90 * time.Second}, b.now); pause != 90*time.Second {
		t.Errorf("the server asks for 90 s, the pause is %s", pause)
	}
}

// A refusal for what is in one request does not keep the others back.
func TestRefusedBatch(t *testing.T) {
	f := newFakeServer(t)
	b := newBench(t, f)
	b.incidents = many(150)
	f.status = http.StatusBadRequest
	var refusal *alerting.Refusal
	if err := b.round(); !errors.As(err, &refusal) {
		t.Errorf("an answer of 400 gives %v, want a refusal", err)
	}
	if f.posts != 3 {
		t.Errorf("after a request was refused for what is in it, %d of 3 were made", f.posts)
	}
	f.set(func() { f.status = http.StatusUnauthorized })
	if err := b.round(); !errors.As(err, &refusal) || strings.Contains(err.Error(), f.URL) {
		t.Errorf("an answer of 401 gives %v, want a refusal", err)
	}
	if f.posts != 4 {
		t.Errorf("though the server does not know us, %d requests were made, want one more only", f.posts-3)
	}
	f.set(func() { f.status = 0 })
	b.after(time.Minute)
	if f.largest > maxBatch || len(labelsOf(t, f)) != 150 {
		t.Errorf("150 incidents became %d alerts in requests of up to %d", len(labelsOf(t, f)), f.largest)
	}
}

// Two incidents with the same labels are one alert, which fires while either does.
func TestAlike(t *testing.T) {
	f := newFakeServer(t)
	b := newBench(t, f)
	over, on := example.Resolve(incidentOf(0, rules.Page)), incidentOf(0, rules.Page)
	on.ID = "again"
	over.Resolved = b.now
	for _, order := range [][]detect.Incident{{over, on}, {on, over}} {
		b.incidents = order
		b.after(time.Second)
		if got := f.open(t, b.now); got != "page xid" {
			t.Errorf("an incident that came back fires not: %q", got)
		}
	}
}

func TestWatchdog(t *testing.T) {
	f := newFakeServer(t)
	b := newBench(t, f)
	life := alert.Of(example.Message(*alerting.SignOfLife("n1", "", example.Start)), alert.Options{})
	alive := true
	b.cfg.Watchdog = func() *alert.Alert {
		if !alive {
			return nil
		}
		return &life
	}
	b.after(time.Minute)
	if got := f.open(t, b.now.Add(3*time.Minute)); got != "info watchdog" {
		t.Errorf("while all is well Alertmanager has firing: %q, want the watchdog", got)
	}
	alive = false
	b.after(time.Minute)
	if got := f.open(t, b.now); got != "" {
		t.Errorf("while nothing is judged Alertmanager has firing: %q", got)
	}
}

// The real request has just the keys that ours have.
func TestFormOfThePost(t *testing.T) {
	content, err := os.ReadFile("testdata/post-v2-alerts.json")
	if err != nil {
		t.Fatal(err)
	}
	var real []map[string]any
	if err := json.Unmarshal(content, &real); err != nil {
		t.Fatal(err)
	}
	now := example.Start.Add(time.Hour)
	i := example.Resolve(incidentOf(0, rules.Page))
	e := &entry{one: &one{Alert: alert.Of(messageOf(&i), alert.Options{})}, ended: i.Resolved}
	body, err := json.Marshal(e.postable(now, now))
	if err != nil {
		t.Fatal(err)
	}
	var ours map[string]any
	if err := json.Unmarshal(body, &ours); err != nil {
		t.Fatal(err)
	}
	for key, want := range real[1] {
		if reflect.TypeOf(ours[key]) != reflect.TypeOf(want) {
			t.Errorf("%s is %v, want it as in %v", key, ours[key], want)
		}
		delete(ours, key)
	}
	if len(ours) > 0 {
		t.Errorf("Alertmanager knows nothing of %v", ours)
	}
}

func TestCredentials(t *testing.T) {
	f := newFakeServer(t)
	f.password = "hunter2"
	b := newBench(t, f)
	b.incidents = many(1)
	password := "wrong-password"
	b.cfg.Server = post.Config{User: "vigil", Password: func() (string, error) { return password, nil }}
	b.start(b.cfg)
	err := b.round()
	if err == nil || strings.Contains(err.Error(), password) {
		t.Errorf("a wrong password gives %v, want a refusal without it", err)
	}
	password = "hunter2"
	b.after(time.Minute) // without a restart
	if n := len(labelsOf(t, f)); n != 1 {
		t.Errorf("with the password that was mended %d alerts are there, want 1", n)
	}
}

func TestPathPrefixAndSilenceURL(t *testing.T) {
	f := newFakeServer(t)
	b := newBench(t, f)
	b.incidents = many(1)
	b.cfg.URLs = []string{f.URL + "/alertmanager/"}
	b.start(b.cfg)
	b.after(0)
	if n := len(labelsOf(t, f)); n != 1 {
		t.Errorf("under a path prefix %d alerts arrived", n)
	}
	got := b.SilenceURL(messageOf(&b.incidents[0]))
	if !strings.HasPrefix(got, f.URL+"/alertmanager/#/silences/new?filter=%7Balertname=%22VigilXid%22%2C") || strings.Contains(got, "severity") {
		t.Errorf("the page for a silence is %s", got)
	}
	if _, err := New(Config{Name: "x", URLs: []string{"ftp://user:hunter2@h"}}); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a URL that is none gives %v", err)
	}
}
