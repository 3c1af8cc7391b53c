package detect

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// UnknownUseConfig is what the detector of unknown use can be told. The zero value works.
type UnknownUseConfig struct {
	Controlled bool // not everybody may use the pool as he likes: what is unknown is a ticket
}

const (
	useLearned = 7 * 24 * time.Hour  // after which what was never seen is unknown
	useNew     = 24 * time.Hour      // for so long after it was first seen
	useKept    = 60 * 24 * time.Hour // without being seen
	maxUses    = 1024                // names, and as many users
	maxUseName = 64                  // bytes of a name that tell it from others
	maxUnknown = 64                  // subjects and kinds of what is unknown at a time
)

// The causes of rule unknown_use.
const (
	unknownProcess = "process"
	unknownUser    = "user"
)

// UnknownUse watches for names of processes, and users, that were never seen on the
// node's GPUs.
type UnknownUse struct {
	cfg   UnknownUseConfig
	uses  [2]map[string]*use // by name, and by uid
	first time.Time          // that a list of processes was seen
	at    time.Time          // of the newest list
	now   time.Time
	told  []*unknownOf        // in the order in which they were seen
	keys  map[usedName]string // of names and uids, so that nothing is made anew for each list
}

// use is when something was seen.
type use struct {
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

type usedName struct {
	kind int
	text string
	uid  int
}

// unknownOf is what is unknown of one subject in the newest list.
type unknownOf struct {
	subject  Subject
	kind     int // of what
	owner    collector.Owner
	example  string
	first    time.Time
	number   int
	evidence Evidence
}

// NewUnknownUse returns the detector of rule unknown_use.
func NewUnknownUse(cfg UnknownUseConfig) *UnknownUse {
	return &UnknownUse{cfg: cfg, uses: [2]map[string]*use{{}, {}}, keys: map[usedName]string{}}
}

// Rule returns unknown_use.
func (d *UnknownUse) Rule() *rules.Rule { return rules.Get(rules.IDUnknownUse) }

// Observe looks at each new list of processes, and reports what is unknown in the newest.
func (d *UnknownUse) Observe(s *collector.Snapshot, report func(Observation)) {
	d.now = s.Time
	at := time.Time{}
	for i := range s.GPUs {
		at = later(at, s.GPUs[i].SampledAt(metric.Processes))
	}
	if at.After(d.at) {
		d.look(s, at)
	}
	for _, u := range d.told {
		o := Observation{Subject: u.subject, Cause: [2]string{unknownProcess, unknownUser}[u.kind], Owner: u.owner, Severity: rules.Info}
		if u.number > 0 {
			o.Score, o.At, o.Evidence = 1, u.first, u.evidence
			if d.cfg.Controlled {
				o.Severity = rules.Ticket // a fact against a policy: nothing statistical about it
			} else {
				o.Surprise = d.surprise(u.kind)
			}
		}
		report(o)
	}
}

// look takes up a list of processes.
func (d *UnknownUse) look(s *collector.Snapshot, at time.Time) {
	if d.first.IsZero() {
		d.first = at
	}
	d.at = at
	d.told = slices.DeleteFunc(d.told, func(u *unknownOf) bool { return u.number == 0 }) // it was reported to be gone
	for _, u := range d.told {
		u.number = 0
	}
	for i := range s.Processes {
		p := &s.Processes[i]
		if p.Service() {
			continue
		}
		if p.Name != "" {
			d.see(s, p, 0, d.key(usedName{text: p.Name}), at)
		}
		if p.UID >= 0 {
			d.see(s, p, 1, d.key(usedName{kind: 1, uid: p.UID}), at)
		}
	}
	for _, u := range d.told {
		if u.number > 0 {
			u.evidence = d.evidence(u.kind, u)
		}
	}
}

// see takes up that something was used, and whether it is unknown.
func (d *UnknownUse) see(s *collector.Snapshot, p *collector.Process, kind int, key string, at time.Time) {
	v := d.uses[kind][key]
	if v == nil {
		if !d.room(kind) {
			return
		}
		v = &use{First: at}
		d.uses[kind][key] = v
	}
	v.Last = at
	if v.First.Sub(d.first) < useLearned || at.Sub(v.First) >= useNew {
		return
	}
	subject := Subject{p.Owner.Kind, p.Owner.ID}
	if subject.Kind == "" || subject.ID == "" {
		subject = Subject{"node", s.Node.Name}
	}
	i := slices.IndexFunc(d.told, func(u *unknownOf) bool { return u.subject == subject && u.kind == kind })
	if i < 0 {
		if len(d.told) >= maxUnknown {
			return
		}
		i = len(d.told)
		d.told = append(d.told, &unknownOf{subject: subject, kind: kind, owner: p.Owner})
	}
	u := d.told[i]
	if u.number++; u.number == 1 {
		u.example, u.first = key, v.First
	}
}

// room makes room for something new, by what was not seen for long.
func (d *UnknownUse) room(kind int) bool {
	return room(d.uses[kind], maxUses, useKept, func(v *use) time.Time { return v.Last }, d.now)
}

// key returns what a name or a uid is known by. Digits do not tell names apart: workers
// and versions are numbered.
func (d *UnknownUse) key(n usedName) string {
	if k, ok := d.keys[n]; ok {
		return k
	}
	if len(d.keys) >= 4*maxUses {
		clear(d.keys)
	}
	k := strconv.Itoa(n.uid)
	if n.kind == 0 {
		k = withoutDigits(n.text)
	}
	d.keys[n] = k
	return k
}

func withoutDigits(name string) string {
	var b strings.Builder
	number := false
	for _, r := range name {
		digit := r >= '0' && r <= '9'
		if b.Len() >= maxUseName {
			break
		}
		switch {
		case number && r == '.':
			continue // of a version
		case !digit:
			b.WriteRune(r)
		case !number:
			b.WriteByte('#')
		}
		number = digit
	}
	return b.String()
}

// surprise is of something new where new things come at the rate that was seen: one more
// than there were, for what never happened may happen.
func (d *UnknownUse) surprise(kind int) float64 {
	known, weeks := 0, d.now.Sub(d.first).Hours()/hoursPerWeek
	for _, v := range d.uses[kind] {
		if v.First.Sub(d.first) >= useLearned {
			known++
		}
	}
	return surpriseOf(float64(max(known, 1)) / max(weeks-1, 1))
}

func (d *UnknownUse) evidence(kind int, u *unknownOf) Evidence {
	want := 0.0
	e := Evidence{Observed: float64(u.number), Want: &want, Confidence: Certain,
		Expected: "names and users that were seen here before", Why: fmt.Sprintf("of the %s that the node was watched", span(d.at.Sub(d.first)))}
	if kind == 1 {
		// Who it is says the subject, as far as the configuration shows users.
		e.Title = "User never seen on the node's GPUs"
		e.Seen = fmt.Sprintf("%s of a user that had never used a GPU of this node before %s", count(u.number, "process", "processes"), u.first.UTC().Format(minuteLayout))
		return e
	}
	e.Title = "Program never seen on the node's GPUs"
	e.Seen = fmt.Sprintf("%s by names such as %q, never seen on a GPU of this node before %s", count(u.number, "process", "processes"), u.example, u.first.UTC().Format(minuteLayout))
	return e
}

type unknownUseMemory struct {
	Version   int             `json:"version"`
	First     time.Time       `json:"first"`
	Processes map[string]*use `json:"processes"`
	Users     map[string]*use `json:"users"` // by uid
}

// Save returns which names and users have been seen.
func (d *UnknownUse) Save() ([]byte, error) {
	return json.Marshal(unknownUseMemory{Version: 1, First: d.first, Processes: d.uses[0], Users: d.uses[1]})
}

// Restore takes up what Save returned.
func (d *UnknownUse) Restore(data []byte) error {
	var m unknownUseMemory
	if err := decodeState(data, &m, 1); err != nil {
		return err
	}
	uses := [2]map[string]*use{{}, {}}
	for kind, of := range []map[string]*use{m.Processes, m.Users} {
		for k, v := range of {
			if v == nil {
				return fmt.Errorf("its memory of %q is empty", k)
			}
			uses[kind][k] = v
		}
	}
	d.uses, d.first = uses, m.First
	return nil
}

// Shift moves when things were seen.
func (d *UnknownUse) Shift(by time.Duration) {
	shift(by, &d.now, &d.first, &d.at)
	for _, of := range d.uses {
		for _, v := range of {
			shift(by, &v.First, &v.Last)
		}
	}
	for _, u := range d.told {
		shift(by, &u.first)
	}
}
