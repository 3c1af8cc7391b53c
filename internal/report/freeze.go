package report

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
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
