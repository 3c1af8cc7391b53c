package history

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"gpuvigil/collector/exposition"
	"gpuvigil/collector/series"
)

// File is the past as a file tells it in the text format with a time behind each value,
// OpenMetrics or Prometheus' own, in any order: promtool tsdb dump-openmetrics writes
// series after series. It is read once and spooled, by time, to temporary files.
type File struct {
	span  Span
	spool *spool
	lines []*fileLine
}

// fileLine is one series of a file.
type fileLine struct {
	labels []series.Label
	id     uint32
	held   point // the newest, which is not spooled yet
	step   int64 // of it; never: none is held
}

const (
	// fileWindow is how many steps are in memory at once.
	fileWindow = 360
	// milli is where times are in milliseconds: as seconds it is the year 5138.
	milli = 1e11
	// maxFileSeries bounds the series of one file that are wanted.
	maxFileSeries = 4_000_000
	// staleBits are those of the NaN that says that a series has ended. A file has only
	// NaN of it.
	staleBits = 0x7ff0000000000002

	never = math.MinInt64
)

// ReadFile reads the samples of the metrics that are in the span, whose times may be
// zero. The caller closes the File, which removes what was spooled.
func ReadFile(ctx context.Context, path string, metrics []string, span Span) (_ *File, err error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the file of samples: %w", err)
	}
	defer in.Close()
	f := &File{span: span}
	if f.spool, err = newSpool(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("read the samples of %s: %w", path, err), f.Close())
		}
	}()
	r := fileReader{f: f, wanted: map[string]bool{}, known: map[string]*fileLine{}, first: never + 1, last: math.MaxInt64}
	for _, m := range metrics {
		r.wanted[m] = true
	}
	if err := r.bounds(); err != nil {
		return nil, err
	}
	lines := exposition.NewLines(bufio.NewReaderSize(in, bufferSize))
	for n := 1; ; n++ {
		line, err := lines.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && n%4096 == 0 {
			err = ctx.Err()
		}
		if err == nil {
			err = r.line(line)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return f, r.end()
}

// fileReader takes lines in.
type fileReader struct {
	f           *File
	wanted      map[string]bool
	known       map[string]*fileLine // by the text before the value
	first, last int64                // steps that are of interest
	labels      []exposition.Label
	key         []byte
}

func (r *fileReader) bounds() error {
	s := r.f.span
	switch {
	case s.From.IsZero() && s.To.IsZero():
		s.From, s.To = s.at(0), s.at(1) // the step is still checked
		_, _, err := s.steps()
		return err
	case s.From.IsZero():
		r.last = s.final()
		return nil
	case s.To.IsZero():
		r.first = s.number(s.From.UnixMilli()) + 1
		return nil
	}
	var err error
	r.first, r.last, err = s.steps()
	return err
}

// line takes in one line; what is not wanted is not looked at.
func (r *fileReader) line(line []byte) error {
	name, rest := exposition.Name(line)
	if name == nil || !r.wanted[string(name)] {
		return nil
	}
	labels, v, stamp, err := exposition.SampleAt(rest, r.labels[:0])
	if err != nil {
		return err
	}
	r.labels = labels
	at, err := exposition.Float(stamp)
	if err != nil || !(math.Abs(at) < 1e15) {
		return errors.New("there is no time behind the value: give a file as promtool tsdb dump-openmetrics writes it")
	}
	if math.Abs(at) < milli {
		at *= 1000
	}
	if math.IsNaN(v) {
		v = math.Float64frombits(staleBits)
	}
	p := point{int64(math.Round(at)), v}
	step := r.f.span.number(p.ms)
	if step < r.first || step > r.last {
		return nil
	}
	l, err := r.of(name)
	if err != nil {
		return err
	}
	if l.step != step || p.ms < l.held.ms {
		if err := r.f.release(l); err != nil {
			return err
		}
	}
	l.held, l.step = p, step
	return nil
}

// of returns the series of the labels that were read last.
func (r *fileReader) of(name []byte) (*fileLine, error) {
	r.key = append(append(r.key[:0], name...), 0)
	for _, l := range r.labels {
		r.key = append(append(append(append(r.key, l.Name...), 0), l.Value...), 0)
	}
	if l := r.known[string(r.key)]; l != nil {
		return l, nil
	}
	if len(r.f.lines) >= maxFileSeries {
		return nil, fmt.Errorf("there are more than %d series in it: give a file of fewer nodes", maxFileSeries)
	}
	l := &fileLine{labels: []series.Label{{Name: "__name__", Value: string(name)}}, id: uint32(len(r.f.lines)), step: never}
	for _, own := range r.labels {
		l.labels = append(l.labels, series.Label{Name: strings.Clone(string(own.Name)), Value: string(own.Value)})
	}
	r.known[string(r.key)] = l
	r.f.lines = append(r.f.lines, l)
	return l, nil
}

// release spools the sample that was held for a later one of its step.
func (f *File) release(l *fileLine) error {
	if l.step == never {
		return nil
	}
	return f.spool.write(window(l.step), record{l.id, l.held})
}

// window is the number of the window that a step is in.
func window(step int64) int64 { return (step - 1) / fileWindow }

func (r *fileReader) end() error {
	for _, l := range r.f.lines {
		if err := r.f.release(l); err != nil {
			return err
		}
	}
	if len(r.f.lines) == 0 {
		return errors.New("it has no sample of the metrics that are read here in this time: those of dcgm-exporter, nvidia_gpu_exporter, inference servers or gpuvigil's agents")
	}
	return r.f.spool.flush()
}

// Next implements Source.
func (f *File) Next(ctx context.Context) (*Window, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	number, ok := f.spool.next()
	if !ok {
		return nil, io.EOF
	}
	w := &Window{span: f.span, first: number*fileWindow + 1, last: (number + 1) * fileWindow}
	by := map[uint32]*line{}
	lowest, highest := w.last, w.first
	err := f.spool.read(number, func(r record) error {
		if int(r.id) >= len(f.lines) {
			return errors.New("a temporary file was changed while it was read")
		}
		l := by[r.id]
		if l == nil {
			l = &line{labels: f.lines[r.id].labels}
			by[r.id] = l
			w.all = append(w.all, l)
		}
		step := f.span.number(r.ms)
		lowest, highest = min(lowest, step), max(highest, step)
		w.add(l, r.point)
		return nil
	})
	if err != nil {
		return nil, err
	}
	w.first, w.last = lowest, highest
	return w, nil
}

// Close removes what was spooled.
func (f *File) Close() error { return f.spool.close() }
