package inventory

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"gpuvigil/collector"
)

// The bounds of what is remembered and told.
const (
	maxRuntimes = 1024 // versions that are remembered of owners who have ended, too
	maxChanges  = 64   // events of one look
)

// memory is what the last look found, and the versions that owners who are not here
// any more had last: a service that comes back with another one has changed.
type memory struct {
	known bool // somebody has looked
	last  *collector.Inventory
	past  []collector.Runtime // Processes is 0; the most recent last
}

// take remembers an inventory as the last one.
func (m *memory) take(i *collector.Inventory) {
	if m.last != nil {
		m.past = append(m.past, m.last.Runtimes...)
	}
	m.known = true
	last := *i
	last.Runtimes = nil
	for _, r := range i.Runtimes {
		if r.Processes == 0 {
			m.past = append(m.past, r)
			continue
		}
		last.Runtimes = append(last.Runtimes, r)
	}
	m.last = &last
	m.forget()
}

// forget drops from the past what is known better now, and what is too much.
func (m *memory) forget() {
	current := map[versionKey]bool{}
	for _, r := range m.last.Runtimes {
		current[keyOf(r)] = true
	}
	kept := make([]collector.Runtime, 0, len(m.past))
	seen := map[collector.Runtime]bool{}
	for _, r := range slices.Backward(m.past) {
		if r.Processes = 0; !current[keyOf(r)] && !seen[r] && len(kept) < maxRuntimes {
			seen[r] = true
			kept = append(kept, r)
		}
	}
	slices.Reverse(kept)
	m.past = kept
}

// inventory returns all that is remembered.
func (m *memory) inventory() *collector.Inventory {
	if m.last == nil {
		return nil
	}
	i := *m.last
	i.Runtimes = append(slices.Clone(m.past), m.last.Runtimes...)
	return &i
}

// versionKey is a component of an owner. A team is a name that the configuration
// gives: another one changes nothing.
type versionKey struct{ kind, id, component string }

func keyOf(r collector.Runtime) versionKey {
	return versionKey{r.Owner.Kind, r.Owner.ID, r.Component}
}

// compare tells what has changed since the look before, and remembers the new one.
// The first look tells nothing. What an owner
// does not have any more is told if that is sure.
func (m *memory) compare(now *collector.Inventory, unsure func(collector.Owner) bool) []collector.Event {
	if !m.known {
		m.take(now)
		return nil
	}
	before := m.inventory()
	var events []collector.Event
	tell := func(e collector.Event) {
		if e.Time = now.At; len(events) < maxChanges {
			events = append(events, e)
		}
	}
	versions(before.Runtimes, now.Runtimes, tell)
	came(items(before), items(now), unsure, tell)
	m.take(now)
	return events
}

// versions tells of each version that is new for an owner who had another one.
func versions(before, now []collector.Runtime, tell func(collector.Event)) {
	had := map[versionKey][]string{}
	for _, r := range before {
		if r.Version != unknown {
			had[keyOf(r)] = append(had[keyOf(r)], r.Version)
		}
	}
	for _, r := range now {
		old := had[keyOf(r)]
		if len(old) == 0 || r.Version == unknown || slices.Contains(old, r.Version) {
			continue
		}
		tell(collector.Event{Kind: collector.VersionEvent, Owner: r.Owner, Component: r.Component, From: strings.Join(old, ", "), To: r.Version})
	}
}

// item is what came or went, or now has another value.
type item struct {
	owner           collector.Owner
	component, name string // of what it is
	value, text     string
}

// items lists what an inventory has besides runtimes.
func items(i *collector.Inventory) []item {
	var all []item
	for _, m := range i.Images {
		all = append(all, item{m.Owner, "image", m.Container, m.Name + at(m.Digest), ""})
	}
	for _, d := range i.Datasets {
		all = append(all, item{d.Owner, "dataset", d.Kind + " " + d.Source + " " + d.Mount, cmp.Or(d.Source, d.Mount), d.Kind})
	}
	for _, a := range i.APIs {
		port := strconv.Itoa(a.Port)
		all = append(all, item{a.Owner, "api", port, "port " + port, a.Scope})
		if a.Model != "" {
			all = append(all, item{a.Owner, "model", port + " " + a.Model, a.Model, ""})
		}
	}
	return all
}

func at(digest string) string {
	if digest == "" {
		return ""
	}
	return "@" + digest
}

type itemKey struct{ kind, id, component, name string }

func (i item) key() itemKey { return itemKey{i.owner.Kind, i.owner.ID, i.component, i.name} }

// came tells what came, what went, and what has another value.
func came(before, now []item, unsure func(collector.Owner) bool, tell func(collector.Event)) {
	had, has := map[itemKey]item{}, map[itemKey]item{}
	for _, i := range before {
		had[i.key()] = i
	}
	for _, i := range now {
		if _, twice := has[i.key()]; twice {
			continue
		}
		has[i.key()] = i
		if was, ok := had[i.key()]; !ok || was.value != i.value {
			tell(collector.Event{Kind: collector.InventoryEvent, Owner: i.owner, Component: i.component, From: was.value, To: i.value, Text: i.text})
		}
	}
	for _, i := range before {
		if _, still := has[i.key()]; !still && !unsure(i.owner) {
			has[i.key()] = i // tell it once
			tell(collector.Event{Kind: collector.InventoryEvent, Owner: i.owner, Component: i.component, From: i.value, Text: i.text})
		}
	}
}
