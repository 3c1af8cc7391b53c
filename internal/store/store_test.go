package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	vm "github.com/VictoriaMetrics/metrics"
	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"gpuvigil/internal/metric"
	"gpuvigil/internal/store"
)

// open opens path or fails the test; what was logged is in the buffer.
func open(t *testing.T, path string) (*store.Store, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	s, err := store.Open(path, time.Second, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatalf("the state file does not open: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, &log
}

func refused(t *testing.T, path string) string {
	t.Helper()
	s, err := store.Open(path, 100*time.Millisecond, slog.New(slog.DiscardHandler))
	if err == nil {
		_ = s.Close()
		t.Fatalf("the state file %s opens, it must be refused", path)
	}
	return err.Error()
}

func put(t *testing.T, s *store.Store, key, value string) {
	t.Helper()
	if err := s.Update(func(tx *store.Tx) error { return tx.Put(store.Engine, key, []byte(value)) }); err != nil {
		t.Fatalf("write of %q: %v", key, err)
	}
}

func get(t *testing.T, s *store.Store, key string) string {
	t.Helper()
	var v []byte
	if err := s.View(func(tx *store.Tx) error { v = tx.Get(store.Engine, key); return nil }); err != nil {
		t.Fatalf("read of %q: %v", key, err)
	}
	return string(v)
}

func mustContain(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("the message does not say %q: %s", p, text)
		}
	}
}

func TestWhatWasWrittenIsThereAfterReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "state.db")
	s, log := open(t, path)
	put(t, s, "b", "2")
	put(t, s, "a", "1")
	put(t, s, "c", "3")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others can read the state file: mode %v, %v", info.Mode(), err)
	}
	s, _ = open(t, path)
	var keys []string
	err = s.View(func(tx *store.Tx) error {
		tx.Range(store.Engine, "b", func(k string, v []byte) bool {
			keys = append(keys, k+"="+string(v))
			return true
		})
		return nil
	})
	if diff := cmp.Diff([]string{"b=2", "c=3"}, keys); diff != "" || err != nil {
		t.Errorf("range from b: %v\n%s", err, diff)
	}
	if log.Len() > 0 {
		t.Errorf("opening a new file is nothing to log: %s", log)
	}
}

func TestAFailedUpdateLeavesNoTrace(t *testing.T) {
	s, _ := open(t, filepath.Join(t.TempDir(), "state.db"))
	put(t, s, "k", "before")
	own := errors.New("changed my mind")
	committed := false
	err := s.Update(func(tx *store.Tx) error {
		tx.OnCommit(func() { committed = true })
		if err := tx.Put(store.Engine, "k", []byte("after")); err != nil {
			return err
		}
		return own
	})
	if err != own {
		t.Errorf("Update hides the caller's own error: %v", err)
	}
	if committed || get(t, s, "k") != "before" {
		t.Errorf("a transaction that failed left something: committed %v, value %q", committed, get(t, s, "k"))
	}
	err = s.Update(func(tx *store.Tx) error {
		tx.OnCommit(func() { committed = true })
		return tx.Delete(store.Engine, "k")
	})
	if err != nil || !committed || get(t, s, "k") != "" {
		t.Errorf("delete: %v, committed %v, value %q", err, committed, get(t, s, "k"))
	}
}

func TestASecondAgentIsToldWhoHasTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	open(t, path)
	mustContain(t, refused(t, path), path, "another gpuvigil agent", "--state.dir")
}

func TestDamagedFilesAreMovedAsideAndNothingIsLostSilently(t *testing.T) {
	damages := map[string]func(t *testing.T, path string){
		"text instead of a database": func(t *testing.T, path string) { write(t, path, []byte("hello\n")) },
		"a page of zeroes":           func(t *testing.T, path string) { write(t, path, make([]byte, 32<<10)) },
		"cut to one page":            func(t *testing.T, path string) { truncate(t, path, 4096) },
		"cut to the meta pages":      func(t *testing.T, path string) { truncate(t, path, 8192) },
		"cut in the middle":          func(t *testing.T, path string) { truncate(t, path, size(t, path)/2/4096*4096) },
		"noise in the pages": func(t *testing.T, path string) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for i := 8192; i < len(b); i += 97 {
				b[i] ^= 0x5a
			}
			write(t, path, b)
		},
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			s, _ := open(t, path)
			for i := range 200 {
				put(t, s, fmt.Sprint(i), strings.Repeat("x", 2000))
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			damage(t, path)
			damaged, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			s, log := open(t, path)
			mustContain(t, log.String(), "level=ERROR", "damaged", path)
			put(t, s, "k", "new")
			if v := get(t, s, "k"); v != "new" {
				t.Errorf("the fresh file does not work: %q", v)
			}
			aside, err := filepath.Glob(path + ".corrupt-*")
			if err != nil || len(aside) != 1 {
				t.Fatalf("the damaged file is gone: %v %v", aside, err)
			}
			if kept, err := os.ReadFile(aside[0]); err != nil || !bytes.Equal(kept, damaged) {
				t.Errorf("the damaged file was changed: %v", err)
			}
		})
	}
}

func TestAnEmptyFileIsSaidAndBegunAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	write(t, path, nil)
	s, log := open(t, path)
	put(t, s, "k", "v")
	mustContain(t, log.String(), "level=WARN", "empty", path)
}

func TestPlacesThatCannotHoldTheFileSayWhatToDo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, []byte("x"))
	mustContain(t, refused(t, filepath.Join(file, "state.db")), "not a directory", "--state.dir")

	dir := filepath.Join(t.TempDir(), "state.db")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	mustContain(t, refused(t, dir), "is a directory", "--state.dir")
}

func TestWithoutPermissionTheErrorSaysWhatToDo(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	mustContain(t, refused(t, filepath.Join(dir, "state.db")), "permission denied", "let the agent's user write")
}

func TestFilesOfOthersAreRefusedAndNotTouched(t *testing.T) {
	tests := map[string]struct {
		bucket, key, value string
		want               []string
	}{
		"a newer gpuvigil": {store.Meta, "schema", string(seal(store.Meta, "schema", "99")), []string{"newer gpuvigil", "99", "run that release"}},
		"another program":  {"theirs", "k", "v", []string{"another program", "--state.dir"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			foreign(t, path, test.bucket, test.key, test.value)
			mustContain(t, refused(t, path), append(test.want, path)...)
			if aside, _ := filepath.Glob(path + ".corrupt-*"); len(aside) > 0 {
				t.Errorf("a file that is not damaged was moved: %v", aside)
			}
			db, err := bbolt.Open(path, 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			err = db.View(func(tx *bbolt.Tx) error {
				if got := string(tx.Bucket([]byte(test.bucket)).Get([]byte(test.key))); got != test.value {
					t.Errorf("the file was changed: %q", got)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestAFileOfAnOlderReleaseGetsTheNewBuckets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	foreign(t, path, store.Meta, "schema", "1")
	s, _ := open(t, path)
	put(t, s, "k", "v")
}

func TestFailedWritesAreCounted(t *testing.T) {
	s, _ := open(t, filepath.Join(t.TempDir(), "state.db"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c := vm.GetOrCreateCounter(metric.StateWriteErrors.Series())
	before := c.Get()
	err := s.Update(func(*store.Tx) error { return nil })
	if err == nil || c.Get() != before+1 {
		t.Errorf("a write that failed (%v) raised the counter by %d", err, c.Get()-before)
	}
}

func foreign(t *testing.T, path, bucket, key, value string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte(bucket))
		if err != nil {
			return err
		}
		return b.Put([]byte(key), []byte(value))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func truncate(t *testing.T, path string, n int64) {
	t.Helper()
	if err := os.Truncate(path, n); err != nil {
		t.Fatal(err)
	}
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
