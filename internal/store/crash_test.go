package store_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpuvigil/internal/store"
)

// TestMain lets the test binary be the process that is killed, or that runs out
// of disk.
func TestMain(m *testing.M) {
	path := os.Getenv("STORE_TEST_FILE")
	switch os.Getenv("STORE_TEST_AS") {
	case "writer":
		exit(writeForEver(path))
	case "full":
		exit(fillUp(path))
	}
	os.Exit(m.Run())
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func child(t *testing.T, as, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "STORE_TEST_AS="+as, "STORE_TEST_FILE="+path)
	cmd.Stderr = os.Stderr
	return cmd
}

// writeForEver writes pairs that must never be seen apart and prints the number
// of each pair once it is on disk.
func writeForEver(path string) error {
	s, err := store.Open(path, 5*time.Second, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		err := s.Update(func(tx *store.Tx) error {
			v := []byte(strconv.Itoa(i) + strings.Repeat(".", i*37%5000))
			return errors.Join(tx.Put(store.Engine, "pair", v), tx.Put(store.Outbox, "pair", v))
		})
		if err != nil {
			return err
		}
		fmt.Println(i)
	}
}

func TestKillInTheMiddleLosesNothingThatWasAcknowledged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	for round := range 5 {
		cmd := child(t, "writer", path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		acknowledged := ""
		lines := bufio.NewScanner(out)
		for range 20 + 7*round {
			if !lines.Scan() {
				t.Fatalf("the writer stopped early: %v", lines.Err())
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for acknowledged = lines.Text(); lines.Scan(); acknowledged = lines.Text() {
		}
		_ = cmd.Wait() // killed

		s, log := open(t, path)
		if log.Len() > 0 {
			t.Errorf("a kill damaged the state file: %s", log)
		}
		var a, b string
		_ = s.View(func(tx *store.Tx) error {
			a, b = string(tx.Get(store.Engine, "pair")), string(tx.Get(store.Outbox, "pair"))
			return nil
		})
		if a != b {
			t.Errorf("half of a transaction is on disk: %q and %q", a, b)
		}
		got, err1 := strconv.Atoi(strings.TrimRight(a, "."))
		want, err2 := strconv.Atoi(acknowledged)
		if err := errors.Join(err1, err2); err != nil || got < want {
			t.Errorf("acknowledged %d, found %d after the kill (%v)", want, got, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// fillUp writes until its file may not grow any more, and goes on.
func fillUp(path string) error {
	s, err := store.Open(path, 5*time.Second, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	put := func(key string, n int) error {
		return s.Update(func(tx *store.Tx) error { return tx.Put(store.Engine, key, make([]byte, n)) })
	}
	if err := put("kept", 1000); err != nil {
		return err
	}
	signal.Ignore(syscall.SIGXFSZ)
	limit := syscall.Rlimit{Cur: 256 << 10, Max: 1 << 30}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	full := put("big", 1<<20)
	if full == nil {
		return errors.New("a megabyte fits into 256 KiB")
	}
	fmt.Println(full)
	if err := put("small", 100); err != nil {
		return fmt.Errorf("the store is of no use after a full disk: %w", err)
	}
	limit.Cur = 1 << 30
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	if err := put("big", 1<<20); err != nil {
		return fmt.Errorf("the store does not recover when there is room again: %w", err)
	}
	return s.Close()
}

func TestAFullDiskIsAnErrorThatNamesTheFileAndPasses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	cmd := child(t, "full", path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(out)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	mustContain(t, string(said), path, "make room")
	s, log := open(t, path)
	if log.Len() > 0 {
		t.Errorf("a full disk damaged the file: %s", log)
	}
	for key, n := range map[string]int{"kept": 1000, "small": 100, "big": 1 << 20} {
		if got := len(get(t, s, key)); got != n {
			t.Errorf("%s: %d bytes are left of %d", key, got, n)
		}
	}
}
