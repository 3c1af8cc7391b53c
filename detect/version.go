package detect

import (
	"fmt"
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

const (
	maxChanges     = 64 // remembered of one component
	mostComponents = 4096

	// upgradeTakes is how long after a new driver came what comes with it belongs to it.
	upgradeTakes = 15 * time.Minute
)

// withDriver are the components that a driver brings along.
var withDriver = []string{"cuda", "driver_library", "fabric_manager", "gsp", "kernel_module", "nvml"}

// Version watches the versions of the node's components and of the GPUs' firmware,
// across restarts of the agent.
type Version struct {
	cfg        VersionConfig
	components map[string]*component // by the name of the component, or vbios/UUID
	order      []string              // of components, as first seen
	counts     map[string]uint64     // replaced, never changed
	firmware   map[firmware]string   // its name among components, so that a snapshot builds none
	turn       uint64                // of snapshots: two may be of the same time
}

// component is one thing with a version.
type component struct {
	Value   string      `json:"value"`
	Since   time.Time   `json:"since"`   // when it was first seen with this version
	Changes []time.Time `json:"changes"` // the last ones
	Was     []string    `json:"was"`     // what it was before each of them; a release before did not keep it
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
	return &Version{cfg: cfg, components: map[string]*component{}, counts: map[string]uint64{}, firmware: map[firmware]string{}}
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
		if ofGPUs(s, v.Component) {
			continue // told of the GPU that it is on
		}
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
		changed = d.compareFirmware(s, g, "vbios", g.VBIOS) || changed
		changed = d.compareFirmware(s, g, "gsp", g.GSP) || changed
		changed = d.compareFirmware(s, g, "inforom", g.InfoROM) || changed
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

// compare takes up one version and reports whether it changed.
func (d *Version) compare(s *collector.Snapshot, name, value string, of Subject, cause string, g *collector.GPU) bool {
	if value == "" || of.ID == "" {
		return false
	}
	c := d.components[name]
	if c == nil {
		if len(d.order) >= mostComponents {
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
	c.Changes, c.Was = append(c.Changes, s.Time), append(c.Was, c.from)
	over := max(len(c.Changes)-maxChanges, 0)
	c.Changes, c.Was = c.Changes[over:], c.Was[over:]
	c.Total++
	return true
}

// follow joins what a new driver brings along to the driver's change: one upgrade
// is one finding. What another source tells comes up to a look later.
func (d *Version) follow(now time.Time) {
	driver := d.components["driver"]
	if driver == nil || len(driver.Changes) == 0 {
		return
	}
	if age := now.Sub(driver.Changes[len(driver.Changes)-1]); age < 0 || age >= upgradeTakes {
		return
	}
	with := map[string]bool{}
	for _, name := range d.order {
		c := d.components[name]
		part, _, _ := strings.Cut(name, "/")
		if c.turn != d.turn || c.from == "" || !slices.Contains(withDriver, part) {
			continue
		}
		change := fmt.Sprintf("%s %s → %s", part, c.from, c.Value)
		if driver.from != "" && !with[change] { // eight GPUs have eight times the same firmware
			driver.with = append(driver.with, change)
			with[change] = true
		}
		c.Since, c.from = now, ""
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
	n, back := 0, false
	for i, at := range c.Changes {
		if age := now.Sub(at); age >= 0 && age < d.cfg.FlapWindow {
			n++
			back = back || c.Was[i] == c.Value
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
	// Upgrades in a row never come back to what was there before.
	if n >= d.cfg.FlapChanges && back {
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
