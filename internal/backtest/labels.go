package backtest

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuvigil/rules"
)

// Kinds tells the rules that find a kind of fault, those of the synthetic faults.
type Kinds func(name string) (finds, also []rules.ID, known bool)

// ReadLabels reads what was really wrong from a file: a JSON array of Truth, or a CSV
// table with a head line, the columns from and to and any of node, subject, rule, also
// and kind.
func ReadLabels(path string, kinds Kinds) ([]Truth, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the labels: %w", err)
	}
	truths, err := parseLabels(content, kinds)
	if err != nil {
		return nil, fmt.Errorf("read the labels in %s: %w", path, err)
	}
	return truths, nil
}

func parseLabels(content []byte, kinds Kinds) ([]Truth, error) {
	var truths []Truth
	var err error
	if trimmed := bytes.TrimSpace(content); len(trimmed) > 0 && trimmed[0] == '[' {
		if truths, err = parseArray(content); err != nil {
			return nil, err
		}
	} else if truths, err = parseTable(content); err != nil {
		return nil, err
	}
	for i := range truths {
		if err := truths[i].complete(kinds); err != nil {
			return nil, fmt.Errorf("label %d: %w", i+1, err)
		}
	}
	return truths, nil
}

var labelColumns = []string{"node", "subject", "rule", "also", "kind", "from", "to"}

func parseTable(content []byte) ([]Truth, error) {
	r := csv.NewReader(bytes.NewReader(content))
	r.TrimLeadingSpace = true
	head, err := r.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the file is empty: give a table with a head line, or [] if nothing was wrong")
	}
	if err != nil {
		return nil, fmt.Errorf("there is no head line: %w", err)
	}
	for _, name := range head {
		if !slices.Contains(labelColumns, name) {
			return nil, fmt.Errorf("there is no column %q: the columns are %s", name, strings.Join(labelColumns, ", "))
		}
	}
	var truths []Truth
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return truths, nil
		}
		if err != nil {
			return nil, err
		}
		cell := func(name string) string {
			if i := slices.Index(head, name); i >= 0 {
				return strings.TrimSpace(row[i])
			}
			return ""
		}
		t := Truth{Kind: cell("kind"), Node: cell("node"), Subjects: words[string](cell("subject")), Rules: words[rules.ID](cell("rule")), Also: words[rules.ID](cell("also"))}
		line, _ := r.FieldPos(0)
		if t.From, err = instant(cell("from")); err != nil {
			return nil, fmt.Errorf("line %d: from: %w", line, err)
		}
		if t.To, err = instant(cell("to")); err != nil {
			return nil, fmt.Errorf("line %d: to: %w", line, err)
		}
		truths = append(truths, t)
	}
}

func words[T ~string](s string) []T {
	var out []T
	for _, w := range strings.Fields(s) {
		out = append(out, T(w))
	}
	return out
}

// instant reads RFC 3339, or seconds since 1970.
func instant(s string) (time.Time, error) {
	if seconds, err := strconv.ParseInt(s, 10, 64); err == nil {
		return time.Unix(seconds, 0).UTC(), nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return t, fmt.Errorf("%q is neither 2006-01-02T15:04:05Z nor seconds since 1970", s)
	}
	return t.UTC(), nil
}

// complete fills in the rules of a kind of fault and refuses what cannot be meant.
func (t *Truth) complete(kinds Kinds) error {
	for _, id := range slices.Concat(t.Rules, t.Also) {
		if rules.Get(id) == nil {
			return fmt.Errorf("there is no rule %q: docs/rules.md lists them", id)
		}
	}
	if slices.ContainsFunc(t.Subjects, func(s string) bool { return strings.TrimSpace(s) == "" }) {
		return errors.New("one of its subjects is empty: name a GPU, an owner or an endpoint, or leave subjects out for all of the node")
	}
	if len(t.Rules) == 0 {
		finds, also, known := kinds(t.Kind)
		if !known {
			return fmt.Errorf("it names no rule, and %q is no kind of fault: docs/synthetic.md lists the kinds, docs/rules.md the rules", t.Kind)
		}
		t.Rules, t.Also = finds, slices.Concat(t.Also, also)
	}
	if t.Kind == "" {
		t.Kind = string(t.Rules[0])
	}
	if !t.To.After(t.From) {
		return fmt.Errorf("it ends at %s and does not begin before (%s)", t.To.Format(time.RFC3339), t.From.Format(time.RFC3339))
	}
	return nil
}
