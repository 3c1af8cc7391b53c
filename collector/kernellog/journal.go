package kernellog

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// entry is what is read of an entry of the journal.
type entry struct {
	Transport string          `json:"_TRANSPORT"`
	Facility  string          `json:"SYSLOG_FACILITY"`
	Realtime  string          `json:"__REALTIME_TIMESTAMP"` // microseconds since 1970
	Message   json.RawMessage `json:"MESSAGE"`
}

// parseEntry reads a line of journalctl -o json. It returns false for what the
// kernel did not say: a program that quotes the kernel in its own log, or that
// wrote into the kernel's.
func parseEntry(line []byte) (text string, stamp uint64, ok bool) {
	var e entry
	if json.Unmarshal(line, &e) != nil || e.Transport != "kernel" || e.Facility != "" && e.Facility != "0" {
		return "", 0, false
	}
	stamp, err := strconv.ParseUint(e.Realtime, 10, 63)
	if err != nil {
		return "", 0, false
	}
	text, ok = message(e.Message)
	return text, stamp, ok
}

// message is a string, or a list of bytes if it is no UTF-8, or null if it was too
// long.
func message(raw json.RawMessage) (string, bool) {
	var text *string
	if json.Unmarshal(raw, &text) == nil && text != nil {
		return *text, true
	}
	var numbers []int
	if json.Unmarshal(raw, &numbers) != nil || numbers == nil {
		return "", false
	}
	var b strings.Builder
	for _, n := range numbers {
		if n < 0 || n > 255 {
			return "", false
		}
		b.WriteByte(byte(n))
	}
	return b.String(), true
}

func (s *Source) readJournal(ctx context.Context, f *stream, wall time.Time) error {
	if f.offset == 0 && len(f.rest) == 0 {
		if err := f.seek(0, 0, maxBacklog); err != nil {
			return err
		}
		s.journalFrom = s.pos.Journal
	}
	for n := 0; !s.full(ctx, n); n++ {
		line, ok, err := f.line()
		if err != nil || !ok {
			return err
		}
		text, stamp, ok := parseEntry(line)
		if !ok {
			continue
		}
		events := s.parser.message(text, lastly(time.UnixMicro(int64(stamp)), time.Time{}, wall))
		if stamp > s.journalFrom {
			s.pos.Journal = max(s.pos.Journal, stamp)
			s.records++
			s.events = append(s.events, events...)
		}
	}
	return nil
}
