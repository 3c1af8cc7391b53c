package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/alerting"
	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/config"
	"gpuvigil/internal/ledger"
	"gpuvigil/internal/store"
	"gpuvigil/rules"
)

// startOn does what the agent does with a state file when it starts, and returns what
// the engine knows then.
func startOn(t *testing.T, path string) (log string, e *detect.Engine, err error) {
	t.Helper()
	var said bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&said, nil))
	st, err := store.Open(path, time.Second, logger)
	if err != nil {
		return said.String(), nil, err
	}
	defer st.Close()
	cfg := config.Default()
	p := &pipeline{cfg: cfg, log: logger}
	if p.outbox, err = alerting.NewOutbox(st, alerting.OutboxConfig{Log: logger}); err != nil {
		return said.String(), nil, err
	}
	if p.accounts, err = ledgerConfig(cfg, logger); err != nil {
		t.Fatal(err)
	}
	if p.ledger, err = ledger.New(st, p.accounts); err != nil {
		return said.String(), nil, err
	}
	p.sampler = collector.NewSampler(collector.SamplerConfig{Tiers: tiers(cfg.Sampling), Log: logger}, nil)
	p.engine = detect.NewEngine(detect.Config{Log: logger, Settings: settings(cfg.Rules)}, detect.Detectors(detectors(cfg)))
	err = p.restore(st)
	return said.String(), p.engine, err
}

func memories(t *testing.T, e *detect.Engine) map[rules.ID]json.RawMessage {
	t.Helper()
	_, m, err := e.SaveParts()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// rewrite changes the values of the bucket's keys that begin with the prefix.
func rewrite(t *testing.T, path, bucket, prefix string, value []byte) {
	t.Helper()
	st, err := store.Open(path, time.Second, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	err = st.Update(func(tx *store.Tx) error {
		var keys []string
		tx.Range(bucket, prefix, func(k string, _ []byte) bool {
			if strings.HasPrefix(k, prefix) {
				keys = append(keys, k)
			}
			return true
		})
		if len(keys) == 0 {
			return fmt.Errorf("the file has nothing under %s/%s", bucket, prefix)
		}
		for _, k := range keys {
			if err := tx.Put(bucket, k, value); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheAgentStartsOnADamagedState(t *testing.T) {
	dir := t.TempDir()
	demoed(t, dir)
	whole, err := os.ReadFile(filepath.Join(dir, "demo.db"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "state.db")
	fresh := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fresh(whole)
	log, e, err := startOn(t, path)
	if err != nil || strings.Contains(log, "level=ERROR") {
		t.Fatalf("the agent does not take up an intact state: %v %s", err, log)
	}
	before := memories(t, e)

	flip := func(name string, flips func(b []byte)) {
		b := bytes.Clone(whole)
		flips(b)
		fresh(b)
		if log, _, err := startOn(t, path); err != nil {
			t.Errorf("%s: the agent does not start: %v %s", name, err, log)
		}
	}
	flip("every 9973 bytes", func(b []byte) {
		for i := 9973; i < len(b); i += 9973 {
			b[i] ^= 4
		}
	})
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 60 {
		flip(fmt.Sprint("round ", round), func(b []byte) {
			for range 1 + round {
				b[random.IntN(len(b))] ^= 1 << random.IntN(8)
			}
		})
	}

	// What a checksum does not tell, as in files of older releases.
	for _, part := range []struct{ bucket, prefix string }{
		{store.Engine, engineKey}, {store.Engine, knownKey}, {store.Engine, memoryPrefix},
		{store.Ledger, "state"}, {store.Ledger, "runs"}, {store.Ledger, "account/"}, {store.Ledger, "hour/"}, {store.Meta, "first_start"},
	} {
		fresh(whole)
		rewrite(t, path, part.bucket, part.prefix, []byte("[{"))
		log, e, err := startOn(t, path)
		if err != nil {
			t.Errorf("%v is damaged: the agent does not start: %v", part, err)
			continue
		}
		if !strings.Contains(log, "level=ERROR") {
			t.Errorf("%v is damaged: nobody is told: %s", part, log)
		}
		if part.prefix == memoryPrefix {
			continue
		}
		if diff := cmp.Diff(before, memories(t, e)); diff != "" {
			t.Errorf("%v is damaged: the detectors have lost of their memories too (-intact +damaged):\n%s", part, diff)
		}
	}

	fresh(whole)
	rewrite(t, path, store.Engine, engineKey, []byte(`{"version":99}`))
	if _, _, err := startOn(t, path); err == nil || !strings.Contains(err.Error(), "newer release") {
		t.Errorf("the state of a newer release: error %v, want one that says so", err)
	}
}
