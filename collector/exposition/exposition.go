// Package exposition reads pages in the text format of Prometheus and OpenMetrics
// line by line, for sources that want few of a page's samples.
//
// It is a scanner of its own and not expfmt: of a page of 40 models a tenth is of
// interest, and what is not of interest should cost neither memory nor, if it is odd,
// the page. It is fuzzed against expfmt.
package exposition

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// maxLine bounds one line; lists of adapters make long ones.
const maxLine = 256 << 10

// Why a page cannot be read to its end.
var (
	ErrCutOff   = errors.New("its page ends within a line: it is not whole")
	ErrLongLine = fmt.Errorf("its page has a line of more than %d KiB", maxLine>>10)
	ErrSample   = errors.New("a line is not a sample in the text format")
)

// Lines reads a page line by line.
type Lines struct {
	r    *bufio.Reader
	long []byte
	n    int64
}

// NewLines reads from r, which the caller has bounded.
func NewLines(r *bufio.Reader) *Lines { return &Lines{r: r} }

// Read returns how many bytes the lines so far have had.
func (l *Lines) Read() int64 { return l.n }

// Next returns the next line without its end, good until the next call. The error
// is io.EOF after the last line, ErrCutOff for one without an end, ErrLongLine, or the
// reader's.
func (l *Lines) Next() ([]byte, error) {
	line, err := l.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		l.long = l.long[:0]
		for errors.Is(err, bufio.ErrBufferFull) {
			if l.long = append(l.long, line...); len(l.long) > maxLine {
				return nil, ErrLongLine
			}
			line, err = l.r.ReadSlice('\n')
		}
		l.long = append(l.long, line...)
		line = l.long
	}
	l.n += int64(len(line))
	switch {
	case err == nil:
		return line[:len(line)-1], nil
	case errors.Is(err, io.EOF) && len(line) > 0 && string(line) != "# EOF":
		return nil, ErrCutOff
	}
	return nil, err
}

// Typed returns the family that a TYPE line is of, or nil.
func Typed(line []byte) []byte {
	rest, ok := bytes.CutPrefix(line, []byte("# TYPE "))
	if !ok {
		return nil
	}
	name, _, _ := bytes.Cut(bytes.TrimLeft(rest, " \t"), []byte(" "))
	return name
}

// Name returns the name of the sample in a line, and what follows it; nil if the
// line has no sample with a classic name.
func Name(line []byte) (name, rest []byte) {
	line = bytes.TrimLeft(line, " \t")
	for i, c := range line {
		switch c {
		case '{', ' ', '\t':
			return line[:i], line[i:]
		case '#':
			if i == 0 {
				return nil, nil
			}
		}
	}
	return nil, nil
}

// Label is one label. Both parts are good until the next line.
type Label struct{ Name, Value []byte }

// Sample reads what follows a name: labels, which it appends, a value, and what may
// stand behind. The error is ErrSample.
func Sample(rest []byte, labels []Label) ([]Label, float64, error) {
	labels, v, _, err := SampleAt(rest, labels)
	return labels, v, err
}

// SampleAt is Sample that also returns the time as the page writes it, nil without one:
// seconds in OpenMetrics, milliseconds in Prometheus' own format.
func SampleAt(rest []byte, labels []Label) ([]Label, float64, []byte, error) {
	rest = bytes.TrimLeft(rest, " \t")
	if len(rest) > 0 && rest[0] == '{' {
		var err error
		if labels, rest, err = pairs(rest[1:], labels); err != nil {
			return nil, 0, nil, err
		}
		rest = bytes.TrimLeft(rest, " \t")
	}
	number := rest
	if i := bytes.IndexAny(rest, " \t"); i >= 0 {
		number, rest = rest[:i], bytes.TrimLeft(rest[i:], " \t")
	} else {
		rest = nil
	}
	v, err := Float(number)
	at, ok := trailer(rest)
	if err != nil || !ok {
		return nil, 0, nil, ErrSample
	}
	return labels, v, at, nil
}

// Float reads a number as the text format writes it: Go's hexadecimal numbers and
// underscores are none there.
func Float(b []byte) (float64, error) {
	if bytes.ContainsAny(b, "xXpP_") {
		return 0, ErrSample
	}
	return strconv.ParseFloat(string(b), 64)
}

// trailer reports whether what stands behind a value may stand there: nothing, a
// time, which it returns, an exemplar.
func trailer(rest []byte) (at []byte, ok bool) {
	if len(rest) == 0 || rest[0] == '#' {
		return nil, true
	}
	stamp, more, _ := bytes.Cut(rest, []byte(" "))
	_, err := strconv.ParseFloat(string(stamp), 64)
	more = bytes.TrimLeft(more, " \t")
	return stamp, err == nil && (len(more) == 0 || more[0] == '#')
}

// pairs reads labels up to their closing brace and returns what follows it.
func pairs(b []byte, into []Label) (labels []Label, rest []byte, err error) {
	for {
		b = bytes.TrimLeft(b, " \t,")
		if len(b) > 0 && b[0] == '}' {
			return into, b[1:], nil
		}
		equals := bytes.IndexByte(b, '=')
		if equals <= 0 {
			return nil, nil, ErrSample
		}
		name := bytes.Trim(b[:equals], " \t\"")
		b = bytes.TrimLeft(b[equals+1:], " \t")
		if len(b) == 0 || b[0] != '"' || bytes.ContainsAny(name, "{}\"") {
			return nil, nil, ErrSample
		}
		end, escaped := 1, false
		for end < len(b) && b[end] != '"' {
			if b[end] == '\\' {
				escaped = true
				end++
			}
			end++
		}
		if end >= len(b) {
			return nil, nil, ErrSample
		}
		value := b[1:end]
		if escaped {
			value = unescape(value)
		}
		into = append(into, Label{name, value})
		b = b[end+1:]
	}
}

func unescape(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		if b[i] == '\\' && i+1 < len(b) {
			i++
			switch b[i] {
			case 'n':
				out = append(out, '\n')
				continue
			case '\\', '"':
			default:
				out = append(out, '\\')
			}
		}
		out = append(out, b[i])
	}
	return out
}
