package push

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func rec(i int) *record {
	return &record{at: noon.Add(time.Duration(i) * time.Second), samples: 10, format: RemoteWrite, payload: fmt.Appendf(nil, "%0100d", i)}
}

func opened(t *testing.T, dir string, maxBytes int64) *buffer {
	t.Helper()
	b := openBuffer(bufferConfig{Dir: dir, MaxBytes: maxBytes, MaxAge: time.Hour, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// drain takes out all that there is and returns the numbers of the records.
func drain(b *buffer, now time.Time) (out []int) {
	for t := b.next(now); t != nil; t = b.next(now) {
		var i int
		if n, err := fmt.Sscanf(string(t.payload), "%d", &i); n != 1 || err != nil || len(t.payload) != 100 || t.samples != 10 || t.format != RemoteWrite {
			i = -1
		}
		out = append(out, i)
		b.done(t)
	}
	return out
}

func upTo(from, to int) (out []int) {
	for i := from; i < to; i++ {
		out = append(out, i)
	}
	return out
}

func files(t *testing.T, dir string) (names []string, bytes int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) == suffix {
			info, err := e.Info()
			if err != nil {
				t.Fatal(err)
			}
			names, bytes = append(names, e.Name()), bytes+info.Size()
		}
	}
	return names, bytes
}

func TestBufferKeepsOrder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "push")
	b := opened(t, dir, 10_000)
	for i := range 40 {
		b.put(rec(i))
	}
	if got := &b.state; got.records != 40 || !got.oldest.Equal(noon) || got.bytes != 40*121 {
		t.Errorf("%d records of %d bytes wait since %v, want 40 of %d since noon", got.records, got.bytes, got.oldest, 40*121)
	}
	if diff := cmp.Diff(upTo(0, 40), drain(b, noon)); diff != "" {
		t.Errorf("what comes out is not what went in (-want +got):\n%s", diff)
	}
	if names, _ := files(t, dir); len(names) != 0 || b.state.records != 0 || b.state.bytes != 0 || !b.state.oldest.IsZero() {
		t.Errorf("files %v are left of what was sent, and %d records of %d bytes", names, b.state.records, b.state.bytes)
	}
}

// A process that is killed closes nothing. The next one goes on where it was.
func TestBufferOfAProcessThatWasKilled(t *testing.T) {
	dir := t.TempDir()
	killed := openBuffer(bufferConfig{Dir: dir, MaxBytes: 10_000, MaxAge: time.Hour, Log: slog.New(slog.DiscardHandler)})
	for i := range 30 {
		killed.put(rec(i))
	}
	for range 3 {
		killed.done(killed.next(noon))
	}
	killed.next(noon) // it was being sent
	b := opened(t, dir, 10_000)
	b.put(rec(30))
	if diff := cmp.Diff(upTo(3, 31), drain(b, noon)); diff != "" {
		t.Errorf("after the kill (-want +got):\n%s", diff)
	}
	if b.state.lost != [losses]uint64{} {
		t.Errorf("counted as lost: %v", b.state.lost)
	}
}

// What is cut or changed costs its file from there on, and no more.
func TestBufferWithDamage(t *testing.T) {
	f := func(what string, damage func(t *testing.T, path string)) {
		t.Helper()
		dir := t.TempDir()
		b := openBuffer(bufferConfig{Dir: dir, MaxBytes: 10_000, MaxAge: time.Hour, Log: slog.New(slog.DiscardHandler)})
		for i := range 30 {
			b.put(rec(i))
		}
		names, _ := files(t, dir)
		damage(t, filepath.Join(dir, names[1])) // it has the records 10 to 19
		got := drain(opened(t, dir, 10_000), noon)
		if diff := cmp.Diff(append(upTo(0, 15), upTo(20, 30)...), got); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", what, diff)
		}
	}
	f("cut off", func(t *testing.T, path string) {
		if err := os.Truncate(path, 5*121+30); err != nil {
			t.Fatal(err)
		}
	})
	f("a bit is another one", func(t *testing.T, path string) {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		content[5*121+60] ^= 4
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	})
}

// Damage while the process runs is found when the record is to be sent.
func TestBufferThatIsDamagedMeanwhile(t *testing.T) {
	dir := t.TempDir()
	b := opened(t, dir, 10_000)
	for i := range 30 {
		b.put(rec(i))
	}
	names, _ := files(t, dir)
	if err := os.Remove(filepath.Join(dir, names[1])); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(append(upTo(0, 10), upTo(20, 30)...), drain(b, noon)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := b.state.lost[damaged]; got != 100 {
		t.Errorf("%d samples are counted as damaged, want 100", got)
	}
}

func TestBufferIsBounded(t *testing.T) {
	dir := t.TempDir()
	b := opened(t, dir, 10_000)
	for i := range 1000 {
		b.put(rec(i))
		if _, bytes := files(t, dir); bytes > 10_000 {
			t.Fatalf("after %d records there are %d bytes, more than the limit", i, bytes)
		}
	}
	got := drain(b, noon.Add(1000*time.Second))
	if n := len(got); n < 60 || n > 82 || got[n-1] != 999 || got[0] != 1000-n {
		t.Errorf("%d records are left, from %d on, want about 80, the newest", n, got[0])
	}
	if lost := b.state.lost[tooMuch]; lost != uint64(10*(1000-len(got))) {
		t.Errorf("%d samples are counted as lost, want %d", lost, 10*(1000-len(got)))
	}
}

func TestBufferForgetsWhatIsOld(t *testing.T) {
	dir := t.TempDir()
	b := opened(t, dir, 1<<20)
	for i := range 20 {
		b.put(rec(i))
	}
	if diff := cmp.Diff(upTo(15, 20), drain(b, noon.Add(time.Hour+15*time.Second))); diff != "" {
		t.Errorf("an hour and 15 s later (-want +got):\n%s", diff)
	}
	for i := range 100 {
		b.put(rec(i * 600)) // nobody asks for any of them
	}
	if n, lost := b.state.records, b.state.lost[tooOld]; n > 100 || lost < 150 {
		t.Errorf("of a receiver that is away for 16 h %d records wait and %d samples are counted as too old", n, lost)
	}
}

// A full disk costs nothing as long as memory is enough, and gets its part when it can.
func TestBufferOnADiskThatTakesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "push")
	b := opened(t, dir, 1<<20)
	b.put(rec(0))
	b.put(rec(1))
	b.mu.Lock()
	if err := b.writing.Close(); err != nil { // every write fails now
		t.Fatal(err)
	}
	b.mu.Unlock()
	for i := 2; i < 20; i++ {
		b.put(rec(i))
	}
	if n := b.state.records; n != 20 {
		t.Fatalf("%d records wait, want 20", n)
	}
	b.mu.Lock()
	b.writing = nil
	b.mu.Unlock()
	b.put(rec(20))
	if len(b.memory) != 0 {
		t.Errorf("%d records are still in memory while the disk takes them again", len(b.memory))
	}
	if diff := cmp.Diff(upTo(0, 21), drain(b, noon)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBufferWithoutADirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b := opened(t, file, 1<<20)
	big := make([]byte, maxMemory/4)
	for i := range 10 {
		b.put(&record{at: noon, samples: 10, format: RemoteWrite, payload: append(fmt.Appendf(nil, "%d", i), big...)})
	}
	if b.state.bytes > maxMemory || b.state.lost[diskFull] != 70 {
		t.Errorf("%d bytes are in memory, and %d samples are counted as lost, want at most %d and 70", b.state.bytes, b.state.lost[diskFull], maxMemory)
	}
	if first := b.next(noon); first == nil || first.payload[0] != '7' {
		t.Error("it is not the oldest that was lost")
	}
}

// Whatever happens in whatever order: what comes out is in order, each once, and what is
// missing is counted.
func TestBufferAtRandom(t *testing.T) {
	for seed := range uint64(15) {
		rng := rand.New(rand.NewPCG(seed, 1))
		dir := t.TempDir()
		open := func() *buffer {
			return openBuffer(bufferConfig{Dir: dir, MaxBytes: 8_000, MaxAge: time.Hour, Log: slog.New(slog.DiscardHandler)})
		}
		b, n, last, got := open(), 0, -1, 0
		var lost uint64
		for range 700 {
			switch rng.IntN(20) {
			case 0: // killed
				lost += b.state.lost[tooMuch]
				b = open()
			case 1, 2, 3, 4, 5, 6, 7, 8, 9, 10:
				b.put(rec(n))
				n++
			default:
				tok := b.next(noon)
				if tok == nil {
					continue
				}
				var i int
				if _, err := fmt.Sscanf(string(tok.payload), "%d", &i); err != nil || i <= last {
					t.Fatalf("seed %d: record %d after %d, %v", seed, i, last, err)
				}
				if rng.IntN(3) > 0 {
					b.done(tok)
					last, got = i, got+1
				}
			}
		}
		got += len(drain(b, noon))
		if lost += b.state.lost[tooMuch]; uint64(got)+lost/10 != uint64(n) {
			t.Errorf("seed %d: %d records put, %d taken out, %d counted as lost", seed, n, got, lost/10)
		}
	}
}

// FuzzSegment: whatever is in a file, it is opened and worked off.
func FuzzSegment(f *testing.F) {
	f.Add(rec(1).append(rec(0).append(nil)), []byte{})
	f.Add([]byte{1, 2, 3}, make([]byte, positionSize))
	f.Fuzz(func(t *testing.T, content, position []byte) {
		dir := t.TempDir()
		for name, c := range map[string][]byte{"0000000000000001.seg": content, positionName: position} {
			if err := os.WriteFile(filepath.Join(dir, name), c, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		b := opened(t, dir, 1<<20)
		for range len(content) + 1 {
			tok := b.next(noon)
			if tok == nil {
				return
			}
			b.done(tok)
		}
		t.Error("it has no end")
	})
}
