package config

import (
	"strings"
)

// FleetAgents is how the cluster role asks agents for the evidence of their findings.
type FleetAgents struct {
	Timeout Duration `yaml:"timeout" in:"100ms..1m"` // of one answer
	Page             // its URL has {instance} where the host and port of the agent go
}

// agentInstance stands in the URL for where an agent was scraped.
const agentInstance = "{instance}"

// Given reports whether agents are asked.
func (a *FleetAgents) Given() bool { return a.Page.URL != "" }

// Of is the page of one agent, which was scraped as instance: host and port.
func (a *FleetAgents) Of(instance string) Page {
	p := a.Page
	p.URL = strings.TrimSuffix(strings.Replace(p.URL, agentInstance, instance, 1), "/") + "/api/v1/findings"
	return p
}

func (a *FleetAgents) check(fail func(key, format string, args ...any)) {
	const key = "fleet.agents"
	scheme, rest, _ := strings.Cut(a.URL, "://")
	if a.Given() && (scheme != "http" && scheme != "https" || !strings.HasPrefix(rest, agentInstance) || strings.Trim(rest[len(agentInstance):], "/") != "") {
		fail(key+".url", "found %q, allowed: https://{instance} or http://{instance}, as it stands, or \"\"", clean(a.URL))
		return
	}
	// The address of an agent is a label that whoever writes series chooses.
	if scheme == "http" && given(a.BearerTokenFile, a.BearerTokenEnv, a.PasswordFile, a.PasswordEnv) > 0 {
		fail(key+".url", "found http:// with a secret, allowed: https://{instance}: what is scraped as an agent would be sent it")
	}
	p := a.Of("localhost:9836")
	if !a.Given() {
		p.URL = ""
	}
	p.check(key, false, fail)
}
