package report

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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
	for _, suffix := range []string{".json", ".csv", ".focus.csv", ".sha256"} {
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
}

// TestFrozenFilesAreSealed edits and deletes each file of a frozen month: none of it
// goes unnoticed, and nothing is frozen over what is left.
func TestFrozenFilesAreSealed(t *testing.T) {
	for _, suffix := range []string{".json", ".csv", ".focus.csv", ".sha256"} {
		for _, how := range []string{"edited", "deleted"} {
			dir, _ := frozenWith(t, dearer(7))
			path := filepath.Join(dir, "2026-11"+suffix)
			good, err := os.ReadFile(path)
			if err = errors.Join(err, os.Remove(path)); err == nil && how == "edited" {
				err = os.WriteFile(path, bytes.Replace(good, []byte("2026"), []byte("2O26"), 1), 0o444)
				if !bytes.Contains(good, []byte("2026")) {
					err = os.WriteFile(path, bytes.Replace(good, []byte("4711"), []byte("4712"), 1), 0o444)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			if said, err := Freeze(dir, closed(), november, noon); err == nil || !strings.Contains(err.Error(), "put ") || !strings.Contains(err.Error(), "2026-11"+suffix) {
				t.Errorf("2026-11%s is %s: it says %q, %v, want it refused by name", suffix, how, said, err)
			}
			if _, err := os.Stat(path); how == "deleted" && err == nil {
				t.Errorf("2026-11%s was deleted, and is frozen anew", suffix)
			}
			if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, good, 0o444)); err != nil {
				t.Fatal(err)
			}
			if said, err := Freeze(dir, closed(), november, noon); err != nil {
				t.Errorf("2026-11%s was put back: it says %q, %v", suffix, said, err)
			}
		}
	}
}

// TestCorrectionsAsFOCUSAreHeldAgainstTheSealedOnes edits the one file that is made of
// others: it is made again, not silently.
func TestCorrectionsAsFOCUSAreHeldAgainstTheSealedOnes(t *testing.T) {
	dir, _ := frozenWith(t, dearer(7))
	path := filepath.Join(dir, "2026-11.corrections.focus.csv")
	good, err := os.ReadFile(path)
	if err = errors.Join(err, os.Remove(path), os.WriteFile(path, []byte("nothing was corrected\n"), 0o444)); err != nil {
		t.Fatal(err)
	}
	same := closed()
	dearer(7)(same)
	for _, want := range []string{"made again", "nothing has changed"} {
		if said, err := Freeze(dir, same, november, noon); err != nil || !strings.Contains(said, want) {
			t.Errorf("it says %q, %v, want %q", said, err, want)
		}
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, good) {
		t.Errorf("it is not made again, %v:\n%s", err, now)
	}
	if err := os.Remove(filepath.Join(dir, "2026-11.corrections.jsonl")); err != nil {
		t.Fatal(err)
	}
	if said, err := Freeze(dir, same, november, noon); err == nil || !strings.Contains(err.Error(), "no ") {
		t.Errorf("corrections were deleted: it says %q, %v, want it refused", said, err)
	}
}

// frozenWith freezes a month and corrects it twice. It returns its directory and the
// corrections.
func frozenWith(t *testing.T, corrected ...func(*cost.Answer)) (dir string, corrections []byte) {
	t.Helper()
	dir = t.TempDir()
	at := november.AddDate(0, 1, 3)
	for _, change := range append([]func(*cost.Answer){func(*cost.Answer) {}}, corrected...) {
		a := closed()
		change(a)
		if _, err := Freeze(dir, a, november, at); err != nil {
			t.Fatal(err)
		}
		at = at.AddDate(0, 1, 0)
	}
	corrections, err := os.ReadFile(filepath.Join(dir, "2026-11.corrections.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return dir, corrections
}

func dearer(by int64) func(*cost.Answer) { return func(a *cost.Answer) { a.Rows[0].Effective += by } }

// TestCorrectionsAreSealed edits, moves, drops and borrows corrections: none of it goes
// unnoticed, as they are money that somebody has been told.
func TestCorrectionsAreSealed(t *testing.T) {
	dir, good := frozenWith(t, dearer(7), dearer(9))
	lines := bytes.SplitAfter(bytes.TrimSuffix(good, []byte("\n")), []byte("\n"))
	if len(lines) != 2 {
		t.Fatalf("%d corrections, want 2:\n%s", len(lines), good)
	}
	lines[1] = append(lines[1], '\n')
	_, other := frozenWith(t, dearer(8), func(a *cost.Answer) { a.Rows[0].Effective += 8; a.Rows[1].Effective++ })
	path := filepath.Join(dir, "2026-11.corrections.jsonl")
	for name, bad := range map[string][]byte{
		"an amount is edited":          bytes.Replace(good, []byte(`"effective_nano":7`), []byte(`"effective_nano":6`), 1),
		"the last amount is edited":    bytes.Replace(good, []byte(`"effective_nano":2`), []byte(`"effective_nano":3`), 1),
		"the first is left out":        lines[1],
		"they change places":           append(bytes.Clone(lines[1]), lines[0]...),
		"one is there twice":           append(bytes.Clone(good), lines[1]...),
		"one of another file is added": append(bytes.Clone(good), bytes.SplitAfter(other, []byte("\n"))[1]...),
		"one without a seal is added":  append(bytes.Clone(good), []byte(`{"corrected":"2027-01-04T00:00:00Z","effective_nano":1}`+"\n")...),
		"it is cut short":              good[:len(good)-1],
	} {
		if bytes.Equal(bad, good) {
			t.Fatalf("%s: the test changes nothing", name)
		}
		if err := errors.Join(os.Remove(path), os.WriteFile(path, bad, 0o444)); err != nil {
			t.Fatal(err)
		}
		if said, err := Freeze(dir, closed(), november, november.AddDate(1, 0, 0)); err == nil || !strings.Contains(err.Error(), "line ") || !strings.Contains(err.Error(), "put back") {
			t.Errorf("%s: it says %q, %v, want it refused with the line", name, said, err)
		}
	}
}

// TestCorrectionsOfAnOlderRelease have no seals: they stay as they are, and are sealed
// by those that follow.
func TestCorrectionsOfAnOlderRelease(t *testing.T) {
	dir, good := frozenWith(t, dearer(7))
	path := filepath.Join(dir, "2026-11.corrections.jsonl")
	old := append(good[:len(good)-sealLength-1], "}\n"...)
	if err := errors.Join(os.Remove(path), os.WriteFile(path, old, 0o444)); err != nil {
		t.Fatal(err)
	}
	a := closed()
	dearer(9)(a)
	if said, err := Freeze(dir, a, november, november.AddDate(1, 0, 0)); err != nil || !strings.Contains(said, "1 corrections") {
		t.Fatalf("it says %q, %v, want the difference to what the older release had written", said, err)
	}
	now, err := os.ReadFile(path)
	if err != nil || !bytes.HasPrefix(now, old) || bytes.Count(now, []byte(`"effective_nano":2,`)) != 1 {
		t.Errorf("corrections are, %v:\n%s", err, now)
	}
}

// TestClosedMonthsAsFOCUS sums the rows of a month and of its corrections to what is
// known, and finds corrections in the bill of the month that they were found in.
func TestClosedMonthsAsFOCUS(t *testing.T) {
	dir, _ := frozenWith(t, dearer(7_000_000_000), dearer(-2_000_000_000))
	sum := 0.0
	for _, name := range []string{"2026-11.focus.csv", "2026-11.corrections.focus.csv"} {
		f, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(bytes.NewReader(f)).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		at := map[string]int{}
		for i, column := range rows[0] {
			at[column] = i
		}
		for _, row := range rows[1:] {
			v, err := strconv.ParseFloat(row[at["BilledCost"]], 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += v
			if from, to := row[at["ChargePeriodStart"]], row[at["ChargePeriodEnd"]]; from != "2026-11-01T00:00:00Z" || to != "2026-12-01T00:00:00Z" {
				t.Errorf("%s: a charge of %s to %s, want the month", name, from, to)
			}
			class, billed := row[at["ChargeClass"]], row[at["BillingPeriodStart"]]
			if correction := strings.Contains(name, "corrections"); correction != (class == "Correction") || correction == (billed == "2026-11-01T00:00:00Z") {
				t.Errorf("%s: class %q in the bill of %s", name, class, billed)
			}
		}
	}
	a := closed()
	dearer(-2_000_000_000)(a)
	want := 0.0
	for _, r := range a.Rows {
		want += float64(r.Effective) / 1e9
	}
	if sum < want-1e-6 || sum > want+1e-6 {
		t.Errorf("the month with its corrections sums to %v, known is %v", sum, want)
	}
}
