package fleet

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"gpuvigil/detect"
)

// The parts of the role's state.
const (
	gatherPart  = "incidents"
	clusterPart = "cluster"
	moneyPart   = "money"
	movesPart   = "versions"
	nodePrefix  = "node/" // before a node's name
)

const (
	saveEvery    = 30 * time.Second
	saveMoney    = 10 * time.Minute
	saveNode     = time.Hour // what an engine remembers, if nothing changes in what it found
	saveAtOnce   = 64        // engines, so that one write does not take long
	maxUnpacked  = 64 << 20  // bytes of one engine
	packedDamage = "its memory cannot be unpacked: %w"
)

// State is the parts of the role's memory that are to be written, by name. A part with no
// bytes is to be removed.
type State map[string][]byte

// keep puts what the incidents stand on into words: when one has changed, so that it is
// written with the messages that it causes, and from time to time.
func (w *watch) keep(now time.Time, changed bool) {
	if age := now.Sub(w.kept); !changed && age >= 0 && age < saveEvery {
		return
	}
	w.kept = now
	incidents, err := w.gatherer.Save()
	cluster, clusterErr := w.engine.Save()
	if err = errors.Join(err, clusterErr); err != nil {
		w.cfg.Log.Error("What is known of the cluster cannot be put into words: it is lost with the next restart.", "err", err)
		return
	}
	if w.state == nil {
		w.state = State{}
	}
	w.state[gatherPart], w.state[clusterPart] = incidents, cluster
	if age := now.Sub(w.keptMoney); age >= 0 && age < saveMoney {
		return
	}
	w.keptMoney = now
	money, err := json.Marshal(&w.spent)
	moves, movesErr := json.Marshal(&w.versions)
	if err = errors.Join(err, movesErr); err != nil {
		w.cfg.Log.Error("What teams have spent cannot be put into words: it is lost with the next restart.", "err", err)
		return
	}
	w.state[moneyPart], w.state[movesPart] = money, moves
}

// Save returns the parts that have changed since it was last called: the incidents, and of
// some engines what they remember, those that found something first. If they could not be
// written, undo has them returned again.
func (f *Fleet) Save(now time.Time) (parts State, undo func()) {
	w := &f.watch
	w.mu.Lock()
	state, gone, due := w.state, w.gone, w.due(now)
	w.state, w.gone = nil, nil
	engines := make([]*detect.Engine, len(due))
	for i, n := range due {
		engines[i] = n.engine
	}
	w.mu.Unlock()
	parts = State{}
	maps.Copy(parts, state)
	for _, name := range gone {
		parts[nodePrefix+name] = nil
	}
	for i, n := range due {
		data, err := pack(engines[i])
		if err != nil {
			f.cfg.Load().Log.Error("What is remembered of a node cannot be put into words: it is lost with the next restart.", "node", n.name, "err", err)
			continue
		}
		parts[nodePrefix+n.name] = data
	}
	return parts, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for name, data := range state {
			if w.state == nil {
				w.state = State{}
			}
			if _, newer := w.state[name]; !newer {
				w.state[name] = data
			}
		}
		w.gone = append(gone, w.gone...)
		for _, n := range due {
			n.dirty = true
		}
	}
}

// due picks the engines that are to be saved now.
func (w *watch) due(now time.Time) []*node {
	var all []*node
	for _, n := range w.nodes {
		if n.engine != nil && (n.dirty || now.Sub(n.saved) >= saveNode) {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, func(a, b *node) int {
		if a.dirty != b.dirty {
			if a.dirty {
				return -1
			}
			return 1
		}
		return cmp.Or(a.saved.Compare(b.saved), strings.Compare(a.name, b.name))
	})
	all = all[:min(len(all), saveAtOnce)]
	for _, n := range all {
		n.dirty, n.saved = false, now
	}
	return all
}

// pack is an engine's memory, compressed: it is a tenth of its words.
func pack(e *detect.Engine) ([]byte, error) {
	state, err := e.Save()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(state); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func unpack(data []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf(packedDamage, err)
	}
	state, err := io.ReadAll(io.LimitReader(z, maxUnpacked+1))
	if err == nil && len(state) > maxUnpacked {
		err = errors.New("it is too large")
	}
	if err != nil {
		return nil, fmt.Errorf(packedDamage, err)
	}
	return state, nil
}

// Restore takes up one part of what Save returned, before the first Observe. An error
// changes nothing: the part begins anew.
func (f *Fleet) Restore(part string, data []byte) error {
	w := &f.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	switch name, ofNode := strings.CutPrefix(part, nodePrefix); {
	case part == gatherPart:
		return w.gatherer.Restore(data)
	case part == clusterPart:
		return w.engine.Restore(data)
	case part == moneyPart:
		return w.spent.restore(data)
	case part == movesPart:
		return w.versions.restore(data)
	case ofNode && name != "" && len(w.nodes) < maxNodes:
		state, err := unpack(data)
		if err != nil {
			return err
		}
		engine := w.newEngine(name)
		if err := engine.Restore(state); err != nil {
			return err
		}
		w.restored[name] = engine
	}
	return nil
}
