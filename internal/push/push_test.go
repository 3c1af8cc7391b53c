package push

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"

	"gpuvigil/internal/metric"
)

// receiver is a server of samples that answers as it is told.
type receiver struct {
	t *testing.T

	mu      sync.Mutex
	status  int // of answers
	after   string
	tries   int
	got     []string // the bodies that were taken
	headers http.Header
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tries++
	if r.status == 0 {
		return nil, errors.New("connection refused")
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	if r.after != "" {
		w.Header().Set("Retry-After", r.after)
	}
	w.WriteHeader(r.status)
	fmt.Fprint(w, "what is wrong")
	if r.status == 200 {
		r.got = append(r.got, unzip(r.t, &record{payload: body}))
		r.headers = req.Header
	}
	return w.Result(), nil
}

func (r *receiver) answers(status int, after string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status, r.after = status, after
}

// pushing runs a pusher of a page that says how often it was looked at.
func pushing(t *testing.T, r *receiver, dir string) (p *Pusher, log *strings.Builder) {
	looks := 0
	log = &strings.Builder{}
	r.t = t
	p = New(Config{
		Page: func() ([]*dto.MetricFamily, func(), error) {
			looks++
			return families(t, fmt.Sprintf("# TYPE looks gauge\nlooks %d\n", looks)), func() {}, nil
		},
		URL: "http://user:hunter2@receiver/import?key=hunter2", Format: Import, Client: &http.Client{Transport: r},
		Authorize: func(req *http.Request) error { req.Header.Set("Authorization", "Bearer token"); return nil },
		Headers:   map[string]string{"X-Scope-OrgID": "us"},
		Interval:  15 * time.Second, Timeout: 10 * time.Second, Labels: []Label{{"job", "x"}},
		Dir: dir, MaxBytes: 1 << 20, MaxAge: time.Hour, Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	return p, log
}

// told is what the pusher says on a page.
func told(p *Pusher) map[string]float64 {
	out := map[string]float64{}
	p.Tell(func(d *metric.Def, v float64, labels ...string) {
		if v != 0 {
			out[strings.Join(append([]string{strings.TrimPrefix(d.Name, "vigil_push_")}, labels...), " ")] = v
		}
	})
	return out
}

func TestOutageLosesNothing(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		p, log := pushing(t, r, dir)
		go p.Run(t.Context())
		began := time.Now()
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		if n := told(p)["buffer_oldest_age_seconds"]; n != 601 {
			t.Errorf("the oldest sample that waits is %v s old, want 601", n)
		}
		r.answers(503, "30")
		time.Sleep(10 * time.Minute)
		r.answers(200, "")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		var want []string
		for i := range len(r.got) {
			want = append(want, fmt.Sprintf("looks{job=\"x\"} %d %d\n", i+1, began.Add(time.Duration(i)*15*time.Second).UnixMilli()))
		}
		if len(r.got) != 89 {
			t.Errorf("%d pages have arrived after 22 minutes, want 89", len(r.got))
		}
		if diff := cmp.Diff(want, r.got); diff != "" {
			t.Errorf("they are not those that were looked at, with their times (-want +got):\n%s", diff)
		}
		if r.headers.Get("Authorization") != "Bearer token" || r.headers.Get("X-Scope-OrgID") != "us" || r.headers.Get("Content-Encoding") != "gzip" {
			t.Errorf("headers %v", r.headers)
		}
		got := told(p)
		if got["requests_total sent"] != 89 || got["samples_total"] != 89 || got["buffer_bytes"] != 0 || got["buffer_oldest_age_seconds"] != 0 {
			t.Errorf("told: %v", got)
		}
		if f := got["requests_total failed"]; f < 20 || f > 60 {
			t.Errorf("%v tries in an outage of 20 minutes, want some 25: a pause of at most a minute between", f)
		}
		if n := strings.Count(log.String(), "\n"); n != 2 || strings.Contains(log.String(), "hunter2") {
			t.Errorf("an outage takes %d lines of log, want 2 without secrets:\n%s", n, log)
		}
	})
}

func TestAnswersOfReceivers(t *testing.T) {
	f := func(status int, dropped bool) {
		t.Helper()
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			r := &receiver{status: status}
			p, log := pushing(t, r, dir)
			go p.Run(t.Context())
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			r.answers(200, "")
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			got := told(p)
			if lost := got["lost_samples_total refused"]; (lost > 0) != dropped || len(r.got)+int(lost) != 17 {
				t.Errorf("after %d: %d pages have arrived, %v are counted as refused", status, len(r.got), lost)
			}
			if n := strings.Count(log.String(), "what is wrong"); n != 1 {
				t.Errorf("after %d the log says %d times why, want once:\n%s", status, n, log)
			}
		})
	}
	f(400, true)
	f(413, true)
	f(422, true)
	f(301, false) // somebody else's page
	f(401, false)
	f(403, false)
	f(404, false)
	f(429, false)
	f(500, false)
}

// An agent that ends leaves what it could not send to the next one.
func TestNextStartSendsWhatWasLeft(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		p, _ := pushing(t, r, dir)
		ctx, stop := contextOf(t)
		go p.Run(ctx)
		time.Sleep(time.Minute + time.Second)
		stop()
		synctest.Wait()
		if len(r.got) != 0 {
			t.Fatal("something was sent already")
		}
		next, _ := pushing(t, r, dir)
		r.answers(200, "")
		go next.Run(t.Context())
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(r.got); n != 6 {
			t.Errorf("%d pages have arrived, want 5 of the first agent and one of the second: %q", n, r.got)
		}
	})
}

// What was written in a format that is no longer configured cannot go to this URL.
func TestFormatIsChanged(t *testing.T) {
	dir := t.TempDir()
	b := opened(t, dir, 1<<20)
	b.put(rec(1))
	if err := b.close(); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{status: 200}
		p, _ := pushing(t, r, dir)
		p.cfg.MaxAge = 1 << 62
		go p.Run(t.Context())
		time.Sleep(time.Second)
		synctest.Wait()
		if got := told(p)["lost_samples_total format"]; got != 10 || len(r.got) != 1 {
			t.Errorf("%v samples are counted as lost, %d pages sent", got, len(r.got))
		}
	})
}

// A disk that hangs keeps nobody: not the page that says so, nor the end.
func TestDiskThatHangs(t *testing.T) {
	p, _ := pushing(t, &receiver{status: 200}, t.TempDir())
	p.cfg.Interval = time.Millisecond
	ctx, stop := contextOf(t)
	ended := make(chan struct{})
	go func() { p.Run(ctx); close(ended) }()
	for told(p)["requests_total sent"] == 0 {
		if t.Context().Err() != nil {
			t.Fatal("nothing is sent")
		}
		time.Sleep(time.Millisecond)
	}
	p.buffer.mu.Lock() // as a write would hold it that does not return
	defer p.buffer.mu.Unlock()
	if told(p)["requests_total sent"] == 0 {
		t.Error("the page does not say what was sent")
	}
	stop()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the end waits for the disk")
	}
}

func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	return ctx, stop
}
