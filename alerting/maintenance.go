package alerting

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/alertmanager/matcher/parse"
	"github.com/prometheus/alertmanager/pkg/labels"

	"gpuvigil/detect"
	"gpuvigil/internal/text"
)

const (
	windowsKey = "maintenance"
	maxWindows = 100

	// MaxMaintenance is for how long a window that a person begins holds at most.
	MaxMaintenance = 30 * 24 * time.Hour
)

// Begun is a maintenance window that a person has begun.
type Begun struct {
	Name     string    `json:"name"`
	Matchers []string  `json:"matchers"` // in Alertmanager's notation; all must match
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	By       string    `json:"by"` // as the person says; may be anything

	matchers labels.Matchers
}

// Maintained is a maintenance window as it stands.
type Maintained struct {
	Name      string
	Matchers  []string
	From, To  time.Time // zero where time intervals say it
	Intervals []string
	By        string // who has begun it; empty: it is in the configuration
	Holds     bool   // now
	Keeps     int    // incidents that it keeps back now
}

func (b *Begun) parse() error {
	b.matchers = nil
	for _, said := range b.Matchers {
		m, err := parse.Matcher(said)
		if err != nil {
			return fmt.Errorf("found %q, allowed: a matcher such as node=~\"gpu-1.*\": %w", said, err)
		}
		b.matchers = append(b.matchers, m)
	}
	return nil
}

// BeginMaintenance begins a window now. It holds until its To or until it is ended,
// whichever is first, also over restarts; the window of the same name that somebody began
// before is replaced by it.
func (o *Outbox) BeginMaintenance(b Begun) error {
	now := time.Now()
	b.From = now
	if err := b.parse(); err != nil {
		return fmt.Errorf("begin maintenance %s: %w", b.Name, err)
	}
	switch {
	case b.Name == "":
		return fmt.Errorf("begin maintenance: it has no name")
	case len(b.matchers) == 0:
		return fmt.Errorf("begin maintenance %s: it is not said of what; cluster=~\".*\" is all of it", b.Name)
	case !b.To.After(now) || b.To.Sub(now) > MaxMaintenance:
		return fmt.Errorf("begin maintenance %s: give a time of at most %s", b.Name, text.Span(MaxMaintenance))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.gate.begin(&b, now); err != nil {
		return err
	}
	o.windowsChanged()
	return nil
}

// EndMaintenance ends a window that a person has begun. What still fires is told at once.
func (o *Outbox) EndMaintenance(name string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.gate.end(name, time.Now()); err != nil {
		return err
	}
	o.windowsChanged()
	return nil
}

// windowsChanged stores the windows, and looks at what they keep back. The caller holds
// o.mu.
func (o *Outbox) windowsChanged() {
	o.extras[windowsKey].gen++
	for _, q := range o.queues {
		q.looked = time.Time{}
	}
	o.wakeAll()
	poke(o.save)
}

// Maintenance returns the windows of the configuration and those that people have begun,
// with how many of these incidents each keeps back.
func (o *Outbox) Maintenance(open []detect.Incident) []Maintained {
	return o.gate.windows(open, time.Now())
}

// over reports whether the window has ended.
func (b *Begun) over(now time.Time) bool { return !now.Before(b.To) }

func (g *Gate) begin(b *Begun, now time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if slices.ContainsFunc(g.cfg.Maintenance, func(w Window) bool { return w.Name == b.Name }) {
		return fmt.Errorf("begin maintenance %s: a window of the configuration is called so: give another name", b.Name)
	}
	if held := g.begun[b.Name]; held != nil && !held.over(now) && !slices.Equal(held.Matchers, b.Matchers) {
		return fmt.Errorf("begin maintenance %s: a window is called so, of %s: end it, or give another name", b.Name, strings.Join(held.Matchers, ", "))
	}
	if g.begun[b.Name] == nil && len(g.begun) >= maxWindows {
		return fmt.Errorf("begin maintenance %s: %d windows hold already: end one", b.Name, maxWindows)
	}
	g.begun[b.Name] = b
	return nil
}

func (g *Gate) end(name string, now time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b := g.begun[name]; b != nil && !b.over(now) {
		delete(g.begun, name)
		return nil
	}
	if slices.ContainsFunc(g.cfg.Maintenance, func(w Window) bool { return w.Name == name }) {
		return fmt.Errorf("end maintenance %s: it is in the configuration, which says when it ends: change it there, and send SIGHUP", name)
	}
	var known []string
	for _, n := range slices.Sorted(maps.Keys(g.begun)) {
		known = append(known, fmt.Sprintf("%q", n))
	}
	if len(known) == 0 {
		return fmt.Errorf("end maintenance %s: nobody has begun one", name)
	}
	return fmt.Errorf("end maintenance %s: nobody has begun one of this name; there are %s", name, list(known, 0))
}

// all returns every window. The caller holds g.mu.
func (g *Gate) all(now time.Time) []Window {
	out := slices.Clone(g.cfg.Maintenance)
	for _, b := range slices.SortedFunc(maps.Values(g.begun), func(a, b *Begun) int { return cmp.Compare(a.Name, b.Name) }) {
		if !b.over(now) {
			out = append(out, Window{Name: b.Name, Matchers: b.matchers, From: b.From, To: b.To})
		}
	}
	return out
}

func (g *Gate) windows(open []detect.Incident, now time.Time) []Maintained {
	g.mu.RLock()
	defer g.mu.RUnlock()
	out := []Maintained{}
	for _, w := range g.all(now) {
		m := Maintained{Name: w.Name, From: w.From, To: w.To, Intervals: w.Intervals, Holds: g.within(&w, now)}
		for _, x := range w.Matchers {
			m.Matchers = append(m.Matchers, x.String())
		}
		if b := g.begun[w.Name]; b != nil {
			m.By = b.By
		}
		for k := range open {
			if i := &open[k]; i.State == detect.Firing && g.maintained(labelSets(i, g.cfg.Cluster, g.cfg.Node), now) == w.Name {
				m.Keeps++
			}
		}
		out = append(out, m)
	}
	return out
}

// holding counts the windows that hold now, those that people have begun or those of the
// configuration.
func (g *Gate) holding(begun bool) func() float64 {
	return func() float64 {
		n := 0
		for _, m := range g.windows(nil, time.Now()) {
			if m.Holds && (m.By != "") == begun {
				n++
			}
		}
		return float64(n)
	}
}

// sweepWindows forgets the windows that are over, and reports whether there were any.
func (g *Gate) sweepWindows(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := len(g.begun)
	maps.DeleteFunc(g.begun, func(_ string, b *Begun) bool { return b.over(now) })
	return len(g.begun) < before
}

// loadWindows reads what people began in an earlier run. One that cannot be read costs
// only itself.
func (o *Outbox) loadWindows() error {
	windows := map[string]*Begun{}
	if err := o.readMeta(windowsKey, &windows); err != nil {
		return err
	}
	for name, b := range windows {
		if b == nil {
			continue
		}
		if err := b.parse(); err != nil {
			o.log.Error("a maintenance window that somebody began is not known any more", "name", name, "err", err)
			continue
		}
		o.gate.begun[name] = b
	}
	return nil
}

// windowsText is what is to be stored of the windows.
func (g *Gate) windowsText() ([]byte, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return json.Marshal(g.begun)
}
