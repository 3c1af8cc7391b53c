package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"gpuvigil/internal/cost"
)

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
