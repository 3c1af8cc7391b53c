package detect

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// VersionConfig is what the detector of changed versions can be told. Zero fields
// take the defaults.
type VersionConfig struct {
	FlapChanges int           // changes within FlapWindow that are more than an upgrade; 3
	FlapWindow  time.Duration // 24 h
	Habit       time.Duration // the mean time between changes that is taken as usual; a week
}

const maxChanges = 64 // remembered of one component

// Version watches the versions of the node's components and of the GPUs' firmware,
// across restarts of the agent.
type Version struct {
	cfg        VersionConfig
	components map[string]*component // by the name of the component, or vbios/UUID
	order      []string              // of components, as first seen
	counts     map[string]uint64     // replaced, never changed
	turn       uint64                // of snapshots: two may be of the same time
}

// component is one thing with a version.
type component struct {
	Value   string      `json:"value"`
	Since   time.Time   `json:"since"`   // when it was first seen with this version
	Changes []time.Time `json:"changes"` // the last ones
	Total   uint64      `json:"total"`

	subject Subject
	cause   string
	gpu     *collector.GPU // of this snapshot, for firmware
	turn    uint64         // of the snapshot that told it last
	from    string         // if it changed in this snapshot, what it was
	with    []string       // components that came with it
}

// NewVersion returns the detector of rule version_changed.
func NewVersion(cfg VersionConfig) *Version {
	if cfg.FlapChanges <= 0 {
		cfg.FlapChanges = 3
	}
	if cfg.FlapWindow <= 0 {
		cfg.FlapWindow = 24 * time.Hour
	}
	if cfg.Habit <= 0 {
		cfg.Habit = 7 * 24 * time.Hour
	}
	return &Version{cfg: cfg, components: map[string]*component{}, counts: map[string]uint64{}}
}

// Rule returns version_changed.
func (d *Version) Rule() *rules.Rule { return rules.Get(rules.IDVersionChanged) }

// VersionChanges returns how often each component's version has changed since the
// memory began. The map is never changed.
func (d *Version) VersionChanges() map[string]uint64 { return d.counts }

// Observe compares each version that the snapshot tells with the one remembered. A
// version that is not told is not judged.
func (d *Version) Observe(s *collector.Snapshot, report func(Observation)) {
	changed := false
	d.turn++
	for i := range s.Node.Versions {
		v := &s.Node.Versions[i]
		// A component that this release does not know shares one cause with all
		// others like it, so that causes stay a closed set.
		cause := v.Component
		if metric.VersionParts.Index(cause) < 0 {
			cause = "other"
		}
		changed = d.compare(s, v.Component, v.Value, Subject{"node", s.Node.Name}, cause, nil) || changed
	}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		changed = d.compareFirmware(s, g) || changed
	}
	if changed {
		d.follow(s.Time)
		d.count()
	}
	for _, name := range d.order {
		if c := d.components[name]; c.turn == d.turn {
			report(d.describe(c, name, s.Time))
		}
	}
}

func (d *Version) compareFirmware(s *collector.Snapshot, g *collector.GPU) bool {
	const prefix = "vbios/"
	for _, name := range d.order { // a node has a handful: no string is built to look it up
		if len(name) == len(prefix)+len(g.UUID) && strings.HasPrefix(name, prefix) && name[len(prefix):] == g.UUID {
			return d.compare(s, name, g.VBIOS, gpuSubject(g.UUID), "vbios", g)
		}
	}
	return d.compare(s, prefix+g.UUID, g.VBIOS, gpuSubject(g.UUID), "vbios", g)
}

// compare takes up one version and reports whether it changed.
func (d *Version) compare(s *collector.Snapshot, name, value string, of Subject, cause string, g *collector.GPU) bool {
	const most = 4096
	if value == "" || of.ID == "" {
		return false
	}
	c := d.components[name]
	if c == nil {
		if len(d.order) >= most {
			return false
		}
		c = &component{Value: value, Since: s.Time}
		d.components[name] = c
		d.order = append(d.order, name)
	}
	c.subject, c.cause, c.gpu, c.turn, c.from, c.with = of, cause, g, d.turn, "", nil
	if c.Value == value {
		return false
	}
	c.from, c.Value = c.Value, value
	c.Changes = append(c.Changes, s.Time)
	c.Changes = c.Changes[max(len(c.Changes)-maxChanges, 0):]
	c.Total++
	return true
}

// follow joins what a new driver brings along to the driver's change: one upgrade
// is one finding.
func (d *Version) follow(now time.Time) {
	driver := d.components["driver"]
	if driver == nil || driver.turn != d.turn || driver.from == "" {
		return
	}
	for _, name := range []string{"cuda", "nvml"} {
		if c := d.components[name]; c != nil && c.from != "" && c.turn == driver.turn {
			driver.with = append(driver.with, fmt.Sprintf("%s %s → %s", name, c.from, c.Value))
			c.Since, c.from = now, ""
		}
	}
}

func (d *Version) count() {
	counts := map[string]uint64{}
	for name, c := range d.components {
		part, _, _ := strings.Cut(name, "/")
		if c.Total > 0 {
			counts[part] += c.Total
		}
	}
	d.counts = counts
}

// describe reports a change as an event: it holds in the snapshot that shows it.
func (d *Version) describe(c *component, name string, now time.Time) Observation {
	o := Observation{Subject: c.subject, Cause: c.cause, GPU: c.gpu}
	if c.from == "" {
		return o
	}
	n := 0
	for _, at := range c.Changes {
		if age := now.Sub(at); age >= 0 && age < d.cfg.FlapWindow {
			n++
		}
	}
	label, _, _ := strings.Cut(name, "/")
	ev := Evidence{
		Title:      capital(label) + " version changed",
		Seen:       fmt.Sprintf("%s %s → %s", label, c.from, c.Value),
		Expected:   fmt.Sprintf("%s, as for the last %s", c.from, span(now.Sub(c.Since))),
		Observed:   float64(n),
		Confidence: Certain,
		Why:        "both versions were reported by the node",
	}
	if len(c.with) > 0 {
		ev.Seen += " (with " + strings.Join(c.with, ", ") + ")"
	}
	o.Score, o.Severity = float64(max(n, 1)), rules.Info
	if n >= d.cfg.FlapChanges {
		o.Severity = rules.Ticket
		d.explainFlapping(&ev, n)
	} else if c.Total > 1 {
		ev.Seen += fmt.Sprintf(", change %d since records began", c.Total)
	}
	c.Since = now
	o.Evidence = ev
	return o
}

// explainFlapping says how unlikely so many changes are if they come as usual.
func (d *Version) explainFlapping(ev *Evidence, n int) {
	usual := d.cfg.FlapWindow.Seconds() / d.cfg.Habit.Seconds()
	p := distuv.Poisson{Lambda: usual}.Survival(float64(n - 1))
	ev.Title = strings.Replace(ev.Title, "changed", "keeps changing", 1)
	ev.Seen += fmt.Sprintf(", %d changes in %s", n, span(d.cfg.FlapWindow))
	ev.Expected = "about one change in " + span(d.cfg.Habit)
	ev.Want = &usual
	ev.Why = fmt.Sprintf("so many by chance: p = %.0e", p)
	ev.Confidence = Likely
	if p < 0.001 {
		ev.Confidence = VerySure
	}
}

type versionState struct {
	Version    int                   `json:"version"`
	Order      []string              `json:"order"`
	Components map[string]*component `json:"components"`
}

// Save returns the versions that were last seen, and when they changed.
func (d *Version) Save() ([]byte, error) {
	return json.Marshal(versionState{1, d.order, d.components})
}

// Restore takes up what Save returned.
func (d *Version) Restore(data []byte) error {
	var s versionState
	if err := decodeState(data, &s, 1); err != nil {
		return err
	}
	maps.DeleteFunc(s.Components, func(_ string, c *component) bool { return c == nil || c.Value == "" })
	order := slices.DeleteFunc(s.Order, func(name string) bool { return s.Components[name] == nil })
	if len(order) != len(s.Components) {
		order = slices.Sorted(maps.Keys(s.Components))
	}
	if s.Components == nil {
		s.Components = map[string]*component{}
	}
	d.components, d.order = s.Components, order
	d.count()
	return nil
}
