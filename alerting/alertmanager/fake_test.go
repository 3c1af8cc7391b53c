package alertmanager

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"gpuvigil/alerting/internal/example"
	"gpuvigil/detect"
	"gpuvigil/rules"
)

// fakeServer keeps alerts as Alertmanager does: by their labels, the last word counts.
type fakeServer struct {
	*httptest.Server
	mu       sync.Mutex
	alerts   map[string]postable // by fingerprint
	posts    int
	largest  int // alerts in one request
	status   int // of the answer to POST; 0: 200
	header   http.Header
	invalid  []string // alerts that Alertmanager would refuse
	asked    []string // what else was asked for
	answers  map[string]string
	password string
}

func newFakeServer(t *testing.T) *fakeServer {
	t.Helper()
	f := &fakeServer{alerts: map[string]postable{}, header: http.Header{}, answers: map[string]string{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.password != "" {
		if user, password, _ := r.BasicAuth(); user != "vigil" || password != f.password {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
	}
	if r.Method != http.MethodPost {
		f.asked = append(f.asked, r.URL.RequestURI())
		answer, ok := f.answers[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprint(w, answer)
		return
	}
	f.posts++
	if f.status != 0 {
		for name, v := range f.header {
			w.Header()[name] = v
		}
		w.WriteHeader(f.status)
		return
	}
	var posted []postable
	if err := json.NewDecoder(r.Body).Decode(&posted); err != nil || !strings.HasSuffix(r.URL.Path, "/api/v2/alerts") || r.Header.Get("Content-Type") != "application/json" {
		f.invalid = append(f.invalid, fmt.Sprintf("%s %s: %v", r.URL.Path, r.Header.Get("Content-Type"), err))
	}
	f.largest = max(f.largest, len(posted))
	for _, p := range posted {
		if p.StartsAt.IsZero() || p.EndsAt.Before(p.StartsAt) || len(p.Labels) == 0 || p.Labels.Validate() != nil {
			f.invalid = append(f.invalid, fmt.Sprintf("%+v", p))
		}
		f.alerts[p.Labels.Fingerprint().String()] = p
	}
}

// set changes the server under its lock.
func (f *fakeServer) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// open returns what fires at the server at a time, by severity, rule and name of the GPU.
func (f *fakeServer) open(t *testing.T, now time.Time) string {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range f.invalid {
		t.Errorf("Alertmanager would refuse this: %s", i)
	}
	var set []string
	for _, p := range f.alerts {
		if p.EndsAt.After(now) {
			set = append(set, string(p.Labels["severity"]+" "+p.Labels["rule"]))
		}
	}
	return join(set)
}

// bench is a sender with incidents and a clock that a test sets.
type bench struct {
	*Sender
	t         *testing.T
	now       time.Time
	incidents []detect.Incident
	allowed   bool
}

func newBench(t *testing.T, servers ...*fakeServer) *bench {
	t.Helper()
	b := &bench{t: t, now: example.Start.Add(time.Minute), allowed: true}
	c := Config{Name: "am", Incidents: func() []detect.Incident { return b.incidents }, Message: messageOf,
		Allow: func(*detect.Incident) bool { return b.allowed }, Log: slog.New(slog.DiscardHandler)}
	for _, s := range servers {
		c.URLs = append(c.URLs, s.URL)
	}
	b.start(c)
	return b
}

func (b *bench) start(c Config) {
	b.t.Helper()
	s, err := New(c)
	if err != nil {
		b.t.Fatal(err)
	}
	s.began = b.now
	b.Sender = s
}

// round has each Alertmanager told what is so, and returns the first failure.
func (b *bench) round() error {
	var failed error
	for _, t := range b.targets {
		t.update(b.now)
		err := t.tell(b.t.Context(), b.now)
		t.settle(err, b.now)
		if failed == nil {
			failed = err
		}
	}
	return failed
}

func (b *bench) after(d time.Duration) {
	b.t.Helper()
	b.now = b.now.Add(d)
	if err := b.round(); err != nil {
		b.t.Fatal(err)
	}
}

func incidentOf(k int, s rules.Severity) detect.Incident {
	i := example.Of([]rules.ID{rules.IDXid, rules.IDSaturatedGPU, rules.IDIdleGPU, rules.IDVersionChanged}[k])
	i.Severity = s
	return i
}

// many are incidents that differ by their node.
func many(n int) (all []detect.Incident) {
	for k := range n {
		i := example.Incidents()[0]
		i.ID = fmt.Sprint("many-", k)
		i.Members[0].Node = fmt.Sprint("node-", k)
		all = append(all, i)
	}
	return all
}

func labelsOf(t *testing.T, f *fakeServer) (sets []model.LabelSet) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.alerts {
		sets = append(sets, p.Labels)
	}
	return sets
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
