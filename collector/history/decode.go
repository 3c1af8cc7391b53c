package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"gpuvigil/collector/exposition"
	"gpuvigil/collector/series"
)

// errAnswer says that an answer is not one of the API.
var errAnswer = errors.New("the answer is not a matrix as Prometheus' HTTP API gives it")

// decoder reads an answer of the API as it comes. Millions of samples pass here, each
// for a tenth of what encoding/json takes, and no answer is in memory as a whole.
type decoder struct {
	r    *bufio.Reader
	text []byte // scratch of strings
}

// maxMatrixText bounds a string in an answer: of labels, Prometheus itself knows no bound.
const maxMatrixText = 64 << 10

// matrix reads a whole answer: begin is called with the labels of each series, then add
// with each of its samples.
func (d *decoder) matrix(begin func(labels []series.Label), add func(point)) error {
	kind := ""
	err := d.object(func(key string) error {
		if key != "data" {
			return d.skip()
		}
		return d.object(func(key string) error {
			switch key {
			case "resultType":
				b, err := d.quoted()
				kind = string(b)
				return err
			case "result":
				return d.array(func() error { return d.series(begin, add) })
			}
			return d.skip()
		})
	})
	if err == nil && kind != "matrix" {
		err = fmt.Errorf("%w: its result is a %.20q", errAnswer, kind)
	}
	return err
}

// series reads one series. Its samples follow its labels in every known server's answer.
func (d *decoder) series(begin func([]series.Label), add func(point)) error {
	labelled := false
	return d.object(func(key string) error {
		switch key {
		case "metric":
			labels := make([]series.Label, 0, 16)
			if err := d.object(func(name string) error {
				value, err := d.quoted()
				labels = append(labels, series.Label{Name: name, Value: string(value)})
				return err
			}); err != nil {
				return err
			}
			labelled = true
			begin(labels)
			return nil
		case "values":
			if !labelled {
				return fmt.Errorf("%w: samples come before their labels", errAnswer)
			}
			return d.array(func() error { return d.sample(add) })
		}
		return d.skip() // native histograms: nothing is made of them
	})
}

// sample reads [seconds,"value"].
func (d *decoder) sample(add func(point)) error {
	if err := d.expect('['); err != nil {
		return err
	}
	b, err := d.r.ReadSlice(']')
	if err != nil {
		return cut(err)
	}
	at, value, ok := bytes.Cut(b[:len(b)-1], []byte{','})
	if !ok {
		return errAnswer
	}
	ms, ok := milliseconds(bytes.TrimSpace(at))
	value = bytes.TrimSpace(value)
	if !ok || len(value) < 3 || value[0] != '"' || value[len(value)-1] != '"' {
		return errAnswer
	}
	v, err := number(value[1 : len(value)-1])
	if err != nil {
		return errAnswer
	}
	add(point{ms, v})
	return nil
}

// number reads a value; most are short whole numbers.
func number(b []byte) (float64, error) {
	if len(b) <= 15 {
		n := int64(0)
		for i, c := range b {
			if c < '0' || c > '9' {
				break
			}
			n = n*10 + int64(c-'0')
			if i == len(b)-1 {
				return float64(n), nil
			}
		}
	}
	return exposition.Float(b)
}

// milliseconds reads a time in seconds.
func milliseconds(b []byte) (int64, bool) {
	whole, fraction, _ := bytes.Cut(b, []byte{'.'})
	if len(whole) > 0 && len(whole) <= 12 && len(fraction) <= 3 {
		ms, ok := int64(0), true
		for _, c := range whole {
			ok = ok && c >= '0' && c <= '9'
			ms = ms*10 + int64(c-'0')
		}
		for i := range 3 {
			ms *= 10
			if i < len(fraction) {
				ok = ok && fraction[i] >= '0' && fraction[i] <= '9'
				ms += int64(fraction[i] - '0')
			}
		}
		if ok {
			return ms, true
		}
	}
	s, err := exposition.Float(b)
	if err != nil || !(math.Abs(s) < 1e12) {
		return 0, false
	}
	return int64(math.Round(s * 1000)), true
}

// object calls each with each key; it reads the value.
func (d *decoder) object(each func(key string) error) error {
	return d.list('{', '}', func() error {
		key, err := d.quoted()
		if err != nil {
			return err
		}
		name := string(key)
		if err := d.expect(':'); err != nil {
			return err
		}
		return each(name)
	})
}

func (d *decoder) array(each func() error) error { return d.list('[', ']', each) }

func (d *decoder) list(open, end byte, each func() error) error {
	if err := d.expect(open); err != nil {
		return err
	}
	for first := true; ; first = false {
		c, err := d.peek()
		switch {
		case err != nil:
			return err
		case c == end:
			_, err = d.r.ReadByte()
			return err
		case !first:
			if err := d.expect(','); err != nil {
				return err
			}
		}
		if err := each(); err != nil {
			return err
		}
	}
}

// peek returns the next byte that is no space, and leaves it.
func (d *decoder) peek() (byte, error) {
	for {
		c, err := d.r.ReadByte()
		if err != nil {
			return 0, cut(err)
		}
		if c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c, d.r.UnreadByte()
		}
	}
}

func (d *decoder) expect(want byte) error {
	c, err := d.peek()
	if err != nil {
		return err
	}
	if c != want {
		return errAnswer
	}
	_, err = d.r.ReadByte()
	return err
}

// quoted reads a string, good until the next one.
func (d *decoder) quoted() ([]byte, error) {
	if err := d.expect('"'); err != nil {
		return nil, err
	}
	d.text = append(d.text[:0], '"')
	escaped := false
	for {
		c, err := d.r.ReadByte()
		if err != nil {
			return nil, cut(err)
		}
		d.text = append(d.text, c)
		switch {
		case c == '\\':
			escaped = true
			if c, err = d.r.ReadByte(); err != nil {
				return nil, cut(err)
			}
			d.text = append(d.text, c)
		case c == '"' && escaped:
			var s string
			if json.Unmarshal(d.text, &s) != nil {
				return nil, errAnswer
			}
			return []byte(s), nil
		case c == '"':
			return d.text[1 : len(d.text)-1], nil
		case len(d.text) > maxMatrixText:
			return nil, fmt.Errorf("%w: a text in it has more than %d KiB", errAnswer, maxMatrixText>>10)
		}
	}
}

// skip passes over a value.
func (d *decoder) skip() error {
	for depth := 0; ; {
		c, err := d.peek()
		if err != nil {
			return err
		}
		switch c {
		case '"':
			if _, err := d.quoted(); err != nil {
				return err
			}
		case '{', '[':
			depth++
			_, err = d.r.ReadByte()
		case '}', ']':
			depth--
			_, err = d.r.ReadByte()
		case ',', ':':
			_, err = d.r.ReadByte()
		default:
			err = d.bare()
		}
		if err != nil {
			return err
		}
		if depth < 0 {
			return errAnswer
		}
		if depth == 0 && c != ',' && c != ':' {
			return nil
		}
	}
}

// bare passes over a number, true, false or null.
func (d *decoder) bare() error {
	for n := 0; ; n++ {
		c, err := d.r.ReadByte()
		if err != nil {
			return cut(err)
		}
		if bytes.IndexByte([]byte("+-.0123456789eE"), c) < 0 && (c < 'a' || c > 'z') {
			if n == 0 {
				return errAnswer
			}
			return d.r.UnreadByte()
		}
	}
}

// cut says that an answer ended too early; other errors are the reader's own.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: it is cut off", errAnswer)
	}
	if errors.Is(err, bufio.ErrBufferFull) {
		return errAnswer
	}
	return err
}
