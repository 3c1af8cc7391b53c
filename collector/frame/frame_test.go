package frame

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

func TestRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	parts := []*collector.Part{{}, fullPart(), {Time: noon}}
	for range 300 {
		parts = append(parts, randomPart(rng))
	}
	got, err := readAll(encodeParts(t, parts...))
	if !errors.Is(err, io.EOF) {
		t.Fatalf("the stream does not end cleanly: %v", err)
	}
	if diff := cmp.Diff(parts, got, same); diff != "" {
		t.Errorf("parts change on their way through a stream (-written +read):\n%s", diff)
	}
}

func TestSamePartSameBytes(t *testing.T) {
	a := encodeParts(t, fullPart(), fullPart())
	b := encodeParts(t, fullPart(), fullPart())
	if !bytes.Equal(a, b) {
		t.Error("two recordings of the same parts differ")
	}
}

func TestAbsentReadingsCostLittle(t *testing.T) {
	one := len(encodeParts(t, &collector.Part{GPUs: make([]collector.GPU, 1)}))
	withVector := &collector.Part{GPUs: []collector.GPU{{Readings: collector.NewReadings(metric.GPU)}}}
	if cost, limit := len(encodeParts(t, withVector))-one, metric.VectorLen(metric.GPU)/8+2; cost > limit {
		t.Errorf("a vector of absent readings takes %d bytes, want at most %d: a bit for each", cost, limit)
	}
}

func TestLongStringIsCut(t *testing.T) {
	long := strings.Repeat("ä", MaxString)
	got, err := readAll(encodeParts(t, &collector.Part{Processes: []collector.Process{{Name: "x" + long}}}))
	if !errors.Is(err, io.EOF) || len(got) != 1 {
		t.Fatalf("a process with a long name breaks the stream: %d parts, %v", len(got), err)
	}
	name := got[0].Processes[0].Name
	if len(name) > MaxString || len(name) < MaxString-4 || !strings.HasPrefix("x"+long, name) || strings.ToValidUTF8(name, "?") != name {
		t.Errorf("the long name came back with %d bytes, ending in %q", len(name), name[len(name)-4:])
	}
}

func TestTooLargePartLeavesTheStreamWhole(t *testing.T) {
	var buf bytes.Buffer
	w := NewWriter(&buf)
	for _, p := range []*collector.Part{
		{Processes: make([]collector.Process, maxProcesses+1)},
		{Node: collector.Node{Readings: collector.NewReadings(metric.GPU)}},
		{GPUs: []collector.GPU{{Unsupported: []*metric.Def{{Name: "vigil_foreign"}}}}},
	} {
		if err := w.Write(p); err == nil {
			t.Error("a part that no reader would take was written")
		}
	}
	if err := w.Write(fullPart()); err != nil {
		t.Fatalf("write after a refused part: %v", err)
	}
	if got, err := readAll(buf.Bytes()); len(got) != 1 || !errors.Is(err, io.EOF) {
		t.Errorf("after refused parts the stream gives %d parts and %v, want 1 and EOF", len(got), err)
	}
}

func TestWriterStaysBroken(t *testing.T) {
	r, pipe := io.Pipe()
	r.Close()
	w := NewWriter(pipe)
	first := w.Write(fullPart())
	if first == nil || !errors.Is(w.Write(fullPart()), io.ErrClosedPipe) {
		t.Errorf("a writer whose pipe broke does not say so: first %v", first)
	}
}

func TestTruncated(t *testing.T) {
	stream := encodeParts(t, fullPart(), &collector.Part{Time: noon}, fullPart())
	ends := boundaries(stream)
	for n := 0; n < len(stream); n += 1 + n%7 {
		got, err := readAll(stream[:n])
		i, clean := slices.BinarySearch(ends, n)
		if whole := max(0, i-1); len(got) != whole && !(clean && len(got) == i) {
			t.Fatalf("cut at byte %d: %d parts, want the %d whole ones", n, len(got), whole)
		}
		want := io.ErrUnexpectedEOF
		if clean || n == 0 {
			want = io.EOF
		}
		if !errors.Is(err, want) {
			t.Fatalf("cut at byte %d: %v, want %v", n, err, want)
		}
	}
}

// boundaries returns where the frames begin, and the end of the stream.
func boundaries(stream []byte) []int {
	r := NewReader(bytes.NewReader(stream))
	var at []int
	for {
		_, err := r.Read()
		if len(at) == 0 {
			at = append(at, len(appendHeader(nil, catalogue())))
		}
		if err != nil {
			return at
		}
		at = append(at, int(r.offset))
	}
}

func TestDamagedByteIsNeverAWrongPart(t *testing.T) {
	parts := []*collector.Part{{Time: noon}, fullPart(), {Time: noon.Add(1)}}
	stream := encodeParts(t, parts...)
	for i := 0; i < len(stream); i += 1 + i%7 {
		bad := bytes.Clone(stream)
		bad[i] ^= 0x41
		got, err := readAll(bad)
		if errors.Is(err, io.EOF) {
			t.Fatalf("byte %d was damaged and nobody noticed", i)
		}
		for _, p := range got {
			if !cmp.Equal(p, parts[0], same) && !cmp.Equal(p, parts[1], same) && !cmp.Equal(p, parts[2], same) {
				t.Fatalf("byte %d was damaged and a wrong part came out", i)
			}
		}
	}
}

func TestReadGoesOnAfterADamagedFrame(t *testing.T) {
	stream := encodeParts(t, &collector.Part{Time: noon}, fullPart(), &collector.Part{Time: noon.Add(1)})
	at := boundaries(stream)
	stream[at[2]-1] ^= 1
	r := NewReader(bytes.NewReader(stream))
	if _, err := r.Read(); err != nil {
		t.Fatalf("the frame before the damaged one: %v", err)
	}
	var corrupt *CorruptError
	if _, err := r.Read(); !errors.As(err, &corrupt) || corrupt.Offset != int64(at[1]) {
		t.Fatalf("the damaged frame: %v, want an error that names byte %d", err, at[1])
	}
	if p, err := r.Read(); err != nil || !p.Time.Equal(noon.Add(1)) {
		t.Fatalf("the frame after the damaged one: %v", err)
	}
	if _, err := r.Read(); err != io.EOF {
		t.Fatalf("the end: %v, want EOF", err)
	}
}

func TestNotAStream(t *testing.T) {
	wrongVersion := encodeParts(t, &collector.Part{})
	wrongVersion[len(magic)] = 99
	zeros := append(encodeParts(t, &collector.Part{}), make([]byte, 4096)...)
	huge := append(encodeParts(t, &collector.Part{}), 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0)
	for name, tc := range map[string]struct {
		stream []byte
		says   string
	}{
		"text":          {[]byte("NVRM: something on stdout"), `begins with "NVRM: so"`},
		"other version": {wrongVersion, "format version 99"},
		"zeros":         {zeros, "length is 0"},
		"huge length":   {huge, "length is 4294967295"},
	} {
		_, err := readAll(tc.stream)
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want a CorruptError that says %q", name, err, tc.says)
		}
	}
}

func TestClaimedLengthBuysNoMemory(t *testing.T) {
	stream := append(encodeParts(t, &collector.Part{}), 0, 0, 0, 1, 0, 0, 0, 0, 'x') // 16 MiB announced, one byte sent
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := readAll(stream)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a frame that never comes: %v, want an unexpected EOF", err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 2<<20 {
		t.Errorf("a claim of 16 MiB made the reader allocate %d KiB before any byte came", got>>10)
	}
}
