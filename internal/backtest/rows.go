package backtest

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// row is one line of a series, as it was written and as it is understood.
type row struct {
	stamp, text string
	line        int
	at          time.Time
	x           float64 // NaN where there is no value
}

// reader reads the rows of one series, one at a time.
type reader struct {
	name        string
	file        *os.File
	csv         *csv.Reader
	stamp, text int // columns
}

// open reads the header of the series name below dir.
func open(dir, name string) (*reader, error) {
	f, err := os.Open(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		return nil, fmt.Errorf("read series: %w", err)
	}
	r := &reader{name: name, file: f, csv: csv.NewReader(bufio.NewReader(f))}
	r.csv.ReuseRecord = true
	if err := r.header(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return r, nil
}

func (r *reader) header() error {
	fields, err := r.csv.Read()
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s:1: the file is empty: its first line has to name the columns timestamp and value", r.name)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	column := func(want string) int {
		return slices.IndexFunc(fields, func(s string) bool {
			return strings.EqualFold(strings.TrimSpace(strings.TrimPrefix(s, "\ufeff")), want)
		})
	}
	if r.stamp, r.text = column("timestamp"), column("value"); r.stamp < 0 || r.text < 0 {
		return fmt.Errorf("%s:1: found the columns %.200q, needed: timestamp and value", r.name, fields)
	}
	return nil
}

// next returns the next row, or io.EOF after the last.
func (r *reader) next() (row, error) {
	fields, err := r.csv.Read()
	if errors.Is(err, io.EOF) {
		return row{}, err
	}
	if err != nil { // csv's errors name the line
		return row{}, fmt.Errorf("%s: %w", r.name, err)
	}
	// The reader's next call overwrites the memory that the fields share.
	out := row{stamp: strings.Clone(fields[r.stamp]), text: strings.Clone(fields[r.text])}
	out.line, _ = r.csv.FieldPos(r.stamp)
	if out.at, err = parseTime(out.stamp); err == nil {
		out.x, err = parseValue(out.text)
	}
	if err != nil {
		return row{}, fmt.Errorf("%s:%d: %w", r.name, out.line, err)
	}
	return out, nil
}

func (r *reader) Close() error { return r.file.Close() }

// furthest is as far as seconds can be from 1970 and still count in nanoseconds.
const furthest = 9e9

// parseTime reads unix seconds, or a date and a time in UTC.
func parseTime(s string) (time.Time, error) {
	s = strings.TrimSpace(s)
	if seconds, err := strconv.ParseFloat(s, 64); err == nil {
		if !(math.Abs(seconds) <= furthest) {
			return time.Time{}, fmt.Errorf("timestamp %.60q is no time between 1685 and 2255", s)
		}
		whole := math.Floor(seconds)
		return time.Unix(int64(whole), int64(math.Round(float64((seconds-whole)*1e9)))), nil
	}
	t, err := time.Parse(time.DateTime, strings.TrimSuffix(strings.Replace(s, "T", " ", 1), "Z"))
	if err != nil || math.Abs(float64(t.Unix())) > furthest {
		return time.Time{}, fmt.Errorf("timestamp %.60q is neither unix seconds nor like 2006-01-02 15:04:05, between 1685 and 2255", s)
	}
	return t, nil
}

// parseValue returns NaN for what stands for the lack of a value: nothing, NaN, and
// an infinity, which no sensor reads.
func parseValue(s string) (float64, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return math.NaN(), nil
	}
	x, err := strconv.ParseFloat(s, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || err == nil && math.IsInf(x, 0):
		return math.NaN(), nil
	case err != nil:
		return 0, fmt.Errorf("value %.60q is no number; leave it empty where there is none", s)
	}
	return x, nil
}

// writer writes the scores of one series to a file beside its final name, which it
// takes when it is whole.
type writer struct {
	path string
	file *os.File
	csv  *csv.Writer
	sum  Summary
	line [3]string
}

// scoresOf is where the scores of a series go.
func scoresOf(dir, name string) string { return filepath.Join(dir, filepath.FromSlash(name)) }

// create makes the score file name below dir, and the directories on its way.
func create(dir, name string) (*writer, error) {
	path := scoresOf(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("write scores: %w", err)
	}
	f, err := os.Create(path + ".tmp")
	if err != nil {
		return nil, fmt.Errorf("write scores: %w", err)
	}
	w := &writer{path: path, file: f, csv: csv.NewWriter(f)}
	w.line = [3]string{"timestamp", "value", "anomaly_score"}
	return w, w.csv.Write(w.line[:])
}

// write adds a row; absent says that there is no value to score. A score that is no
// number is none, and one below 0, where evidence speaks for the usual, is 0.
func (w *writer) write(r row, score float64, absent bool) error {
	w.sum.Rows++
	w.line = [3]string{r.stamp, r.text, ""}
	switch {
	case absent:
		w.sum.Absent++
	case math.IsNaN(score):
	case score >= 1:
		w.sum.Alarms++
		fallthrough
	default:
		w.line[2] = strconv.FormatFloat(max(score, 0), 'g', -1, 64)
	}
	if err := w.csv.Write(w.line[:]); err != nil {
		return fmt.Errorf("write scores: %w", err)
	}
	return nil
}

// finish gives a whole file its name.
func (w *writer) finish() error {
	w.csv.Flush()
	err := errors.Join(w.csv.Error(), w.file.Close())
	if err == nil {
		err = os.Rename(w.path+".tmp", w.path)
	}
	if err != nil {
		return fmt.Errorf("write scores: %w", errors.Join(err, os.Remove(w.path+".tmp")))
	}
	w.sum.Files = 1
	return nil
}

// abandon leaves nothing behind.
func (w *writer) abandon() error { return errors.Join(w.file.Close(), os.Remove(w.path+".tmp")) }
