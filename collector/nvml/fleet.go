//go:build linux && cgo

package nvml

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/collector"
)

// maxPending bounds the events that wait for a frame while nobody reads frames.
// Those beyond it are counted in GPU.Xids all the same.
const maxPending = 1024

// nobody is the slot of a GPU that no worker answers for.
const nobody = -1

// fleet is every GPU that was seen since the process started. Workers and the
// event watcher write it, the composer reads it; no NVML call is made under its lock.
type fleet struct {
	// generation moves when the GPUs may have changed places: each worker then
	// looks again which one it has.
	generation atomic.Uint64

	mu      sync.Mutex
	records map[string]*record // by uuid
	handles map[nvml.Device]string
	pending []collector.Event
	dropped uint64 // events that found no room
}

// record is one GPU. What view points to is not changed any more.
type record struct {
	index int // at first sight
	slot  int // whose worker answers for it, or nobody
	view  *view
	xids  map[int]collector.XidCount
}

// view is what a worker last published about its GPU.
type view struct {
	gpu       collector.GPU
	instances []collector.Instance
	links     []collector.Link
	processes []collector.Process
}

func newFleet() *fleet {
	return &fleet{records: map[string]*record{}, handles: map[nvml.Device]string{}}
}

// claim makes slot the one that answers for the GPU, and returns what was last
// published of it. The handle is kept because an event comes with nothing else,
// and asking a GPU with an Xid error for its uuid may take for ever.
func (f *fleet) claim(uuid string, handle nvml.Device, slot int) collector.GPU {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.records[uuid]
	if r == nil {
		r = &record{index: slot, xids: map[int]collector.XidCount{}, view: &view{}}
		r.view.gpu.UUID, r.view.gpu.Index = uuid, slot
		f.records[uuid] = r
	}
	r.slot = slot
	f.handles[handle] = uuid
	return r.view.gpu
}

// owns reports whether slot still answers for the GPU.
func (f *fleet) owns(uuid string, slot int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.records[uuid].slot == slot
}

// release says that slot has lost the GPU, unless another has found it since.
func (f *fleet) release(uuid string, slot int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.records[uuid]
	if r.slot != slot {
		return
	}
	r.slot = nobody
	gone := r.view.gpu
	gone.Present, gone.Readings = false, collector.Readings{}
	r.view = &view{gpu: gone}
}

func (f *fleet) publish(uuid string, slot int, v *view) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.records[uuid]; r.slot == slot {
		r.view = v
	}
}

// xid counts an Xid error and reports whether its GPU is known.
func (f *fleet) xid(handle nvml.Device, code int, at time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	uuid, ok := f.handles[handle]
	if ok {
		x := f.records[uuid].xids[code]
		f.records[uuid].xids[code] = collector.XidCount{Code: code, Count: x.Count + 1, Last: at}
	}
	if len(f.pending) == maxPending {
		f.pending = f.pending[1:]
		f.dropped++
	}
	f.pending = append(f.pending, collector.Event{Time: at, Kind: collector.XidEvent, UUID: uuid, Code: code})
	return ok
}

// take returns the events since the last time, which are then delivered.
func (f *fleet) take() (events []collector.Event, dropped uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	events, dropped = f.pending, f.dropped
	f.pending, f.dropped = nil, 0
	return events, dropped
}

// each calls yield for every GPU, in the order of their indices, with the slot
// that answers for it.
func (f *fleet) each(yield func(slot int, v view)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, uuid := range slices.SortedFunc(maps.Keys(f.records), f.order) {
		r := f.records[uuid]
		v := *r.view
		v.gpu.Xids = nil
		for _, code := range slices.Sorted(maps.Keys(r.xids)) {
			v.gpu.Xids = append(v.gpu.Xids, r.xids[code])
		}
		yield(r.slot, v)
	}
}

func (f *fleet) order(a, b string) int {
	if d := f.records[a].index - f.records[b].index; d != 0 {
		return d
	}
	if a < b {
		return -1
	}
	return 1
}
