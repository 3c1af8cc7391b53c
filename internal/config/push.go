package config

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Push is where samples go that nobody can scrape. A change takes a restart.
type Push struct {
	Format   string            `yaml:"format"`                // of PushFormats
	Interval Duration          `yaml:"interval" in:"1s..10m"` // between samples
	Timeout  Duration          `yaml:"timeout" in:"1s..5m"`   // of one request
	Labels   map[string]string `yaml:"labels"`                // that all samples get, beside job and instance
	Headers  map[string]string `yaml:"headers"`               // of requests, such as a tenant's; none is secret
	Buffer   PushBuffer        `yaml:"buffer"`
	Page                       // where to; it is no page here
}

// PushBuffer bounds what waits on the disk while the receiver is away.
type PushBuffer struct {
	MaxMiB int      `yaml:"max_mib" in:"1..1048576"`
	MaxAge Duration `yaml:"max_age" in:"1m..1y"` // what is older is not sent any more
}

// PushFormats are the ways to push.
var PushFormats = []string{"remote_write", "import"}

func defaultPush() Push {
	return Push{Format: "remote_write", Interval: Duration(15 * time.Second), Timeout: Duration(10 * time.Second),
		Labels: map[string]string{}, Headers: map[string]string{}, Buffer: PushBuffer{MaxMiB: 256, MaxAge: Duration(24 * time.Hour)}}
}

// Given reports whether there is a receiver.
func (p *Push) Given() bool { return p.URL != "" }

var labelName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// maxPushLabels is more than tell a node apart.
const maxPushLabels = 32

func (p *Push) check(key string, fail func(key, format string, args ...any)) {
	p.Page.check(key, false, fail)
	if !slices.Contains(PushFormats, p.Format) {
		fail(key+".format", "found %q, allowed: %s", clean(p.Format), strings.Join(PushFormats, ", "))
	}
	if len(p.Labels) > maxPushLabels {
		fail(key+".labels", "found %d, allowed: at most %d", len(p.Labels), maxPushLabels)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Labels)) {
		if !labelName.MatchString(name) || strings.HasPrefix(name, "__") || !plainName(p.Labels[name]) || p.Labels[name] == "" {
			fail(fmt.Sprintf("%s.labels.%s", key, clean(name)), "found what is no label, allowed: a name of letters, digits and _ that does not begin with two of these, and a value of at most %d letters", maxName)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Headers)) {
		if refusal := headerRefusal(name, p.Headers[name]); refusal != "" {
			fail(fmt.Sprintf("%s.headers.%s", key, clean(name)), "%s", refusal)
		}
	}
	if p.URL == "" && p.Page != (Page{}) {
		fail(key+".url", "is missing, allowed: a URL that begins with http:// or https://, as other keys of the receiver are given")
	}
}

var headerName = regexp.MustCompile(`^[A-Za-z0-9-]+$`)

// headerRefusal says why a header may not be set; empty if it may.
func headerRefusal(name, value string) string {
	switch canonical := http.CanonicalHeaderKey(name); {
	case !headerName.MatchString(name) || !plainName(value):
		return "is no header, allowed: a name of letters, digits and -, and a plain value"
	case slices.Contains([]string{"Authorization", "Proxy-Authorization", "Cookie"}, canonical):
		return "would be a secret in the configuration (not shown), allowed: bearer_token_file, or username and password_file"
	case slices.Contains([]string{"Content-Type", "Content-Encoding", "Content-Length", "Host", "User-Agent", "X-Prometheus-Remote-Write-Version"}, canonical):
		return "is set by gpuvigil itself, allowed: others, such as X-Scope-OrgID"
	}
	return ""
}
