package promql

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"gpuvigil/collector/series"
)

// errSyntax says that an answer is not what Prometheus' API answers.
var errSyntax = errors.New("it is not JSON as Prometheus' API writes it")

// scanner reads JSON that is in memory without making values of it: of an answer with a
// million series most labels are those of the answer before. Its first error stays.
type scanner struct {
	data []byte
	at   int
	err  error
}

func (s *scanner) fail() {
	if s.err == nil {
		s.err = fmt.Errorf("%w, at byte %d", errSyntax, s.at)
	}
}

// peek returns the next byte that is no space; 0 at the end and after an error.
func (s *scanner) peek() byte {
	for s.err == nil && s.at < len(s.data) {
		switch c := s.data[s.at]; c {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return c
		}
	}
	return 0
}

// take goes past the byte if it is the next.
func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

func (s *scanner) expect(c byte) {
	if !s.take(c) {
		s.fail()
	}
}

// text reads a string. What it returns is good as long as the answer is.
func (s *scanner) text() []byte {
	s.expect('"')
	if s.err != nil {
		return nil
	}
	begin := s.at
	for ; s.at < len(s.data); s.at++ {
		switch s.data[s.at] {
		case '"':
			s.at++
			return s.data[begin : s.at-1]
		case '\\':
			return s.escaped(begin)
		}
	}
	s.fail()
	return nil
}

// escaped reads a string with a backslash, which begins after its quote.
func (s *scanner) escaped(begin int) []byte {
	for ; s.at < len(s.data); s.at++ {
		switch s.data[s.at] {
		case '\\':
			s.at++
		case '"':
			s.at++
			var text string
			if json.Unmarshal(s.data[begin-1:s.at], &text) != nil {
				s.fail()
				return nil
			}
			return []byte(text)
		}
	}
	s.fail()
	return nil
}

// object calls member for each key, which is to read the value.
func (s *scanner) object(member func(key []byte)) {
	s.expect('{')
	for more := !s.take('}'); more && s.err == nil; {
		key := s.text()
		s.expect(':')
		if s.err != nil {
			return
		}
		member(key)
		if more = s.take(','); !more {
			s.expect('}')
		}
	}
}

// array calls item before each item, which is to read it.
func (s *scanner) array(item func()) {
	s.expect('[')
	for more := !s.take(']'); more && s.err == nil; {
		item()
		if more = s.take(','); !more {
			s.expect(']')
		}
	}
}

// word reads a number, true, false or null.
func (s *scanner) word() []byte {
	s.peek()
	begin := s.at
	for s.at < len(s.data) && bytes.IndexByte([]byte(" \t\r\n,]}:[{\""), s.data[s.at]) < 0 {
		s.at++
	}
	if s.at == begin {
		s.fail()
	}
	return s.data[begin:s.at]
}

// number reads a number, or one in a string, as samples have it.
func (s *scanner) number() float64 {
	var text []byte
	if s.peek() == '"' {
		text = s.text()
	} else {
		text = s.word()
	}
	if s.err != nil {
		return math.NaN()
	}
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		s.fail()
	}
	return v
}

// skip reads a value of any kind and returns what it was.
func (s *scanner) skip() []byte {
	c := s.peek()
	begin := s.at
	for depth := 0; s.err == nil; c = s.peek() {
		switch c {
		case '"':
			s.text()
		case '{', '[':
			depth++
			s.at++
		case '}', ']':
			if depth--; depth < 0 {
				s.fail()
			}
			s.at++
		case ',', ':':
			if depth == 0 {
				s.fail()
			}
			s.at++
		case 0:
			s.fail()
		default:
			s.word()
		}
		if depth <= 0 {
			break
		}
	}
	if s.err != nil {
		return nil
	}
	return s.data[begin:s.at]
}

// labelsOf reads the labels of a series, in the order of the answer.
func labelsOf(raw []byte, into []series.Label) ([]series.Label, error) {
	s := scanner{data: raw}
	into = into[:0]
	s.object(func(name []byte) {
		into = append(into, series.Label{Name: string(name), Value: string(s.text())})
	})
	return into, s.err
}
