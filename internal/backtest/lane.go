package backtest

import (
	"errors"
	"io"
	"math"
)

// lane is one file on its way from rows to scores.
type lane struct {
	in    *reader
	out   *writer
	input input
	clock clock
	row   row     // the newest that counts
	seen  float64 // what a detector sees of it
	more  bool    // there is a newest row
	peers *peek   // nil: the file is judged alone
	once  bool    // of rows of one time the detector takes the first
}

// peek is the row after the newest one of a file. A time that is far ahead would keep a
// file from its peers until they have come there, so a row that is later than the next
// does not count.
type peek struct {
	row
	err error
}

func newLane(o Options, file string, is mapping) (*lane, error) {
	in, err := open(o.Series, file)
	if err != nil {
		return nil, err
	}
	out, err := create(o.Scores, file)
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return &lane{in: in, out: out, input: input{def: is.def}, clock: clock{Disorder: Disorder{File: file}}, once: o.Detector == level}, nil
}

// among makes the lane one of peers, before the first row.
func (l *lane) among() {
	l.peers = &peek{}
	l.peers.row, l.peers.err = l.in.next()
}

// read takes the next row that counts, and writes those that do not on its way; there
// is none after the last.
func (l *lane) read() (bool, error) {
	l.more = false
	for {
		r, stray, err := l.next()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if !l.input.has(r.x) {
			if err := l.out.write(r, math.NaN(), true); err != nil {
				return false, err
			}
			continue
		}
		l.clock.note(r)
		if !stray && l.clock.take(r.at) {
			l.row, l.seen, l.more = r, l.input.take(l.clock.seen(r.at), r.x), true
			return true, nil
		}
		if err := l.lose(r); err != nil {
			return false, err
		}
	}
}

// next returns the file's next row, and whether it is later than the one after.
func (l *lane) next() (r row, stray bool, err error) {
	if l.peers == nil {
		r, err = l.in.next()
		return r, false, err
	}
	if l.peers.err != nil {
		return row{}, false, l.peers.err
	}
	r = l.peers.row
	l.peers.row, l.peers.err = l.in.next()
	return r, l.peers.err == nil && l.input.has(l.peers.x) && l.peers.at.Before(r.at), nil
}

// lose writes a row with a value that does not count.
func (l *lane) lose(r row) error {
	l.clock.Lost++
	return l.out.write(r, math.NaN(), false)
}

func (l *lane) write(score float64) error { return l.out.write(l.row, score, false) }

func (l *lane) abandon() error { return errors.Join(l.in.Close(), l.out.abandon()) }

func (l *lane) close() (Summary, error) {
	if err := l.clock.order(); err != nil {
		return Summary{}, errors.Join(err, l.abandon())
	}
	if err := errors.Join(l.in.Close(), l.out.finish()); err != nil {
		return Summary{}, err
	}
	d := l.clock.Disorder
	if !l.once {
		d.Repeats = 0
	}
	if d.Back > 0 || d.Repeats > 0 {
		l.out.sum.Disorder = []Disorder{d}
	}
	return l.out.sum, nil
}
