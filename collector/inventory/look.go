package inventory

import (
	"cmp"
	"maps"
	"net/url"
	"path"
	"slices"
	"strconv"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/text"
)

// look is one look at all processes: it sums up by owner.
type look struct {
	source    *Source
	snap      *collector.Snapshot
	processes []*collector.Process // each once
	absent    []string
	unread    []int                    // by metric.UnreadReason
	partial   map[collector.Owner]bool // not all of its processes were read
	blind     bool                     // not all processes are known

	runtimes map[collector.Runtime]int // without Processes, which are counted
	images   map[collector.Image]bool
	datasets map[collector.Dataset]bool
	apis     map[apiKey]*collector.API
	denied   error // why images are not known
}

type apiKey struct {
	owner collector.Owner
	port  int
	model string
}

func newLook(s *Source, snap *collector.Snapshot, absent []string) *look {
	l := &look{
		source: s, snap: snap, absent: absent, unread: make([]int, len(metric.UnreadReason.Values)), partial: map[collector.Owner]bool{},
		runtimes: map[collector.Runtime]int{}, images: map[collector.Image]bool{}, datasets: map[collector.Dataset]bool{}, apis: map[apiKey]*collector.API{},
	}
	for i := range snap.GPUs {
		g := &snap.GPUs[i]
		l.blind = l.blind || g.Present && (g.Hung || !g.Has(metric.ProcessCount))
	}
	here := map[identity]bool{}
	for i := range snap.Processes {
		p := &snap.Processes[i]
		id := identity{p.PID, p.Start}
		if here[id] {
			continue
		}
		here[id] = true
		if _, seen := s.known[id]; !seen && p.Owner == (collector.Owner{}) && s.memory.known {
			s.known[id] = reading{} // its owner may be known by the next look: nothing is to be told of as another's until then
			continue
		}
		if len(l.processes) < maxProcesses {
			l.processes = append(l.processes, p)
		}
	}
	if extra := len(here) - maxProcesses; extra > 0 {
		l.absent = append(l.absent, strconv.Itoa(extra)+" processes: at most "+strconv.Itoa(maxProcesses)+" are looked at")
	}
	maps.DeleteFunc(s.known, func(id identity, _ reading) bool { return !here[id] })
	return l
}

// unsure reports whether what an owner no longer has may only not have been seen.
func (l *look) unsure(o collector.Owner) bool {
	return l.blind || l.partial[o] || o == (collector.Owner{}) && len(l.partial) > 0
}

// take adds what was found in a process.
func (l *look) take(p *collector.Process, r reading) {
	if r.unread != "" {
		l.unread[metric.UnreadReason.Index(r.unread)]++
		l.partial[p.Owner] = true
	}
	for _, part := range r.parts {
		l.runtimes[collector.Runtime{Owner: p.Owner, Component: part.component, Version: part.version}]++
	}
	if r.image.name != "" {
		l.images[collector.Image{Owner: p.Owner, Container: text.Clean(p.Container, maxShown), Name: r.image.name, Digest: r.image.digest}] = true
	}
	if r.imageErr != nil && l.denied == nil {
		l.denied = r.imageErr
	}
	for _, d := range r.data {
		owner := p.Owner
		if d.everybody {
			owner = collector.Owner{}
		}
		l.datasets[collector.Dataset{Owner: owner, Kind: d.kind, Source: d.source, Mount: d.point}] = true
	}
	for _, s := range r.served {
		a := l.api(p.Owner, s.port, "")
		a.Scope = wider(a.Scope, s.scope)
		a.Engine = cmp.Or(a.Engine, engineOf(r.parts))
	}
}

func engineOf(parts []part) string {
	for _, e := range engines {
		if slices.ContainsFunc(parts, func(p part) bool { return p.component == e }) {
			return e
		}
	}
	return ""
}

func (l *look) api(owner collector.Owner, port int, model string) *collector.API {
	key := apiKey{owner, port, model}
	if l.apis[key] == nil {
		l.apis[key] = &collector.API{Owner: owner, Port: port, Model: model}
	}
	return l.apis[key]
}

// serve adds the models of an inference server. Who holds its port is known if that
// was looked at; else whoever alone uses its GPUs.
func (l *look) serve(e *collector.Endpoint) {
	port, tls, ok := addressOf(e.URL)
	if !ok {
		return
	}
	var owners []collector.Owner
	var scope string
	for _, p := range l.processes {
		if len(e.GPUs) > 0 && !slices.Contains(e.GPUs, p.UUID) {
			continue
		}
		if found := l.apis[apiKey{p.Owner, port, ""}]; found != nil {
			owners, scope = []collector.Owner{p.Owner}, found.Scope
			break
		}
		if !slices.Contains(owners, p.Owner) {
			owners = append(owners, p.Owner)
		}
		scope = wider(scope, l.listensAt(p, port))
	}
	var owner collector.Owner
	if len(owners) == 1 {
		owner = owners[0]
	}
	a := l.api(owner, port, text.Clean(e.Model, maxShown))
	a.Scope, a.TLS, a.Engine = cmp.Or(a.Scope, scope), &tls, cmp.Or(e.Engine, a.Engine)
	a.Approved = approved(l.source.cfg.Approved, e.Model)
}

// listensAt returns the scope of the port in the process's network namespace, empty
// if nobody there listens at it. It takes no right beyond that to see the process.
func (l *look) listensAt(p *collector.Process, port int) string {
	handle, err := openProcess(l.source.cfg.ProcFS, p.PID, p.Start)
	if err != nil {
		return ""
	}
	sockets, err := handle.listeners()
	if handle.Close() != nil || err != nil {
		return ""
	}
	scope := ""
	for _, s := range sockets {
		if s.port == port {
			scope = wider(scope, s.scope)
		}
	}
	return scope
}

// addressOf returns the port of a URL and whether it is spoken to with TLS.
func addressOf(link string) (port int, tls, ok bool) {
	u, err := url.Parse(link)
	if err != nil {
		return 0, false, false
	}
	tls = u.Scheme == "https"
	standard := map[bool]string{false: "80", true: "443"}[tls]
	port, err = strconv.Atoi(cmp.Or(u.Port(), standard))
	return port, tls, err == nil
}

// approved says whether a model may be served; nil if there is no list or no name.
func approved(globs []string, model string) *bool {
	if globs == nil || model == "" {
		return nil
	}
	yes := slices.ContainsFunc(globs, func(g string) bool {
		ok, err := path.Match(g, model)
		return ok && err == nil // the configuration has refused globs that are none
	})
	return &yes
}

// finish returns the inventory.
func (l *look) finish(now time.Time) *collector.Inventory {
	for i := range l.snap.Endpoints {
		l.serve(&l.snap.Endpoints[i])
	}
	for key, a := range l.apis { // a port whose models are known is not told once more without
		if key.model == "" && l.modelAt(key) {
			delete(l.apis, key)
			continue
		}
		if key.model != "" && a.Engine == "" {
			a.Engine = unknown
		}
	}
	i := &collector.Inventory{At: now, Absent: l.absent}
	for r, n := range l.runtimes {
		r.Processes = n
		i.Runtimes = append(i.Runtimes, r)
	}
	i.Images = slices.Collect(maps.Keys(l.images))
	i.Datasets = slices.Collect(maps.Keys(l.datasets))
	for _, a := range l.apis {
		i.APIs = append(i.APIs, *a)
	}
	for n, reason := range metric.UnreadReason.Values {
		if l.unread[n] > 0 {
			i.Unread = append(i.Unread, collector.Unread{Reason: reason, Processes: l.unread[n]})
		}
	}
	if !l.source.cfg.Runtimes {
		i.Absent = append(i.Absent, "libraries, frameworks and listening sockets of processes: off (inventory.runtimes)")
	}
	if l.denied != nil && len(i.Images) == 0 {
		i.Absent = append(i.Absent, "images: "+l.denied.Error())
	}
	i.Sort()
	return i
}

func (l *look) modelAt(without apiKey) bool {
	for key := range l.apis {
		if key.model != "" && key.owner == without.owner && key.port == without.port {
			return true
		}
	}
	return false
}
