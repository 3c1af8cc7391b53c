package alerting

import (
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/alertmanager/pkg/labels"
	"github.com/prometheus/common/model"

	"gpuvigil/detect"
)

// Route says who is told of the incidents that it matches. It is a node of
// Alertmanager's tree and means what it means there; what is inherited there has
// been filled in.
type Route struct {
	Receiver string // empty: nobody
	Matchers labels.Matchers
	Continue bool

	Mute, Active []string      // names of time intervals
	Repeat       time.Duration // after which what still fires rings again; 0: it does not
	Mentions     []string      // ids of users and groups that a page calls
	Routes       []*Route
}

// Match returns the routes that a set of labels takes, as Alertmanager's does: of each
// level the first that matches, and those behind it while they say continue; where none
// below matches, the route itself.
func (r *Route) Match(set model.LabelSet) []*Route {
	if !r.Matchers.Matches(set) {
		return nil
	}
	var all []*Route
	for _, below := range r.Routes {
		found := below.Match(set)
		all = append(all, found...)
		if len(found) > 0 && !below.Continue {
			break
		}
	}
	if len(all) == 0 {
		all = []*Route{r}
	}
	return all
}

// Labels returns what matchers see of one finding of an incident. The severity is the
// incident's: who is told of a page is told of all of it.
func Labels(i *detect.Incident, f *detect.Finding, cluster, node string) model.LabelSet {
	set := model.LabelSet{"severity": model.LabelValue(i.Severity.String())}
	add := func(name model.LabelName, value string) {
		if value != "" {
			set[name] = model.LabelValue(value)
		}
	}
	add("cluster", cluster)
	add("node", node)
	add("rule", string(i.Rule))
	add("cause", i.Cause)
	yes := map[bool]string{true: "true"}
	add("drill", yes[i.Drill])
	if f == nil {
		return set
	}
	add("node", f.Node)
	add("rule", string(f.Rule))
	add("cause", f.Cause)
	add("subject", f.Subject.String())
	add("subject_kind", f.Subject.Kind)
	add("model", f.GPUModel)
	if f.GPUIndex >= 0 {
		add("gpu", strconv.Itoa(f.GPUIndex))
	}
	if f.Subject.Kind == "gpu" {
		add("uuid", f.Subject.ID)
	}
	if f.Owner.Kind != "" {
		add("owner", f.Owner.String())
		add("owner_kind", f.Owner.Kind)
	}
	add("team", f.Owner.Team)
	add("critical", yes[f.Critical])
	add("simulated", yes[f.Simulated])
	return set
}

// labelSets returns the labels of each finding of an incident that still fires, of all
// if none does: it goes where one of them would go.
func labelSets(i *detect.Incident, cluster, node string) []model.LabelSet {
	var firing, all []model.LabelSet
	for k := range i.Members {
		set := Labels(i, &i.Members[k], cluster, node)
		all = append(all, set)
		if i.Members[k].State == detect.Firing {
			firing = append(firing, set)
		}
	}
	switch {
	case len(firing) > 0:
		return firing
	case len(all) > 0:
		return all
	}
	return []model.LabelSet{Labels(i, nil, cluster, node)}
}

// routesTo returns the routes on which an incident comes to a receiver.
func routesTo(root *Route, receiver string, sets []model.LabelSet) []*Route {
	var out []*Route
	for _, set := range sets {
		for _, r := range root.Match(set) {
			if r.Receiver == receiver && !slices.Contains(out, r) {
				out = append(out, r)
			}
		}
	}
	return out
}
