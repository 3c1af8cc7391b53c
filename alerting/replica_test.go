package alerting_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"gpuvigil/detect"
)

// replicas are two outboxes with the same receiver, each with a state of its own.
func replicas(t *testing.T) (leader, follower *bench) {
	leader = newBench(t)
	follower = newBench(t)
	follower.path = filepath.Join(t.TempDir(), "other.db")
	follower.said = leader.said
	follower.to.Notifier = leader.said
	return leader, follower
}

// Whoever takes over tells what has not been told, and nothing else.
func TestWhoTakesOverTellsWhatWasNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := replicas(t)
		a.start()
		b.open()
		told, later, never := incident("told", detect.Firing), incident("later", detect.Firing), incident("never", detect.Firing)
		a.enqueue(told)
		b.enqueue(told)
		time.Sleep(time.Minute)
		upTo := a.outbox.Told(time.Time{})
		if !upTo.Equal(told.Updated) {
			t.Errorf("all is told up to %v, want %v", upTo, told.Updated)
		}
		b.outbox.Heard(upTo)
		a.said.answers(times(100, errDown)...)
		a.enqueue(later)
		b.enqueue(later)
		time.Sleep(time.Minute)
		if upTo = a.outbox.Told(upTo); !upTo.Before(later.Updated) || upTo.Before(told.Updated) {
			t.Errorf("while one waits, all is told up to %v, want less than %v", upTo, later.Updated)
		}
		a.end()
		a.said.answers()
		a.said.calls()
		b.outbox.Heard(upTo)
		b.run()
		b.enqueue(never)
		time.Sleep(time.Minute)
		calls := b.said.calls()
		if len(calls) != 2 || calls[0].What != "later:firing" || !calls[0].Doubt || calls[1].What != "never:firing" {
			t.Errorf("who takes over says %+v, want what the other one has not, in doubt, and what is new", calls)
		}
		b.enqueue(incident("told", detect.Resolved))
		time.Sleep(time.Minute)
		if calls = b.said.calls(); len(calls) != 1 || calls[0].What != "told:resolved" || !calls[0].Doubt {
			t.Errorf("the end of what the other one has told is %+v, want it once, after looking for what it is the end of", calls)
		}
		b.end()
	})
}

// Of what another one tells nothing is left, however long this goes on.
func TestWhoFollowsKeepsNothingThatIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, b := replicas(t)
		b.open()
		var last detect.Incident
		for range 50 {
			last = incident("a", detect.Firing)
			b.enqueue(last)
			last = incident("a", detect.Resolved)
			b.enqueue(last)
			b.outbox.Heard(last.Updated)
		}
		if n := b.status().Waiting; n != 0 {
			t.Errorf("%d messages wait that another one has told", n)
		}
		b.run()
		time.Sleep(time.Hour)
		b.expect("what another one has told is said again")
		b.end()
	})
}

// The sum of the first days is one message, whoever tells it.
func TestTheFirstDaysAreSummedUpByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := replicas(t)
		a.cfg.Shadow, b.cfg.Shadow = time.Hour, time.Hour
		kept := incident("kept", detect.Firing)
		a.start()
		a.enqueue(kept)
		b.open()
		b.enqueue(kept)
		time.Sleep(2 * time.Hour)
		a.expect("the sum", "first_week:firing")
		b.outbox.Heard(time.Now())
		a.end()
		b.run()
		time.Sleep(2 * time.Hour)
		b.expect("the sum is told again")
		b.end()
	})
}
