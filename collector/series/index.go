package series

import (
	"hash/maphash"
	"slices"
	"strings"
	"unique"
)

// index has all series. Those with the same labels but for the name are one set, as
// nearly all series of a GPU are, so that labels are kept once for each.
type index struct {
	seed    maphash.Seed
	sets    map[uint64]*set
	schemas map[string]*schema
	series  int
}

// schema is the names of a set's labels, in the order in which they came first.
type schema struct {
	names [][]byte
	text  []string
}

// set is the series of one kind with the same labels.
type set struct {
	kind      kind
	forgotten bool // it is in no index any more
	schema    *schema
	values    []unique.Handle[string]
	hash      uint64
	next      *set // with the same hash

	target *target // nil: it is of no node
	names  []*name // of the series
	series []*Series
}

func newIndex() index {
	return index{seed: maphash.MakeSeed(), sets: map[uint64]*set{}, schemas: map[string]*schema{}}
}

// hash is the same for the labels in any order.
func (x *index) hash(k kind, labels []Label) uint64 {
	sum := uint64(k) + 1
	for i := range labels {
		if l := &labels[i]; l.Name != "__name__" && l.Name != "" && l.Value != "" {
			// Of the names that tell apart which label has a value this much is enough.
			name := uint64(len(l.Name))<<8 | uint64(l.Name[len(l.Name)-1]) + 1
			sum += maphash.String(x.seed, l.Value) * (name<<1 | 1)
		}
	}
	return sum
}

// is reports whether the set has these labels.
func (s *set) is(k kind, labels []Label) bool {
	if s.kind != k {
		return false
	}
	n := 0
	for i := range labels {
		l := &labels[i]
		if l.Name == "__name__" || l.Name == "" || l.Value == "" {
			continue
		}
		if n >= len(s.values) {
			return false
		}
		at := n // most come in the same order each time
		if s.schema.text[n] != l.Name {
			if at = slices.Index(s.schema.text, l.Name); at < 0 {
				return false
			}
		}
		if s.values[at].Value() != l.Value {
			return false
		}
		n++
	}
	return n == len(s.values)
}

// value returns a label's value, "" if there is none.
func (s *set) value(label string) string {
	for i, name := range s.schema.text {
		if name == label {
			return s.values[i].Value()
		}
	}
	return ""
}

func (x *index) find(k kind, hash uint64, labels []Label) *set {
	for s := x.sets[hash]; s != nil; s = s.next {
		if s.is(k, labels) {
			return s
		}
	}
	return nil
}

// add makes a set of the labels.
func (x *index) add(k kind, hash uint64, labels []Label) *set {
	s := &set{kind: k, hash: hash, next: x.sets[hash]}
	var key strings.Builder
	for i := range labels {
		if l := &labels[i]; l.Name != "__name__" && l.Name != "" && l.Value != "" {
			key.WriteString(l.Name)
			key.WriteByte(0xff)
			s.values = append(s.values, unique.Make(l.Value))
		}
	}
	s.values = slices.Clip(s.values)
	if s.schema = x.schemas[key.String()]; s.schema == nil {
		s.schema = &schema{}
		for name := range strings.SplitSeq(strings.TrimSuffix(key.String(), "\xff"), "\xff") {
			s.schema.names, s.schema.text = append(s.schema.names, []byte(name)), append(s.schema.text, name)
		}
		if len(s.values) == 0 {
			s.schema = &schema{}
		}
		x.schemas[key.String()] = s.schema
	}
	x.sets[hash] = s
	return s
}

// drop takes the set out of the index.
func (x *index) drop(s *set) {
	s.forgotten = true
	x.series -= len(s.series)
	if first := x.sets[s.hash]; first == s {
		if s.next == nil {
			delete(x.sets, s.hash)
		} else {
			x.sets[s.hash] = s.next
		}
		return
	}
	for o := x.sets[s.hash]; o != nil; o = o.next {
		if o.next == s {
			o.next = s.next
			return
		}
	}
}

// find returns the series, which may be new; nil and the reason if it cannot be.
func (a *Assembler) find(n *name, labels []Label) (*Series, refusal) {
	hash := a.index.hash(n.kind, labels)
	s := a.index.find(n.kind, hash, labels)
	if s != nil {
		if i := slices.Index(s.names, n); i >= 0 {
			return s.series[i], 0
		}
	}
	if a.index.series >= a.cfg.MaxSeries {
		a.limit("series", a.cfg.MaxSeries)
		return nil, seriesLimit
	}
	if s == nil {
		s = a.index.add(n.kind, hash, labels)
		if reason := a.enter(s); reason != 0 {
			a.index.drop(s)
			return nil, reason
		}
	}
	return a.append(s, n), 0
}

func (a *Assembler) append(s *set, n *name) *Series {
	made := &Series{set: s, name: n, at: never}
	s.names, s.series = append(s.names, n), append(s.series, made)
	a.index.series++
	return made
}

// again returns the series in place of one that was forgotten.
func (a *Assembler) again(old *Series) *Series {
	labels := make([]Label, len(old.set.values))
	for i, v := range old.set.values {
		labels[i] = Label{old.set.schema.text[i], v.Value()}
	}
	s, reason := a.find(old.name, labels)
	if s == nil {
		a.tally.refuse(reason)
	}
	return s
}

// limit logs the first time that a limit is met.
func (a *Assembler) limit(what string, most int) {
	if !a.limited {
		a.limited = true
		a.cfg.Log.Error("There are more "+what+" than the limit allows: those beyond it are left out. Ask for fewer by labels, raise the limit, or share the work between several processes.", "limit", most)
	}
}
