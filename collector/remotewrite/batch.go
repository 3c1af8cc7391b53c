package remotewrite

import (
	"fmt"
	"hash/maphash"

	"google.golang.org/protobuf/encoding/protowire"
)

// key stands for the labels of a series. Two series have one key by an accident of 128
// bits only: the seeds are made anew by each process, so that nobody can look for one.
type key [2]uint64

type seeds [2]maphash.Seed

func newSeeds() seeds { return seeds{maphash.MakeSeed(), maphash.MakeSeed()} }

func (s *seeds) of(b []byte) key {
	return key{maphash.Bytes(s[0], b), maphash.Bytes(s[1], b)}
}

// with adds more to a key; the order matters.
func (k key) with(o key) key {
	const odd = 0x9e3779b97f4a7c15
	return key{k[0]*odd + o[0], k[1]*odd + o[1]}
}

// batch is what one request holds, as positions in its bytes: a label becomes a string
// only if its series is new.
type batch struct {
	data    []byte // the request, uncompressed
	second  bool   // it is of version 2
	series  []one
	samples []sample

	symbols []span // of version 2
	hashes  []byte // of each symbol, as many as a key has
	refs    []byte // scratch

	histograms, exemplars int // that were left out
}

// one is a series of a batch: where its message is, and its samples.
type one struct {
	key      key
	at       span
	from, to int
}

func (b *batch) reset() {
	b.data, b.series, b.samples, b.symbols, b.hashes = b.data[:0], b.series[:0], b.samples[:0], b.symbols[:0], b.hashes[:0]
	b.second, b.histograms, b.exemplars = false, 0, 0
}

// tooMany is the error of a request beyond a limit.
func tooMany(what string, limit int) error {
	return fmt.Errorf("the request has more than %d %s: send fewer at once (max_samples_per_send in Prometheus' queue_config)", limit, what)
}

// read reads the whole message, so that one that is not well formed has no effect.
func (b *batch) read(s *seeds, l *Limits) error {
	series := protowire.Number(1)
	if b.second {
		series = 5
		if err := b.readSymbols(s, l); err != nil {
			return err
		}
	}
	var f field
	for at := 0; at < len(b.data); {
		var err error
		if at, err = next(b.data, at, len(b.data), &f); err != nil {
			return err
		}
		if f.number != series {
			continue
		}
		if f.kind != protowire.BytesType {
			return errMalformed
		}
		if len(b.series) >= l.Series {
			return tooMany("series", l.Series)
		}
		one := one{at: f.at, from: len(b.samples)}
		if b.second {
			err = b.readSecond(s, &one)
		} else {
			err = b.readFirst(s, &one)
		}
		if err != nil {
			return err
		}
		if len(b.samples) > l.Samples {
			return tooMany("samples", l.Samples)
		}
		one.to = len(b.samples)
		b.series = append(b.series, one)
	}
	return nil
}

// readFirst reads a prometheus.TimeSeries. Its key is made of the bytes of its labels,
// which all senders write side by side.
func (b *batch) readFirst(s *seeds, one *one) error {
	var f field
	labels := span{one.at.from, one.at.from}
	for at := one.at.from; at < one.at.to; {
		begin := at
		var err error
		if at, err = next(b.data, at, one.at.to, &f); err != nil {
			return err
		}
		if f.number >= 1 && f.number <= 4 && f.kind != protowire.BytesType {
			return errMalformed
		}
		switch f.number {
		case 1:
			if begin != labels.to {
				one.key = one.key.with(s.of(b.data[labels.from:labels.to]))
				labels.from = begin
			}
			labels.to = at
		case 2:
			v, err := readSample(b.data, f.at, 1, 2)
			if err != nil {
				return err
			}
			b.samples = append(b.samples, v)
		case 3:
			b.exemplars++
		case 4:
			b.histograms++
		}
	}
	one.key = one.key.with(s.of(b.data[labels.from:labels.to]))
	return nil
}

// readSymbols finds the strings that the series of version 2 refer to, and hashes each
// once: their places differ from request to request.
func (b *batch) readSymbols(s *seeds, l *Limits) error {
	var f field
	for at := 0; at < len(b.data); {
		var err error
		if at, err = next(b.data, at, len(b.data), &f); err != nil {
			return err
		}
		if f.number != 4 {
			continue
		}
		if f.kind != protowire.BytesType {
			return errMalformed
		}
		if len(b.symbols) >= l.Symbols {
			return tooMany("symbols", l.Symbols)
		}
		b.symbols = append(b.symbols, f.at)
		k := s.of(b.data[f.at.from:f.at.to])
		b.hashes = protowire.AppendFixed64(protowire.AppendFixed64(b.hashes, k[0]), k[1])
	}
	return nil
}

// hashSize is the bytes that a symbol has in hashes.
const hashSize = 16

// readSecond reads an io.prometheus.write.v2.TimeSeries.
func (b *batch) readSecond(s *seeds, one *one) error {
	b.refs = b.refs[:0]
	var f field
	for at := one.at.from; at < one.at.to; {
		var err error
		if at, err = next(b.data, at, one.at.to, &f); err != nil {
			return err
		}
		if f.number >= 2 && f.number <= 5 && f.kind != protowire.BytesType {
			return errMalformed
		}
		switch f.number {
		case 1:
			err = b.eachRef(&f, func(ref uint64) {
				b.refs = append(b.refs, b.hashes[ref*hashSize:(ref+1)*hashSize]...)
			})
		case 2:
			var v sample
			v, err = readSample(b.data, f.at, 1, 2)
			b.samples = append(b.samples, v)
		case 3:
			b.histograms++
		case 4:
			b.exemplars++
		}
		if err != nil {
			return err
		}
	}
	one.key = s.of(b.refs)
	return nil
}

// eachRef calls do for the references of a field, packed or not.
func (b *batch) eachRef(f *field, do func(ref uint64)) error {
	switch f.kind {
	case protowire.VarintType:
		if f.value >= uint64(len(b.symbols)) {
			return errMalformed
		}
		do(f.value)
		return nil
	case protowire.BytesType:
		for packed := b.data[f.at.from:f.at.to]; len(packed) > 0; {
			ref, n := protowire.ConsumeVarint(packed)
			if n < 0 || ref >= uint64(len(b.symbols)) {
				return errMalformed
			}
			do(ref)
			packed = packed[n:]
		}
		return nil
	}
	return errMalformed
}
