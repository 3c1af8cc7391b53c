package alerting_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/detect"
	"gpuvigil/internal/store"
	"gpuvigil/rules"
)

// A sign of life comes once in its interval, also over a restart, each as a message of
// its own.
func TestSignsOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, err := store.Open(filepath.Join(t.TempDir(), "state.db"), time.Second, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		r := &receiver{start: time.Now()}
		to := alerting.Receiver{Name: "oncall", Notifier: r, MinSeverity: rules.Page}
		run := func(beats int) {
			t.Helper()
			o, err := alerting.NewOutbox(st, alerting.OutboxConfig{GateConfig: alerting.GateConfig{Node: "n1", Shadow: 7 * 24 * time.Hour}, Log: slog.New(slog.DiscardHandler)}, to)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- o.Run(ctx) }()
			var wait time.Duration
			for range beats {
				time.Sleep(wait)
				wait = o.Beat("oncall", time.Hour, "8 GPUs are watched")
				synctest.Wait()
			}
			time.Sleep(time.Minute) // for the disk
			if wait := o.Beat("nobody", time.Hour, ""); wait != time.Hour {
				t.Errorf("who is not configured is told in %s", wait)
			}
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		run(3)
		calls := r.calls()
		if len(calls) != 3 {
			t.Fatalf("in three hours there were %d signs of life: %+v", len(calls), calls)
		}
		for k, c := range calls {
			if c.Ref != "" || c.Doubt {
				t.Errorf("sign of life %d edits %q (doubt %v), want a message of its own: an edit reaches nobody", k, c.Ref, c.Doubt)
			}
		}
		if calls[0].What == calls[1].What {
			t.Error("two signs of life have one id: the second would be taken for a duplicate")
		}
		time.Sleep(10 * time.Minute)
		run(1)
		if n := len(r.calls()); n != 0 {
			t.Errorf("a restart made %d signs of life before one was due", n)
		}
		time.Sleep(50 * time.Minute)
		run(1)
		if n := len(r.calls()); n != 1 {
			t.Errorf("after a restart, once the next was due, there were %d signs of life", n)
		}
	})
}

// What is kept back by its severity, or in the first week, has no part in it; it reads
// as what it is.
func TestSignOfLifeReads(t *testing.T) {
	i := alerting.SignOfLife("n1", "8 GPUs are watched", time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	said := alerting.Render(alerting.Message{Incident: *i, Node: "n1"})
	if !strings.Contains(said.Headline, "n1: gpuvigil watches, 12:00 UTC") || !strings.Contains(said.String(), "8 GPUs") || i.State != detect.Firing {
		t.Errorf("a sign of life reads:\n%s", said)
	}
}
