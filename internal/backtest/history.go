package backtest

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect"
)

// HistoryOptions say what to run over the past of many nodes.
type HistoryOptions struct {
	Name     string // of where it comes from, for people
	Truths   []Truth
	Labelled bool // the truths are all that was wrong
	Workers  int  // nodes at a time; 0: one for each CPU

	// Engine returns a new engine with the budget; nil: one with the defaults but for that.
	Engine func(node string, b detect.Budget) *detect.Engine
	Log    *slog.Logger
}

// Feed calls observe with the snapshots of all nodes, round by round, in the order of
// time.
type Feed func(ctx context.Context, observe func(now time.Time, nodes []*collector.Snapshot) error) error

// past is what is known of one node.
type past struct {
	rec   Recording
	watch *Watch
	to    chan<- looked
}

type looked struct {
	at   *past
	s    *collector.Snapshot
	gpus int // of all nodes, so far
}

// History runs the detectors over the past of many nodes, each with an engine of its own
// that knows nothing before. It is the same however many workers there are. What the feed
// gave before an error counts, with the error beside it; without any node there is no result.
func History(ctx context.Context, o HistoryOptions, feed Feed) (*Replayed, error) {
	h := historian{o: &o, nodes: map[string]*past{}}
	if o.Engine == nil {
		o.Engine = func(node string, b detect.Budget) *detect.Engine {
			return detect.NewEngine(detect.Config{Node: node, Budget: b, Log: o.Log, NoHistory: true}, detect.Detectors(detect.DetectorConfig{}))
		}
	}
	stop := h.start(workers(o.Workers))
	err := feed(ctx, h.observe)
	stop()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var recordings []Recording
	for _, name := range slices.Sorted(maps.Keys(h.nodes)) {
		n := h.nodes[name]
		n.rec.Told, n.rec.Watched = n.watch.Told(), n.watch.Watched
		n.rec.GPUWeeks = n.rec.Watched.Hours() / week.Hours()
		recordings = append(recordings, n.rec)
	}
	if len(recordings) == 0 {
		if err == nil {
			err = fmt.Errorf("replay %s: there is no node in it with GPUs, inference servers or an agent", o.Name)
		}
		return nil, err
	}
	return o.judge(recordings, h.gpus), err
}

// historian hands snapshots to workers, a node always to the same.
type historian struct {
	o     *HistoryOptions
	nodes map[string]*past
	to    []chan<- looked
	gpus  int // the most that were seen in one round
}

// ahead is how many snapshots a worker may be behind.
const ahead = 64

func (h *historian) start(n int) (stop func()) {
	var group sync.WaitGroup
	for range max(1, min(n, 4*runtime.GOMAXPROCS(0))) {
		work := make(chan looked, ahead)
		h.to = append(h.to, work)
		group.Go(func() {
			for l := range work {
				l.at.watch.Engine.Among(l.gpus)
				l.at.observe(l.s)
			}
		})
	}
	return func() {
		for _, c := range h.to {
			close(c)
		}
		group.Wait()
	}
}

func (h *historian) observe(_ time.Time, nodes []*collector.Snapshot) error {
	gpus := 0
	for _, s := range nodes {
		gpus += len(s.GPUs)
	}
	h.gpus = max(h.gpus, gpus)
	for _, s := range nodes {
		n := h.nodes[s.Node.Name]
		if n == nil {
			loosest := Budgets[len(Budgets)-1]
			engine := h.o.Engine(s.Node.Name, detect.Budget{Pages: loosest / ticketsAPage, Tickets: loosest})
			n = &past{rec: Recording{File: h.o.Name, Node: s.Node.Name, From: s.Time, weeks: map[time.Time]time.Duration{}}, watch: NewWatch(engine), to: h.to[len(h.nodes)%len(h.to)]}
			h.nodes[s.Node.Name] = n
		}
		n.to <- looked{n, s, h.gpus}
	}
	return nil
}

// observe lets the node's engine judge, in its worker.
func (n *past) observe(s *collector.Snapshot) {
	before := n.watch.Watched
	n.watch.Observe(s)
	n.rec.Frames++
	n.rec.To, n.rec.GPUs = s.Time, max(n.rec.GPUs, len(s.GPUs))
	n.rec.weeks[monday(s.Time)] += n.watch.Watched - before
}

// monday is the beginning of a time's week, in UTC.
func monday(t time.Time) time.Time { return t.UTC().Truncate(week) }
