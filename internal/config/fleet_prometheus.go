package config

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// FleetPrometheus is the PromQL API from which the role reads the nodes.
type FleetPrometheus struct {
	Tenant     string        `yaml:"tenant"`                               // sent as X-Scope-OrgID
	Headers    []FleetHeader `yaml:"headers"`                              // sent with each query
	Match      []string      `yaml:"match"`                                // matchers that each series must have
	NodeLabels []string      `yaml:"node_labels"`                          // the first that a series has names its node; empty: the usual ones
	Interval   Duration      `yaml:"interval" in:"5s..5m"`                 // between two rounds
	Timeout    Duration      `yaml:"timeout" in:"1s..5m"`                  // of one query
	Lookback   Duration      `yaml:"lookback" in:"1m..1h"`                 // for so long a sample stands
	MaxSeries  int           `yaml:"max_series" in:"1000..10000000"`       // of one answer
	MaxBytes   int           `yaml:"max_bytes" in:"1048576..4294967296"`   // of one answer
	WarmStart  Duration      `yaml:"warm_start" in:"10m..90d" zero:"none"` // how much of the past a start takes in; 0: none
	WarmLimit  Duration      `yaml:"warm_start_timeout" in:"10s..6h"`
	Page
}

// FleetHeader is a header of HTTP. Value or ValueFile is given.
type FleetHeader struct {
	Name      string `yaml:"name"`
	Value     string `yaml:"value"`
	ValueFile string `yaml:"value_file"`
}

func defaultFleetPrometheus() FleetPrometheus {
	return FleetPrometheus{Interval: Duration(30 * time.Second), Timeout: Duration(20 * time.Second), Lookback: Duration(5 * time.Minute), MaxSeries: 500_000, MaxBytes: 128 << 20,
		WarmStart: Duration(24 * time.Hour), WarmLimit: Duration(10 * time.Minute)}
}

// Given reports whether there is an API to read.
func (p *FleetPrometheus) Given() bool { return p.URL != "" }

var (
	promHeader   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,63}$`)
	promLabel    = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]{0,127}$`)
	labelMatcher = regexp.MustCompile(`^\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*"(?:[^"\\\n]|\\.)*"\s*$`)
)

// checkURL refuses a URL that cannot be that of an API. It is not quoted.
func (p *FleetPrometheus) checkURL(key string, fail func(key, format string, args ...any)) {
	if u, err := url.Parse(p.URL); err == nil && (u.RawQuery != "" || u.Fragment != "" || strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), "/api/v1")) {
		fail(key+".url", "holds a query or ends in /api/v1 (not shown), allowed: the URL before /api/v1, without a query")
	}
}

func (p *FleetPrometheus) check(fail func(key, format string, args ...any)) {
	const key = "fleet.prometheus"
	p.Page.check(key, false, fail)
	p.checkURL(key, fail)
	if !plainName(p.Tenant) {
		fail(key+".tenant", "found control characters or more than %d letters, allowed: the name of a tenant", maxName)
	}
	for i, h := range p.Headers {
		h.check(fmt.Sprintf("%s.headers[%d]", key, i), fail)
	}
	for i, m := range p.Match {
		if parts := labelMatcher.FindStringSubmatch(m); parts == nil || parts[1] == "__name__" {
			fail(fmt.Sprintf("%s.match[%d]", key, i), "found %q, allowed: a matcher of one label but __name__, such as cluster=\"a\", with =, !=, =~ or !~", clean(m))
		}
	}
	for i, l := range p.NodeLabels {
		if !promLabel.MatchString(l) || slices.Contains(p.NodeLabels[:i], l) {
			fail(fmt.Sprintf("%s.node_labels[%d]", key, i), "found %q, allowed: the name of a label, each once", clean(l))
		}
	}
	if p.Lookback < 2*p.Interval {
		fail(key+".lookback", "found %s, allowed: %s, twice the interval, to 1h", p.Lookback, 2*p.Interval)
	}
}

func (h *FleetHeader) check(key string, fail func(key, format string, args ...any)) {
	switch {
	case !promHeader.MatchString(h.Name):
		fail(key+".name", "found %q, allowed: the name of a header", clean(h.Name))
	case strings.EqualFold(h.Name, "Authorization"):
		fail(key+".name", "found Authorization, allowed: any other: that comes of bearer_token_file, or of username and password_file")
	}
	if (h.Value != "") == (h.ValueFile != "") {
		fail(key, "found both or none of value and value_file, allowed: one of them")
	}
	if !plainName(h.Value) || maySecret(h.Value) {
		fail(key+".value", "holds what looks like a secret, control characters or more than %d letters (not shown), allowed: a plain value, and value_file for what is secret", maxName)
	}
	checkSecretFile(h.ValueFile, key+".value_file", fail)
}
