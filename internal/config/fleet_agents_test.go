package config

import (
	"strings"
	"testing"
)

func TestFleetAgents(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		c, err := Parse("c.yml", []byte("fleet:\n  agents:\n    "+text+"\n"))
		switch {
		case want == "":
			if err != nil {
				t.Errorf("%s is refused: %v", text, err)
			} else if got := c.Fleet.Agents.Of("gpu-1:9836").URL; !strings.HasSuffix(got, "://gpu-1:9836/api/v1/findings") {
				t.Errorf("%s asks %s", text, got)
			}
		case err == nil || !strings.Contains(err.Error(), want):
			t.Errorf("%s: %v, want an error that says %s", text, err, want)
		}
	}
	f(`{url: "https://{instance}", username: role, password_file: /etc/secret}`, "")
	f(`{url: "http://{instance}/"}`, "")
	f(`{url: "https://gpu-1:9836"}`, "fleet.agents.url")
	f(`{url: "https://evil.example/{instance}"}`, "fleet.agents.url")
	f(`{url: "http://{instance}", bearer_token_file: /etc/secret}`, "fleet.agents.url")
	f(`{url: "https://{instance}", timeout: 10m}`, "fleet.agents.timeout")
	f(`{url: "https://{instance}", username: role}`, "fleet.agents.username")
}
