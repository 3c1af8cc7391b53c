package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/internal/config"
	"gpuvigil/internal/cost"
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
	r.record(&findings{state: []byte("old")}, []byte(`{"boot":"2026-01-01T00:00:00Z"}`))
	r.record(&findings{state: []byte("new")}, nil)
	cancel() // before it ran: what was handed over is written all the same
	r.run(ctx)
	state, known, err := stored(st)
	if err != nil || string(state.state) != "new" || known == nil || known.Boot.Year() != 2026 {
		t.Errorf("stored %q, %+v, %v: want the newest state beside what was known before", state.state, known, err)
	}
}

// A write that fails is written with the next one, and does not push out what has
// come since.
func TestRecorderKeepsWhatCouldNotBeWritten(t *testing.T) {
	r, st := testRecorder(t)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	r.record(&findings{state: []byte("1")}, []byte("{}"))
	r.write()
	if !r.failing || string(r.state.state) != "1" || string(r.known) != "{}" {
		t.Fatalf("after a failed write it holds %q and %q, failing %v", r.state.state, r.known, r.failing)
	}
	r.record(&findings{state: []byte("2")}, nil)
	r.write()
	if string(r.state.state) != "2" || string(r.known) != "{}" {
		t.Errorf("after a second failure it holds %q and %q, want the newest of each", r.state.state, r.known)
	}
}

// TestADemoThatIsStartedAgainBooksNoHourTwice holds for the demo what is promised of all:
// counters do not go back, which Prometheus would take for new GPU-hours.
func TestADemoThatIsStartedAgainBooksNoHourTwice(t *testing.T) {
	dir := t.TempDir()
	before, counters := demoed(t, dir)
	after, countersAfter := demoed(t, dir)
	if len(before) == 0 || len(after) != len(before) {
		t.Fatalf("the demo books %d GPUs, and %d when it is started again", len(before), len(after))
	}
	for key, was := range counters {
		if is, shown := countersAfter[key]; shown && (is.Time < was.Time || is.Effective < was.Effective || is.Energy < was.Energy) {
			t.Errorf("%v: the counters go back from %+v to %+v", key, was, is)
		}
	}
	for gpu, was := range before {
		is := after[gpu]
		if more := time.Duration(is.Time - was.Time); more <= 0 || more > 10*time.Minute {
			t.Errorf("GPU %s: the second start has booked %v more than the first, want the time between the two: the past is not booked twice", gpu, more)
		}
		if watts := float64(is.Energy-was.Energy) / 1e6 / time.Duration(is.Time-was.Time).Seconds(); watts > 1000 {
			t.Errorf("GPU %s: %v W between two starts, want what a GPU can draw", gpu, watts)
		}
	}
}

// demoed runs a demo until it answers and stops it, and returns what it has booked of
// each GPU and the counters that it exports.
func demoed(t *testing.T, dir string) (booked map[string]cost.Amounts, counters map[cost.Key]cost.Amounts) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan int, 1)
	var errs bytes.Buffer
	go func() {
		ended <- run(ctx, []string{"demo", "--state.dir=" + dir, "--web.listen-address=127.0.0.1:0"}, io.Discard, &errs)
	}()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if answer, err := ask(ctx, dir); err == nil && len(answer.snapshot.GPUs) > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the demo does not answer")
		}
	}
	stop()
	if code := <-ended; code != 0 {
		t.Fatalf("the demo ends with %d: %s", code, errs.String())
	}
	st, err := store.Open(filepath.Join(dir, "demo.db"), time.Second, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	accounts, err := ledgerConfig(config.Default(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l, err := ledger.New(st, accounts)
	if err != nil {
		t.Fatal(err)
	}
	booked, counters = map[string]cost.Amounts{}, map[cost.Key]cost.Amounts{}
	answer, err := l.Costs(time.Unix(0, 0), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range answer.Rows {
		booked[r.UUID] = booked[r.UUID].Plus(r.Amounts)
	}
	for _, a := range l.Export().Accounts {
		counters[a.Key] = a.Amounts
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	return booked, counters
}

func TestADemoForgetsTheOneBefore(t *testing.T) {
	r, st := testRecorder(t)
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	r.record(&findings{state: []byte("old")}, []byte("{}"))
	r.write()
	if err := forget(st); err != nil {
		t.Fatal(err)
	}
	if state, known, err := stored(st); state.state != nil || len(state.memories) > 0 || known != nil || err != nil {
		t.Errorf("after forgetting there is %q, %+v, %v", state.state, known, err)
	}
}
