package backtest

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"gpuvigil/collector"
	"gpuvigil/collector/frame"
	"gpuvigil/detect"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// ReplayOptions say which recordings to replay, and through what.
type ReplayOptions struct {
	Recordings []string // files of gpuvigil record, each of one node
	Truths     []Truth
	Labelled   bool // the truths are all that was wrong: what else was told is false
	Workers    int  // recordings at a time; 0: one for each CPU

	// Engine returns a new engine; nil: one with the defaults.
	Engine func() *detect.Engine
	Log    *slog.Logger
}

// Recording is what came of one recording.
type Recording struct {
	File     string        `json:"file"`
	Node     string        `json:"node"`
	From     time.Time     `json:"from"`
	To       time.Time     `json:"to"`
	Frames   int           `json:"frames"`
	Damaged  int           `json:"damaged_frames"`
	Missing  string        `json:"missing,omitempty"` // why what comes after To could not be read
	GPUs     int           `json:"gpus"`
	Watched  time.Duration `json:"-"` // times GPUs
	GPUWeeks float64       `json:"gpu_weeks"`
	Told     []Told        `json:"-"`

	digest [sha256.Size]byte           // of the file, as far as it was read
	weeks  map[time.Time]time.Duration // Watched, by the week's beginning; only of a history
}

// Replayed is what came of all recordings.
type Replayed struct {
	Recordings []Recording
	Judgement
	Figures  Figures
	Labelled bool
	Truths   []Truth
	Outside  int // labels that are of no recorded time

	History bool       // the rest is only there if it is of a history
	Budgets []AtBudget // the default is what all else is of
	GPUs    int        // the most in one round
}

// Replay runs the detectors over recordings as they would have run live, each with an
// engine of its own that knows nothing before. A recording that cannot be read to its
// end counts as far as it goes and makes Replay return an error that names it. So does
// one that is given twice, also as a copy: it counts once. What has no frame to replay is
// left out, and if nothing else is there, there is no result.
func Replay(ctx context.Context, o ReplayOptions) (*Replayed, error) {
	if o.Engine == nil {
		o.Engine = func() *detect.Engine {
			return detect.NewEngine(detect.Config{}, detect.Detectors(detect.DetectorConfig{}))
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	recordings, errs := make([]Recording, len(o.Recordings)), make([]error, len(o.Recordings))
	var group errgroup.Group
	group.SetLimit(workers(o.Workers))
	for i, file := range o.Recordings {
		group.Go(func() error {
			recordings[i], errs[i] = o.replay(ctx, file)
			return nil
		})
	}
	errs = append(errs, group.Wait())
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	recordings, doubles := o.once(recordings)
	err := errors.Join(append(errs, doubles...)...)
	if len(recordings) == 0 {
		return nil, err
	}
	return o.sum(recordings), err
}

// once leaves out what has no frame, and all but the first of what is the same.
func (o ReplayOptions) once(recordings []Recording) (counted []Recording, errs []error) {
	first := map[[sha256.Size]byte]string{}
	for i, rec := range recordings {
		if rec.Frames == 0 {
			continue
		}
		if same, twice := first[rec.digest]; twice {
			errs = append(errs, fmt.Errorf("replay %s: it is the same recording as %s and counts once: give each once", o.Recordings[i], same))
			continue
		}
		first[rec.digest] = o.Recordings[i]
		counted = append(counted, rec)
	}
	return counted, errs
}

// sum judges what was told in each recording by the labels of its node and time.
func (o ReplayOptions) sum(recordings []Recording) *Replayed {
	r := &Replayed{Recordings: recordings, Labelled: o.Labelled, Truths: o.Truths}
	used := make([]bool, len(o.Truths))
	for _, rec := range recordings {
		var here []Truth
		for i, t := range o.Truths {
			if (t.Node == "" || t.Node == rec.Node) && t.From.Before(rec.To) && t.To.After(rec.From) {
				here = append(here, t)
				used[i] = true
			}
		}
		j := Judge(here, rec.Told)
		r.Found = append(r.Found, j.Found...)
		r.False = append(r.False, j.False...)
		r.Right = append(r.Right, j.Right...)
		r.Figures.Add(j, rec.Watched)
	}
	for _, u := range used {
		if !u {
			r.Outside++
		}
	}
	return r
}

// replay runs one recording.
func (o ReplayOptions) replay(ctx context.Context, path string) (rec Recording, err error) {
	rec.File = filepath.Base(path)
	file, err := os.Open(path)
	if err != nil {
		return rec, fmt.Errorf("open the recording: %w", err)
	}
	defer file.Close()
	plain, err := unpacked(file)
	if err != nil {
		return rec, fmt.Errorf("replay %s: %w", path, err)
	}
	digest := sha256.New()
	reader := &parts{frames: frame.NewReader(bufio.NewReaderSize(io.TeeReader(plain, digest), 1<<20)), rec: &rec}
	err = o.run(ctx, reader, reader.pace(), &rec)
	digest.Sum(rec.digest[:0])
	rec.GPUWeeks = rec.Watched.Hours() / week.Hours()
	switch {
	case err == nil:
		return rec, nil
	case rec.Frames == 0:
		return rec, fmt.Errorf("replay %s: there is no whole frame in it: %w: give a file of gpuvigil record", path, err)
	}
	rec.Missing = err.Error()
	return rec, fmt.Errorf("replay %s: %w: what it has of the time after %s is missing in the result", path, err, stamp(rec.To))
}

// unpacked reads a file that may have been packed by gzip.
func unpacked(file io.Reader) (io.Reader, error) {
	r := bufio.NewReader(file)
	if magic, err := r.Peek(2); err != nil || magic[0] != 0x1f || magic[1] != 0x8b {
		return r, nil // an error comes again with the first frame
	}
	plain, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("it begins like a file of gzip: %w", err)
	}
	return plain, nil
}

func (o ReplayOptions) run(ctx context.Context, from *parts, step time.Duration, rec *Recording) error {
	cfg := collector.SamplerConfig{Log: o.Log}
	for t, usual := range [metric.Tiers]time.Duration{time.Second, 15 * time.Second, 15 * time.Second, time.Minute} {
		cfg.Tiers[t] = max(usual, step)
	}
	play, w := collector.NewReplay(cfg, "recording"), NewWatch(o.Engine())
	defer func() { rec.Told, rec.Watched = w.Told(), w.Watched }()
	for ctx.Err() == nil {
		p, err := from.next()
		if err == io.EOF {
			if rec.Frames == 0 {
				return errEmpty
			}
			return nil
		}
		if err != nil {
			return err
		}
		s := play.Snapshot(p)
		if rec.Frames++; rec.From.IsZero() {
			rec.From = s.Time
		}
		rec.Node, rec.To, rec.GPUs = s.Node.Name, s.Time, max(rec.GPUs, len(s.GPUs))
		w.Observe(s)
	}
	return ctx.Err()
}

// parts reads a recording, with a look ahead at its beginning.
type parts struct {
	frames *frame.Reader
	rec    *Recording
	ahead  []*collector.Part
	err    error // that came after them
}

var errEmpty = errors.New("it ends before the first one")

// pace returns the usual time between the first frames.
func (r *parts) pace() time.Duration {
	const few = 32
	var gaps []time.Duration
	for len(r.ahead) < few {
		p, err := r.read()
		if err != nil {
			r.err = err
			break
		}
		if n := len(r.ahead); n > 0 {
			if gap := p.Time.Sub(r.ahead[n-1].Time); gap > 0 {
				gaps = append(gaps, gap)
			}
		}
		r.ahead = append(r.ahead, p)
	}
	slices.Sort(gaps)
	if len(gaps) == 0 {
		return time.Second
	}
	return gaps[len(gaps)/2]
}

func (r *parts) next() (*collector.Part, error) {
	if len(r.ahead) > 0 {
		p := r.ahead[0]
		r.ahead = r.ahead[1:]
		return p, nil
	}
	if r.err != nil {
		return nil, r.err
	}
	return r.read()
}

// read returns the next frame that is whole.
func (r *parts) read() (*collector.Part, error) {
	for last := error(nil); ; {
		p, err := r.frames.Read()
		if !errors.As(err, new(*frame.CorruptError)) {
			return p, err
		}
		if last == err { // the reader returns the same one if it cannot go on
			r.rec.Damaged--
			return nil, err
		}
		last = err
		r.rec.Damaged++
	}
}

// Severities counts incidents by severity.
func Severities(told []Told) (out [3]int) {
	for _, t := range told {
		out[t.Incident.Severity]++
	}
	return out
}

// Told returns all incidents, by time.
func (r *Replayed) Told() []Told {
	all := slices.Concat(r.Right, r.False)
	slices.SortStableFunc(all, func(a, b Told) int { return a.First.Compare(b.First) })
	return all
}

// Alerts returns how often anybody would have been told of something by that severity.
func (r *Replayed) Alerts(s rules.Severity) Incidence {
	return Incidence{Severities(r.Told())[s], r.Figures.Watched.Hours() / week.Hours()}
}
