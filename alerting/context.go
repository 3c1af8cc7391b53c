package alerting

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/text"
	"gpuvigil/rules"
)

const (
	shownOwners = 3
	shownModels = 3
)

// Context is what a message shows beyond its incident: how far it reaches, and what
// it costs. It is taken when the incident changes and is stored with the message, so
// that what a fault ended is still named when nothing is left of it. What is not known
// is left out.
type Context struct {
	Cluster string            `json:"cluster,omitempty"`
	Owners  []collector.Owner `json:"owners,omitempty"` // whose work it reaches, who has most GPUs first
	GPUs    int               `json:"gpus,omitempty"`   // that these owners have here
	Models  []string          `json:"models,omitempty"` // that inference servers of theirs serve; untrusted
	Money   *Money            `json:"money,omitempty"`
	Lost    *Lost             `json:"lost,omitempty"`
}

// Money is what an hour of the incident costs.
type Money struct {
	Currency string  `json:"currency"` // ISO 4217
	PerHour  float64 `json:"per_hour"` // of the GPUs that do nothing useful because of it
	GPUs     int     `json:"gpus"`     // how many those are
}

// Lost is the work that has to be done again.
type Lost struct {
	Since    time.Time `json:"since"`     // the last checkpoint
	GPUHours float64   `json:"gpu_hours"` // from then until the incident began
	Cost     float64   `json:"cost,omitempty"`
	Currency string    `json:"currency,omitempty"` // empty: the cost is not known
}

// Following returns the context with what an earlier one of the same incident knew
// and this one does not: how far the incident reached at its worst.
func (c Context) Following(before *Context) Context {
	if before == nil {
		return c
	}
	if before.GPUs > c.GPUs || len(c.Owners) == 0 {
		c.Owners, c.GPUs = before.Owners, before.GPUs
	}
	if len(c.Models) < len(before.Models) {
		c.Models = before.Models
	}
	if c.Money == nil || before.Money != nil && before.Money.Currency == c.Money.Currency && before.Money.PerHour > c.Money.PerHour {
		c.Money = before.Money
	}
	if c.Lost == nil {
		c.Lost = before.Lost
	}
	c.Cluster = cmp.Or(c.Cluster, before.Cluster)
	return c
}

// idles are the rules whose findings say that GPUs are paid for and do nothing
// useful: what they cost is part of the message. Of errors only pages do.
var idles = map[rules.ID]rules.Severity{
	rules.IDXid: rules.Page, rules.IDGPULost: rules.Page, rules.IDSXid: rules.Page, rules.IDNVLink: rules.Page, rules.IDPCIeLink: rules.Page,
	rules.IDGPUMemory: rules.Page, rules.IDUnresponsive: rules.Page, rules.IDSuspectMonitor: rules.Page,
	rules.IDJobHung: rules.Info, rules.IDJobStalled: rules.Info, rules.IDIdleGPU: rules.Info, rules.IDDrainedOccupied: rules.Info,
	rules.IDSpend: rules.Info, rules.IDUnallocated: rules.Info, rules.IDWaitingJobs: rules.Info,
}

// Costs reports whether a message about the incident says what it costs an hour.
func Costs(i *detect.Incident) bool {
	least, ok := idles[i.Rule]
	return ok && i.Severity >= least
}

// stops are the rules whose pages mean that work has ended or stands still, so that
// what was done since the last checkpoint is lost.
var stops = map[rules.ID]bool{
	rules.IDXid: true, rules.IDGPULost: true, rules.IDSXid: true, rules.IDNVLink: true, rules.IDGPUMemory: true,
	rules.IDJobHung: true, rules.IDJobStalled: true,
}

// Stops reports whether the incident ends the work of those whom it reaches.
func Stops(i *detect.Incident) bool { return stops[i.Rule] && i.Severity >= rules.Page }

// reach names the work behind the incident.
func reach(c *Context, root *detect.Finding) string {
	owners := c.Owners
	if len(owners) == 0 {
		return who(root)
	}
	more := max(len(owners)-shownOwners, 0)
	var said []string
	for _, o := range owners[:len(owners)-more] {
		said = append(said, owner(o))
	}
	if root.Critical {
		said[0] += " (critical)"
	}
	line := list(said, more)
	if c.GPUs > 0 {
		sep := ", "
		if len(owners) > 1 {
			sep = "; together "
		}
		line += sep + count(c.GPUs, "GPU") + " here"
	}
	return line
}

// serves names the models that are behind the incident.
func serves(c *Context) string {
	more := max(len(c.Models)-shownModels, 0)
	var said []string
	for _, m := range c.Models[:len(c.Models)-more] {
		said = append(said, text.Clean(m, nameSize))
	}
	return list(said, more)
}

// teams are those behind the incident whom the line of owners does not name.
func teams(c *Context) string {
	var said []string
	for k, o := range c.Owners {
		if k >= shownOwners && o.Team != "" && !slices.Contains(said, o.Team) &&
			!slices.ContainsFunc(c.Owners[:shownOwners], func(named collector.Owner) bool { return named.Team == o.Team }) {
			said = append(said, o.Team)
		}
	}
	more := max(len(said)-shownOwners, 0)
	for k := range said {
		said[k] = text.Clean(said[k], nameSize)
	}
	return list(said[:len(said)-more], more)
}

// grows are the rules whose remedy is more of the same: what one more costs is part of
// the message.
var grows = map[rules.ID]bool{rules.IDSaturatedGPU: true, rules.IDQueueing: true}

// costs says what the incident costs an hour and has cost until now, or in all.
func costs(c *Context, i *detect.Incident, root *detect.Finding) string {
	m := c.Money
	if m != nil && grows[i.Rule] && i.State == detect.Firing {
		return fmt.Sprintf("about %s an hour for one more like it, with %s", Amount(m.PerHour, m.Currency), count(m.GPUs, "GPU"))
	}
	if m == nil || !Costs(i) {
		return ""
	}
	until, end := i.Updated, ""
	if i.State == detect.Resolved {
		until, end = i.Resolved, " in all"
	} else {
		end = " by " + until.UTC().Format("15:04 MST")
	}
	hour := fmt.Sprintf("%s an hour for %s", Amount(m.PerHour, m.Currency), count(m.GPUs, "GPU"))
	passed := until.Sub(since(i, root))
	if passed < time.Minute {
		return "about " + hour
	}
	return fmt.Sprintf("about %s%s; %s", Amount(m.PerHour*passed.Hours(), m.Currency), end, hour)
}

// lost says what has to be done again.
func lost(c *Context, i *detect.Incident) string {
	l := c.Lost
	if l == nil || !Stops(i) {
		return ""
	}
	said := fmt.Sprintf("%s GPU-hours since the checkpoint of %s", figure(l.GPUHours), l.Since.UTC().Format("15:04 MST"))
	if l.Currency != "" {
		said += ", about " + Amount(l.Cost, l.Currency)
	}
	return said
}

// Amount writes a sum of money: 12.30 USD, and whole units from a hundred on.
func Amount(x float64, currency string) string {
	digits := "%.2f"
	if x >= 100 {
		digits = "%.0f"
	}
	return fmt.Sprintf(digits, x) + " " + text.Clean(currency, 8)
}

func figure(x float64) string {
	if x < 10 {
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, strings.TrimSpace(what))
}
