package slurm

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAsksSeldomAndSeldomerWhileNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []time.Duration
		began := time.Now()
		var failing atomic.Bool
		c := NewClient(Config{Interval: time.Minute, Timeout: time.Second, Log: slog.New(slog.DiscardHandler)})
		c.ask = func(context.Context) (*Answer, int, error) {
			asked = append(asked, time.Since(began))
			if failing.Load() {
				return nil, 0, errors.New("no answer")
			}
			return &Answer{Jobs: []Job{{ID: "1"}}}, 2, nil
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { c.Run(ctx); close(done) }()
		time.Sleep(61 * time.Second)
		synctest.Wait()
		for range 1000 {
			c.Latest()
		}
		if h := c.Health(); !h.Up || h.Good != 2 || h.Unreadable != 4 || c.Latest() == nil {
			t.Errorf("after a minute: %+v, answer %v", h, c.Latest())
		}
		failing.Store(true)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if h := c.Health(); h.Up || c.Latest() == nil {
			t.Errorf("within three intervals the last answer must stand: %+v", h)
		}
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		if c.Latest() != nil {
			t.Error("an answer of half an hour ago is still shown")
		}
		failing.Store(false)
		time.Sleep(15 * time.Minute)
		synctest.Wait()
		if h := c.Health(); !h.Up || h.Failed != 5 {
			t.Errorf("once it answers again: %+v", h)
		}
		stop()
		<-done
		m := time.Minute
		if diff := cmp.Diff([]time.Duration{0, m, 2 * m, 4 * m, 8 * m, 16 * m, 31 * m, 46 * m, 47 * m, 48 * m}, asked); diff != "" {
			t.Errorf("when Slurm was asked (-want +got):\n%s", diff)
		}
	})
}

// slow is a deadline that no test should come near.
const slow = time.Minute

func TestSlurmrestd(t *testing.T) {
	const token = "hunter2-token"
	jobs := read(t, "slurmrestd-jobs-new.json")
	answer := func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("X-SLURM-USER-NAME") != "vigil" || r.Header.Get("X-SLURM-USER-TOKEN") != token:
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/slurm/v0.0.40/jobs":
			w.Write([]byte(jobs))
		case r.URL.Path == "/slurm/v0.0.40/nodes":
			w.Write([]byte(`{"nodes": [{"name": "a", "state": ["IDLE"], "gres": "gpu:8", "gres_used": "gpu:0"}, {}]}`))
		default:
			http.Redirect(w, r, "/slurm/v0.0.40/jobs", http.StatusFound)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(answer))
	defer server.Close()
	ask := func(url, token string) (*Answer, int, error) {
		return newREST(Config{URL: url, User: func() (string, error) { return "vigil", nil }, Token: func() (string, error) { return token, nil }}).ask(t.Context())
	}
	a, bad, err := ask(server.URL+"/slurm/v0.0.40/", token)
	if err != nil || len(a.Jobs) != 3 || len(a.Nodes) != 1 || bad != 1 {
		t.Fatalf("%+v, %d bad rows, error %v; want 3 jobs, 1 node, 1 bad row", a, bad, err)
	}
	for url, want := range map[string][2]string{
		server.URL + "/slurm/v0.0.40":     {"other-hunter2", "scontrol token"},
		server.URL + "/elsewhere":         {token, "302"},
		"http://me:hunter2@127.0.0.1:1/x": {token, "connect"},
		"http://169.254.169.254/hunter2":  {token, "link-local"},
		server.URL:                        {"two\nlines-hunter2", "one line"},
	} {
		if _, _, err := ask(url, want[0]); err == nil || !strings.Contains(err.Error(), want[1]) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: error %v, want one that says %q and shows no secret", url, err, want[1])
		}
	}
}

// script writes a command that answers in a shell's words.
func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "command")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCommands(t *testing.T) {
	t.Setenv("VIGIL_TEST_SECRET", "hunter2")
	squeue := script(t, `[ "$TZ$SLURM_BITSTR_LEN$VIGIL_TEST_SECRET" = UTC0 ] || exit 3
case "$*" in *"--Format=JobArrayID:|#,JobID:|#,"*",Name:|#") ;; *) exit 4;; esac
echo '7|#7|#RUNNING|#None|#1000|#ada|#proj1|#gpu|#normal|#1|#2026-01-31T04:06:57|#2026-01-31T04:06:57|#2026-01-31T04:07:00|#1:00:00|#0:10|#N/A|#N/A|#N/A|#gres/gpu=2|#x; rm -rf /|#'
echo 'nonsense'
`)
	sinfo := script(t, `echo 'n1|#gpu*|#mixed|#gpu:8|#gpu:2(IDX:0-1)|#'; echo 'n1|#long|#mixed|#gpu:8|#gpu:2(IDX:0-1)|#'`)
	a, bad, err := commands{Config{Squeue: squeue, Sinfo: sinfo}}.ask(t.Context())
	if err != nil || bad != 1 || len(a.Jobs) != 1 {
		t.Fatalf("%+v, %d bad rows, error %v", a, bad, err)
	}
	if j := a.Jobs[0]; j.ID != "7" || j.UID != 1000 || j.GPUs != 2 || j.Account != "proj1" || j.Name != "x; rm -rf /" {
		t.Errorf("job is %+v", j)
	}
	if diff := cmp.Diff([]Node{{Name: "n1", Partitions: []string{"gpu", "long"}, State: NodeUsable, GPUs: 8, Used: 2}}, a.Nodes); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	f := func(body, want string) {
		t.Helper()
		if _, _, err := (commands{Config{Squeue: script(t, body)}}).ask(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one that says %q", body, err, want)
		}
	}
	f("echo 'slurm_load_jobs error' >&2; exit 1", "slurm_load_jobs error")
	f("echo unknown column", "--Format")
	if _, _, err := (commands{Config{Squeue: "/absent/squeue"}}).ask(t.Context()); err == nil || !strings.Contains(err.Error(), "/absent/squeue") {
		t.Errorf("no command: error %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, _, err := (commands{Config{Squeue: script(t, "exec sleep 600")}}).ask(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > slow {
		t.Errorf("a command that hangs: error %v after %s", err, time.Since(began))
	}
}

// What cannot be read at all is no answer: the nodes are not gone, and the last good answer
// stands.
func TestGarbageIsNoAnswer(t *testing.T) {
	good := `echo 'n1|#gpu*|#mixed|#gpu:8|#gpu:2(IDX:0-1)|#'`
	sinfo := script(t, good)
	c := NewClient(Config{Squeue: script(t, "true"), Sinfo: sinfo, Interval: time.Minute, Timeout: slow, Log: slog.New(slog.DiscardHandler)})
	if !c.poll(t.Context()) {
		t.Fatal("the good answer is not taken")
	}
	if err := os.WriteFile(sinfo, []byte("#!/bin/sh\necho garbage; echo line2"), 0o700); err != nil {
		t.Fatal(err)
	}
	if c.poll(t.Context()) || c.Health().Up || c.Health().Failed != 1 {
		t.Errorf("garbage of sinfo counts as an answer: %+v", c.Health())
	}
	if a := c.Latest(); a == nil || len(a.Nodes) != 1 {
		t.Errorf("after garbage of sinfo the last good answer is gone: %+v", a)
	}
	for name, bodies := range map[string][2]string{"jobs": {`{"jobs": [5, {}]}`, `{"nodes": []}`}, "nodes": {`{"jobs": []}`, `{"nodes": [{}]}`}} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/jobs") {
				w.Write([]byte(bodies[0]))
			} else {
				w.Write([]byte(bodies[1]))
			}
		}))
		_, _, err := newREST(Config{URL: server.URL}).ask(t.Context())
		server.Close()
		if err == nil || !strings.Contains(err.Error(), "none of its") {
			t.Errorf("slurmrestd's %s cannot be read and count as an answer, error %v", name, err)
		}
	}
}

func TestOutputIsBounded(t *testing.T) {
	b := &bounded{max: 10}
	if n, err := b.Write(bytes.Repeat([]byte("x"), 11)); n != 10 || !errors.Is(err, errTooMuch) || b.buf.Len() != 10 {
		t.Errorf("%d bytes of 11 are kept, error %v, want 10 and that it was too much", n, err)
	}
	if _, _, err := (commands{Config{Squeue: script(t, "exec yes")}}).ask(t.Context()); !errors.Is(err, errTooMuch) {
		t.Errorf("a command without end: error %v", err)
	}
}
