package report

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuvigil/internal/cost"
)

var november = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

func closed() *cost.Answer {
	a := answer()
	a.Since = november
	a.Shared = []cost.Shared{{Hour: noon, Owner: a.Rows[0].Owner, Model: a.Rows[0].Model, Currency: "USD", Amounts: cost.Amounts{Carbon: 5e9}}}
	return a
}

func TestMonthsThatAreOver(t *testing.T) {
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	for name, want := range map[string]string{"": "2026-11-01", "2026-11": "2026-11-01", "2026-02": "2026-02-01"} {
		since, until, err := Month(name, now)
		if err != nil || since.Format(time.DateOnly) != want || until != since.AddDate(0, 1, 0) {
			t.Errorf("month %q is from %v to %v, %v", name, since, until, err)
		}
	}
	if _, _, err := Month("2026-12", now); err == nil || !strings.Contains(err.Error(), "2027-01-01") {
		t.Errorf("a month that has just begun: %v, want it refused with when it is over", err)
	}
	if _, _, err := Month("2026-11", now.Add(-time.Nanosecond)); err == nil {
		t.Error("a month is frozen in its last moment")
	}
	if _, _, err := Month("november", now); err == nil || !strings.Contains(err.Error(), "2026-01") {
		t.Errorf("no month: %v", err)
	}
}

// TestFrozenMonthsStay freezes a month, finds it changed twice and back again: its
// files never change, and with the corrections they say what is known.
func TestFrozenMonthsStay(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "books")
	base := filepath.Join(dir, "2026-11")
	at := november.AddDate(0, 1, 3)
	does := func(a *cost.Answer, want string) {
		t.Helper()
		at = at.Add(time.Hour)
		if said, err := Freeze(dir, a, november, at); err != nil || !strings.Contains(said, want) {
			t.Fatalf("it says %q, %v, want %q", said, err, want)
		}
	}
	does(closed(), "froze 2026-11: 8 entries")
	before := map[string][]byte{}
	for _, suffix := range []string{".json", ".csv", ".sha256"} {
		content, err := os.ReadFile(base + suffix)
		if err != nil {
			t.Fatal(err)
		}
		before[suffix] = content
		if info, err := os.Stat(base + suffix); err != nil || info.Mode().Perm() != 0o444 {
			t.Errorf("%s has mode %v, %v, want it read-only", suffix, info.Mode(), err)
		}
	}
	if path, err := exec.LookPath("sha256sum"); err == nil {
		cmd := exec.Command(path, "-c", "2026-11.sha256")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("sha256sum does not agree: %s", out)
		}
	}
	does(closed(), "nothing has changed")

	more := closed()
	more.Rows[0].Effective += 7
	more.Rows = more.Rows[:len(more.Rows)-1] // and one of 1200 s less
	does(more, "2 corrections")
	does(more, "nothing has changed")
	does(closed(), "2 corrections")
	for suffix, content := range before {
		if now, err := os.ReadFile(base + suffix); err != nil || !bytes.Equal(now, content) {
			t.Errorf("%s has changed: %v", suffix, err)
		}
	}
	corrections, err := os.ReadFile(base + ".corrections.jsonl")
	if err != nil || bytes.Count(corrections, []byte("\n")) != 4 || !bytes.Contains(corrections, []byte(`"effective_nano":-7,`)) ||
		!bytes.Contains(corrections, []byte(fmt.Sprintf(`"corrected":"%s"`, at.Format(time.RFC3339)))) {
		t.Errorf("corrections, %v:\n%s", err, corrections)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestWhatCannotBeFrozen(t *testing.T) {
	dir := t.TempDir()
	if _, err := Freeze(dir, answer(), november, noon); err == nil || !strings.Contains(err.Error(), "nothing before") {
		t.Errorf("a month of which half was booked: %v", err)
	}
	unlock, err := lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Freeze(dir, closed(), november, noon); err == nil || !strings.Contains(err.Error(), "another one") {
		t.Errorf("two at once: %v", err)
	}
	unlock()
	if _, err := Freeze(dir, closed(), november, noon); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "2026-11.json")
	content, err := os.ReadFile(path)
	if err == nil {
		err = os.Remove(path)
	}
	if err == nil {
		err = os.WriteFile(path, bytes.Replace(content, []byte("slurm/4711"), []byte("slurm/4712"), 1), 0o444)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Freeze(dir, closed(), november, noon); err == nil || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("a frozen month that somebody has edited: %v", err)
	}
}
