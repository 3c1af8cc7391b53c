package config

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Page is where a metrics page is, and what it takes to be given it.
type Page struct {
	URL             string  `yaml:"url"`
	BearerTokenFile string  `yaml:"bearer_token_file"`
	BearerTokenEnv  string  `yaml:"bearer_token_env"`
	Username        string  `yaml:"username"` // of basic authentication
	PasswordFile    string  `yaml:"password_file"`
	PasswordEnv     string  `yaml:"password_env"`
	TLS             PageTLS `yaml:"tls"`
}

// PageTLS is how the server of a page is trusted.
type PageTLS struct {
	CAFile     string `yaml:"ca_file"`     // certificates that are trusted instead of the system's
	CertFile   string `yaml:"cert_file"`   // certificate by which the server knows who asks
	KeyFile    string `yaml:"key_file"`    // of that certificate
	ServerName string `yaml:"server_name"` // that the certificate must be for; empty: the URL's host
	Insecure   bool   `yaml:"insecure"`    // any certificate will do
}

func (p *Page) check(key string, required bool, fail func(key, format string, args ...any)) {
	checkURL(p.URL, key+".url", required, fail)
	checkTarget(p.URL, key+".url", fail)
	checkSecretFile(p.BearerTokenFile, key+".bearer_token_file", fail)
	checkSecretEnv(p.BearerTokenEnv, key+".bearer_token_env", fail)
	checkSecretFile(p.PasswordFile, key+".password_file", fail)
	checkSecretEnv(p.PasswordEnv, key+".password_env", fail)
	ways := given(p.BearerTokenFile, p.BearerTokenEnv, p.PasswordFile, p.PasswordEnv)
	if ways > 1 {
		fail(key, "found %d of bearer_token_file, bearer_token_env, password_file, password_env, allowed: one of them", ways)
	}
	if (p.Username != "") != (p.PasswordFile != "" || p.PasswordEnv != "") {
		fail(key+".username", "found one of username and a password, allowed: username with password_file or password_env, or none of them")
	}
	if p.TLS != (PageTLS{}) && strings.HasPrefix(p.URL, "http://") {
		fail(key+".tls", "found beside a URL that begins with http://, allowed: only with https://")
	}
	checkSecretFile(p.TLS.KeyFile, key+".tls.key_file", fail)
	if (p.TLS.CertFile != "") != (p.TLS.KeyFile != "") {
		fail(key+".tls", "found one of cert_file and key_file, allowed: both or none")
	}
	if p.TLS.Insecure && p.TLS.CAFile != "" {
		fail(key+".tls", "found both insecure and ca_file, allowed: one of them")
	}
}

// Exporter is another exporter's page that is read in place of the driver or of the
// kernel's files.
type Exporter struct {
	Kind     string   `yaml:"exporter"` // auto, or one of Exporters; of the host: node_exporter
	Interval Duration `yaml:"interval" in:"1s..10m"`
	Timeout  Duration `yaml:"timeout" in:"100ms..5m"`
	Page
}

// Exporters are those whose pages may stand for the driver.
var Exporters = []string{"auto", "dcgm-exporter", "nvidia_gpu_exporter"}

func defaultExporter() Exporter {
	return Exporter{Kind: "auto", Interval: Duration(15 * time.Second), Timeout: Duration(5 * time.Second)}
}

// Given reports whether there is such a page.
func (e *Exporter) Given() bool { return e.URL != "" }

func (e *Exporter) check(key string, kinds []string, fail func(key, format string, args ...any)) {
	e.Page.check(key, false, fail)
	if !slices.Contains(kinds, e.Kind) {
		fail(key+".exporter", "found %q, allowed: %s", clean(e.Kind), strings.Join(kinds, ", "))
	}
	if e.Timeout > e.Interval {
		fail(key+".timeout", "found %s, allowed: at most %s, the interval", e.Timeout, e.Interval)
	}
	if !e.Given() && e.Page != (Page{}) {
		fail(key+".url", "is missing, allowed: a URL that begins with http:// or https://, as other keys of the page are given")
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
