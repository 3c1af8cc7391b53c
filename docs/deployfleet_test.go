package docs_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector/kube"
	"gpuvigil/internal/config"
	"gpuvigil/internal/fleet"
	"gpuvigil/internal/metric"
)

func objectsOf(t *testing.T, path string) map[string]object {
	t.Helper()
	all := map[string]object{}
	for d := yaml.NewDecoder(bytes.NewReader([]byte(read(t, path)))); ; {
		var o object
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%s is not YAML: %v", path, err)
		}
		all[o.Kind] = o
	}
}

// allows lists what a role allows, and finds fault with whatever is more than reading.
func allows(t *testing.T, path string, role object) []string {
	t.Helper()
	var out []string
	for _, r := range role.Rules {
		if !slices.Equal(r.Verbs, []string{"get", "list", "watch"}) {
			t.Errorf("%s allows %v of %v, want get, list and watch and nothing else", path, r.Verbs, r.Resources)
		}
		for _, resource := range r.Resources {
			if len(r.APIGroups) != 1 || strings.Contains(resource+r.APIGroups[0], "*") {
				t.Errorf("%s: the rule for %v is wider than one group of named resources", path, r.Resources)
			}
			out = append(out, strings.TrimSuffix(resource+"."+r.APIGroups[0], "."))
		}
	}
	slices.Sort(out)
	return out
}

func bound(t *testing.T, path string, all map[string]object, account string) {
	t.Helper()
	b := all["ClusterRoleBinding"]
	if b.RoleRef.Kind != "ClusterRole" || b.RoleRef.Name != all["ClusterRole"].Metadata.Name || len(b.Subjects) != 1 ||
		b.Subjects[0].Kind != "ServiceAccount" || b.Subjects[0].Name != account || b.Subjects[0].Namespace != manifest(t)["Namespace"].Metadata.Name {
		t.Errorf("%s binds %+v to %+v, want its role to the account %s", path, b.RoleRef, b.Subjects, account)
	}
}

// The role may read what the code reads, all of it and no more.
func TestFleetMayReadWhatItReads(t *testing.T) {
	const path = "../deploy/kubernetes/fleet.yml"
	all := objectsOf(t, path)
	var want []string
	for _, k := range fleet.NewKubernetes(fleet.KubernetesConfig{Claims: true, Kueue: true, Volcano: true, Ray: true, Autoscalers: true}).Kinds() {
		want = append(want, k.String())
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, allows(t, path, all["ClusterRole"])); diff != "" {
		t.Errorf("the role does not allow what is read (-read +allowed):\n%s", diff)
	}
	bound(t, path, all, all["ServiceAccount"].Metadata.Name)
	pod := all["Deployment"].Spec.Template.Spec
	if pod.ServiceAccountName != all["ServiceAccount"].Metadata.Name || pod.HostPID || len(pod.Containers) != 1 {
		t.Errorf("the pod is not the role's: %+v", pod)
	}
	for _, kind := range []string{"ServiceAccount", "ConfigMap", "Deployment"} {
		if got := all[kind].Metadata.Namespace; got != manifest(t)["Namespace"].Metadata.Name {
			t.Errorf("the %s is in namespace %q", kind, got)
		}
	}
	for _, v := range pod.Volumes {
		state := v.Name == "state" && v.ConfigMap == nil
		if v.HostPath != nil || !state && (v.ConfigMap == nil || v.ConfigMap.Name != all["ConfigMap"].Metadata.Name) {
			t.Errorf("the pod has a volume that it does not need: %+v", v)
		}
	}
	cfg, err := config.Parse("gpuvigil.yml", []byte(all["ConfigMap"].Data["gpuvigil.yml"]))
	if err != nil || !cfg.Fleet.Kubernetes.Enabled {
		t.Errorf("the configuration asks nobody: %v", err)
	}
	c := pod.Containers[0]
	if c.Args[0] != "fleet" || len(c.Ports) != 1 || c.Ports[0].ContainerPort != 9837 || c.Liveness.HTTPGet.Path != "/-/healthy" || c.Readiness.HTTPGet.Path != "/-/ready" {
		t.Errorf("the container is not the role's: %+v", c)
	}
}

// What it may write is the one Lease that the configuration names, in its own namespace.
func TestFleetMayWriteItsLease(t *testing.T) {
	const path = "../deploy/kubernetes/fleet.yml"
	all := objectsOf(t, path)
	cfg, err := config.Parse("gpuvigil.yml", []byte(all["ConfigMap"].Data["gpuvigil.yml"]))
	if err != nil || cfg.Fleet.Leader.Lease == "" || cfg.Fleet.Leader.Namespace != "" {
		t.Fatalf("the configuration names no Lease of its own namespace: %+v, %v", cfg.Fleet.Leader, err)
	}
	role, bound := all["Role"], all["RoleBinding"]
	may := map[string][]string{}
	for _, r := range role.Rules {
		if !slices.Equal(r.APIGroups, []string{"coordination.k8s.io"}) || !slices.Equal(r.Resources, []string{"leases"}) {
			t.Errorf("%s allows %v of %v %v in its namespace", path, r.Verbs, r.APIGroups, r.Resources)
		}
		for _, verb := range r.Verbs {
			may[verb] = r.Names
		}
	}
	lease := []string{cfg.Fleet.Leader.Lease}
	if diff := cmp.Diff(map[string][]string{"create": nil, "get": lease, "update": lease}, may); diff != "" {
		t.Errorf("the role does not allow what is done with the Lease (-want +allowed):\n%s", diff)
	}
	namespace := all["ServiceAccount"].Metadata.Namespace
	if bound.RoleRef.Kind != "Role" || bound.RoleRef.Name != role.Metadata.Name || role.Metadata.Namespace != namespace || bound.Metadata.Namespace != namespace ||
		len(bound.Subjects) != 1 || bound.Subjects[0].Name != all["ServiceAccount"].Metadata.Name || bound.Subjects[0].Namespace != namespace {
		t.Errorf("%s binds %+v in %q to %+v", path, bound.RoleRef, bound.Metadata.Namespace, bound.Subjects)
	}
}

func TestAgentMayReadWhatItReads(t *testing.T) {
	const path = "../deploy/kubernetes/agent-api.yml"
	all := objectsOf(t, path)
	want := []string{kube.Pods.String(), kube.ResourceSlices.String()}
	if diff := cmp.Diff(want, allows(t, path, all["ClusterRole"])); diff != "" {
		t.Errorf("the role does not allow what is read (-read +allowed):\n%s", diff)
	}
	bound(t, path, all, manifest(t)["ServiceAccount"].Metadata.Name)
}

// The examples are YAML, and ask for what there is: for running requests beside waiting ones,
// so that replicas that are just full are not taken away, and not of servers that are stale.
func TestAutoscalingExamples(t *testing.T) {
	names := regexp.MustCompile(`\bvigil_\w+`)
	files, err := filepath.Glob("../deploy/kubernetes/autoscaling/*.yml")
	if err != nil || len(files) < 2 {
		t.Fatalf("found %v, error %v: want one with prometheus-adapter and one with KEDA", files, err)
	}
	for _, path := range files {
		text := read(t, path)
		documents := 0
		for d := yaml.NewDecoder(strings.NewReader(text)); ; documents++ {
			var any map[string]any
			if err := d.Decode(&any); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s is not YAML: %v", path, err)
			}
		}
		if documents == 0 {
			t.Errorf("%s has no document", path)
		}
		asked := names.FindAllString(text, -1)
		for _, d := range []*metric.Def{metric.RequestsRunning, metric.RequestsWaiting, metric.EndpointStale} {
			if !slices.Contains(asked, d.Name) {
				t.Errorf("%s does not scale on %s", path, d)
			}
		}
		for _, name := range asked {
			if _, err := metric.ByName(name); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	type scaler struct {
		Kind string
		Spec struct {
			Metrics []struct {
				External struct{ Metric struct{ Name string } }
			}
		}
		Rules struct {
			External []struct{ Name struct{ As string } }
		}
	}
	var offered, used string
	for d := yaml.NewDecoder(strings.NewReader(read(t, "../deploy/kubernetes/autoscaling/hpa.yml"))); ; {
		var s scaler
		if err := d.Decode(&s); err != nil {
			break // read above
		}
		for _, r := range s.Rules.External {
			offered = r.Name.As
		}
		for _, m := range s.Spec.Metrics {
			used = m.External.Metric.Name
		}
	}
	if offered == "" || offered != used {
		t.Errorf("the adapter offers %q and the autoscaler scales on %q", offered, used)
	}
}

func TestSystemdReadsTheFleetsUnit(t *testing.T) {
	const path = "../deploy/systemd/gpuvigil-fleet.service"
	unit := read(t, path)
	if commands := setting(unit, "ExecStart"); len(commands) != 1 || !strings.HasPrefix(commands[0], "/usr/local/bin/gpuvigil fleet --config.file=") {
		t.Errorf("the unit starts %q", commands)
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed: the unit is not read by systemd itself")
	}
	copied := filepath.Join(t.TempDir(), "gpuvigil-fleet.service")
	if err := os.WriteFile(copied, []byte(strings.ReplaceAll(unit, "/usr/local/bin/gpuvigil", binary(t))), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), analyze, "verify", copied).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "gpuvigil-fleet.service") {
			t.Errorf("systemd-analyze verify: %s", line)
		}
	}
	if err != nil && !t.Failed() {
		t.Logf("systemd-analyze verify could not say everything here: %v: %s", err, out)
	}
}
