package child

import (
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func TestRelease(t *testing.T) {
	c := running(t, New(fakeConfig(t, "ok")))
	part(t, c)
	pid := c.Status().PID
	if err := c.Release(time.Hour); err != nil {
		t.Fatalf("release: %v", err)
	}
	if alive(pid) || len(c.PIDs()) != 0 {
		t.Errorf("after the release process %d is alive: %v, processes %v", pid, alive(pid), c.PIDs())
	}
	eventually(t, "an error that says until when", func() bool {
		_, err := sample(t, c)
		return err != nil && strings.Contains(err.Error(), "released until")
	})
	if s := c.Status(); s.State != Away || s.Reason != Released {
		t.Errorf("while released the child is %+v", s)
	}
	if left := time.Until(c.ReleasedUntil()); left < 30*time.Minute || left > time.Hour {
		t.Errorf("a release for an hour has %v left", left)
	}
	if err := c.Release(0); err != nil {
		t.Fatalf("take back: %v", err)
	}
	if until := c.ReleasedUntil(); !until.IsZero() {
		t.Errorf("taken back, the child is still released until %v", until)
	}
	part(t, c)
	if err := c.Release(-1); err == nil {
		t.Error("a release for a negative time was taken")
	}
	if err := c.Release(20 * time.Millisecond); err != nil {
		t.Fatalf("release: %v", err)
	}
	part(t, c) // comes back by itself
}

func TestReleaseBeforeRun(t *testing.T) {
	c := New(fakeConfig(t, "ok"))
	if err := c.Release(time.Hour); err != nil {
		t.Fatalf("release of a child that does not run: %v", err)
	}
	running(t, c)
	eventually(t, "the release to be kept", func() bool { return c.Status().State == Away })
}

// TestStuckChildren holds back SIGKILL, as a driver call that does not return does.
func TestStuckChildren(t *testing.T) {
	starts := filepath.Join(t.TempDir(), "starts")
	cfg := fakeConfig(t, "stubborn")
	cfg.HangLimit, cfg.Grace, cfg.ReapLimit = 20*time.Millisecond, 10*time.Millisecond, 10*time.Millisecond
	cfg.Env = append(cfg.Env, "CHILD_TEST_STARTS="+starts)
	c := New(cfg)
	var hold atomic.Bool
	hold.Store(true)
	c.kill = func(pid int, sig syscall.Signal) error {
		if hold.Load() {
			return nil
		}
		return killGroup(pid, sig)
	}
	running(t, c)
	eventually(t, "a stuck child and a stuck successor", func() bool { return c.Status().Stuck == 2 })
	eventually(t, "an error that says so", func() bool {
		_, err := sample(t, c)
		return err != nil && strings.Contains(err.Error(), "2 children were killed and do not go")
	})
	if err := c.Release(time.Millisecond); err == nil || !strings.Contains(err.Error(), "does not go") {
		t.Errorf("a release that leaves stuck children says %v", err)
	}
	time.Sleep(100 * time.Millisecond)
	if n := count(t, starts); n != 2 {
		t.Errorf("%d children were started while two are stuck", n)
	}
	pids := c.PIDs()
	hold.Store(false)
	killGroup(pids[0], syscall.SIGKILL)
	eventually(t, "a third child when one is gone", func() bool { return count(t, starts) > 2 })
	killGroup(pids[1], syscall.SIGKILL)
	eventually(t, "all stuck children to be struck out", func() bool { return c.Status().Stuck == 0 })
}
