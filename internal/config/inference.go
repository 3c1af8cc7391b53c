package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"gpuvigil/internal/metric"
)

// Inference is the demand side: inference servers whose metrics are read.
type Inference struct {
	Interval Duration `yaml:"interval"`
	Timeout  Duration `yaml:"timeout"`
	Discover bool     `yaml:"discover"` // further targets are found by the sockets of the processes on the GPUs
	Targets  []Target `yaml:"targets"`
}

// Target is one inference server's metrics page.
type Target struct {
	URL             string    `yaml:"url"`
	Engine          string    `yaml:"engine"` // auto, or one of metric.Engines
	Model           string    `yaml:"model"`  // of a server that does not tell
	GPUs            []string  `yaml:"gpus"`   // uuids that it runs on; empty: any of this node
	BearerTokenFile string    `yaml:"bearer_token_file"`
	BearerTokenEnv  string    `yaml:"bearer_token_env"`
	Username        string    `yaml:"username"` // of basic authentication
	PasswordFile    string    `yaml:"password_file"`
	PasswordEnv     string    `yaml:"password_env"`
	TLS             TargetTLS `yaml:"tls"`
}

// TargetTLS is how the target is trusted.
type TargetTLS struct {
	CAFile     string `yaml:"ca_file"`     // certificates that are trusted instead of the system's
	ServerName string `yaml:"server_name"` // that the certificate must be for; empty: the URL's host
	Insecure   bool   `yaml:"insecure"`    // any certificate will do
}

func (c *Config) checkInference(fail func(key, format string, args ...any)) {
	for i, t := range c.Inference.Targets {
		key := fmt.Sprintf("inference.targets[%d]", i)
		checkURL(t.URL, key+".url", true, fail)
		checkTarget(t.URL, key+".url", fail)
		checkSecretFile(t.BearerTokenFile, key+".bearer_token_file", fail)
		checkSecretEnv(t.BearerTokenEnv, key+".bearer_token_env", fail)
		checkSecretFile(t.PasswordFile, key+".password_file", fail)
		checkSecretEnv(t.PasswordEnv, key+".password_env", fail)
		if t.Engine != "auto" && !slices.Contains(metric.Engines, t.Engine) {
			fail(key+".engine", "found %q, allowed: auto, %s", clean(t.Engine), strings.Join(metric.Engines, ", "))
		}
		if !plainName(t.Model) {
			fail(key+".model", "found control characters or more than %d letters, allowed: a plain name", maxName)
		}
		ways := given(t.BearerTokenFile, t.BearerTokenEnv, t.PasswordFile, t.PasswordEnv)
		if ways > 1 {
			fail(key, "found %d of bearer_token_file, bearer_token_env, password_file, password_env, allowed: one of them", ways)
		}
		if (t.Username != "") != (t.PasswordFile != "" || t.PasswordEnv != "") {
			fail(key+".username", "must be given with a password_file or password_env, and only then")
		}
		if t.TLS != (TargetTLS{}) && strings.HasPrefix(t.URL, "http://") {
			fail(key+".tls", "is given for a URL that begins with http://, allowed: only with https://")
		}
		if t.TLS.Insecure && t.TLS.CAFile != "" {
			fail(key+".tls", "found both insecure and ca_file, allowed: one of them")
		}
	}
}

func given(values ...string) (n int) {
	for _, v := range values {
		if v != "" {
			n++
		}
	}
	return n
}

// checkTarget refuses what a target may never be: a holder of secrets, or the
// cloud's metadata service.
func checkTarget(value, key string, fail func(key, format string, args ...any)) {
	u, err := url.Parse(value)
	if err != nil {
		return // said already
	}
	if u.User != nil {
		fail(key, "holds a user or password (not shown), allowed: a URL without; they come from bearer_token_file, or username and password_file")
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && (ip.Unmap().IsLinkLocalUnicast() || ip.Unmap().IsLinkLocalMulticast()) {
		fail(key, "found a link-local address, allowed: any other: it could be the cloud's metadata service")
	}
}
