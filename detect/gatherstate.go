package detect

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuvigil/rules"
)

// gathererState is what survives a restart of the role.
type gathererState struct {
	Version   int             `json:"version"`
	Time      time.Time       `json:"time"`
	Nodes     []nodeSeen      `json:"nodes"`
	Findings  []gatheredState `json:"findings"`
	Finished  []Finding       `json:"finished"`
	Incidents []incidentState `json:"incidents"`
	Onsets    []onsetsState   `json:"onsets"`
	Flip      *flipState      `json:"flip,omitempty"`

	Records map[rules.ID]*record `json:"records,omitempty"`
}

type nodeSeen struct {
	Node  string    `json:"node"`
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"`
}

type gatheredState struct {
	Finding
	Source   string    `json:"source"`
	First    time.Time `json:"first"`
	News     bool      `json:"news,omitempty"`
	Looks    int       `json:"looks"`
	Incident string    `json:"incident,omitempty"` // empty: it waits for its second look
}

type onsetsState struct {
	Rule   rules.ID  `json:"rule"`
	Cause  string    `json:"cause"`
	First  time.Time `json:"first"`
	At     time.Time `json:"at"`
	Events float64   `json:"events"`
}

type flipState struct {
	Finding  Finding   `json:"finding"`
	Incident string    `json:"incident"`
	Nodes    int       `json:"nodes"`
	Count    int       `json:"count"`
	Calm     time.Time `json:"calm,omitzero"`
}

// Save returns what must survive a restart: findings, incidents, and how often findings
// of each kind begin.
func (g *Gatherer) Save() ([]byte, error) {
	s := gathererState{Version: 1, Time: g.now, Finished: g.finished, Records: g.records}
	for name, n := range g.nodes {
		s.Nodes = append(s.Nodes, nodeSeen{name, n.Since, n.Last})
	}
	slices.SortFunc(s.Nodes, func(a, b nodeSeen) int { return strings.Compare(a.Node, b.Node) })
	for _, t := range g.order {
		f := gatheredState{Finding: t.Finding, Source: t.source, First: t.first, News: t.news, Looks: t.looks}
		if t.incident != nil {
			f.Incident = t.incident.ID
		}
		s.Findings = append(s.Findings, f)
	}
	for _, in := range g.incidents.all {
		s.Incidents = append(s.Incidents, incidentState{in.Incident, in.lastSince, in.told})
	}
	for k, o := range g.onsets {
		s.Onsets = append(s.Onsets, onsetsState{k.rule, k.cause, o.First, o.At, o.Events})
	}
	slices.SortFunc(s.Onsets, func(a, b onsetsState) int {
		return strings.Compare(string(a.Rule)+"\x00"+a.Cause, string(b.Rule)+"\x00"+b.Cause)
	})
	if p := g.flip; p != nil && p.finding.incident != nil {
		s.Flip = &flipState{p.finding.Finding, p.finding.incident.ID, p.nodes, p.count, p.calm}
	}
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode the incidents across nodes: %w", err)
	}
	return data, nil
}

// Restore takes up what Save returned. It is called before the first Gather. An error
// changes nothing.
func (g *Gatherer) Restore(data []byte) error {
	var s gathererState
	if err := decodeState(data, &s, 1); err != nil {
		return err
	}
	g.now, g.finished = s.Time, s.Finished
	g.incidents.all = nil
	for _, in := range s.Incidents {
		if len(in.Members) > 0 && len(in.Members) <= maxMembers {
			g.incidents.all = append(g.incidents.all, &incident{Incident: in.Incident, lastSince: in.LastSince, told: in.Told})
		}
	}
	clear(g.nodes)
	for _, n := range s.Nodes {
		g.nodes[n.Node] = &heardNode{Since: n.Since, Last: n.Last}
	}
	clear(g.findings)
	g.order = nil
	for i := range s.Findings {
		g.restore(&s.Findings[i])
	}
	clear(g.onsets)
	for _, o := range s.Onsets {
		g.onsets[onsetKey{o.Rule, o.Cause}] = &onsets{o.First, o.At, o.Events}
	}
	clear(g.records)
	for id, r := range s.Records {
		if r != nil {
			g.records[id] = r
		}
	}
	g.flip = nil
	if p := s.Flip; p != nil {
		g.flip = &flip{finding: gathered{tracked: tracked{Finding: p.Finding}, joined: true}, nodes: p.Nodes, count: p.Count, calm: p.Calm}
		if g.flip.finding.linkAcross(&g.incidents, p.Incident); g.flip.finding.incident == nil {
			g.flip = nil
		}
	}
	g.changed = true
	g.publish(true)
	return nil
}

func (g *Gatherer) restore(f *gatheredState) {
	k := gatherKey{f.Node, f.Rule, key{f.Subject, f.Cause}}
	if f.State != Firing || g.findings[k] != nil || len(g.findings) >= maxGathered {
		return
	}
	t := &gathered{tracked: tracked{Finding: f.Finding}, source: f.Source, first: f.First, news: f.News, looks: f.Looks}
	if f.Incident != "" {
		t.joined = true
		t.linkAcross(&g.incidents, f.Incident)
	}
	g.findings[k] = t
	g.order = append(g.order, t)
}

// linkAcross finds the finding's place in its incident again: behind the members if that
// had no room for it.
func (t *gathered) linkAcross(is *incidents, id string) {
	i := slices.IndexFunc(is.all, func(in *incident) bool { return in.ID == id })
	if i < 0 {
		return
	}
	t.incident = is.all[i]
	t.member = slices.IndexFunc(t.incident.Members, func(f Finding) bool {
		return f.Subject == t.Subject && f.Rule == t.Rule && f.Cause == t.Cause && f.Node == t.Node
	})
}
