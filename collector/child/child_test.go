package child

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpuvigil/collector"
)

var discard = slog.New(slog.DiscardHandler)

// patience is what a test waits for something that is sure to come.
const patience = 30 * time.Second

// fakeConfig runs the test binary as a child that does what mode says, with every
// limit short but the ones that a healthy child must not exceed.
func fakeConfig(t *testing.T, mode string) Config {
	return Config{
		Command: []string{os.Args[0]}, Watch: []string{},
		Env:       []string{modeVariable + "=" + mode, "GOCOVERDIR=" + t.TempDir()}, // else a covered child complains
		InitLimit: patience, HangLimit: patience, Grace: patience, ReapLimit: patience,
		BackoffMin: time.Millisecond, BackoffMax: 20 * time.Millisecond, NoDriverRetry: 20 * time.Millisecond, WatchInterval: 5 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

// running runs the child until the test ends and sees to it that nothing is left.
func running(t *testing.T, c *Child) *Child {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run ended with %v", err)
		}
	})
	return c
}

func sample(t *testing.T, c *Child) (*collector.Part, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return c.Sample(ctx)
}

// part samples until there is one: a child may be between two lives.
func part(t *testing.T, c *Child) *collector.Part {
	t.Helper()
	var p *collector.Part
	eventually(t, "a frame of the child", func() bool {
		var err error
		p, err = sample(t, c)
		return err == nil
	})
	return p
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if cond() {
			return
		}
	}
	t.Fatalf("did not come within %v: %s", patience, what)
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestSampleReturnsEachFrameOnce(t *testing.T) {
	c := running(t, New(fakeConfig(t, "ok")))
	last := -1
	for range 20 {
		var n int
		if _, err := fmt.Sscan(part(t, c).Node.Name, &n); err != nil || n <= last {
			t.Fatalf("frame %d came after frame %d (%v)", n, last, err)
		}
		last = n
	}
	if s := c.Status(); s.State != Running || s.PID == 0 || s.Restarts != 0 || s.Frames == 0 {
		t.Errorf("a child that works is %+v", s)
	}
}

func TestEventsAreNeitherLostNorDoubled(t *testing.T) {
	c := running(t, New(fakeConfig(t, "events")))
	rng := rand.New(rand.NewPCG(1, 1))
	want := 0
	for {
		p := part(t, c)
		for _, e := range p.Events {
			if e.Code != want {
				t.Fatalf("event %d came where %d was due", e.Code, want)
			}
			want++
		}
		if p.Node.Name == "end" {
			break
		}
		time.Sleep(time.Duration(rng.IntN(1000)) * time.Microsecond)
	}
	if want != 999 {
		t.Errorf("%d events came of the 999 in 1000 frames", want)
	}
}

func TestEndOfTheChild(t *testing.T) {
	short := func(limit *time.Duration) { *limit = 50 * time.Millisecond }
	for _, tc := range []struct {
		mode   string
		reason Reason
		says   string
		config func(*Config)
		bad    uint64
	}{
		{mode: "late words", reason: Exited, says: "ended with status 1: level=error msg=\"lost the driver\""},
		{mode: "127", reason: Exited, says: "status 127: its program was not found"},
		{mode: "symbol", reason: Exited, says: "does not have (/usr/bin/gpuvigil: symbol lookup error: undefined symbol: nvmlDeviceGetFoo)"},
		{mode: "crash", reason: Exited, says: "signal 9"},
		{mode: "silent", reason: InitHung, says: "within 50ms of its start", config: func(c *Config) { short(&c.InitLimit) }},
		{mode: "stops", reason: AllGPUsHung, says: "has not sent a frame for 50ms", config: func(c *Config) { short(&c.HangLimit) }},
		{mode: "all hung", reason: AllGPUsHung, says: "no GPU has answered for 50ms", config: func(c *Config) { short(&c.HangLimit) }},
		{mode: "stubborn", reason: AllGPUsHung, says: "has not sent a frame", config: func(c *Config) { short(&c.HangLimit); short(&c.Grace) }},
		{mode: "garbage", reason: BadFrame, says: `it begins with "NVRM: th"`, bad: 1},
		{mode: "damaged", reason: BadFrame, says: "checksum", bad: 1},
		{mode: "closes", reason: BadFrame, says: "closed its pipe and runs on"},
	} {
		t.Run(tc.mode, func(t *testing.T) {
			cfg := fakeConfig(t, tc.mode)
			if tc.config != nil {
				tc.config(&cfg)
			}
			c := New(cfg)
			hung, paused := false, false
			restarts, bad := c.counters.restarts[tc.reason].Get(), c.counters.badFrames.Get()
			running(t, c)
			eventually(t, "two restarts", func() bool {
				_, _, err := c.take()
				hung, paused = hung || errors.Is(err, collector.ErrHung), paused || errors.Is(err, collector.ErrPaused)
				return c.Status().Restarts >= 2 && hung == (tc.reason == InitHung || tc.reason == AllGPUsHung)
			})
			if paused {
				t.Error("the child counts as told not to look")
			}
			if s := c.Status(); s.Reason != tc.reason || !strings.Contains(s.Err, tc.says) {
				t.Errorf("the child ended with reason %q: %s; want %q and %q", s.Reason, s.Err, tc.reason, tc.says)
			}
			if got := c.counters.restarts[tc.reason].Get() - restarts; got < 2 {
				t.Errorf("two restarts were counted as %d of reason %s", got, tc.reason)
			}
			if got := c.counters.badFrames.Get() - bad; got < tc.bad || tc.bad == 0 && got > 0 {
				t.Errorf("%d bad frames were counted, want at least %d", got, tc.bad)
			}
		})
	}
}

func TestLastFrameAndRestartAreDelivered(t *testing.T) {
	c := running(t, New(fakeConfig(t, "late words")))
	if p := part(t, c); len(p.Events) == 0 || p.Events[0].Text != "last" {
		t.Errorf("what the child sent before it ended came as %+v", p.Events)
	}
	var restart collector.Event
	eventually(t, "an event for the restart", func() bool {
		for _, e := range part(t, c).Events {
			if e.Kind == collector.ChildRestart {
				restart = e
			}
		}
		return restart.Kind != ""
	})
	if !strings.HasPrefix(restart.Text, "exited: the child ended with status 1") || restart.Time.IsZero() {
		t.Errorf("the restart is told as %+v", restart)
	}
}

func TestNoDriver(t *testing.T) {
	starts := filepath.Join(t.TempDir(), "starts")
	cfg := fakeConfig(t, "no driver")
	cfg.Env = append(cfg.Env, "CHILD_TEST_STARTS="+starts)
	var log lockedBuffer
	cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	c := New(cfg)
	exited := c.counters.restarts[Exited].Get()
	running(t, c)
	_, err := sample(t, c)
	if !errors.Is(err, ErrNoDriver) || !errors.Is(err, collector.ErrAbsent) || !strings.Contains(err.Error(), "libnvidia-ml.so.1 not found") {
		t.Errorf("without a driver Sample says %v", err)
	}
	eventually(t, "three looks for a driver", func() bool { return count(t, starts) >= 3 })
	if s := c.Status(); s.Restarts != 0 || c.counters.restarts[Exited].Get() != exited {
		t.Errorf("looks for a driver were counted as %d restarts", s.Restarts)
	}
	if n := strings.Count(log.String(), "there is no NVIDIA driver here"); n != 1 {
		t.Errorf("the missing driver was said %d times", n)
	}
}

func TestDriverReplaced(t *testing.T) {
	library := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	cfg := fakeConfig(t, "ok")
	cfg.Watch = []string{"/nonexistent", library}
	if err := os.WriteFile(library, []byte("570"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := running(t, New(cfg))
	part(t, c)
	old := c.Status().PID
	for i, change := range []func() error{
		func() error { return os.WriteFile(library, []byte("580.1"), 0o600) },
		func() error { return os.Remove(library) },
		func() error { return os.WriteFile(library, nil, 0o600) }, // as in /proc: only the content tells
		func() error { return os.WriteFile(library, []byte{}, 0o600) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if i == 3 {
			break // the same content: no change
		}
		eventually(t, fmt.Sprint("a new child after change ", i), func() bool {
			s := c.Status()
			return s.Restarts == uint64(i+1) && s.State == Running && s.PID != old
		})
		old = c.Status().PID
		if s := c.Status(); s.Reason != DriverChanged {
			t.Errorf("after change %d the child ended with reason %s (%s)", i, s.Reason, s.Err)
		}
	}
}

func TestDriverInstalledLater(t *testing.T) {
	starts, library := filepath.Join(t.TempDir(), "starts"), filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	cfg := fakeConfig(t, "no driver")
	cfg.NoDriverRetry = time.Hour
	cfg.Watch = []string{library}
	cfg.Env = append(cfg.Env, "CHILD_TEST_STARTS="+starts)
	c := running(t, New(cfg))
	eventually(t, "the first look for a driver", func() bool { return c.Status().State == NoDriver })
	if err := os.WriteFile(library, []byte("570"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a look at the driver that was installed", func() bool { return count(t, starts) == 2 })
}

func TestCommandThatCannotStart(t *testing.T) {
	cfg := fakeConfig(t, "ok")
	cfg.Command = []string{"/nonexistent/gpuvigil"}
	c := running(t, New(cfg))
	eventually(t, "an error that names the command", func() bool {
		_, err := sample(t, c)
		return err != nil && strings.Contains(err.Error(), "/nonexistent/gpuvigil")
	})
	if err := New(Config{Log: discard}).Run(t.Context()); err == nil {
		t.Error("a child without a command runs")
	}
}

func TestNothingIsLeft(t *testing.T) {
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	for _, mode := range []string{"ok", "late words", "garbage", "no driver"} {
		cfg := fakeConfig(t, mode)
		cfg.Log = discard
		c := New(cfg)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		eventually(t, "some life", func() bool { s := c.Status(); return s.Restarts > 3 || s.Frames > 10 || s.State == NoDriver })
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if s := c.Status(); s.State != Stopped || len(c.PIDs()) != 0 {
			t.Errorf("%s: after Run the child is %+v", mode, s)
		}
	}
	eventually(t, "the end of all goroutines", func() bool { return runtime.NumGoroutine() <= goroutines })
	eventually(t, "the end of all open files", func() bool { return openFiles(t) <= files })
}

func openFiles(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

func count(t *testing.T, path string) int {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Count(string(b), "\n")
}
