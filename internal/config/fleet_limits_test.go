package config

import (
	"strings"
	"testing"
)

func TestFleetLimits(t *testing.T) {
	f := func(text, key, allowed string) {
		t.Helper()
		_, err := Parse("c.yml", []byte("fleet: {"+text+"}\n"))
		if key == "" {
			if err != nil {
				t.Errorf("fleet: {%s}: %v", text, err)
			}
			return
		}
		if err == nil || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "allowed: "+allowed) {
			t.Errorf("fleet: {%s}: error %v, want one about %s that says what is allowed: %s", text, err, key, allowed)
		}
	}
	f("prometheus: {url: 'http://p:9090', warm_start: 0s}", "", "")
	f("prometheus: {url: 'http://p:9090', warm_start: 10m, warm_start_timeout: 10s}", "", "")
	f("prometheus: {url: 'http://p:9090', warm_start: 90d, warm_start_timeout: 6h}", "", "")
	f("prometheus: {url: 'http://p:9090', warm_start: 9m}", "fleet.prometheus.warm_start", "10m to 90d")
	f("prometheus: {url: 'http://p:9090', warm_start: 91d}", "fleet.prometheus.warm_start", "10m to 90d")
	f("prometheus: {url: 'http://p:9090', warm_start_timeout: 9s}", "fleet.prometheus.warm_start_timeout", "10s to 6h")
	f("prometheus: {url: 'http://p:9090', warm_start_timeout: 7h}", "fleet.prometheus.warm_start_timeout", "10s to 6h")
	f("receive: {enabled: true, node_labels: [host, node]}", "", "")
	f("receive: {enabled: true, node_labels: [host, host]}", "fleet.receive.node_labels[1]", "the name of a label, each once")
	f("receive: {enabled: true, node_labels: ['a b']}", "fleet.receive.node_labels[0]", "the name of a label, each once")
	f("prometheus: {url: 'http://p:9090', node_labels: [a, a]}", "fleet.prometheus.node_labels[1]", "the name of a label, each once")
}
