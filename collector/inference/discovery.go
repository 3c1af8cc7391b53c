package inference

import (
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/page"
)

const (
	lookEvery    = 30 * time.Second
	againAfter   = 5 * time.Minute // a port that serves no page of an inference server is asked again
	maxFound     = 32              // targets
	maxProcesses = 256             // on the GPUs, that are looked at
)

// discovery finds targets by the sockets of the processes on the GPUs.
type discovery struct {
	sockets *Sockets
	looked  time.Time
	known   map[string]*target // by URL
	refused bool               // as it was logged last
}

// found is what is kept of a target that was found.
type found struct {
	hidden bool // it has never served a page of an inference server
	next   time.Time
}

func newDiscovery(s *Sockets) *discovery { return &discovery{sockets: s, known: map[string]*target{}} }

// targets returns those that are to be read now.
func (d *discovery) targets(s *Inference, snap *collector.Snapshot, now time.Time) []*target {
	if snap != nil && (now.Sub(d.looked) >= lookEvery || now.Before(d.looked)) {
		d.looked = now
		d.look(s, snap)
	}
	var due []*target
	for _, t := range d.known {
		if !now.Before(t.found.next) {
			due = append(due, t)
		}
	}
	slices.SortFunc(due, func(a, b *target) int { return strings.Compare(a.shown, b.shown) })
	return due
}

// look brings the list of targets up to date.
func (d *discovery) look(s *Inference, snap *collector.Snapshot) {
	places, err := d.places(snap)
	if refused := err != nil; refused != d.refused {
		d.refused = refused
		if refused {
			s.cfg.Log.Warn("Not all inference servers on this node's GPUs can be found.", "err", err)
		}
	}
	for u := range d.known {
		if places[u] == nil {
			d.known[u].page.Close()
			delete(d.known, u)
		}
	}
	for u, gpus := range places {
		if t := d.known[u]; t != nil {
			t.GPUs = gpus
			continue
		}
		if len(d.known) >= maxFound || s.configured(u) {
			continue
		}
		t, err := s.target(Target{URL: u, Engine: "auto", GPUs: gpus})
		if err != nil {
			s.cfg.Log.Error("BUG: the URL of a process that listens does not parse.", "err", err)
			continue
		}
		t.found = &found{hidden: true}
		d.known[u] = t
	}
}

// places returns the URLs at which processes on GPUs listen, with the GPUs' uuids.
func (d *discovery) places(snap *collector.Snapshot) (map[string][]string, error) {
	on := map[int][]string{}
	for i := range snap.Processes {
		p := &snap.Processes[i]
		if len(on) < maxProcesses || on[p.PID] != nil {
			on[p.PID] = append(on[p.PID], p.UUID)
		}
	}
	places := map[string][]string{}
	listening, err := d.sockets.Listening(slices.Sorted(maps.Keys(on)))
	for pid, addresses := range listening {
		for _, at := range addresses {
			u := (&url.URL{Scheme: "http", Host: at.String(), Path: "/metrics"}).String()
			places[u] = append(places[u], on[pid]...)
		}
	}
	for u := range places {
		slices.Sort(places[u])
		places[u] = slices.Compact(places[u])
	}
	return places, err
}

// configured reports whether a target of the configuration has the port of the
// URL on this machine.
func (s *Inference) configured(u string) bool {
	at, err := url.Parse(u)
	if err != nil {
		return false
	}
	for _, t := range s.targets {
		c, err := url.Parse(t.URL)
		if err != nil || portOf(c) != portOf(at) {
			continue
		}
		ip, err := netip.ParseAddr(c.Hostname())
		if c.Hostname() == at.Hostname() || c.Hostname() == "localhost" || err == nil && (ip.IsLoopback() || isOwn(ip)) {
			return true
		}
	}
	return false
}

func isOwn(ip netip.Addr) bool {
	own, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(own, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(net.IP(ip.AsSlice()))
	})
}

func portOf(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return strconv.Itoa(map[string]int{"http": 80, "https": 443}[u.Scheme])
}

// judge takes what came of reading a target that was found. A process on a GPU may
// listen for anything: only what has once been an inference server's page can fail.
func (d *discovery) judge(t *target, err error) error {
	if err == nil {
		t.found.hidden = false
		return nil
	}
	if !t.found.hidden {
		return err
	}
	t.found.next = time.Now().Add(againAfter)
	if reason := page.Reason(err); reason == "unreachable" || reason == "timeout" {
		t.found.next = time.Now().Add(lookEvery) // it may still be starting
	}
	return nil
}
