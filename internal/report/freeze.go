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
	Month     string     `json:"month"`
	Node      string     `json:"node"`
	Simulated bool       `json:"simulated"`
	Frozen    time.Time  `json:"frozen"`
	Busy      string     `json:"busy"`
	Entries   []Entry    `json:"entries"`
	Gaps      []cost.Gap `json:"gaps,omitempty"` // what is missing from it, and was accepted
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
// MONTH.corrections.focus.csv has the same as FOCUS. A month of
// which time is missing is refused, but for that of the nodes to accept it of. It
// returns what it did.
func Freeze(dir string, a *cost.Answer, month, now time.Time, accept ...string) (string, error) {
	if _, err := New(a, month, ByJob); err != nil {
		return "", err
	}
	unlock, err := lock(dir)
	if err != nil {
		return "", fmt.Errorf("freeze a month in %s: %w", dir, err)
	}
	defer unlock()
	base := filepath.Join(dir, month.Format("2006-01"))
	said, err := freeze(base, a, month, now.UTC().Truncate(time.Second), accept)
	if err != nil {
		return "", fmt.Errorf("freeze %s: %w", base, err)
	}
	return said, nil
}

// frozenFiles are what a frozen month is made of, in the order in which they are
// published: the checksums come last, and seal the others.
var frozenFiles = []string{".csv", ".focus.csv", ".json", ".sha256"}

// What corrects it is in files of its own.
const (
	correctionsFile  = ".corrections.jsonl"
	correctionsFOCUS = ".corrections.focus.csv"
)

func freeze(base string, a *cost.Answer, month, now time.Time, accept []string) (string, error) {
	frozen, err := sealed(base)
	if err != nil {
		return "", err
	}
	if frozen != nil {
		return amend(base, frozen, a, month, now, accept)
	}
	if err := refuseGaps(a.Gaps, nil, accept); err != nil {
		return "", err
	}
	c := Closed{Month: filepath.Base(base), Node: a.Node, Simulated: a.Simulated, Frozen: now, Busy: a.Busy, Entries: entries(a), Gaps: a.Gaps}
	asJSON, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return "", err
	}
	asJSON = append(asJSON, '\n')
	asCSV, err := table(c.Entries, c.Gaps)
	if err != nil {
		return "", err
	}
	var asFOCUS bytes.Buffer
	if err := focusEntries(&asFOCUS, c.Node, month, c.Entries); err != nil {
		return "", err
	}
	content := map[string][]byte{".csv": asCSV, ".focus.csv": asFOCUS.Bytes(), ".json": asJSON}
	content[".sha256"] = []byte(checksums(c.Month, content))
	for _, suffix := range frozenFiles {
		if err := publish(base+suffix, content[suffix]); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("froze %s: %d entries in %s.json and .csv", c.Month, len(c.Entries), base), nil
}

// checksums is what sha256sum reads.
func checksums(month string, content map[string][]byte) string {
	var out strings.Builder
	for _, suffix := range []string{".json", ".csv", ".focus.csv"} {
		fmt.Fprintf(&out, "%x  %s%s\n", sha256.Sum256(content[suffix]), month, suffix)
	}
	return out.String()
}

// sealed returns the JSON of a frozen month after it has held all of its files against
// their checksums; nil without any of them. A month of which files are missing is
// refused: it cannot be told whether somebody took them, or a freeze was cut short.
func sealed(base string) ([]byte, error) {
	content := map[string][]byte{}
	var there, missing []string
	for _, suffix := range append([]string{correctionsFile, correctionsFOCUS}, frozenFiles...) {
		name := filepath.Base(base) + suffix
		data, err := os.ReadFile(base + suffix)
		switch {
		case err == nil:
			content[suffix], there = data, append(there, name)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		case slices.Contains(frozenFiles, suffix):
			missing = append(missing, name)
		}
	}
	if len(there) == 0 {
		return nil, nil
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("there is %s and no %s: put back what was frozen; if no freeze has ever ended well there, move away all files of the month", there[0], strings.Join(missing, ", "))
	}
	want := checksums(filepath.Base(base), content)
	for line := range strings.Lines(want) {
		if !strings.Contains(string(content[".sha256"]), line) {
			_, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
			return nil, fmt.Errorf("%s is not what its checksum in %s.sha256 says: put back what was frozen", name, base)
		}
	}
	if string(content[".sha256"]) != want {
		return nil, fmt.Errorf("%s.sha256 is not what was written: put it back", base)
	}
	return content[".json"], nil
}

// amend appends how the month differs from what was frozen and corrected before.
func amend(base string, frozen []byte, a *cost.Answer, month, now time.Time, accept []string) (string, error) {
	var c Closed
	if err := json.Unmarshal(frozen, &c); err != nil {
		return "", err
	}
	if err := refuseGaps(a.Gaps, c.Gaps, accept); err != nil {
		return "", err
	}
	content, err := os.ReadFile(base + correctionsFile)
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
	if len(found) > 0 {
		if err := publish(base+correctionsFile, content); err != nil {
			return "", err
		}
	}
	also, err := amendFOCUS(base, c.Node, month, before, found)
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return fmt.Sprintf("%s is frozen since %s and nothing has changed%s", c.Month, c.Frozen.Format(time.RFC3339), also), nil
	}
	return fmt.Sprintf("%s is frozen since %s and stays so; %d corrections were added to %s.corrections.jsonl%s", c.Month, c.Frozen.Format(time.RFC3339), len(found), base, also), nil
}

// amendFOCUS writes corrections as FOCUS. The file is made of the sealed ones: if it is
// not what they say, because it was edited or an amendment was cut short, it is made
// again, and that is said.
func amendFOCUS(base, node string, month time.Time, before, found []Entry) (said string, err error) {
	path := base + correctionsFOCUS
	old, err := os.ReadFile(path)
	gone := errors.Is(err, fs.ErrNotExist)
	if err != nil && !gone {
		return "", err
	}
	if len(before) == 0 && !gone {
		return "", fmt.Errorf("there is %s and no %s.corrections.jsonl that it was made of: put back what was written", path, base)
	}
	write := func(list []Entry) ([]byte, error) {
		var b bytes.Buffer
		err := focusEntries(&b, node, month, list)
		return b.Bytes(), err
	}
	was, err := write(before)
	if err != nil {
		return "", err
	}
	if len(before) > 0 && !bytes.Equal(old, was) {
		said = fmt.Sprintf("; %s was not what the corrections say, and was made again", path)
	}
	now, err := write(append(slices.Clone(before), found...))
	if err != nil || len(before)+len(found) == 0 || said == "" && len(found) == 0 {
		return said, err
	}
	return said, publish(path, now)
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

func table(list []Entry, gaps []cost.Gap) ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	lines := [][]string{{"owner_kind", "owner", "team", "model", "state", "gpu_seconds", "gpu_seconds_without_price", "currency", "cost", "list_cost", "contracted_cost",
		"energy_joules", "energy_cost", "carbon_grams"}}
	for _, e := range list {
		line := []string{cmp.Or(e.Owner.Kind, e.Owner.String()), text.Clean(e.Owner.ID, 2*maxKey), text.Clean(e.Owner.Team, maxKey), modelName(e.Model)}
		lines = append(lines, append(line, numbers(e.State, e.Currency, e.Amounts)...))
	}
	for _, g := range gaps {
		lines = append(lines, append([]string{"node", text.Clean(g.Node, 2*maxKey), "", ""}, gapCells(g)...))
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
