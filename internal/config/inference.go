package config

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"gpuvigil/internal/metric"
)

// Inference is the demand side: inference servers whose metrics are read.
type Inference struct {
	Interval Duration `yaml:"interval" in:"1s..5m"`
	Timeout  Duration `yaml:"timeout" in:"100ms..1m"`
	Discover bool     `yaml:"discover"` // further targets are found by the sockets of the processes on the GPUs
	Targets  []Target `yaml:"targets"`
}

// Target is one inference server's metrics page.
type Target struct {
	Name   string   `yaml:"name"`   // what it is called in the label endpoint; empty: its URL without the query
	Engine string   `yaml:"engine"` // auto, or one of metric.Engines
	Model  string   `yaml:"model"`  // of a server that does not tell
	GPUs   []string `yaml:"gpus"`   // uuids that it runs on; empty: any of this node
	Page
}

func (c *Config) checkInference(fail func(key, format string, args ...any)) {
	for i, t := range c.Inference.Targets {
		key := fmt.Sprintf("inference.targets[%d]", i)
		t.Page.check(key, true, fail)
		c.checkName(i, key, fail)
		for n, uuid := range t.GPUs {
			if !uuidForm.MatchString(uuid) {
				fail(fmt.Sprintf("%s.gpus[%d]", key, n), "found %q, allowed: the uuid of a GPU or of a MIG device, as nvidia-smi -L prints it: GPU- or MIG- and 8-4-4-4-12 hexadecimal digits", clean(uuid))
			} else if slices.Contains(t.GPUs[:n], uuid) {
				fail(fmt.Sprintf("%s.gpus[%d]", key, n), "found %s a second time, allowed: each GPU once", uuid)
			}
		}
		if t.Engine != "auto" && !slices.Contains(metric.Engines, t.Engine) {
			fail(key+".engine", "found %q, allowed: auto, %s", clean(t.Engine), strings.Join(metric.Engines, ", "))
		}
		if !plainName(t.Model) {
			fail(key+".model", "found control characters or more than %d letters, allowed: a plain name", maxName)
		}
	}
}

// uuidForm is how the driver writes uuids; those of MIG devices before its release 470
// name their GPU and instances.
var uuidForm = regexp.MustCompile(strings.ReplaceAll(`^(?:(?:GPU|MIG)-UUID|MIG-GPU-UUID/[0-9]+/[0-9]+)$`,
	"UUID", `[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}`))

// Endpoint is what the target is called in the label endpoint: its name, else its URL
// without what may be secret.
func (t *Target) Endpoint() string {
	u, err := url.Parse(t.URL)
	if t.Name != "" || err != nil || u.Host == "" {
		return t.Name
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// checkName refuses a target that is called as one before it: they would share their
// series, and one would hide the other.
func (c *Config) checkName(i int, key string, fail func(key, format string, args ...any)) {
	t := &c.Inference.Targets[i]
	if !plainName(t.Name) || strings.Contains(t.Name, "#") {
		fail(key+".name", "found #, control characters or more than %d letters, allowed: a plain name", maxName)
	}
	before := slices.IndexFunc(c.Inference.Targets[:i], func(o Target) bool { return o.Endpoint() == t.Endpoint() })
	if before < 0 || t.Endpoint() == "" {
		return
	}
	other := fmt.Sprintf("inference.targets[%d]", before)
	line := c.at.of(other)
	switch o := c.Inference.Targets[before]; o.URL {
	case t.URL:
		fail(key, "found %s a second time, allowed: each server once; %s in line %d is the same", withoutSecrets(t.URL), other, line)
	default:
		fail(key, "found %s, and %s in line %d is %s: both would be called %s in the label endpoint, allowed: a name of its own for each; give one of them a name, such as name: chat",
			withoutSecrets(t.URL), other, line, withoutSecrets(o.URL), t.Endpoint())
	}
}

// withoutSecrets is a URL with the names of its query's parameters: the values may be
// secret.
func withoutSecrets(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "a URL that does not parse"
	}
	var names []string
	for _, pair := range strings.Split(u.RawQuery, "&") {
		if name, value, ok := strings.Cut(pair, "="); ok && value != "" {
			names = append(names, name+"=…")
		} else if pair != "" {
			names = append(names, "…") // it may be a key by itself
		}
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	if len(names) == 0 {
		return u.String()
	}
	return u.String() + "?" + strings.Join(names, "&")
}
