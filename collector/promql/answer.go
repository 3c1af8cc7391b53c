package promql

import (
	"math"

	"gpuvigil/collector/page"
)

// answer is what the API says beside samples.
type answer struct {
	status   string // success or error
	why      string // the error
	kind     string // of the result: matrix, vector
	warnings []string
	partial  bool // VictoriaMetrics says so: some of its parts did not answer
	series   int
	samples  int
}

// incomplete reports whether something that is asked for may be missing.
func (a *answer) incomplete() bool { return a.partial || len(a.warnings) > 0 }

// maxWarnings is how many warnings of an answer are kept.
const maxWarnings = 8

// point is a sample: its time in milliseconds since 1970, and value.
type point struct {
	at    int64
	value float64
}

// take is given a series: its labels as the answer writes them, and its newest sample
// with the time of the one before, which is never if there is none. The labels are good
// until it returns.
type take func(labels []byte, newest point, before int64)

// never is the time of a sample that there is none of.
const never = math.MinInt64

// read reads an answer to a query. Samples are given to take as they are found, so an error
// may come after some of them.
func read(data []byte, each take) (answer, error) {
	var a answer
	s := scanner{data: data}
	if s.peek() == '<' {
		return a, page.Failing("html", "it answers with HTML: is this the URL of Prometheus' API, and does it want a login?")
	}
	s.object(func(key []byte) {
		switch string(key) {
		case "status":
			a.status = string(s.text())
		case "error":
			a.why = string(s.text())
		case "warnings":
			s.list(&a.warnings)
		case "isPartial":
			a.partial = string(s.word()) == "true"
		case "data":
			if s.peek() != '{' {
				s.skip()
				return
			}
			s.object(func(key []byte) { a.data(&s, key, each) })
		default:
			s.skip()
		}
	})
	if s.err == nil && s.peek() != 0 {
		s.fail()
	}
	if s.err != nil {
		return a, page.Failing("syntax", "its answer cannot be read: %w", s.err)
	}
	return a, nil
}

// list reads a list of texts; null is none.
func (s *scanner) list(into *[]string) {
	if s.peek() != '[' {
		s.skip()
		return
	}
	s.array(func() {
		if text := s.text(); len(*into) < maxWarnings {
			*into = append(*into, string(text))
		}
	})
}

func (a *answer) data(s *scanner, key []byte, each take) {
	switch string(key) {
	case "resultType":
		a.kind = string(s.text())
	case "result":
		if s.peek() != '[' {
			s.skip()
			return
		}
		s.array(func() { a.one(s, each) })
	default:
		s.skip()
	}
}

// one reads one series. A histogram's samples are none that a reader here knows.
func (a *answer) one(s *scanner, each take) {
	var labels []byte
	newest, before, n := point{at: never}, int64(never), 0
	sample := func() {
		p := s.point()
		n++
		switch {
		case p.at > newest.at:
			before, newest = newest.at, p
		case p.at < newest.at && p.at > before:
			before = p.at
		}
	}
	s.object(func(key []byte) {
		switch string(key) {
		case "metric":
			if s.peek() != '{' {
				s.fail()
				return
			}
			labels = s.skip()
		case "value":
			sample()
		case "values":
			s.array(sample)
		default:
			s.skip()
		}
	})
	if s.err != nil || newest.at == never {
		return
	}
	a.series++
	a.samples += n
	each(labels, newest, before)
}

// point reads [seconds, "value"].
func (s *scanner) point() point {
	s.expect('[')
	at := math.Round(s.number() * 1000)
	s.expect(',')
	v := s.number()
	s.expect(']')
	if !(math.Abs(at) < 1e15) {
		s.fail()
		return point{at: never}
	}
	return point{int64(at), v}
}
