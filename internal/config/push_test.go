package config

import (
	"strings"
	"testing"
	"time"
)

func TestPush(t *testing.T) {
	c, err := Parse("c.yml", []byte("push: {url: 'https://p/api/v1/write', format: import, interval: 5s, labels: {cluster: eu}, headers: {X-Scope-OrgID: ml}, bearer_token_file: /t, buffer: {max_mib: 9}}\n"+
		"fleet: {receive: {enabled: true, grace: 0s}, remote_write: {url: 'http://p/w', username: me, password_env: PW}}"))
	if err != nil {
		t.Fatal(err)
	}
	p := c.Push
	if !p.Given() || p.Format != "import" || time.Duration(p.Interval) != 5*time.Second || p.Labels["cluster"] != "eu" || p.Headers["X-Scope-OrgID"] != "ml" ||
		p.BearerTokenFile != "/t" || p.Buffer.MaxMiB != 9 || time.Duration(p.Buffer.MaxAge) != 24*time.Hour || time.Duration(p.Timeout) != 10*time.Second {
		t.Errorf("push is read as %+v", p)
	}
	if f := c.Fleet; !f.Receive.Enabled || f.Receive.Unauthenticated || f.Receive.Grace != 0 || f.Receive.Interval != Duration(15*time.Second) || !f.RemoteWrite.Given() || f.RemoteWrite.Format != "remote_write" || f.RemoteWrite.Username != "me" {
		t.Errorf("fleet is read as %+v", f)
	}
	if Default().Push.Given() || Default().Fleet.RemoteWrite.Given() || Default().Fleet.Receive.Enabled {
		t.Error("something is sent or received though nobody asked for it")
	}
}

func TestPushThatCannotWork(t *testing.T) {
	f := func(source, says string) {
		t.Helper()
		_, err := Parse("c.yml", []byte(source))
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: error %v, want one that says %q and no secret", source, err, says)
		}
	}
	f("push: {format: pushgateway}", "push.format")
	f("push: {url: 'http://u:hunter2@p/w'}", "push.url")
	f("push: {url: 'ftp://p'}", "push.url")
	f("push: {bearer_token_file: /t}", "push.url: is missing")
	f("push: {interval: 10ms}", "push.interval")
	f("push: {timeout: 1h}", "push.timeout")
	f("push: {buffer: {max_mib: 0}}", "push.buffer.max_mib")
	f("push: {buffer: {max_age: 1s}}", "push.buffer.max_age")
	f("push: {labels: {__name__: x}}", "push.labels.__name__")
	f("push: {labels: {a: ''}}", "push.labels.a")
	f("push: {labels: {'a b': c}}", "push.labels.a b")
	f("push: {headers: {authorization: 'Bearer hunter2'}}", "would be a secret")
	f("push: {headers: {content-type: x}}", "is set by gpuvigil itself")
	f("push: {headers: {'a b': x}}", "is no header")
	f("fleet: {remote_write: {interval: 10ms}}", "fleet.remote_write.interval")
	f("fleet: {receive: {interval: 10ms}}", "fleet.receive.interval")
	f("fleet: {receive: {grace: 1h}}", "fleet.receive.grace")
	f("fleet: {receive: {max_samples: 1}}", "fleet.receive.max_samples")
}
