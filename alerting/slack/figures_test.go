package slack_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/alerting/internal/example"
	"gpuvigil/alerting/slack/slacktest"
	"gpuvigil/detect"
	"gpuvigil/internal/store"
	"gpuvigil/rules"
)

// way is the way from what an engine says to a stand-in for Slack, over the disk.
type way struct {
	slack *slacktest.Server
	store *store.Store
	box   *alerting.Outbox
}

func newWay(b *testing.B) *way {
	log := &journal{}
	w := &way{slack: standIn(b)}
	var err error
	if w.store, err = store.Open(filepath.Join(b.TempDir(), "state.db"), time.Second, log.logger()); err != nil {
		b.Fatal(err)
	}
	cfg := alerting.OutboxConfig{Log: log.logger(), Pause: time.Nanosecond}
	w.box, err = alerting.NewOutbox(w.store, cfg, alerting.Receiver{Name: b.Name(), Notifier: bot(b, w.slack, log), MinSeverity: rules.Ticket})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.box.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
		if err := w.store.Close(); err != nil {
			b.Error(err)
		}
	})
	return w
}

func (w *way) say(b *testing.B, n int) {
	i := example.Of(rules.IDXid)
	i.ID = fmt.Sprint("i", n)
	w.box.Take([]detect.Incident{i})
	if err := w.store.Update(w.box.WriteTx); err != nil {
		b.Fatal(err)
	}
}

func (w *way) until(n int) {
	for len(w.slack.Requests()) < n {
		time.Sleep(50 * time.Microsecond)
	}
}

// BenchmarkTimeToMessage is how long an incident takes from the engine to Slack when
// nothing else waits. A sample takes up to one tick, a second, to get to the engine.
func BenchmarkTimeToMessage(b *testing.B) {
	w := newWay(b)
	var took []time.Duration
	for b.Loop() {
		at := time.Now()
		w.say(b, len(took))
		w.until(len(took) + 1)
		took = append(took, time.Since(at))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

// BenchmarkOutbox is how many messages the outbox delivers when the receiver sets no
// limit. Slack's is about one a second for each channel.
func BenchmarkOutbox(b *testing.B) {
	w := newWay(b)
	n := 0
	for b.Loop() {
		w.say(b, n)
		n++
	}
	w.until(n)
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "messages/s")
}
