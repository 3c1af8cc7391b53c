package kernellog

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"
)

// record is one record of /dev/kmsg.
type record struct {
	facility int // 0 is the kernel; whoever may write to /dev/kmsg chooses another
	severity int // 0 emergency … 7 debug
	seq      uint64
	stamp    time.Duration // since boot
	text     string        // may hold line breaks
}

// parseRecord reads a record's first line. The lines with its properties begin
// with a blank and are no records.
func parseRecord(line string) (record, bool) {
	head, text, ok := strings.Cut(line, ";")
	fields := strings.Split(head, ",")
	if !ok || len(fields) < 4 {
		return record{}, false
	}
	level, err1 := strconv.ParseUint(fields[0], 10, 16)
	seq, err2 := strconv.ParseUint(fields[1], 10, 64)
	micros, err3 := strconv.ParseInt(fields[2], 10, 64)
	if errors.Join(err1, err2, err3) != nil || micros < 0 || micros > int64(maxUptime/time.Microsecond) {
		return record{}, false
	}
	return record{
		facility: int(level >> 3), severity: int(level & 7), seq: seq,
		stamp: time.Duration(micros) * time.Microsecond, text: unescape(text),
	}, true
}

// maxUptime is a stamp that no record has.
const maxUptime = 100 * 365 * 24 * time.Hour

// unescape puts the bytes back that the kernel wrote as \xNN.
func unescape(s string) string {
	if !strings.Contains(s, `\x`) {
		return s
	}
	var b strings.Builder
	for {
		i := strings.Index(s, `\x`)
		if i < 0 || i+4 > len(s) {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(s[:i])
		if c, err := strconv.ParseUint(s[i+2:i+4], 16, 8); err == nil {
			b.WriteByte(byte(c))
			s = s[i+4:]
		} else {
			b.WriteString(s[i : i+2])
			s = s[i+2:]
		}
	}
}

// readKmsg reads records until there are no more.
func (s *Source) readKmsg(ctx context.Context, f *stream, wall time.Time, up time.Duration) error {
	for n := 0; !s.full(ctx, n); n++ {
		line, ok, err := f.line()
		switch {
		case errors.Is(err, errOverwritten):
			continue // the next number tells how many were lost
		case err != nil:
			return err
		case !ok:
			s.drained = wall
			return nil
		}
		if r, ok := parseRecord(string(line)); ok {
			s.take(r, wall.Add(r.stamp-up), wall)
		}
	}
	return nil
}

// take takes up one record. Those that an earlier agent has seen only teach the
// parser which GPU is where.
func (s *Source) take(r record, at, wall time.Time) {
	seen := r.seq < s.pos.Kernel
	if !seen {
		if s.pos.Kernel > 0 {
			s.lost += r.seq - s.pos.Kernel
		}
		s.pos.Kernel = r.seq + 1
		s.records++
	}
	if r.facility != 0 {
		return
	}
	events := s.parser.message(r.text, lastly(at, s.drained, wall))
	if !seen {
		s.events = append(s.events, events...)
	}
}
