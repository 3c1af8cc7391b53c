package owner

import (
	"maps"
	"regexp"
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/text"
)

const (
	// remember is how long what is known of an owner is kept after it was last seen: a
	// job whose processes have ended and that still holds a GPU keeps its team.
	remember = 15 * time.Minute
	// maxIdentities bounds what is kept of owners.
	maxIdentities = 4096
	maxLabelValue = 128
	maxNames      = 64 // containers, services, users of one owner
)

// Rule gives an owner a team and whatever else is to be said of it. It fits an owner
// if each of its patterns that is not nil does; a pattern about something that is not
// known of the owner does not.
type Rule struct {
	Kind, Namespace, Pod, Container, Service, User, Account, Partition *regexp.Regexp
	Labels                                                             map[string]*regexp.Regexp

	Team, CostCenter, Sensitivity, Stage string // empty: the rule does not say
	Critical                             *bool  // nil: the rule does not say
}

// key is an owner without its team.
type key struct{ kind, id string }

// identity is what is known of one owner, gathered from all of its processes and from
// what it was given. The rules look at all of it at once: so it has one team, whoever
// told of it.
type identity struct {
	key
	namespace, pod     string
	account, partition string
	users              set // uids and names of its processes' users on the node
	services           set
	containers         set
	labels             map[string]string
	shown              map[string]string // of labels, those that are exported
	seen               time.Time
}

// identities keeps what is known of owners.
type identities map[key]*identity

// get returns the identity with the key, which may be new, and nil if there are too
// many.
func (ids identities) get(k key, now time.Time) *identity {
	id := ids[k]
	if id == nil {
		if len(ids) >= maxIdentities {
			return nil
		}
		id = &identity{key: k, users: set{}, services: set{}, containers: set{}}
		ids[k] = id
	}
	id.seen = now
	return id
}

// forget drops those that have not been seen for long.
func (ids identities) forget(now time.Time) {
	maps.DeleteFunc(ids, func(_ key, id *identity) bool { return now.Sub(id.seen) > remember })
}

// set is a bounded set of names.
type set map[string]bool

func (s set) add(name string) {
	if name != "" && len(s) < maxNames {
		s[name] = true
	}
}

func (r *Rule) fits(id *identity) bool {
	one := func(re *regexp.Regexp, value string) bool {
		return re == nil || value != "" && re.MatchString(value)
	}
	some := func(re *regexp.Regexp, values set) bool {
		if re == nil {
			return true
		}
		for v := range values {
			if re.MatchString(v) {
				return true
			}
		}
		return false
	}
	if !one(r.Kind, id.kind) || !one(r.Namespace, id.namespace) || !one(r.Pod, id.pod) || !one(r.Account, id.account) ||
		!one(r.Partition, id.partition) || !some(r.Service, id.services) || !some(r.User, id.users) || !some(r.Container, id.containers) {
		return false
	}
	for name, re := range r.Labels {
		value, known := id.labels[name]
		if !known || !re.MatchString(value) {
			return false
		}
	}
	return true
}

// describe makes the owner's workload from the rules. Each field is that of the first
// rule that fits and says something about it.
func describe(id *identity, rules []Rule) collector.Workload {
	w := collector.Workload{Owner: collector.Owner{Kind: id.kind, ID: id.id}, Containers: slices.Sorted(maps.Keys(id.containers))}
	for _, name := range slices.Sorted(maps.Keys(id.shown)) {
		w.Labels = append(w.Labels, collector.Label{Name: name, Value: text.Clean(id.shown[name], maxLabelValue)})
	}
	var critical *bool
	first := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	for i := range rules {
		r := &rules[i]
		if !r.fits(id) {
			continue
		}
		first(&w.Team, r.Team)
		first(&w.CostCenter, r.CostCenter)
		first(&w.Sensitivity, r.Sensitivity)
		first(&w.Stage, r.Stage)
		if critical == nil {
			critical = r.Critical
		}
	}
	w.Critical = critical != nil && *critical
	return w
}
