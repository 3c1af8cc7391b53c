package store_test

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"gpuvigil/internal/store"
)

// seal is what the file holds of a value.
func seal(bucket, key, value string) []byte {
	sum := crc32.Checksum([]byte(bucket+"\x00"+key+"\x00"+value), crc32.MakeTable(crc32.Castagnoli))
	return append(binary.LittleEndian.AppendUint32([]byte{0x81}, sum), value...)
}

func value(i int) string { return strings.Repeat(fmt.Sprintf("%d is a text; ", i), 40*(1+i%30)) }

// filled returns the content of a file with 60 values.
func filled(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state.db")
	s, _ := open(t, path)
	for i := range 60 {
		put(t, s, fmt.Sprint("k", i), value(i))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What a page says of places is what the database would follow out of the file.
func TestPagesThatPointOutOfTheFile(t *testing.T) {
	whole := filled(t)
	random := rand.New(rand.NewPCG(3, 4))
	path := filepath.Join(t.TempDir(), "state.db")
	page := os.Getpagesize()
	aside := 0
	for range 500 {
		b := append([]byte(nil), whole...)
		at := random.IntN(len(b)/page)*page + 4*random.IntN(40)
		binary.LittleEndian.PutUint32(b[at:], random.Uint32()>>random.IntN(32))
		write(t, path, b)
		s, log := open(t, path)
		if strings.Contains(log.String(), "moved_to") {
			aside++
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		for _, old := range glob(t, path+".corrupt-*") {
			if err := os.Remove(old); err != nil {
				t.Fatal(err)
			}
		}
	}
	if aside == 0 {
		t.Error("no damage was found: the test writes where nothing is")
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestAFlippedBitCostsAtMostTheValueThatItIsIn(t *testing.T) {
	whole := filled(t)
	random := rand.New(rand.NewPCG(1, 2))
	path := filepath.Join(t.TempDir(), "state.db")
	aside, partly := 0, 0
	for round := range 200 {
		b := append([]byte(nil), whole...)
		flips := 1 + round%5
		for range flips {
			b[random.IntN(len(b))] ^= 1 << random.IntN(8)
		}
		write(t, path, b)
		s, log := open(t, path)
		if strings.Contains(log.String(), "moved_to") { // a page of the database
			aside++
		} else {
			lost := 0
			for i := range 60 {
				switch got := get(t, s, fmt.Sprint("k", i)); got {
				case value(i):
				case "":
					lost++
				default:
					t.Errorf("round %d: value %d is taken up with damage", round, i)
				}
			}
			// bbolt passes over a head that is damaged, to the transaction before.
			if before := get(t, s, "k59") == "" && lost == 1 && string(b[:8192]) != string(whole[:8192]); lost > 0 && !before {
				partly++
				mustContain(t, log.String(), "level=ERROR", "damaged", path)
			}
			if lost > flips {
				t.Errorf("round %d: %d flipped bits cost %d values: %s", round, flips, lost, log)
			}
		}
		put(t, s, "k", "new")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d files were moved aside, %d had values set aside", aside, partly)
	if partly < 100 || aside > 20 {
		t.Errorf("of 200 files %d were moved aside whole and %d lost a value only: most damage is within a value", aside, partly)
	}
}

// change edits the file as no agent would.
func change(t *testing.T, path string, fn func(tx *bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Update(fn); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsDamagedIsSetAsideAndSaidOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	write(t, path, filled(t))
	damaged := seal(store.Engine, "k1", value(1))
	damaged[100] ^= 1
	change(t, path, func(tx *bbolt.Tx) error { return tx.Bucket([]byte(store.Engine)).Put([]byte("k1"), damaged) })
	s, log := open(t, path)
	mustContain(t, log.String(), "level=ERROR", "part=engine/k1", "checksum")
	if get(t, s, "k1") != "" || get(t, s, "k2") != value(2) {
		t.Error("the damaged value is taken up, or its neighbour is lost")
	}
	err := s.View(func(tx *store.Tx) error {
		if got := tx.Get(store.Damaged, "engine/k1"); string(got) != string(damaged) {
			t.Errorf("what was damaged is not kept: %d bytes", len(got))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, "k1", "anew")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, log = open(t, path); log.Len() > 0 || get(t, s, "k1") != "anew" {
		t.Errorf("the damage is said again: %s", log)
	}
}

// Names and the schema can be damaged too: an agent that takes its own file for
// another program's, or for a newer release's, does not start.
func TestDamagedNamesDoNotStopTheStart(t *testing.T) {
	for name, damage := range map[string]func(tx *bbolt.Tx) error{
		"schema": func(tx *bbolt.Tx) error {
			v := seal(store.Meta, "schema", "2")
			v[5] ^= 1
			return tx.Bucket([]byte(store.Meta)).Put([]byte("schema"), v)
		},
		"old schema":   func(tx *bbolt.Tx) error { return tx.Bucket([]byte(store.Meta)).Put([]byte("schema"), []byte("3")) },
		"name of it":   func(tx *bbolt.Tx) error { return tx.Bucket([]byte(store.Meta)).Delete([]byte("schema")) },
		"meta bucket":  func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte(store.Meta)) },
		"other bucket": func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("lfdger")); return err },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			write(t, path, filled(t))
			change(t, path, damage)
			s, log := open(t, path)
			mustContain(t, log.String(), "level=ERROR", path)
			if get(t, s, "k1") != value(1) {
				t.Error("what is intact is lost")
			}
			put(t, s, "k", "v")
		})
	}
}

func TestValuesOfReleasesWithoutChecksumsAreRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	foreign(t, path, store.Meta, "schema", "1")
	foreign(t, path, store.Engine, "state", `{"version":1}`)
	s, log := open(t, path)
	if get(t, s, "state") != `{"version":1}` || log.Len() > 0 {
		t.Errorf("the value of an older release is not read: %s", log)
	}
	put(t, s, "other", "x")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	change(t, path, func(tx *bbolt.Tx) error {
		if got := tx.Bucket([]byte(store.Meta)).Get([]byte("schema")); string(got) != string(seal(store.Meta, "schema", "2")) {
			t.Errorf("the schema is %q: an older release would take sealed values for damage", got)
		}
		return nil
	})
	if s, log = open(t, path); get(t, s, "state") != `{"version":1}` || log.Len() > 0 {
		t.Errorf("beside sealed values it is not read any more: %s", log)
	}
}

func BenchmarkPut(b *testing.B) {
	s, err := store.Open(filepath.Join(b.TempDir(), "state.db"), time.Second, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	v := make([]byte, 1<<20)
	b.SetBytes(int64(len(v)))
	for b.Loop() {
		if err := s.Update(func(tx *store.Tx) error {
			for range 100 {
				if err := tx.Put(store.Engine, "state", v); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
}
