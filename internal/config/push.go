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
	Format   string            `yaml:"format"`   // of PushFormats
	Interval Duration          `yaml:"interval"` // between samples
	Timeout  Duration          `yaml:"timeout"`  // of one request
	Labels   map[string]string `yaml:"labels"`   // that all samples get, beside job and instance
	Headers  map[string]string `yaml:"headers"`  // of requests, such as a tenant's; none is secret
	Buffer   PushBuffer        `yaml:"buffer"`
	Page                       // where to; it is no page here
}

// PushBuffer bounds what waits on the disk while the receiver is away.
type PushBuffer struct {
	MaxMiB int      `yaml:"max_mib"`
	MaxAge Duration `yaml:"max_age"` // what is older is not sent any more
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
	if d := time.Duration(p.Interval); d < time.Second || d > 10*time.Minute {
		fail(key+".interval", "found %s, allowed: from 1s to 10m", p.Interval)
	}
	if d := time.Duration(p.Timeout); d < time.Second || d > 5*time.Minute {
		fail(key+".timeout", "found %s, allowed: from 1s to 5m", p.Timeout)
	}
	if n := p.Buffer.MaxMiB; n < 1 || n > 1<<20 {
		fail(key+".buffer.max_mib", "found %d, allowed: 1 to %d", n, 1<<20)
	}
	if d := time.Duration(p.Buffer.MaxAge); d < time.Minute || d > 365*24*time.Hour {
		fail(key+".buffer.max_age", "found %s, allowed: from 1m to 1y", p.Buffer.MaxAge)
	}
	if len(p.Labels) > maxPushLabels {
		fail(key+".labels", "found %d, allowed: at most %d", len(p.Labels), maxPushLabels)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Labels)) {
		if !labelName.MatchString(name) || strings.HasPrefix(name, "__") || !plainName(p.Labels[name]) || p.Labels[name] == "" {
			fail(fmt.Sprintf("%s.labels.%s", key, clean(name)), "is no label, allowed: a name of letters, digits and _ that does not begin with two of these, and a value of at most %d letters", maxName)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Headers)) {
		if refusal := headerRefusal(name, p.Headers[name]); refusal != "" {
			fail(fmt.Sprintf("%s.headers.%s", key, clean(name)), "%s", refusal)
		}
	}
	if p.URL == "" && p.Page != (Page{}) {
		fail(key+".url", "is missing, while other keys of the receiver are given")
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
