package remotewrite

import (
	"bytes"
	"testing"
)

// Whatever anybody sends: no panic, no memory beyond the limits, and nothing is taken of
// what is not well formed.
func FuzzRequest(f *testing.F) {
	good := sent{named("up", "a", "b"), []sample{{after(1), 1}}}
	f.Add(packed(first(good)), false)
	f.Add(packed(second(f, good, good)), true)
	f.Add([]byte{}, true)
	f.Fuzz(func(t *testing.T, body []byte, v2 bool) {
		r := receiver(newBook("up"), Limits{Body: 1 << 16, Decoded: 1 << 18, Series: 100, Samples: 1000, Symbols: 1000})
		kind := firstType
		if v2 {
			kind = secondType
		}
		w := post(r, kind, "snappy", bytes.NewReader(body))
		if w.Code != 204 && w.Code != 400 && w.Code != 413 {
			t.Errorf("answer %d", w.Code)
		}
		checkTally(t, r, w.Code)
	})
}

// FuzzMessage looks behind the compression, which few mutations survive.
func FuzzMessage(f *testing.F) {
	good := sent{named("up", "a", "b"), []sample{{after(1), 1}}}
	f.Add(first(good), false)
	f.Add(second(f, good, good), true)
	f.Fuzz(func(t *testing.T, message []byte, v2 bool) {
		r := receiver(newBook("up"), Limits{Series: 100, Samples: 1000, Symbols: 1000})
		b := &batch{data: message, second: v2}
		if b.read(&r.seeds, &r.cfg.Limits) != nil {
			return
		}
		if _, err := r.take(b, noon); err != nil {
			t.Fatal(err)
		}
		r.Cut(noon.Add(maxAhead))
		checkTally(t, r, 0)
		if left := r.Tally().Pending; left != 0 {
			t.Errorf("%d samples wait for ever", left)
		}
	})
}

func checkTally(t *testing.T, r *Receiver, status int) {
	t.Helper()
	got := r.Tally()
	if status != 0 && status != 204 && got.Requests[Partly] == 0 && got.Samples > 0 {
		t.Errorf("a request that is refused has left %d samples", got.Samples)
	}
	if got.Known > int(got.Series) {
		t.Errorf("%d series are known of %d", got.Known, got.Series)
	}
}
