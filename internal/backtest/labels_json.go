package backtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"gpuvigil/rules"
)

// labelJSON is a label as people write it.
type labelJSON struct {
	Kind     string     `json:"kind"`
	Node     string     `json:"node"`
	Subjects []string   `json:"subjects"`
	Rules    []rules.ID `json:"rules"`
	Also     []rules.ID `json:"also"`
	Least    string     `json:"least"`
	From     string     `json:"from"`
	To       string     `json:"to"`
}

func parseArray(content []byte) ([]Truth, error) {
	var entries []json.RawMessage
	if err := json.Unmarshal(content, &entries); err != nil {
		if at := (*json.SyntaxError)(nil); errors.As(err, &at) {
			return nil, fmt.Errorf("line %d: it is no JSON: %w", 1+bytes.Count(content[:at.Offset], []byte("\n")), err)
		}
		return nil, plain(err)
	}
	truths := make([]Truth, 0, len(entries))
	for i, entry := range entries {
		t, err := parseEntry(entry)
		if err != nil {
			return nil, fmt.Errorf("label %d: %w", i+1, err)
		}
		truths = append(truths, t)
	}
	return truths, nil
}

func parseEntry(entry []byte) (t Truth, err error) {
	var l labelJSON
	d := json.NewDecoder(bytes.NewReader(entry))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return t, plain(err)
	}
	t = Truth{Kind: l.Kind, Node: l.Node, Subjects: l.Subjects, Rules: l.Rules, Also: l.Also}
	if l.Least != "" {
		if t.Least, err = rules.ParseSeverity(l.Least); err != nil {
			return t, fmt.Errorf("least: %w", err)
		}
	}
	if t.From, err = instant(l.From); err != nil {
		return t, fmt.Errorf("from: %w", err)
	}
	if t.To, err = instant(l.To); err != nil {
		return t, fmt.Errorf("to: %w", err)
	}
	return t, nil
}

// plain says what does not fit in the words of JSON, which people write, and not in
// those of Go.
func plain(err error) error {
	wrong := (*json.UnmarshalTypeError)(nil)
	if !errors.As(err, &wrong) {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	want := "an object, as docs/backtest.md shows"
	switch wrong.Type.Kind() {
	case reflect.Slice:
		want = "an array of strings"
	case reflect.String:
		want = "a string"
	}
	name := wrong.Field
	if name == "" {
		name = "it"
	}
	return fmt.Errorf("%s is of type %s and has to be %s", name, wrong.Value, want)
}
