//go:build linux && cgo

package nvml

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/collector"
	"gpuvigil/internal/fakenvml"
	"gpuvigil/internal/metric"
)

// lastPart keeps the newest part that was written.
type lastPart struct {
	mu    sync.Mutex
	part  *collector.Part
	count int
}

func (l *lastPart) Write(p *collector.Part) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.part = p
	l.count++
	return nil
}

func (l *lastPart) get() (*collector.Part, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.part, l.count
}

// heldNow is what the process holds: each goroutine in a call of a real driver holds a thread.
func heldNow() (goroutines int, heap uint64) {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), m.HeapAlloc
}

// One GPU of eight does not answer for an hour: it costs one stuck call, and the others nothing.
func TestOneHungGPUOfEightForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const gpus, hung = 8, 5
		var fakes []*fakeGPU
		for i := range gpus {
			fakes = append(fakes, newFakeGPU(i))
		}
		_, s := fakeSession(t, fakes...)
		last := &lastPart{}
		s.out, s.workers = last, nil
		ended := make(chan error)
		go func() { ended <- s.run(t.Context()) }()
		// In between two ticks, when all stand still that can.
		time.Sleep(10*time.Second + 500*time.Millisecond)
		synctest.Wait()
		if p, _ := last.get(); len(p.GPUs) != gpus || p.GPUs[hung].Hung {
			t.Fatalf("before a GPU hangs the GPUs are %+v, want %d that do not", p.GPUs, gpus)
		}
		release := make(chan struct{})
		fakes[hung].hang.Store(&release)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		asked, beside := calls(fakes[hung]), calls(fakes[0], "GetPowerUsage")
		p, parts := last.get()
		stuck := p.GPUs[hung].SampledAt(metric.Fast)
		goroutines, heap := heldNow()

		time.Sleep(time.Hour)
		synctest.Wait()
		if n := calls(fakes[hung]); n != asked {
			t.Errorf("in an hour %d more calls were made on a GPU that has one in flight", n-asked)
		}
		p, written := last.get()
		if g := p.GPUs[hung]; !g.Hung || !g.Present || !g.SampledAt(metric.Fast).Equal(stuck) {
			t.Errorf("after an hour the hung GPU is hung %v, present %v, sampled at %v; want true, true and %v", g.Hung, g.Present, g.SampledAt(metric.Fast), stuck)
		}
		if n := calls(fakes[0], "GetPowerUsage") - beside; n != 3600 {
			t.Errorf("the GPU beside it was asked %d times in an hour, want 3600", n)
		}
		if n := written - parts; n != 3600 {
			t.Errorf("%d parts were written in an hour, want 3600", n)
		}
		now, held := heldNow()
		if now != goroutines {
			t.Errorf("%d goroutines after an hour of one hung GPU, %d after five minutes", now, goroutines)
		}
		if held > heap+heap/4+1<<20 {
			t.Errorf("%d bytes are held after an hour of one hung GPU, %d after five minutes", held, heap)
		}
		fakes[hung].hang.Store(nil)
		close(release)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		p, _ = last.get()
		if g := p.GPUs[hung]; g.Hung || g.Value(metric.PowerDraw) != 350 || !g.SampledAt(metric.Fast).After(stuck) {
			t.Errorf("the GPU answers again and is hung %v, sampled at %v", g.Hung, g.SampledAt(metric.Fast))
		}
		s.fail(errors.New("the end"))
		<-ended
	})
}

// calls counts those that were made on a GPU, of the methods or of all.
func calls(f *fakeGPU, methods ...string) (sum int) {
	f.counting.Lock()
	defer f.counting.Unlock()
	for method, n := range f.asked {
		if len(methods) == 0 || slices.Contains(methods, method) {
			sum += n
		}
	}
	return sum
}

// Whatever a call returns, only what the code speaks of is lost: the value, for a time or for long, or the GPU.
func TestEveryReturnCodeOfACall(t *testing.T) {
	codes := []nvml.Return{-1, 1000, math.MaxInt32, nvml.ERROR_UNKNOWN}
	for code := nvml.ERROR_UNINITIALIZED; code < 40; code++ { // and some that no release has yet
		codes = append(codes, code)
	}
	for _, code := range codes {
		t.Run(fmt.Sprint(int(code)), func(t *testing.T) {
			gpu, beside := newFakeGPU(0), newFakeGPU(1)
			_, s := fakeSession(t, gpu, beside)
			s.at(t, 0)
			gpu.returns["GetPowerUsage"] = code
			p := s.at(t, time.Second)
			g := p.GPUs[0]
			gone, unsupportedNow := judge(code) == lost, slices.Contains(g.Unsupported, metric.PowerDraw)
			if g.Has(metric.PowerDraw) || g.Present == gone || unsupportedNow != (judge(code) == unsupported) {
				t.Errorf("%s of one call: power %v, present %v, unsupported %v", text(code), g.Value(metric.PowerDraw), g.Present, unsupportedNow)
			}
			if !gone && g.Value(metric.Temperature) != 50 && judge(code) != fatal {
				t.Errorf("%s of one call costs the temperature", text(code))
			}
			if p.GPUs[1].Value(metric.PowerDraw) != 350 {
				t.Errorf("%s of one GPU's call costs the other its power", text(code))
			}
			select {
			case err := <-s.fatal:
				if judge(code) != fatal {
					t.Errorf("%s ends the process: %v", text(code), err)
				}
				return
			default:
				if judge(code) == fatal {
					t.Errorf("%s does not end the process, whose driver is gone", text(code))
				}
			}
			delete(gpu.returns, "GetPowerUsage")
			for after := 2 * time.Second; after <= 12*time.Minute; after += 10 * time.Second {
				p = s.at(t, after)
			}
			if g := p.GPUs[0]; !g.Present || g.Value(metric.PowerDraw) != 350 {
				t.Errorf("after %s the GPU is present %v and its power %v, want 350", text(code), g.Present, g.Value(metric.PowerDraw))
			}
		})
	}
}

// Any call may hang: its GPU is marked, one beside it is sampled on, and all is well when the call returns.
func TestEveryFunctionMayHang(t *testing.T) {
	const atOnce = 8 // GPUs that hang, each in another function
	n := newNode(t, atOnce+1)
	n.start()
	n.complete()
	steady := len(n.calls(fakenvml.GPU(0)))
	for range 100 { // ten rounds of the slowest tier
		n.next()
	}
	var functions []string
	for _, key := range n.calls(fakenvml.GPU(0))[steady:] {
		if function, _, _ := strings.Cut(key, "/"); strings.HasPrefix(function, "nvmlDevice") && !slices.Contains(functions, function) {
			functions = append(functions, function)
		}
	}
	if len(functions) < 35 {
		t.Fatalf("only %d functions are called again and again: %v", len(functions), functions)
	}
	for some := range slices.Chunk(functions, atOnce) {
		for i, function := range some {
			n.Fault(fakenvml.GPU(i), function, fakenvml.Hang)
		}
		n.write()
		p := n.await(fmt.Sprintf("GPUs to hang in %v", some), func(p *collector.Part) bool { return p.Node.Value(metric.NVMLHung) == float64(len(some)) })
		from := p.GPUs[atOnce].SampledAt(metric.Fast)
		p = n.await(fmt.Sprintf("the last GPU to be sampled on beside %v", some), func(p *collector.Part) bool { return p.GPUs[atOnce].SampledAt(metric.Fast).After(from) })
		for i, function := range some {
			if g := p.GPUs[i]; !g.Hung || !g.Present {
				t.Errorf("a GPU whose call of %s does not return is hung %v and present %v", function, g.Hung, g.Present)
			}
			n.Clear(fakenvml.GPU(i), function)
		}
		n.write()
		n.await(fmt.Sprintf("the GPUs to be back after %v", some), func(p *collector.Part) bool {
			return !slices.ContainsFunc(p.GPUs, func(g collector.GPU) bool { return g.Hung || !g.Present || !g.SampledAt(metric.Fast).After(from) })
		})
	}
}
