package report

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Corrections are lines of JSON. Each is sealed: its last field is the checksum of the
// frozen month's JSON, of all lines before it, and of itself without that field. A line
// that is changed, moved, left out before another, or of another month breaks the seal.
const (
	sealOpens  = `,"sha256":"`
	sealCloses = `"}`
	sealLength = len(sealOpens) + 2*sha256.Size + len(sealCloses)
)

// seal is the checksum of what a line, without its seal, follows.
func seal(frozen, before, line []byte) string {
	sum := sha256.New()
	for _, part := range [][]byte{frozen, before, line} {
		sum.Write(part)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// appendCorrections adds a line for each entry to the content of a file.
func appendCorrections(frozen, content []byte, list []Entry) ([]byte, error) {
	content = bytes.Clone(content)
	for _, e := range list {
		line, err := json.Marshal(e)
		if err != nil {
			return nil, err
		}
		sealed := string(line[:len(line)-1]) + sealOpens + seal(frozen, content, line) + sealCloses + "\n"
		content = append(content, sealed...)
	}
	return content, nil
}

// readCorrections returns the entries of a file whose seals hold. Lines at its
// beginning that an older release wrote have none; those that follow seal them.
func readCorrections(frozen, content []byte) ([]Entry, error) {
	var out []Entry
	sealed := false
	for at, n := 0, 1; at < len(content); n++ {
		whole, _, ended := bytes.Cut(content[at:], []byte("\n"))
		if !ended {
			return nil, fmt.Errorf("line %d is cut short", n)
		}
		line := whole
		if i := len(whole) - sealLength; i > 0 && strings.HasPrefix(string(whole[i:]), sealOpens) {
			sealed = true
			line = append(bytes.Clone(whole[:i]), '}')
			if told := whole[i+len(sealOpens) : len(whole)-len(sealCloses)]; string(told) != seal(frozen, content[:at], line) {
				return nil, fmt.Errorf("line %d is not what its checksum says, or what is before it has changed", n)
			}
		} else if sealed {
			return nil, fmt.Errorf("line %d has no checksum, and one before it has", n)
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if e.Corrected.IsZero() {
			return nil, errors.New("an entry does not say when it was found")
		}
		out = append(out, e)
		at += len(whole) + 1
	}
	return out, nil
}
