package child

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gpuvigil/collector"
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
		return errors.Is(err, collector.ErrPaused) && !errors.Is(err, collector.ErrHung) && strings.Contains(err.Error(), "released until")
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

// stuckChild runs a child whose first process hangs, holding back SIGKILL as a
// driver call that does not return does, until the function that it returns is
// called. It returns once the successor hangs too.
func stuckChild(t *testing.T) (c *Child, starts string, release func()) {
	starts = filepath.Join(t.TempDir(), "starts")
	cfg := fakeConfig(t, "stubborn")
	cfg.HangLimit, cfg.Grace, cfg.ReapLimit = 20*time.Millisecond, 10*time.Millisecond, 10*time.Millisecond
	cfg.Env = append(cfg.Env, "CHILD_TEST_STARTS="+starts)
	c = New(cfg)
	var hold atomic.Bool
	hold.Store(true)
	c.kill = func(pid int, sig syscall.Signal) error {
		if hold.Load() {
			return nil
		}
		return killGroup(pid, sig)
	}
	t.Cleanup(func() {
		for _, pid := range c.PIDs() {
			killGroup(pid, syscall.SIGKILL)
		}
		eventually(t, "the end of all children", func() bool { return len(c.PIDs()) == 0 })
	})
	running(t, c)
	eventually(t, "a stuck child and a successor that hangs", func() bool { s := c.Status(); return s.Stuck == 1 && s.State == Hung })
	return c, starts, func() { hold.Store(false) }
}

func TestBesideAStuckChildTheHungSuccessorIsLeftAlone(t *testing.T) {
	c, starts, release := stuckChild(t)
	eventually(t, "an error that says so", func() bool {
		_, err := sample(t, c)
		return err != nil && strings.Contains(err.Error(), "it is not ended, because process")
	})
	time.Sleep(200 * time.Millisecond) // ten times the limit after which it would be killed
	s := c.Status()
	if s.Stuck != 1 || s.State != Hung || s.PID == 0 || !alive(s.PID) || count(t, starts) != 2 {
		t.Errorf("beside one stuck child its successor is %+v after %d starts; want it alive, hung and the last", s, count(t, starts))
	}
	if up := c.counters.up.Get(); up != 0 {
		t.Errorf("vigil_child_up is %v of a child that hangs", up)
	}
	pids := c.PIDs()
	release()
	killGroup(pids[1], syscall.SIGKILL) // the stuck one
	eventually(t, "the hung successor to be replaced once nothing is stuck", func() bool { return count(t, starts) > 2 })
	// On a busy machine it may outlive the limit after which a killed child counts as stuck.
	eventually(t, "the hung successor to be gone, as another child was started", func() bool { return !alive(pids[0]) })
}

func TestASuccessorThatEndsByItselfIsFollowed(t *testing.T) {
	c, starts, _ := stuckChild(t)
	killGroup(c.Status().PID, syscall.SIGKILL)
	eventually(t, "a third child beside the stuck one", func() bool { return count(t, starts) == 3 })
	if n := c.Status().Stuck; n != 1 {
		t.Errorf("%d children are stuck, want one", n)
	}
}

func TestAReleaseEndsTheSuccessorToo(t *testing.T) {
	c, starts, release := stuckChild(t)
	if err := c.Release(time.Millisecond); err == nil || !strings.Contains(err.Error(), "does not go") {
		t.Errorf("a release that leaves stuck children says %v", err)
	}
	eventually(t, "an error that tells of both", func() bool {
		_, err := sample(t, c)
		return err != nil && strings.Contains(err.Error(), "2 children were killed and do not go")
	})
	time.Sleep(100 * time.Millisecond)
	if n := count(t, starts); n != 2 {
		t.Errorf("%d children were started while two are stuck", n)
	}
	pids := c.PIDs()
	release()
	killGroup(pids[0], syscall.SIGKILL)
	eventually(t, "a third child when one is gone", func() bool { return count(t, starts) > 2 })
	killGroup(pids[1], syscall.SIGKILL)
	eventually(t, "all stuck children to be struck out", func() bool { return c.Status().Stuck == 0 })
}

func TestASuccessorThatAnswersAgainRuns(t *testing.T) {
	cfg := fakeConfig(t, "pauses")
	cfg.HangLimit = 100 * time.Millisecond
	c := New(cfg)
	c.stuck = []*process{{pid: 1}} // of a Run before
	running(t, c)
	eventually(t, "the child to hang", func() bool { return c.Status().State == Hung })
	pid := c.Status().PID
	eventually(t, "the child to run again", func() bool { return c.Status().State == Running })
	if s := c.Status(); s.PID != pid || s.Restarts != 0 {
		t.Errorf("a child that answers again was replaced: %+v", s)
	}
}

func TestADriverChangeWaitsForTheStuckChild(t *testing.T) {
	library := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	cfg := fakeConfig(t, "ok")
	cfg.Watch = []string{library}
	c := New(cfg)
	stuck := &process{pid: 1}
	c.stuck = []*process{stuck} // of a Run before
	running(t, c)
	part(t, c)
	if err := os.WriteFile(library, []byte("580"), 0o600); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * cfg.WatchInterval)
	if s := c.Status(); s.State != Running || s.Restarts != 0 {
		t.Errorf("beside a stuck child a working one was ended for a new driver: %+v", s)
	}
	c.reaped(stuck)
	eventually(t, "a restart for the new driver", func() bool { s := c.Status(); return s.Restarts == 1 && s.Reason == DriverChanged })
}
