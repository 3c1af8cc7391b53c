package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/server"
)

// gpuvigil runs the program in this process and returns its exit code and what it
// printed.
func gpuvigil(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	code = run(ctx, args, &out, &errs)
	return code, out.String(), errs.String()
}

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gpuvigil.yml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCheck(t *testing.T) {
	if code, out, _ := gpuvigil(t, "check", file(t, "node: a\n")); code != 0 || !strings.Contains(out, "is valid") {
		t.Errorf("a valid file: exit %d, %q", code, out)
	}
	if code, out, _ := gpuvigil(t, "check", file(t, "inference: {targets: [{url: 'http://127.0.0.1:8000'}]}\n")); code != 0 || !strings.Contains(out, "1 inference target, no receivers, so nobody is told") {
		t.Errorf("a file with one target: exit %d, %q", code, out)
	}
	code, _, errs := gpuvigil(t, "check", file(t, "sampling:\n  fsat: 1s\n"))
	if code != 1 || !strings.Contains(errs, "gpuvigil.yml:2: sampling.fsat: found an unknown key, allowed:") {
		t.Errorf("a misspelt key: exit %d, %q", code, errs)
	}
	code, example, _ := gpuvigil(t, "check", "--example")
	if code != 0 {
		t.Fatalf("--example: exit %d", code)
	}
	if code, _, errs := gpuvigil(t, "check", file(t, example)); code != 0 {
		t.Errorf("what --example prints is not valid: %s", errs)
	}
	if code, _, errs := gpuvigil(t, "check"); code != 3 || !strings.Contains(errs, "--example") {
		t.Errorf("no file: exit %d, %q, want what to do", code, errs)
	}
}

// What only the price book can know is said as all other mistakes are: where it stands,
// what was found, what is allowed.
func TestMistakesAboutPricesAreFound(t *testing.T) {
	euros := "  - {gpu: '*', per_gpu_hour: 1, currency: EUR}\n"
	for text, want := range map[string]string{
		"node: a\nprices:\n  provider: Nebuis\n":                                                      "gpuvigil.yml:3: prices.provider: found \"Nebuis\", allowed: AWS",
		"prices:\n  provider: AWS\n  region: mars\n":                                                  "gpuvigil.yml:3: prices.region: found \"mars\", allowed for AWS: ",
		"prices:\n  region: us-east-1\n":                                                              "gpuvigil.yml:2: prices.region: found \"us-east-1\" without prices.provider, allowed: ",
		"prices:\n  own:\n" + euros:                                                                   "gpuvigil.yml:3: prices.own[0].currency: found EUR beside prices of this node in USD, allowed: ",
		"energy:\n  pue: 1.2\n  price_per_kwh: 1\n  currency: EUR\n":                                  "gpuvigil.yml:4: energy.currency: found EUR beside prices of this node in USD, allowed: ",
		"prices:\n  provider: none\n  own:\n" + euros + "energy: {price_per_kwh: 1, currency: USD}\n": "gpuvigil.yml:5: energy.currency: found USD beside prices of this node in EUR, allowed: ",
	} {
		config := file(t, text)
		for _, args := range [][]string{{"check", config}, {"demo", "--config.file=" + config, "--web.listen-address=127.0.0.1:0"}} {
			if code, _, errs := gpuvigil(t, args...); code != 1 || !strings.Contains(errs, want) {
				t.Errorf("%s: exit %d, want it to say\n%s\ngot %s", args[0], code, want, errs)
			}
		}
		if _, said := doctorConfig(config); len(said) != 1 || said[0].ok || !strings.Contains(said[0].found, want) {
			t.Errorf("the doctor says %+v, want %q", said, want)
		}
	}
}

func TestSecretsStopTheStartAndAreNotShown(t *testing.T) {
	dir := t.TempDir()
	badURL := filepath.Join(dir, "webhook")
	if err := os.WriteFile(badURL, []byte("https://hooks.example/services/hunter2%zz\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f := func(receiver, says string) {
		t.Helper()
		config := file(t, "alerting:\n  slack:\n  - {name: oncall, "+receiver+"}\n")
		for _, args := range [][]string{
			{"check", config},
			{"demo", "--config.file=" + config, "--web.listen-address=127.0.0.1:0"},
		} {
			code, _, errs := gpuvigil(t, args...)
			if code != 1 || !strings.Contains(errs, says) || !strings.Contains(errs, "oncall") {
				t.Errorf("%s: exit %d, want an error about receiver oncall that says %q, got %q", args[0], code, says, errs)
			}
			if strings.Contains(errs, "hunter2") {
				t.Errorf("%s shows the secret: %q", args[0], errs)
			}
		}
	}
	f("webhook_url_file: "+badURL, "not")
	f("channel: C1, token_file: "+filepath.Join(dir, "absent"), "no such file")
	f("channel: C1, token_file: "+empty, "empty")
	f("channel: C1, token_file: "+dir, "not a regular file")
	f("channel: C1, token_env: GPUVIGIL_TEST_UNSET", "GPUVIGIL_TEST_UNSET")
}

// Of what the configuration names and is not there, file, line and key are said, of all
// of it at once, by check and at the start.
func TestWhatIsNamedAndNotThereHasItsPlace(t *testing.T) {
	for configuration, want := range map[string][]string{
		"inference:\n  targets:\n  - url: http://a/m\n  - url: https://b/m\n    bearer_token_file: /absent/token\n    tls:\n      ca_file: /absent/ca\nalerting:\n  slack:\n  - {name: oncall, webhook_url_file: /absent/hook}\n": {
			"gpuvigil.yml:5: inference.targets[1].bearer_token_file: ", "gpuvigil.yml:7: inference.targets[1].tls.ca_file: ", "gpuvigil.yml:10: alerting.slack[0].webhook_url_file: "},
		"host:\n  source:\n    url: http://a/m\n    username: x\n    password_env: GPUVIGIL_TEST_UNSET\n": {"gpuvigil.yml:5: host.source.password_env: "},
		"owners:\n  users: hash\n  users_key_file: /absent/key\n":                                         {"gpuvigil.yml:3: owners.users_key_file: "},
	} {
		path := file(t, configuration)
		for _, args := range [][]string{{"check", path}, {"demo", "--config.file=" + path, "--web.listen-address=127.0.0.1:0"}} {
			code, _, errs := gpuvigil(t, args...)
			for _, w := range want {
				if code != 1 || !strings.Contains(errs, w) {
					t.Errorf("%s: exit %d, want %q in %q", args[0], code, w, errs)
				}
			}
		}
	}
	both := file(t, "fleet: {slurm: {slurmrestd_url: 'http://127.0.0.1:1/slurm/v0.0.40', token_file: /absent}}\nowners:\n  users: hash\n  users_key_file: /absent/key\n")
	if _, _, errs := gpuvigil(t, "check", both); !strings.Contains(errs, "gpuvigil.yml:1: fleet.slurm.token_file") || !strings.Contains(errs, "gpuvigil.yml:4: owners") {
		t.Errorf("check leaves out one of two files that are not there: %q", errs)
	}
}

func TestWhatStopsTheStart(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	plain := file(t, "")
	f := func(says string, args ...string) {
		t.Helper()
		code, _, errs := gpuvigil(t, append([]string{"demo"}, args...)...)
		if code != 1 || !strings.Contains(errs, says) {
			t.Errorf("demo %v: exit %d, want an error that says %q, got %q", args, code, says, errs)
		}
	}
	f("--web.listen-address", "--web.listen-address="+taken.Addr().String())
	f("--state.dir", "--web.listen-address=127.0.0.1:0", "--state.dir="+filepath.Join(plain, "below-a-file"))
	f("--config.file", "--web.listen-address=127.0.0.1:0", "--config.file="+filepath.Join(t.TempDir(), "absent.yml"))
	f("web configuration", "--web.listen-address=127.0.0.1:0", "--web.config.file="+file(t, "nonsense: 1\n"))
}

func TestGeneratedFilesAreWritten(t *testing.T) {
	for command, want := range map[string]string{"dashboards": "overview.json", "rules": "gpuvigil.rules.yml"} {
		dir := filepath.Join(t.TempDir(), "new", "directory")
		code, out, errs := gpuvigil(t, command, "-o", dir)
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: exit %d, %q %q", command, code, out, errs)
		}
		if content, err := os.ReadFile(filepath.Join(dir, want)); err != nil || len(content) < 1000 {
			t.Errorf("%s wrote %d bytes of %s, error %v", command, len(content), want, err)
		}
		if left, err := filepath.Glob(filepath.Join(dir, "*.tmp")); err != nil || len(left) > 0 {
			t.Errorf("%s left %v behind", command, left)
		}
	}
}

func TestNoAgentIsUnknown(t *testing.T) {
	for _, command := range []string{"status", "why"} {
		code, out, _ := gpuvigil(t, command, "--state.dir="+t.TempDir())
		if code != 3 || !strings.HasPrefix(out, "UNKNOWN") {
			t.Errorf("%s without an agent: exit %d, %q, want 3 and UNKNOWN", command, code, out)
		}
	}
}

func TestUsage(t *testing.T) {
	// No command answers anything with these codes: 1 and 2 would be a ticket and a page to
	// a script that asks for the status, 1 would be a broken node to one that asks for health.
	for _, args := range [][]string{{"no-such-command"}, {"--bogus"}, {"status", "--bogus"}, {"why", "0", "1"}, {"check", "--bogus"}, {"check"}, {"doctor", "--bogus"},
		{"report"}, {"report", "cost", "--local", "--by=owner"}, {"report", "cost"}, {"report", "cost", "--local", "--since=soon"}, {"report", "budget", "--local", "--format=focus"},
		{"inventory", "--format=xml"}, {"release", "--for=long"}, {"record"}, {"record", "--simulate=nothing", "--output=" + filepath.Join(t.TempDir(), "r")},
		{"demo", "--demo.scenario=nothing", "--state.dir=" + t.TempDir(), "--web.listen-address=127.0.0.1:0"}, {"run", "--web.listen-address=9836", "--state.dir=" + t.TempDir()},
		{"--log.level=loud", "status"}, {"health", "--bogus"}, {"health", "--gpus=many"}, {"health", "now"}, {"--log.level=loud", "health"},
	} {
		want := 3
		if slices.Contains(args, "health") {
			want = 2
		}
		if code, out, errs := gpuvigil(t, args...); code != want || out != "" || errs == "" {
			t.Errorf("%v: exit %d, %q %q, want %d and what is wrong", args, code, out, errs, want)
		}
	}
	if _, _, errs := gpuvigil(t, "status", "--bogus"); !strings.Contains(errs, "gpuvigil help") {
		t.Errorf("status --bogus: %q, want where to read on", errs)
	}
	if code, _, errs := gpuvigil(t, "--version"); code != 0 || !strings.Contains(errs, "gpuvigil") {
		t.Errorf("--version: exit %d, %q", code, errs)
	}
	if code, _, errs := gpuvigil(t, "--help"); code != 0 || !strings.Contains(errs, "doctor") || strings.Contains(errs, "nvml-child") {
		t.Errorf("--help: exit %d, %q", code, errs)
	}
	if code, out, _ := gpuvigil(t, "version"); code != 0 || !strings.HasPrefix(out, "gpuvigil") {
		t.Errorf("version: exit %d, %q", code, out)
	}
}

func TestRecordASimulation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "recording")
	code, out, errs := gpuvigil(t, "record", "-o", path, "--simulate=e2e", "--for=30s")
	if code != 0 || !strings.Contains(out, "30 frames") {
		t.Fatalf("record: exit %d, %q %q", code, out, errs)
	}
	if code, _, errs := gpuvigil(t, "record", "-o", path, "--simulate=e2e", "--for=30s"); code != 1 || !strings.Contains(errs, "--output") {
		t.Errorf("an existing recording is overwritten or the error does not help: exit %d, %q", code, errs)
	}
}

func TestPrintable(t *testing.T) {
	if got := printable("a\x1b[2Jb\nc\u202ed"); strings.ContainsAny(got, "\x1b\n\u202e") {
		t.Errorf("a name moves the cursor: %q", got)
	}
}

// Another exporter's page says who was given a GPU and not who uses it: nobody is blamed for
// a GPU that is busy.
func TestUseIsUnknownOfAnotherExportersPage(t *testing.T) {
	pod := collector.Owner{Kind: "pod", ID: "nlp-x/train-0"}
	g := server.GPU{Present: true, Owners: []collector.Owner{pod}, Given: []server.Allocation{{Owner: pod, Source: "dcgm-exporter"}}}
	a := &answer{snapshot: &server.Snapshot{Pages: []collector.Page{{Exporter: "dcgm-exporter", GPUs: true}}}, findings: &server.Findings{}}
	if got, want := gpuOwner(g, a.seesProcesses()), "given to pod:nlp-x/train-0, use unknown"; got != want {
		t.Errorf("status says %q, want %q", got, want)
	}
	facts := strings.Join(a.gpuFacts(&g), "\n")
	if strings.Contains(facts, "not used") || !strings.Contains(facts, "use unknown") || !strings.Contains(facts, "given to pod:nlp-x/train-0 (says dcgm-exporter)") {
		t.Errorf("why does not say that the use is unknown and who says whose it is:\n%s", facts)
	}
}

// TestManyOwnersFitALine is a GPU that is cut into shares, read by a tired person.
func TestManyOwnersFitALine(t *testing.T) {
	pod := func(n int) collector.Owner { return collector.Owner{Kind: "pod", ID: fmt.Sprintf("ns/p%d", n)} }
	gpu := func(used, given int) server.GPU {
		var g server.GPU
		for n := range used + given {
			g.Owners = append(g.Owners, pod(n))
			if n < used {
				g.Users = append(g.Users, pod(n))
			} else {
				g.Given = append(g.Given, server.Allocation{Owner: pod(n), Resource: "nvidia.com/gpu.shared", Source: "kubelet"})
			}
		}
		return g
	}
	for want, g := range map[string]server.GPU{
		"unattributed":         gpu(0, 0),
		"pod:ns/p0, pod:ns/p1": gpu(2, 0),
		"pod:ns/p0, pod:ns/p1, pod:ns/p2, pod:ns/p3":                                      gpu(4, 0),
		"pod:ns/p0, pod:ns/p1, pod:ns/p2 and 57 more":                                     gpu(60, 0),
		"given to and not used by pod:ns/p0":                                              gpu(0, 1),
		"pod:ns/p0, given to and not used by pod:ns/p1, pod:ns/p2, pod:ns/p3 and 29 more": gpu(1, 32),
	} {
		if got := gpuOwner(g, true); got != want {
			t.Errorf("of %d owners and %d allocations it says %q, want %q", len(g.Owners), len(g.Given), got, want)
		}
	}
	g := gpu(1, 32)
	facts := strings.Join((&answer{snapshot: &server.Snapshot{}, findings: &server.Findings{}}).gpuFacts(&g), "\n")
	for _, want := range []string{"used by pod:ns/p0\n", "not used by pod:ns/p1, ", "and 27 more allocations"} {
		if !strings.Contains(facts, want) {
			t.Errorf("why does not say %q:\n%s", want, facts)
		}
	}
}

// What check counts is who is told, by whatever way.
func TestCheckCountsReceiversOfEveryKind(t *testing.T) {
	code, out, errs := gpuvigil(t, "check", file(t, `alerting:
  webhook: [{name: b, url: 'https://h/x'}, {name: c, url: 'https://h/y'}]
  alertmanager: [{name: d, urls: ['http://h:9093']}]
`))
	if code != 0 || !strings.Contains(out, "3 receivers (1 Alertmanager, 2 webhook)") {
		t.Errorf("of three receivers check says %d %s%s", code, out, errs)
	}
}

// A matcher that nothing can fit sends nobody anything, without a word.
func TestCheckRefusesMatchersThatNothingFits(t *testing.T) {
	for matcher, want := range map[string]string{
		`severity="urgent"`:    "allowed: info, ticket, page",
		`severity!="critical"`: "allowed: info, ticket, page",
		`rule="gpu_is_lost"`:   "gpu_lost",
		`rule=~"xid_.*"`:       "allowed: ",
		`critical="yes"`:       `allowed: true, or "" for what is not so`,
		`gpu="three"`:          "the number of a GPU",
	} {
		code, _, errs := gpuvigil(t, "check", file(t, "alerting:\n  webhook: [{name: a, url: 'https://h/x'}]\n  route:\n    receiver: a\n    routes:\n    - receiver: none\n      matchers: ['"+matcher+"']\n"))
		if code == 0 || !strings.Contains(errs, "gpuvigil.yml:7: alerting.route.routes[0].matchers[0]: found ") || !strings.Contains(errs, want) {
			t.Errorf("matcher %s: check exits %d and says %q, want an error that says %q", matcher, code, errs, want)
		}
	}
	for _, matcher := range []string{`severity=~"page|ticket"`, `rule!="xid"`, `critical!="true"`, `simulated=""`, `gpu="3"`, `rule!~"idle.*"`} {
		if code, _, errs := gpuvigil(t, "check", file(t, "alerting:\n  webhook: [{name: a, url: 'https://h/x'}]\n  route:\n    receiver: a\n    routes:\n    - receiver: none\n      matchers: ['"+matcher+"']\n")); code != 0 {
			t.Errorf("matcher %s is refused: %s", matcher, errs)
		}
	}
}
