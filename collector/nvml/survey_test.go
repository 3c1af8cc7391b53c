//go:build linux && cgo

package nvml

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"gpuvigil/collector"
)

// surveyed runs a node of slow GPUs in the full profile.
func surveyed(t *testing.T, prepare func([]*fakeGPU), then func(gpus []*fakeGPU, last *lastPart)) {
	synctest.Test(t, func(t *testing.T) {
		var gpus []*fakeGPU
		for i := range 4 {
			g := newFakeGPU(i)
			g.delay = map[string]time.Duration{"GetPowerUsage": time.Duration(100+50*i) * time.Millisecond, "GetTopologyCommonAncestor": 30 * time.Millisecond}
			gpus = append(gpus, g)
		}
		prepare(gpus)
		_, s := fakeSession(t, gpus...)
		last := &lastPart{}
		s.cfg.Full, s.out, s.workers = true, last, nil
		ended := make(chan error)
		go func() { ended <- s.run(t.Context()) }()
		then(gpus, last)
		s.fail(errors.New("the end"))
		<-ended
	})
}

// The question how two GPUs are connected is a call on both: neither may be in another
// one meanwhile, which some drivers take badly.
func TestTopologyIsAskedWhileBothGPUsRest(t *testing.T) {
	surveyed(t, func([]*fakeGPU) {}, func(gpus []*fakeGPU, last *lastPart) {
		time.Sleep(5*time.Minute + 500*time.Millisecond)
		synctest.Wait()
		p, _ := last.get()
		for i, g := range p.GPUs {
			if want := len(gpus) - 1 - i; len(g.Paths) != want {
				t.Errorf("of GPU %d the ways to %d others are known, want %d", i, len(g.Paths), want)
			}
			if n := calls(gpus[i], "GetTopologyCommonAncestor"); n != len(gpus)-1-i {
				t.Errorf("GPU %d was asked %d times for what does not change", i, n)
			}
			if n := gpus[i].overlaps.Load(); n > 0 {
				t.Errorf("GPU %d had two calls in flight %d times", i, n)
			}
		}
	})
}

// A GPU that hangs in another call is not asked for its way to the others, and costs
// them nothing.
func TestTopologyBesideAGPUThatHangs(t *testing.T) {
	var release chan struct{}
	surveyed(t, func(gpus []*fakeGPU) {
		release = make(chan struct{})
		gpus[2].hang.Store(&release)
	}, func(gpus []*fakeGPU, last *lastPart) {
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		p, _ := last.get()
		if len(p.GPUs) == 0 || gpus[2].overlaps.Load() > 0 {
			t.Fatalf("%d GPUs are seen, and %d calls were made on one that is in a call", len(p.GPUs), gpus[2].overlaps.Load())
		}
		if got := pathTo(p, 0, uuid(3)); got != "system" {
			t.Errorf("the way between two GPUs that answer is %q, want system", got)
		}
		gpus[2].hang.Store(nil)
		close(release)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		p, _ = last.get()
		if got := pathTo(p, 0, uuid(2)); got != "system" {
			t.Errorf("the GPU answers again, and the way to it is %q, want system", got)
		}
	})
}

func pathTo(p *collector.Part, gpu int, uuid string) string {
	for _, g := range p.GPUs {
		for _, path := range g.Paths {
			if g.Index == gpu && path.UUID == uuid {
				return path.Level
			}
		}
	}
	return ""
}
