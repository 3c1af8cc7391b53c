package rules

import (
	"bytes"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"gpuvigil/internal/golden"
	"gpuvigil/internal/metric"
)

func TestGeneratedFiles(t *testing.T) {
	for name, build := range map[string]func(Options) ([]byte, error){
		RulesFile: Prometheus, PrometheusRuleFile: PrometheusRule, PromtoolTestsFile: PromtoolTests,
	} {
		got, err := build(Options{})
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if again, err := build(Options{}); err != nil || !bytes.Equal(got, again) {
				t.Fatalf("%s differs from one run to the next, error %v", name, err)
			}
		}
		golden.Check(t, filepath.Join("testdata", name), string(got), name+" is generated differently")
	}
}

func TestEveryRuleHasAnAlert(t *testing.T) {
	alerts := map[string]promRule{}
	for _, g := range groups(Options{}).Groups {
		for _, r := range g.Rules {
			if r.Alert != "" {
				alerts[r.Alert] = r
			}
		}
	}
	for _, r := range All() {
		a, ok := alerts[AlertName(r.ID)]
		if !ok {
			t.Errorf("rule %q has no alert %s", r.ID, AlertName(r.ID))
			continue
		}
		if a.Labels["severity"] != "" {
			t.Errorf("alert %s fixes the severity that the finding must give", a.Alert)
		}
	}
	for _, a := range alerts {
		for _, name := range []string{"summary", "description", "action", "runbook"} {
			if a.Annotations[name] == "" {
				t.Errorf("alert %s has no annotation %s", a.Alert, name)
			}
		}
		if strings.Contains(a.Annotations["description"], "$") {
			t.Errorf("alert %s: a description with values makes every evaluation another alert", a.Alert)
		}
	}
}

// Every metric in a rule is in the catalogue, so a renamed one cannot break an
// alert silently.
func TestRulesAskOnlyForWhatIsExported(t *testing.T) {
	names := regexp.MustCompile(`vigil_\w+`)
	for _, g := range groups(Options{}).Groups {
		for _, r := range g.Rules {
			for _, name := range names.FindAllString(r.Expr+r.Annotations["summary"], -1) {
				if _, err := metric.ByName(name); err != nil {
					t.Errorf("%s%s: %v", r.Alert, r.Record, err)
				}
			}
			if r.Record != "" && strings.Count(r.Record, ":") != 2 {
				t.Errorf("recording rule %s is not named level:metric:operation", r.Record)
			}
		}
	}
}

func TestEveryRuleIsTestedBothWays(t *testing.T) {
	data, err := PromtoolTests(Options{})
	if err != nil {
		t.Fatal(err)
	}
	var f testFile
	if err := yaml.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]int{}, map[string]int{}
	count := func(name string, expected int) {
		if expected > 0 {
			fires[name]++
		} else {
			silent[name]++
		}
	}
	for _, test := range f.Tests {
		for _, a := range test.Alerts {
			count(a.Name, len(a.Expected))
		}
		for _, e := range test.Exprs {
			count(e.Expr, len(e.Expected))
		}
	}
	for _, g := range groups(Options{}).Groups {
		for _, r := range g.Rules {
			if name := r.Alert + r.Record; fires[name] == 0 || silent[name] == 0 {
				t.Errorf("%s has %d tests in which it fires and %d in which it is silent", name, fires[name], silent[name])
			}
		}
	}
}

func TestManifestHoldsTheSameRules(t *testing.T) {
	data, err := PrometheusRule(Options{})
	if err != nil {
		t.Fatal(err)
	}
	var m manifest
	if err := yaml.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	if m.APIVersion != "monitoring.coreos.com/v1" || m.Kind != "PrometheusRule" || m.Metadata.Name == "" {
		t.Errorf("manifest is %s %s named %q", m.APIVersion, m.Kind, m.Metadata.Name)
	}
	if diff := cmp.Diff(groups(Options{}), m.Spec); diff != "" {
		t.Errorf("rules of the manifest (-plain +manifest):\n%s", diff)
	}
}

func TestRunbooks(t *testing.T) {
	build := map[string]func(Options) ([]byte, error){"rules": Prometheus, "manifest": PrometheusRule, "tests": PromtoolTests}
	for name, f := range build {
		out, err := f(Options{RunbookURL: "https://wiki.example.com/gpus?page="})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"https://wiki.example.com/gpus?page=xid", "https://wiki.example.com/gpus?page=agent"} {
			if !bytes.Contains(out, []byte("runbook_url: "+want)) {
				t.Errorf("%s: no alert links to %s", name, want)
			}
		}
		if bytes.Contains(out, []byte("runbook: ")) {
			t.Errorf("%s: an alert has a path for a runbook beside the URL", name)
		}
		for _, bad := range []string{"docs/rules.md#", "//wiki.example.com/", "ftp://wiki.example.com/", "https:///x", "https://me:hunter2@wiki.example.com/", "https://a/{{ .Value }}", "https://a b/"} {
			if _, err := f(Options{RunbookURL: bad}); err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s with the runbook URL %s: error %v, want one that tells no secret", name, bad, err)
			}
		}
	}
}

func TestAlertName(t *testing.T) {
	for id, want := range map[ID]string{"saturated_gpu": "VigilSaturatedGPU", "xid": "VigilXid", "version_changed": "VigilVersionChanged"} {
		if got := AlertName(id); got != want {
			t.Errorf("alert of %s is %s, want %s", id, got, want)
		}
	}
}
