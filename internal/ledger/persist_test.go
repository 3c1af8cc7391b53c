package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"gpuvigil/collector"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/price"
	"gpuvigil/internal/store"
)

// TestMain lets the test binary be the agent that is killed.
func TestMain(m *testing.M) {
	if path := os.Getenv("LEDGER_TEST_FILE"); path != "" {
		fmt.Fprintln(os.Stderr, bookForEver(path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// bookForEver books second after second and prints what is exported once it is.
func bookForEver(path string) error {
	st, err := store.Open(path, 5*time.Second, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	book, err := price.NewBook(price.Config{})
	if err != nil {
		return err
	}
	l, err := New(st, Config{Prices: book, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	from := start
	if g := l.gpus["GPU-a"]; g != nil {
		from = g.Until.Add(time.Minute)
	}
	for i := 0; ; i++ {
		n := at(from.Add(time.Duration(i)*time.Second), 1)
		if i > 0 {
			n.process(0, "", train, 1, 1)
			n.GPUs[0].Set(metric.SMActivity, 1)
		}
		l.Observe(n.Snapshot)
		if i%7 != 0 {
			continue
		}
		if err := st.Update(l.WriteTx); err != nil {
			return err
		}
		for _, a := range l.Export().Accounts {
			fmt.Printf("%s=%d ", a.State, a.Time/1e9)
		}
		fmt.Println()
	}
}

// TestKillCostsTimeAndNoCounter kills an agent in the middle of its work, again and
// again: nothing that was exported is ever less afterwards, and nothing is booked
// twice.
func TestKillCostsTimeAndNoCounter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	var busy, unobserved int64
	for round := range 5 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "LEDGER_TEST_FILE="+path)
		cmd.Stderr = os.Stderr
		var out bytes.Buffer
		pipe, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for lines := 0; lines < 20+11*round; {
			buf := make([]byte, 512)
			n, err := pipe.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			out.Write(buf[:n])
			lines += bytes.Count(buf[:n], []byte("\n"))
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.ReadFrom(pipe); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed

		for line := range strings.Lines(out.String()) {
			got := map[string]int64{}
			for _, f := range strings.Fields(line) {
				name, v, _ := strings.Cut(f, "=")
				if _, err := fmt.Sscan(v, new(int64)); err != nil {
					continue // cut off by the kill
				}
				var n int64
				fmt.Sscan(v, &n)
				got[name] = n
			}
			if !strings.HasSuffix(line, "\n") || len(got) == 0 {
				continue
			}
			if got["busy"] < busy || got["unobserved"] < unobserved {
				t.Fatalf("round %d: counters went back from busy %d and unobserved %d to %s", round, busy, unobserved, line)
			}
			busy, unobserved = got["busy"], got["unobserved"]
		}
		if want := int64(60 * round); unobserved != want {
			t.Errorf("after %d kills %d s are unobserved, want the %d in which no agent ran", round, unobserved, want)
		}
	}
	st := openStore(t, path)
	l, err := New(st, Config{Prices: newBook(t, price.Config{}), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	for _, a := range l.Export().Accounts {
		total += a.Time
	}
	if want := int64(l.gpus["GPU-a"].Until.Sub(start)); total != want {
		t.Errorf("booked %d ns of %d that passed", total, want)
	}
}

// TestAFullDiskKeepsMemoryAndExportsWhatIsDurable holds what happens while nothing
// can be written.
func TestAFullDiskKeepsMemoryAndExportsWhatIsDurable(t *testing.T) {
	b := newBench(t, price.Config{})
	second := 0
	pass := func(n int) {
		for range n {
			b.Observe(at(start.Add(time.Duration(second)*time.Second), 1).Snapshot)
			second++
		}
	}
	exported := func() (ns int64) {
		for _, a := range b.Export().Accounts {
			ns += a.Time
		}
		return ns / 1e9
	}
	pass(11)
	b.write()
	for range 3 {
		pass(10)
		if err := b.store.Update(func(tx *store.Tx) error { return errors.Join(b.WriteTx(tx), errDisk) }); !errors.Is(err, errDisk) {
			t.Fatal(err)
		}
		if got := exported(); got != 10 {
			t.Errorf("while the disk is full %d s are exported: a crash would make the counter go back to 10", got)
		}
		if got := b.sums()[owned{state: cost.Free}]; got != float64(second-1) {
			t.Errorf("while the disk is full %v s of %d are in memory", got, second-1)
		}
	}
	b.write()
	if got := exported(); got != 40 {
		t.Errorf("after the disk has room again %d s are exported, want 40", got)
	}
	b.restart()
	if got := b.sums()[owned{state: cost.Free}]; got != 40 {
		t.Errorf("after a restart %v s are booked, want 40", got)
	}
}

// TestQuietAccountsComeBackAtTheirValue holds that an owner who rests for hours is
// not exported, and counts on when he returns.
func TestQuietAccountsComeBackAtTheirValue(t *testing.T) {
	b := newBench(t, price.Config{})
	when := start
	pass := func(d time.Duration, o collector.Owner) {
		for end := when.Add(d); when.Before(end); {
			when = when.Add(3 * time.Second)
			n := at(when, 1)
			if o != nobody {
				n.process(0, "", o, 1, 1)
			}
			b.Observe(n.Snapshot)
		}
		b.write()
	}
	idle := func() (ns int64) {
		for _, a := range b.Export().Accounts {
			if a.Owner == train {
				ns += a.Time / 1e9
			}
		}
		return ns
	}
	exports := func() (n int) {
		for _, a := range b.Export().Accounts {
			if a.Owner == train {
				n++
			}
		}
		return n
	}
	pass(6*time.Second, nobody)
	pass(60*time.Second, train)
	if got := exports(); got != 1 || idle() != 0 {
		t.Errorf("when it appears, %d accounts of the owner are exported, with %d s, want one with what it held before: 0", got, idle())
	}
	pass(59*time.Minute, nobody)
	if idle() != 60 {
		t.Errorf("59 minutes after its last second an account says %d s, want 60", idle())
	}
	pass(2*time.Minute, nobody)
	if idle() != 0 {
		t.Error("an account that has not changed for more than an hour is exported")
	}
	b.restart()
	pass(3*time.Second, nobody)
	pass(30*time.Second, train)
	if got := exports(); got != 1 || idle() != 60 {
		t.Errorf("when it comes back, %d accounts are exported, with %d s, want one with 60", got, idle())
	}
	pass(60*time.Second, nobody)
	if idle() != 90 {
		t.Errorf("an account comes back with %d s, want 90", idle())
	}
}

func TestRetention(t *testing.T) {
	b := newBench(t, price.Config{})
	b.cfg.Retention = 48 * time.Hour
	b.restart()
	b.Observe(at(start, 1).Snapshot)
	n := at(start.Add(time.Second), 1)
	n.process(0, "", train, 1, 1)
	b.Observe(n.Snapshot)
	b.write()
	for h := 1; h <= 60; h++ {
		b.Observe(at(start.Add(time.Duration(h)*time.Hour), 1).Snapshot)
		b.Observe(at(start.Add(time.Duration(h)*time.Hour+time.Second), 1).Snapshot)
		b.write()
	}
	rows := b.costs().Rows
	if first := rows[0].Hour; !first.Equal(start.Add(12 * time.Hour)) {
		t.Errorf("the oldest hour is %v, want one of 48 hours ago", first)
	}
	if _, there := b.accounts[cost.Key{UUID: "GPU-a", Owner: train, State: cost.IdleHeld}]; there {
		t.Error("the account of an owner who is gone for longer than the retention is kept")
	}
	b.restart()
	if _, there := b.accounts[cost.Key{UUID: "GPU-a", Owner: train, State: cost.IdleHeld}]; there {
		t.Error("the account of an owner who is gone comes back with a restart")
	}
	if len(b.accounts) != 2 {
		t.Errorf("%d accounts are kept, want those of free and unobserved", len(b.accounts))
	}
}

func TestDamageIsKeptAsideAndWhatIsNewerIsRefused(t *testing.T) {
	b := newBench(t, price.Config{})
	b.Observe(at(start, 1).Snapshot)
	b.Observe(at(start.Add(time.Second), 1).Snapshot)
	b.write()
	put := func(key, value string) {
		t.Helper()
		if err := b.store.Update(func(tx *store.Tx) error { return tx.Put(store.Ledger, key, []byte(value)) }); err != nil {
			t.Fatal(err)
		}
	}
	hour := hourKey(span{start, "USD"})
	put(hour, "[{]")
	b.Observe(at(start.Add(2*time.Second), 1).Snapshot)
	b.write()
	if got := b.sums()[owned{state: cost.Free}]; got != 1 {
		t.Errorf("after an hour was damaged it holds %v s, want what was booked since", got)
	}
	if err := b.store.View(func(tx *store.Tx) error {
		if string(tx.Get(store.Damaged, store.Ledger+"/"+hour)) != "[{]" {
			t.Error("the damaged hour was thrown away")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	kept := b.costs().Rows
	put(hourKey(span{start.Add(time.Hour), "USD"}), "[{]")
	put(workKey(span{start.Add(time.Hour), "USD"}), "[{]")
	for key, value := range map[string]string{
		stateKey:              `{"version":0}`,
		runsKey:               `[{"o":{}}]`,
		accountPrefix + `["`:  `{"u":"GPU-a"}`,
		accountPrefix + `["x`: `{"u":"GPU-a","t":"2026-11-30T12:00:00Z","a":[-1,0,0,0,0,0,0,0]}`,
	} {
		put(key, value)
		l, err := New(b.store, b.cfg)
		if err != nil {
			t.Fatalf("%s in %s: the agent does not start: %v", value, key, err)
		}
		if len(l.accounts) != len(b.accounts) || l.currency != "USD" {
			t.Errorf("%s in %s: %d accounts in %q are kept, want %d in USD", value, key, len(l.accounts), l.currency, len(b.accounts))
		}
		answer, err := l.Costs(start, start.Add(2*time.Hour))
		if err != nil {
			t.Fatalf("%s in %s: no costs: %v", value, key, err)
		}
		if diff := cmp.Diff(kept, answer.Rows, cmpopts.IgnoreFields(cost.Row{}, "GPU", "Model")); diff != "" {
			t.Errorf("%s in %s: rows of the hours that are intact:\n%s", value, key, diff)
		}
		if err := b.store.View(func(tx *store.Tx) error {
			if got := string(tx.Get(store.Damaged, store.Ledger+"/"+key)); got != value || tx.Get(store.Ledger, key) != nil {
				t.Errorf("%s of %s is not set aside but %q", value, key, got)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	put(stateKey, `{"version":2}`)
	if _, err := New(b.store, b.cfg); err == nil || !strings.Contains(err.Error(), "newer release") || !strings.Contains(err.Error(), b.store.Path()) {
		t.Errorf("the ledger of a newer release: error %v, want one that says so and names the file", err)
	}
}

// FuzzStored reads whatever might be in the state file: it is refused or it is
// written again as it is.
func FuzzStored(f *testing.F) {
	f.Add([]byte(`{"version":1,"sequence":3,"currency":"USD","gpus":{"GPU-a":{"index":0,"model":"x","until":"2026-11-30T12:00:00Z","carry":{"rates":[1,2,3],"electric":0,"carbon":0},"counter":5}}}`))
	f.Add([]byte(`[{"u":"GPU-a","m":"x","o":{"kind":"job","id":"1"},"s":"busy","a":[1,2,3,4,5,6,7,8]}]`))
	f.Add([]byte(`{"u":"GPU-a","o":{"kind":"job","id":"1"},"s":"free","a":[1,2,3,4,5,6,7,8],"t":"2026-11-30T12:00:00Z"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, err := decodeState(data); err == nil {
			again(t, s, decodeState)
		}
		if list, err := decodeEntries(data); err == nil {
			again(t, list, decodeEntries)
		}
		if e, err := decodeAccount(data); err == nil {
			again(t, e, decodeAccount)
		}
	})
}

func again[T any](t *testing.T, v T, decode func([]byte) (T, error)) {
	t.Helper()
	first, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("what was read cannot be written: %v", err)
	}
	read, err := decode(first)
	if err != nil {
		t.Fatalf("what was written cannot be read: %v\n%s", err, first)
	}
	second, err := json.Marshal(read)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(first), string(second)); diff != "" {
		t.Errorf("it changes from one write to the next:\n%s", diff)
	}
}

func FuzzHourKey(f *testing.F) {
	f.Add("hour/2026-11-30T12Z/USD")
	f.Add("hour/x/")
	f.Fuzz(func(t *testing.T, key string) {
		hour, currency, err := parseHour(key)
		if err != nil || hour.Year() > 9999 || hour.Year() < 0 {
			return
		}
		if h, c, err := parseHour(hourKey(span{hour, currency})); err != nil || !h.Equal(hour) || c != currency {
			t.Errorf("hour %v in %q is read back as %v in %q, %v", hour, currency, h, c, err)
		}
	})
}
