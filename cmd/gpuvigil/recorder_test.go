package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/internal/ledger"
	"gpuvigil/internal/price"
	"gpuvigil/internal/store"
)

func testRecorder(t *testing.T) (*recorder, *store.Store) {
	t.Helper()
	st, err := store.Open(filepath.Join(t.TempDir(), "state.db"), time.Second, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	outbox, err := alerting.NewOutbox(st, alerting.OutboxConfig{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	book, err := price.NewBook(price.Config{})
	if err != nil {
		t.Fatal(err)
	}
	accounts, err := ledger.New(st, ledger.Config{Prices: book, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return &recorder{store: st, outbox: outbox, ledger: accounts, log: slog.New(slog.DiscardHandler), wake: make(chan struct{}, 1)}, st
}

func TestRecorderWritesTheNewestAndTheLast(t *testing.T) {
	r, st := testRecorder(t)
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	r.record([]byte("old"), []byte(`{"boot":"2026-01-01T00:00:00Z"}`))
	r.record([]byte("new"), nil)
	cancel() // before it ran: what was handed over is written all the same
	r.run(ctx)
	state, known, err := stored(st)
	if err != nil || string(state) != "new" || known == nil || known.Boot.Year() != 2026 {
		t.Errorf("stored %q, %+v, %v: want the newest state beside what was known before", state, known, err)
	}
}

// A write that fails is written with the next one, and does not push out what has
// come since.
func TestRecorderKeepsWhatCouldNotBeWritten(t *testing.T) {
	r, st := testRecorder(t)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	r.record([]byte("1"), []byte("{}"))
	r.write()
	if !r.failing || string(r.state) != "1" || string(r.known) != "{}" {
		t.Fatalf("after a failed write it holds %q and %q, failing %v", r.state, r.known, r.failing)
	}
	r.record([]byte("2"), nil)
	r.write()
	if string(r.state) != "2" || string(r.known) != "{}" {
		t.Errorf("after a second failure it holds %q and %q, want the newest of each", r.state, r.known)
	}
}

func TestADemoForgetsTheOneBefore(t *testing.T) {
	r, st := testRecorder(t)
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	r.record([]byte("old"), []byte("{}"))
	r.write()
	if err := forget(st); err != nil {
		t.Fatal(err)
	}
	if state, known, err := stored(st); state != nil || known != nil || err != nil {
		t.Errorf("after forgetting there is %q, %+v, %v", state, known, err)
	}
}
