package docs_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"gpuvigil/internal/config"
)

const (
	unitFile     = "../deploy/systemd/gpuvigil.service"
	manifestFile = "../deploy/kubernetes/gpuvigil.yml"
)

// setting returns the values of a unit's setting.
func setting(unit, name string) []string {
	var all []string
	for line := range strings.Lines(unit) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+"="); ok {
			all = append(all, value)
		}
	}
	return all
}

// TestUnitStarts runs the unit's command as systemd would, with the state directory
// that systemd makes.
func TestUnitStarts(t *testing.T) {
	unit := read(t, unitFile)
	commands := setting(unit, "ExecStart")
	if len(commands) != 1 {
		t.Fatalf("the unit has %d commands to start, want 1", len(commands))
	}
	words := strings.Fields(commands[0])
	if words[0] != "/usr/local/bin/gpuvigil" {
		t.Errorf("the unit starts %s, which deploy/README.md does not install", words[0])
	}
	dir := t.TempDir()
	example := filepath.Join(dir, "gpuvigil.yml")
	if err := os.WriteFile(example, config.Example, 0o600); err != nil {
		t.Fatal(err)
	}
	args := replaced(t, words[1:], "/etc/gpuvigil/gpuvigil.yml", example)
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	a := start(t, dir, append(os.Environ(), "STATE_DIRECTORY="+state), freePort(t), args...)
	if _, err := os.Stat(filepath.Join(state, "agent.sock")); err != nil {
		t.Errorf("the agent does not keep its socket in the directory that systemd makes: %v", err)
	}
	a.stop(t)
}

func TestSystemdReadsTheUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed: the unit is not read by systemd itself")
	}
	unit := strings.ReplaceAll(read(t, unitFile), "/usr/local/bin/gpuvigil", binary(t))
	path := filepath.Join(t.TempDir(), "gpuvigil.service")
	if err := os.WriteFile(path, []byte(unit), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), analyze, "verify", path).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "gpuvigil.service") { // and not some other unit of this machine
			t.Errorf("systemd-analyze verify: %s", line)
		}
	}
	if err != nil && !t.Failed() {
		t.Logf("systemd-analyze verify could not say everything here: %v: %s", err, out)
	}
}

// replaced replaces a path in arguments that must have it.
func replaced(t *testing.T, args []string, from, to string) []string {
	t.Helper()
	var out []string
	found := false
	for _, a := range args {
		found = found || strings.Contains(a, from)
		out = append(out, strings.Replace(a, from, to, 1))
	}
	if !found {
		t.Errorf("the arguments %q do not name %s", args, from)
	}
	return out
}

// object is what the test looks at of a Kubernetes object.
type object struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct {
		Name, Namespace string
		Annotations     map[string]string
	}
	Data  map[string]string
	Rules []struct {
		APIGroups []string `yaml:"apiGroups"`
		Resources []string
		Verbs     []string
		Names     []string `yaml:"resourceNames"`
	}
	RoleRef  struct{ Kind, Name string } `yaml:"roleRef"`
	Subjects []struct{ Kind, Name, Namespace string }
	Spec     struct {
		Selector struct {
			MatchLabels map[string]string `yaml:"matchLabels"`
		}
		Template struct {
			Metadata struct{ Labels, Annotations map[string]string }
			Spec     podSpec
		}
	}
}

type podSpec struct {
	ServiceAccountName string `yaml:"serviceAccountName"`
	HostPID            bool   `yaml:"hostPID"`
	Containers         []container
	Volumes            []struct {
		Name      string
		ConfigMap *struct{ Name string } `yaml:"configMap"`
		HostPath  *struct{ Path string } `yaml:"hostPath"`
	}
}

type container struct {
	Name, Image string
	Args        []string
	Env         []struct{ Name, Value string }
	Ports       []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	Liveness     probe `yaml:"livenessProbe"`
	Readiness    probe `yaml:"readinessProbe"`
	VolumeMounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
}

// manifest returns the manifest's objects by kind.
func manifest(t *testing.T) map[string]object {
	t.Helper()
	all := map[string]object{}
	for d := yaml.NewDecoder(bytes.NewReader([]byte(read(t, manifestFile)))); ; {
		var o object
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the manifest is not YAML: %v", err)
		}
		if o.APIVersion == "" || o.Metadata.Name == "" {
			t.Errorf("a %s has no apiVersion or no name", o.Kind)
		}
		all[o.Kind] = o
	}
	return all
}

func TestManifestFitsTogether(t *testing.T) {
	all := manifest(t)
	for _, kind := range []string{"Namespace", "ServiceAccount", "ConfigMap", "DaemonSet"} {
		o, ok := all[kind]
		if !ok {
			t.Fatalf("the manifest has no %s", kind)
		}
		if kind != "Namespace" && o.Metadata.Namespace != all["Namespace"].Metadata.Name {
			t.Errorf("the %s is in namespace %q, the manifest makes %q", kind, o.Metadata.Namespace, all["Namespace"].Metadata.Name)
		}
	}
	set := all["DaemonSet"]
	pod := set.Spec.Template.Spec
	for k, v := range set.Spec.Selector.MatchLabels {
		if set.Spec.Template.Metadata.Labels[k] != v {
			t.Errorf("the DaemonSet selects %s=%s, its pods have %q", k, v, set.Spec.Template.Metadata.Labels[k])
		}
	}
	if len(set.Spec.Selector.MatchLabels) == 0 || len(pod.Containers) != 1 || !pod.HostPID {
		t.Errorf("the DaemonSet needs a selector, one container and the host's pids: %+v", set.Spec)
	}
	if pod.ServiceAccountName != all["ServiceAccount"].Metadata.Name {
		t.Errorf("the pods run as %q, the manifest makes %q", pod.ServiceAccountName, all["ServiceAccount"].Metadata.Name)
	}
	var volumes, mounts []string
	for _, v := range pod.Volumes {
		volumes = append(volumes, v.Name)
		if v.ConfigMap != nil && v.ConfigMap.Name != all["ConfigMap"].Metadata.Name {
			t.Errorf("volume %s is of the ConfigMap %q, the manifest makes %q", v.Name, v.ConfigMap.Name, all["ConfigMap"].Metadata.Name)
		}
	}
	for _, m := range pod.Containers[0].VolumeMounts {
		mounts = append(mounts, m.Name)
	}
	slices.Sort(volumes)
	slices.Sort(mounts)
	if !slices.Equal(volumes, mounts) {
		t.Errorf("the pods have volumes %v and mount %v", volumes, mounts)
	}
}

// TestDaemonSetStarts runs the container's command with the ConfigMap's
// configuration, and asks what the kubelet and Prometheus would ask.
func TestDaemonSetStarts(t *testing.T) {
	all := manifest(t)
	set := all["DaemonSet"]
	c := set.Spec.Template.Spec.Containers[0]
	dir := t.TempDir()
	args := c.Args
	known := config.Default()
	byDefault := []string{known.Kubernetes.PodResources, known.Owners.PodLogs, known.Owners.ContainerLogs}
	for _, m := range c.VolumeMounts {
		if slices.Contains(byDefault, m.MountPath) || strings.HasPrefix(m.MountPath, known.Host.SysFS) {
			continue // where the agent looks without being told
		}
		args = replaced(t, args, "="+m.MountPath, "="+filepath.Join(dir, m.Name))
	}
	for name, content := range all["ConfigMap"].Data {
		if err := os.MkdirAll(filepath.Join(dir, "config"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "config", name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	env := append(os.Environ(), "NODE_NAME=gpu-117")
	a := start(t, dir, env, freePort(t), args...)
	for _, path := range []string{c.Liveness.HTTPGet.Path, c.Readiness.HTTPGet.Path, "/metrics"} {
		code, body, err := a.get(path)
		if err != nil || code != http.StatusOK {
			t.Errorf("GET %q answers %d %s, error %v", path, code, body, err)
		}
		if path == "/metrics" && !strings.Contains(body, `node="gpu-117"`) {
			t.Error("the agent does not take the node's name from NODE_NAME")
		}
	}
	a.stop(t)

	if len(c.Ports) != 1 || c.Ports[0].ContainerPort != 9836 || set.Spec.Template.Metadata.Annotations["prometheus.io/port"] != defaultPort {
		t.Errorf("the manifest's ports %+v are not the agent's default, %s", c.Ports, defaultPort)
	}
	for _, p := range []string{c.Liveness.HTTPGet.Port, c.Readiness.HTTPGet.Port} {
		if p != c.Ports[0].Name {
			t.Errorf("a probe asks port %q, which is not the container's", p)
		}
	}
}
