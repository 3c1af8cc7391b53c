package alerting_test

import (
	"testing"
	"testing/synctest"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/detect"
)

func TestForgettingIncidentsSendsNoDigestTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.Digest = &alerting.DigestConfig{Receivers: []string{b.to.Name}, Daily: true, Hour: 8, Location: time.UTC,
			Write: func(from, to time.Time) []alerting.Line { return []alerting.Line{{Label: "Seen", Text: "much"}} }}
		b.start()
		b.enqueue(incident("a", detect.Firing))
		time.Sleep(25 * time.Hour)
		if n := len(b.said.calls()); n != 2 {
			t.Fatalf("%d messages in a day with one incident and a digest", n)
		}
		b.stop()
		if err := b.store.Update(alerting.ForgetIncidents); err != nil {
			t.Fatal(err)
		}
		if err := b.store.Close(); err != nil {
			t.Fatal(err)
		}
		b.start()
		b.enqueue(incident("a", detect.Firing))
		time.Sleep(time.Minute)
		b.expect("the incident begins anew, the digest was sent", "a:firing")
		b.end()
	})
}

func TestWhoBringsDigestsIsToldNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.Digest = &alerting.DigestConfig{Receivers: []string{"am"}, Daily: true, Weekly: true, Hour: 8, Location: time.UTC,
			Write: func(from, to time.Time) []alerting.Line { return nil }}
		b.to.DigestOf = "am"
		b.start()
		b.enqueue(page("a", detect.Firing))
		if sent, err := b.outbox.Drill(page("drill-1", detect.Firing), time.Minute); err != nil || len(sent) != 0 {
			t.Errorf("a drill is said to come to it: %+v, %v", sent, err)
		}
		if names := b.outbox.Receivers(); len(names) != 0 {
			t.Errorf("it is named as one that is told incidents: %v", names)
		}
		time.Sleep(7 * 24 * time.Hour)
		digests := whats(b.said.calls())
		if len(digests) != 8 {
			t.Errorf("in a week it got %v, want seven daily digests and a weekly one", digests)
		}
		b.end()
	})
}
