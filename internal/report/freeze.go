package report

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/text"
)

// Month returns the beginning of a month of UTC, written 2026-01, and of the next. An
// empty one is the last that is over. One that is not over is refused.
func Month(name string, now time.Time) (since, until time.Time, err error) {
	since = monthOf(now).AddDate(0, -1, 0)
	if name != "" {
		if since, err = time.Parse("2006-01", name); err != nil {
			return since, until, fmt.Errorf("--month=%.20q is no month: write it as 2026-01", name)
		}
	}
	if until = since.AddDate(0, 1, 0); now.Before(until) {
		return since, until, fmt.Errorf("the month %s is over at %s: what is not over is not frozen", since.Format("2006-01"), until.Format(time.RFC3339))
	}
	return since, until, nil
}

// Entry is what an owner had of a model in a state, in a month.
type Entry struct {
	Corrected time.Time       `json:"corrected,omitzero"` // when this was found to be missing, or, below zero, too much
	Owner     collector.Owner `json:"owner"`
	Model     string          `json:"model"`
	State     string          `json:"state"` // any: what is not known by state
	Currency  string          `json:"currency"`
	cost.Amounts
}

func (e Entry) key() Entry {
	return Entry{Owner: e.Owner, Model: e.Model, State: e.State, Currency: e.Currency}
}

// Closed is a month as it was frozen.
type Closed struct {
	Month     string    `json:"month"`
	Node      string    `json:"node"`
	Simulated bool      `json:"simulated"`
	Frozen    time.Time `json:"frozen"`
	Busy      string    `json:"busy"`
	Entries   []Entry   `json:"entries"`
}

// entries adds an answer up.
func entries(a *cost.Answer) []Entry {
	sums := map[Entry]cost.Amounts{}
	for _, r := range a.Rows {
		k := Entry{Owner: r.Owner, Model: r.Model, State: r.State.String(), Currency: r.Currency}
		sums[k] = sums[k].Plus(r.Amounts)
	}
	for _, s := range a.Shared {
		k := Entry{Owner: s.Owner, Model: s.Model, State: anyState, Currency: s.Currency}
		sums[k] = sums[k].Plus(s.Amounts)
	}
	return sorted(sums)
}

func sorted(sums map[Entry]cost.Amounts) []Entry {
	var out []Entry
	for e, sum := range sums {
		if e.Amounts = sum; sum != (cost.Amounts{}) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Currency, b.Currency), cmp.Compare(a.Owner.Team, b.Owner.Team), cmp.Compare(a.Owner.String(), b.Owner.String()),
			cmp.Compare(a.Model, b.Model), cmp.Compare(a.State, b.State))
	})
	return out
}

// Freeze writes what a closed month cost to a directory: MONTH.json, MONTH.csv,
// MONTH.focus.csv and their checksums in MONTH.sha256, all of which nobody may write. A
// month that is there already stays as it is: what has become of it since is appended
// to MONTH.corrections.jsonl, an entry for each difference, sealed (see corrections);
// MONTH.corrections.focus.csv has the same as FOCUS. It returns what it did.
func Freeze(dir string, a *cost.Answer, month, now time.Time) (string, error) {
	if _, err := New(a, month, ByJob); err != nil {
		return "", err
	}
	unlock, err := lock(dir)
	if err != nil {
		return "", fmt.Errorf("freeze a month in %s: %w", dir, err)
	}
	defer unlock()
	base := filepath.Join(dir, month.Format("2006-01"))
	said, err := freeze(base, a, month, now.UTC().Truncate(time.Second))
	if err != nil {
		return "", fmt.Errorf("freeze %s: %w", base, err)
	}
	return said, nil
}

func freeze(base string, a *cost.Answer, month, now time.Time) (string, error) {
	have, err := os.ReadFile(base + ".json")
	if err == nil {
		return amend(base, have, a, month, now)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	c := Closed{Month: filepath.Base(base), Node: a.Node, Simulated: a.Simulated, Frozen: now, Busy: a.Busy, Entries: entries(a)}
	asJSON, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return "", err
	}
	asJSON = append(asJSON, '\n')
	asCSV, err := table(c.Entries)
	if err != nil {
		return "", err
	}
	var asFOCUS bytes.Buffer
	if err := focusEntries(&asFOCUS, c.Node, month, c.Entries); err != nil {
		return "", err
	}
	sums := fmt.Sprintf("%x  %s.json\n%x  %s.csv\n%x  %s.focus.csv\n", sha256.Sum256(asJSON), c.Month, sha256.Sum256(asCSV), c.Month, sha256.Sum256(asFOCUS.Bytes()), c.Month)
	for _, f := range []struct { // the first without the last is not frozen
		suffix  string
		content []byte
	}{{".csv", asCSV}, {".focus.csv", asFOCUS.Bytes()}, {".sha256", []byte(sums)}, {".json", asJSON}} {
		if err := publish(base+f.suffix, f.content); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("froze %s: %d entries in %s.json and .csv", c.Month, len(c.Entries), base), nil
}

// amend appends how the month differs from what was frozen and corrected before.
func amend(base string, frozen []byte, a *cost.Answer, month, now time.Time) (string, error) {
	sums, err := os.ReadFile(base + ".sha256")
	if err != nil {
		return "", err
	}
	if !strings.Contains(string(sums), fmt.Sprintf("%x  %s.json\n", sha256.Sum256(frozen), filepath.Base(base))) {
		return "", fmt.Errorf("%s.json is not what its checksum in %s.sha256 says: put back what was frozen", base, base)
	}
	var c Closed
	if err := json.Unmarshal(frozen, &c); err != nil {
		return "", err
	}
	content, err := os.ReadFile(base + ".corrections.jsonl")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	before, err := readCorrections(frozen, content)
	if err != nil {
		return "", fmt.Errorf("read %s.corrections.jsonl: %w: put back what was written", base, err)
	}
	found := differences(append(c.Entries, before...), entries(a))
	for i := range found {
		found[i].Corrected = now
	}
	content, err = appendCorrections(frozen, content, found)
	if err != nil {
		return "", err
	}
	var asFOCUS bytes.Buffer
	if err := focusEntries(&asFOCUS, c.Node, month, append(before, found...)); err != nil {
		return "", err
	}
	if len(found) > 0 {
		if err := publish(base+".corrections.jsonl", content); err != nil {
			return "", err
		}
	}
	// It is made of the other, and made again if that was as far as the last one got.
	const focusFile = ".corrections.focus.csv"
	if old, err := os.ReadFile(base + focusFile); len(content) > 0 && (err != nil || !bytes.Equal(old, asFOCUS.Bytes())) {
		if err := publish(base+focusFile, asFOCUS.Bytes()); err != nil {
			return "", err
		}
	}
	if len(found) == 0 {
		return fmt.Sprintf("%s is frozen since %s and nothing has changed", c.Month, c.Frozen.Format(time.RFC3339)), nil
	}
	return fmt.Sprintf("%s is frozen since %s and stays so; %d corrections were added to %s.corrections.jsonl", c.Month, c.Frozen.Format(time.RFC3339), len(found), base), nil
}

// differences returns what must be added to the known entries to have the others.
func differences(known, now []Entry) []Entry {
	off := map[Entry]cost.Amounts{}
	for _, e := range now {
		off[e.key()] = e.Amounts
	}
	for _, e := range known {
		off[e.key()] = off[e.key()].Minus(e.Amounts)
	}
	return sorted(off)
}

func table(list []Entry) ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	lines := [][]string{{"owner_kind", "owner", "team", "model", "state", "gpu_seconds", "gpu_seconds_without_price", "currency", "cost", "list_cost", "contracted_cost",
		"energy_joules", "energy_cost", "carbon_grams"}}
	for _, e := range list {
		line := []string{cmp.Or(e.Owner.Kind, e.Owner.String()), text.Clean(e.Owner.ID, 2*maxKey), text.Clean(e.Owner.Team, maxKey), modelName(e.Model)}
		lines = append(lines, append(line, numbers(e.State, e.Currency, e.Amounts)...))
	}
	err := w.WriteAll(lines)
	return b.Bytes(), err
}

// lock keeps a second freeze out of the directory, which it makes if need be.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		d.Close()
		return nil, fmt.Errorf("another one is under way there: %w", err)
	}
	return func() { d.Close() }, nil
}

// publish puts a file in its place whole, on disk and read-only.
func publish(path string, content []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".freeze-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(0o444)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
