package main

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"gpuvigil/detect"
)

// How much of the time around an incident a link to a dashboard shows.
const (
	linkBefore = time.Hour
	linkAfter  = 30 * time.Minute
)

// dashboardLink is the dashboard at the incident's time and GPU. In base, {node} stands
// for the node's name; what base says itself is not changed.
func dashboardLink(base, node string, i *detect.Incident) string {
	u, err := url.Parse(strings.ReplaceAll(base, "{node}", url.QueryEscape(node)))
	if base == "" || err != nil {
		return ""
	}
	since, gpu := i.Opened, -1
	if len(i.Members) > 0 {
		gpu = i.Members[0].GPUIndex
		if at := i.Members[0].Since; !at.IsZero() {
			since = at
		}
	}
	q := u.Query()
	set := func(key, value string) {
		if !q.Has(key) {
			q.Set(key, value)
		}
	}
	millis := func(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }
	set("from", millis(since.Add(-linkBefore)))
	if i.State == detect.Resolved {
		set("to", millis(i.Resolved.Add(linkAfter)))
	} else {
		set("to", "now")
	}
	if gpu >= 0 && len(i.Members) == 1 {
		set("var-gpu", strconv.Itoa(gpu))
	}
	u.RawQuery = q.Encode()
	return u.String()
}
