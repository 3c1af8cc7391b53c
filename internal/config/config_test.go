package config

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestExampleChangesNothing(t *testing.T) {
	got, err := Parse("example.yml", Example)
	if err != nil {
		t.Fatalf("the documented example does not load:\n%v", err)
	}
	want := Default()
	for _, check := range []struct {
		name      string
		got, want any
	}{
		{"sampling", got.Sampling, want.Sampling},
		{"nvml", got.NVML, want.NVML},
		{"metrics", got.Metrics, want.Metrics},
		{"host", got.Host, want.Host},
		{"movement", got.Movement, want.Movement},
		{"detect", got.Detect, want.Detect},
		{"owners.users", got.Owners.Users, want.Owners.Users},
		{"owners.pod_logs", got.Owners.PodLogs, want.Owners.PodLogs},
		{"owners.container_logs", got.Owners.ContainerLogs, want.Owners.ContainerLogs},
		{"owners.passwd", got.Owners.Passwd, want.Owners.Passwd},
		{"kubernetes", got.Kubernetes, want.Kubernetes},
		{"slurm", got.Slurm, want.Slurm},
		{"fleet", got.Fleet, want.Fleet},
		{"inference.interval", got.Inference.Interval, want.Inference.Interval},
		{"inference.timeout", got.Inference.Timeout, want.Inference.Timeout},
		{"alerting.shadow", got.Alerting.Shadow, want.Alerting.Shadow},
		{"alerting.burst", got.Alerting.Burst, want.Alerting.Burst},
		{"alerting.digest", got.Alerting.Digest, want.Alerting.Digest},
		{"alerting.route", got.Alerting.Route, want.Alerting.Route},
		{"links", got.Links, want.Links},
		{"energy.pue", got.Energy.PUE, want.Energy.PUE},
		{"energy.time_zone", got.Energy.TimeZone, want.Energy.TimeZone},
		{"ledger", got.Ledger, want.Ledger},
		{"change", got.Change, want.Change},
		{"versions", got.Versions, want.Versions},
	} {
		if diff := cmp.Diff(check.want, check.got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("the example says another default for %s than the program has (-program +example):\n%s", check.name, diff)
		}
	}
}

// The example with every commented key taken in must load too, so that nobody
// copies a line that does not work.
func TestExampleWithEveryKey(t *testing.T) {
	text := string(Example)
	text = regexp.MustCompile(`(?m)^(\s*)# (  - [a-z]+:|    [a-z_]+:|- [a-z]+:|  [a-z_]+:|idle_gpu:)`).ReplaceAllString(text, "$1$2")
	text = strings.NewReplacer("targets: []", "targets:", "slack: []", "slack:", "alertmanager: []", "alertmanager:", "webhook: []", "webhook:", "route:\n  #   receiver", "route:\n    receiver", "time_intervals: []\n", "time_intervals:\n", "maintenance: []", "maintenance:", "rules: {}", "rules:", "own: []", "own:", "queues: []     #", "queues:     #", "budgets: []", "budgets:", "mapping: []", "mapping:", "headers: []          #", "headers:          #",
		"approved: {}", "approved:", "known_bad: []", "known_bad:").Replace(text)
	c, err := Parse("example.yml", []byte(text))
	if err != nil {
		t.Fatalf("the example with its commented keys does not load:\n%v\n%s", err, text)
	}
	if len(c.Inference.Targets) != 1 || len(c.Alerting.Slack) != 1 || len(c.Alerting.Alertmanager) != 1 || len(c.Alerting.Webhook) != 1 || len(c.Rules) != 1 || len(c.Prices.Own) != 1 || len(c.Budgets) != 1 || len(c.Fleet.Waiting.Queues) != 1 || len(c.Owners.Mapping) != 6 ||
		len(c.Versions.Approved) != 2 || len(c.Versions.KnownBad) != 1 {
		t.Errorf("commented parts of the example were not read: %d targets, %d receivers, %d rules, %d prices, %d budgets, want 1 of each, %d owners, want 6, and %d approved and %d bad versions, want 2 and 1",
			len(c.Inference.Targets), len(c.Alerting.Slack), len(c.Rules), len(c.Prices.Own), len(c.Budgets), len(c.Owners.Mapping), len(c.Versions.Approved), len(c.Versions.KnownBad))
	}
}

func TestEveryKeyIsDocumented(t *testing.T) {
	seen := map[reflect.Type]bool{} // routes are within routes
	var walk func(typ reflect.Type, path string)
	walk = func(typ reflect.Type, path string) {
		if typ == reflect.TypeFor[Pattern]() || reflect.PointerTo(typ).Implements(textUnmarshaler) || reflect.PointerTo(typ).Implements(reflect.TypeFor[unmarshaler]()) {
			return // one text
		}
		if typ.Kind() == reflect.Struct && seen[typ] {
			return
		}
		seen[typ] = true
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(typ.Elem(), path)
		case reflect.Struct:
			for i := range typ.NumField() {
				if !typ.Field(i).IsExported() {
					continue
				}
				key, _, _ := strings.Cut(typ.Field(i).Tag.Get("yaml"), ",")
				if !typ.Field(i).IsExported() {
					continue // what is known of the file
				}
				if typ.Field(i).Anonymous {
					walk(typ.Field(i).Type, path)
					continue
				}
				if key == "" {
					t.Errorf("%s.%s has no yaml tag: it cannot be configured", typ, typ.Field(i).Name)
					continue
				}
				if !regexp.MustCompile(`(?m)^[\s#-]*` + key + `:`).Match(Example) {
					t.Errorf("key %s.%s is not in the documented example", path, key)
				}
				walk(typ.Field(i).Type, path+"."+key)
			}
		}
	}
	walk(reflect.TypeFor[Config](), "")
}

func TestMistakesAreNamed(t *testing.T) {
	f := func(source string, want ...string) {
		t.Helper()
		_, err := Parse("gpuvigil.yml", []byte(source))
		if err == nil {
			t.Errorf("this configuration was accepted, want an error with %q:\n%s", want, source)
			return
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("the error does not say %q:\n%v\nfor:\n%s", w, err, source)
			}
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error shows a secret:\n%v", err)
		}
	}
	// Unknown keys, at each level, with what is allowed there.
	f("samplin:\n  fast: 1s\n", "gpuvigil.yml:1: samplin: found an unknown key", "sampling")
	f("sampling:\n  fsat: 1s\n", "gpuvigil.yml:2: sampling.fsat: found an unknown key, allowed: fast, inventory, processes, slow")
	f("alerting:\n  slack:\n  - name: a\n    token: xoxb-hunter2\n", "gpuvigil.yml:4: alerting.slack[0].token: found an unknown key", "token_file")
	// Wrong types.
	f("sampling:\n  fast: quick\n", "gpuvigil.yml:2: sampling.fast", `found "quick"`, "15s")
	f("sampling: 3\n", "gpuvigil.yml:1: sampling", `found "3"`, "keys with values")
	f("nvml:\n  enabled: maybe\n", "gpuvigil.yml:2: nvml.enabled", `found "maybe"`, "true or false")
	f("nvml:\n  enabled: [true]\n", "gpuvigil.yml:2: nvml.enabled", "found a list")
	f("inference:\n  targets: x\n", "gpuvigil.yml:2: inference.targets", "allowed: a list")
	f("- a\n", "found a list, allowed: keys with values")
	// Out of range.
	f("sampling:\n  fast: 1ms\n", "sampling.fast: found 1ms, allowed: 100ms to 1m")
	f("metrics:\n  processes: {top: 0}\n", "metrics.processes.top: found 0, allowed: 1 to 1000")
	f("metrics:\n  processes: {top: 1001}\n", "metrics.processes.top: found 1001, allowed: 1 to 1000")
	f("metrics:\n  processes: {top: many}\n", "gpuvigil.yml:2: metrics.processes.top", "a whole number")
	f("sampling:\n  processes: 1s\n", "sampling.processes: found 1s, allowed: 15s to 10m")
	f("inference:\n  targets:\n  - url: http://a/metrics\n    engine: foo\n", `engine: found "foo", allowed: auto, vllm, sglang`)
	f("rules:\n  no_such: {}\n", "rules.no_such: found an unknown rule, allowed:", "xid")
	f("rules:\n  idle_gpu:\n    severity: page\n", "rules.idle_gpu.severity", "allowed: info, ticket")
	f("rules:\n  idle_gpu:\n    severity: urgent\n", "gpuvigil.yml:3", `"urgent"`)
	// Secrets in the wrong place, URLs that do not parse.
	f("inference:\n  targets:\n  - url: http://u:hunter2%zz@h\n", "inference.targets[0].url: is not a URL")
	f("alerting:\n  slack:\n  - name: a\n    api_url: \"http://u:hunter2%zz@h\"\n    webhook_url_env: X\n", "api_url: is not a URL")
	f("node: [xoxb-hunter2\n", "not valid YAML")
	f("alerting: xoxb-hunter2\n", "may be secret")
	for _, key := range []string{"token_file: xoxb-hunter2", "webhook_url_file: https://hooks.example/hunter2", "token_env: xoxb-hunter2", "webhook_url_env: hunter2/hunter2"} {
		f("alerting:\n  slack:\n  - {name: a, channel: C1, "+key+"}\n", "not shown")
	}
	f("alerting:\n  slack:\n  - {name: a, token_env: T, channel: C, min_severity: xoxb-hunter2}\n", "min_severity", "may be secret")
	f("inference:\n  targets:\n  - url: http://u:hunter2@h/metrics\n", "holds a user or password")
	f("inference:\n  targets:\n  - url: http://169.254.169.254/latest\n", "link-local")
	f("node: \"a\\nb\"\n", "node: found control characters")
	// Slack.
	f("alerting:\n  slack:\n  - channel: C1\n    token_env: T\n", "alerting.slack[0].name: is missing")
	f("alerting:\n  slack:\n  - name: a\n", "found 0 of token_file")
	f("alerting:\n  slack:\n  - name: a\n    token_env: T\n", "alerting.slack[0].channel: is missing")
	f("alerting:\n  slack:\n  - {name: a, webhook_url_env: T, charts: true}\n", "alerting.slack[0].charts: found true, allowed: false with a webhook")
	f("alerting:\n  slack:\n  - {name: a, webhook_url_env: T}\n  - {name: a, webhook_url_env: T}\n", "a second time")
	// Credentials and trust of targets.
	target := func(more, want string) {
		t.Helper()
		f("inference:\n  targets:\n  - url: https://h/metrics\n"+more, want)
	}
	target("    username: u\n", "username: found one of username and a password")
	target("    password_file: p\n", "username: found one of username and a password")
	target("    bearer_token_file: t\n    username: u\n    password_env: P\n", "found 2 of bearer_token_file")
	target("    username: u\n    password_env: 'no name'\n", "password_env: is not the name of an environment variable")
	target("    tls: {insecure: true, ca_file: a.pem}\n", "found both insecure and ca_file")
	target("    tls: {cafile: a.pem}\n", "cafile")
	target("    model: \"a\\nb\"\n", "model: found control characters")
	f("inference:\n  targets:\n  - url: http://h/metrics\n    tls: {insecure: true}\n", "tls: found beside a URL that begins with http://")
	f("inference:\n  targets:\n  - url: http://[::ffff:169.254.169.254]/latest\n", "link-local")
	// Inventory.
	f("inventory:\n  root: host\n", `inventory.root: found "host", allowed: a path that begins with /`)
	f("inventory:\n  approved_models: [\"meta/*\", \"[\"]\n", `inventory.approved_models[1]: found "["`)
	f("inventory:\n  approved_models: [\"\"]\n", "inventory.approved_models[0]")
	// Versions.
	f("change: frozen\n", `change: found "frozen", allowed: free, controlled`)
	f("versions:\n  approved:\n    driver: []\n", "versions.approved.driver: found none")
	f("versions:\n  approved:\n    driver: [\"570.*\", \"[\"]\n", `versions.approved.driver[1]: found "["`)
	f("versions:\n  approved:\n    drvier: [\"570.*\"]\n", `versions.approved: found the component "drvier", allowed: driver, cuda`)
	f("versions:\n  known_bad:\n  - {component: nccll, versions: [1], why: it hangs}\n", `versions.known_bad[0].component: found the component "nccll"`)
	f("detect:\n  sharing_allowed: [\"*\"]\n", "detect.sharing_allowed: ")
	f("versions:\n  known_bad:\n  - versions: [1]\n", "versions.known_bad[0].component", "versions.known_bad[0].why")
	f("versions:\n  known_bad:\n  - {component: nccl, why: it hangs}\n", "versions.known_bad[0].versions: found none")
	f("detect:\n  sharing_allowed: [\"\"]\n", "detect.sharing_allowed[0]")
	// Owners.
	f("owners:\n  users: nick\n", `owners.users: found "nick", allowed: uid, hash, name`)
	f("owners:\n  users: hash\n", "owners.users_key_file: is missing, allowed: the name of a file")
	f("owners:\n  pod_logs: logs\n", "owners.pod_logs", "begins with /")
	f("# a comment\nkubernetes:\n  interval: 2s\nledger: {retention: 1s}\n", "gpuvigil.yml:3: kubernetes.interval: found 2s", "gpuvigil.yml:4: ledger.retention")
	f("owners:\n  mapping:\n  - namespace: a\n    team: a\n  - team: b\n", "gpuvigil.yml:5: owners.mapping[1]: found no pattern")
	f("prices:\n  own:\n  - gpu: x\n    per_gpu_hour: -1\n", "gpuvigil.yml:4: prices.own[0].per_gpu_hour", "gpuvigil.yml:3: prices.own[0].currency")
	f("budgets: &b\n- &one {team: a, per_month: 1, currency: usd}\n", "gpuvigil.yml:2: budgets[0].currency")
	f("owners:\n  mapping:\n  - namespace: /(/\n    team: a\n", "gpuvigil.yml:3: owners.mapping[0].namespace", "regular expression")
	f("owners:\n  mapping:\n  - team: a\n", "owners.mapping[0]: found no pattern")
	f("owners:\n  mapping:\n  - kind: pod\n", "owners.mapping[0]: found nothing that it says")
	f("owners:\n  mapping:\n  - {kind: pod, stage: serving}\n", `stage: found "serving"`, "fine_tuning")
	for _, kind := range []string{"pods", "deployment", "Pod", "unattributed", "/jobs?s/"} { // a rule that fits nobody is a slip of the pen
		f("owners:\n  mapping:\n  - team: a\n    kind: "+kind+"\n", "gpuvigil.yml:4: owners.mapping[0].kind: found \""+kind, "allowed: pod, job, container, service, user")
	}
	f("owners:\n  mapping:\n  - {label: {a: }, team: t}\n", "label.a: is missing")
	f("owners:\n  mapping:\n  - {kind: pod, team: \"a\\nb\"}\n", "team: found control characters")
	f("kubernetes:\n  interval: 1s\n", "kubernetes.interval: found 1s, allowed: 5s to 10m")
	f("kubernetes:\n  keep: 1s\n", "kubernetes.keep")
	// YAML's own traps.
	f("node: a\nnode: b\n", "node")
	f("node: *nowhere\n", "alias")
	f("node: a\n---\nnode: b\n", "second YAML document")
	f("node: !!binary aGk=\n", "tag")
	f("node: a\n  cluster: b\n", "gpuvigil.yml")
}

func TestEveryMistakeIsListedAtOnce(t *testing.T) {
	_, err := Parse("f", []byte("a: 1\nb: 2\nsampling:\n  fast: x\n"))
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("want three lines, one for each mistake, got:\n%v", err)
	}
	// What is not well formed hides nothing that cannot work, and is said once.
	_, err = Parse("f", []byte("sampling:\n  fast: 1ms\n  slow: x\ninference:\n  targets:\n  - url: [a]\n  - engine: vlm\n"))
	want := []string{"f:2: sampling.fast: ", "f:3: sampling.slow: ", "f:6: inference.targets[0].url: ", "f:7: inference.targets[1].engine: ", "f:7: inference.targets[1].url: is missing"}
	got := strings.Split(fmt.Sprint(err), "\n")
	if len(got) != len(want) {
		t.Fatalf("want %d lines, one for each mistake, got:\n%v", len(want), err)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("mistake %d is %q, want one about %q", i, got[i], want[i])
		}
	}
}

func TestValues(t *testing.T) {
	c, err := Parse("f", []byte(`
sampling: &s {fast: 500ms}
rules:
  idle_gpu: {enabled: false, severity: info, for: 1h30m}
alerting:
  shadow: 0s
  slack:
  - {name: oncall, channel: C1, token_env: SLACK_TOKEN, min_severity: page}
  - {name: team, channel: C2, token_env: SLACK_TOKEN}
`))
	if err != nil {
		t.Fatal(err)
	}
	if got := time.Duration(c.Sampling.Fast); got != 500*time.Millisecond {
		t.Errorf("sampling.fast = %v, want 500ms", got)
	}
	if got := time.Duration(c.Sampling.Slow); got != 15*time.Second {
		t.Errorf("sampling.slow = %v, want the default beside a given neighbour", got)
	}
	r := c.Rules["idle_gpu"]
	if r.Enabled == nil || *r.Enabled || r.For == nil || time.Duration(*r.For) != 90*time.Minute || r.Hold != nil {
		t.Errorf("rules.idle_gpu = %+v, want disabled, for 90m, no hold", r)
	}
	if c.Alerting.Shadow != 0 || c.Alerting.Slack[0].MinSeverity.String() != "page" || c.Alerting.Slack[1].MinSeverity.String() != "ticket" {
		t.Errorf("alerting = %+v", c.Alerting)
	}
}

func TestPatternsFitWholeValues(t *testing.T) {
	f := func(pattern, value string, want bool) {
		t.Helper()
		var p Pattern
		if err := p.UnmarshalText([]byte(pattern)); err != nil {
			t.Fatal(err)
		}
		if got := p.Regexp().MatchString(value); got != want {
			t.Errorf("pattern %s fits %q: %v, want %v", pattern, value, got, want)
		}
	}
	f("nlp", "nlp", true)
	f("nlp", "nlp-2", false)
	f("nlp-*", "nlp-", true)
	f("nlp-*", "x-nlp-2", false)
	f("gpu?", "gpu7", true)
	f("a.b", "axb", false)
	f("*", "", true)
	f("/a|b/", "b", true)
	f("/a|b/", "bc", false)
	f("/", "/", true)
}

func TestLoad(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "absent.yml")); err == nil || !strings.Contains(err.Error(), "--config.file") {
		t.Errorf("a missing file gives %v, want an error that says what to do", err)
	}
	empty := filepath.Join(t.TempDir(), "empty.yml")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(empty); err != nil {
		t.Errorf("an empty file is not accepted: %v", err)
	}
	if _, err := Load(""); err != nil {
		t.Errorf("no file is not accepted: %v", err)
	}
}

// Devices never end and pipes never begin: neither may be read.
func TestWhatIsNoFileIsNotRead(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, bytes.Repeat([]byte("#"), maxConfig+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, says := range map[string]string{"/dev/zero": "not a regular file", pipe: "not a regular file", t.TempDir(): "not a regular file", large: "larger than"} {
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: error %v, want one that says %q", path, err, says)
		}
	}
}

func TestByteOrderMark(t *testing.T) {
	if c, err := Parse("f", []byte("\xef\xbb\xbfnode: a\n")); err != nil || c.Node != "a" {
		t.Errorf("a file that begins with a byte order mark: %+v, %v", c, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Example)
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("rules: {xid: {for: 1s}}"))
	f.Fuzz(func(t *testing.T, source []byte) {
		c, err := Parse("f", source)
		if err == nil && (c.Sampling.Fast <= 0 || c.Sampling.Processes < Duration(15*time.Second)) {
			t.Errorf("accepted a configuration that cannot run: %+v", c.Sampling)
		}
	})
}

func TestAlertBudget(t *testing.T) {
	for source, want := range map[string]string{
		"budget: {pages: 0}":                  "budget.pages: found 0, allowed: 0.001 to 1000",
		"budget: {tickets: -1}":               "budget.tickets: found -1",
		"budget: {tickets: .nan}":             "budget.tickets",
		"budget: {gpus: -8}":                  "budget.gpus: found -8, allowed: 1 to 1000000, or 0 (those of this node)",
		"budget: {gpus: 10000000}":            "budget.gpus",
		"rules: {idle_gpu: {severity: page}}": "unless promoted is true: gpuvigil promote idle_gpu says",
	} {
		if _, err := Parse("x.yml", []byte(source)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", source, err, want)
		}
	}
	c, err := Parse("x.yml", []byte("budget: {pages: 0.5, gpus: 2000}\nrules: {idle_gpu: {severity: page, promoted: true}}"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Budget != (AlertBudget{Pages: 0.5, Tickets: 10, GPUs: 2000}) || !c.Rules["idle_gpu"].Promoted {
		t.Errorf("read as %+v and %+v", c.Budget, c.Rules)
	}
}
