package inventory

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const dpkg = `Package: containerd.io
Status: install ok installed
Version: 1.7.27-1
Description: An open and reliable container runtime
 Version: 9.9.9
 Package: kubelet

Package: docker-ce
Status: install ok installed
Version: 5:28.3.3-1~ubuntu.24.04~noble

Package: docker.io
Status: install ok installed
Version: 20.10.0

Package: kubelet
Status: deinstall ok config-files
Version: 1.33.4-1.1

Package: nvidia-fabricmanager-570
Status: install ok installed
Version: 570.124.06-0ubuntu0.22.04.1

Package: nvidia-container-toolkit
Status: install ok installed
Version: 1.17.8-1

Package: ofed-scripts
Status: install ok installed
Version: 24.10.OFED.24.10.1.1.4-1

Package: doca-ofed
Status: install ok installed
Version: <b>2.9.1</b>
`

// versionsOf returns what the node's root and sysfs tell, as words.
func versionsOf(t *testing.T, n *nodeReader, r *root) map[string]string {
	t.Helper()
	list, err := n.versions(r)
	if err != nil {
		t.Error(err)
	}
	out := map[string]string{}
	for _, v := range list {
		out[v.Component] = v.Value
	}
	return out
}

func TestNodeComponents(t *testing.T) {
	r, dir := within(t, map[string]string{"var/lib/dpkg/status": dpkg, "usr/bin/kubelet": "no program"})
	sys := t.TempDir()
	put(t, sys, map[string]string{
		"class/dmi/id/bios_version":      "2.22.2\n",
		"class/infiniband/mlx5_0/fw_ver": "28.43.1014\n",
		"class/infiniband/mlx5_1/fw_ver": "28.43.1014\n",
		"class/infiniband/mlx5_2/fw_ver": "28.41.1000\n",
		"module/mlx5_core/version":       "24.10-1.1.4\n",
	})
	n := newNodeReader(sys)
	want := map[string]string{
		"containerd": "1.7.27", "docker": "28.3.3", "fabric_manager": "570.124.06", "container_toolkit": "1.17.8", "ofed": "24.10-1.1.4",
		"bios": "2.22.2", "hca_firmware": "28.41.1000, 28.43.1014",
	}
	if diff := cmp.Diff(want, versionsOf(t, n, r)); diff != "" {
		t.Errorf("the node's components (-want +told):\n%s", diff)
	}

	put(t, dir, map[string]string{"var/lib/dpkg/status": strings.Replace(dpkg, "1.7.27-1", "2.1.4-1", 1)})
	put(t, sys, map[string]string{"module/mlx5_core/version": inbox})
	want["containerd"], want["ofed"] = "2.1.4", "24.10.OFED.24.10.1.1.4"
	if diff := cmp.Diff(want, versionsOf(t, n, r)); diff != "" {
		t.Errorf("after an upgrade of a package, with the kernel's own driver (-want +told):\n%s", diff)
	}
}

func TestNodeWithoutDpkg(t *testing.T) {
	r, _ := within(t, map[string]string{"var/lib/rpm/rpmdb.sqlite": "x"})
	n := newNodeReader(t.TempDir())
	if got := versionsOf(t, n, r); len(got) > 0 || len(n.absent) != 1 || !strings.Contains(n.absent[0], "rpm") {
		t.Errorf("a node with rpm only tells %v and says of what is missing %q", got, n.absent)
	}
	if got := versionsOf(t, n, nil); len(got) > 0 {
		t.Errorf("a node that is not looked into tells %v", got)
	}
}

func TestVersionOfAProgram(t *testing.T) {
	src := t.TempDir()
	put(t, src, map[string]string{"go.mod": "module k8s.io/kubernetes\n\ngo 1.24\n", "main.go": "package main\n\nvar gitVersion string\n\nfunc main() { println(gitVersion) }\n"})
	r, dir := within(t, map[string]string{"opt/kube/bin/.keep": ""})
	program := filepath.Join(dir, "usr/bin/kubelet")
	put(t, dir, map[string]string{"usr/bin/.keep": ""})
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "-ldflags", "-X k8s.io/component-base/version.gitVersion=v1.33.4", ".")
	build.Dir = src
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build a program: %v: %s", err, out)
	}
	n := newNodeReader(t.TempDir())
	if got := versionsOf(t, n, r); got["kubelet"] != "1.33.4" {
		t.Errorf("a kubelet of 1.33.4 is told as %q", got["kubelet"])
	}
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	if got := versionsOf(t, n, r); got["kubelet"] != "" {
		t.Errorf("a kubelet that is gone is told as %q", got["kubelet"])
	}
}

func TestWordsOfTheLinker(t *testing.T) {
	f := func(flags, want string) {
		t.Helper()
		got := ""
		if m := linked.FindStringSubmatch(flags); m != nil {
			got = m[1]
		}
		if got != want {
			t.Errorf("flags %q give %q, want %q", flags, got, want)
		}
	}
	f("-s -w -X k8s.io/component-base/version.gitVersion=v1.33.4 -X k8s.io/component-base/version.gitCommit=abc", "1.33.4")
	f("-X github.com/containerd/containerd/v2/version.Version=v2.1.4", "2.1.4")
	f(`-w -X "github.com/docker/docker/dockerversion.Version=28.3.3"`, "28.3.3")
	f("-X=main.version=1.17.8", "1.17.8")
	f("-X main.goVersion=go1.24", "")
	f("-s -w", "")
}

func TestImages(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	f := func(place, content string, want image) {
		t.Helper()
		r, _ := within(t, map[string]string{strings.Replace(place, "%s", id, 1): content})
		got, err := imageOf(r, id)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(image{})); diff != "" || err != nil {
			t.Errorf("%s (-want +told, %v):\n%s", place, err, diff)
		}
	}
	f(places[0], `{"Image":"sha256:ab12","Name":"/train","Config":{"Image":"registry.example/train:7","Env":["TOKEN=hunter2"]}}`, image{"registry.example/train:7", "sha256:ab12"})
	f(places[1], `{"ociVersion":"1.2","process":{"env":["TOKEN=hunter2"]},"annotations":{"io.kubernetes.cri.image-name":"docker.io/vllm/vllm-openai:v0.11.0"}}`, image{"docker.io/vllm/vllm-openai:v0.11.0", ""})
	f(places[3], `{"annotations":{"io.kubernetes.cri-o.ImageName":"quay.io/a/b@sha256:cd34"}}`, image{"quay.io/a/b", "sha256:cd34"})
	f(places[1], `not json`, image{})
	f(places[1], `{"annotations":{"io.kubernetes.cri.image-name":"\u001b[2Jevil"}}`, image{"[2Jevil", ""})
	f("nowhere/%s", "", image{})

	for text, want := range map[string]string{
		"0::/system.slice/docker-" + id + ".scope": id, "0::/kubepods/pod1/" + id: id, "0::/user.slice": "", "0::/x/" + id + "0": "",
		"0::/kubepods.slice/cri-containerd-" + strings.Repeat("f", 64) + ".scope/docker-" + id + ".scope": id,
	} {
		if got := containerOf(text); got != want {
			t.Errorf("the container in %q is %q, want %q", text, got, want)
		}
	}
}

func TestImagesThatMayNotBeRead(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may read everything")
	}
	r, dir := within(t, map[string]string{"var/lib/docker/containers/x/config.v2.json": "{}"})
	closed := filepath.Join(dir, "var/lib/docker/containers")
	if err := os.Chmod(closed, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // else the directory cannot be removed
		if err := os.Chmod(closed, 0o700); err != nil {
			t.Error(err)
		}
	})
	if _, err := imageOf(r, "x"); err == nil || !strings.Contains(err.Error(), fs.ErrPermission.Error()) {
		t.Errorf("containers that may not be read: %v", err)
	}
}

func FuzzContainerFiles(f *testing.F) {
	f.Add([]byte(`{"Image":"sha256:ab12","Config":{"Image":"train:7"}}`), dpkg)
	f.Fuzz(func(t *testing.T, content []byte, status string) {
		if i := parseContainer(content); len([]rune(i.name)) > maxShown || len([]rune(i.digest)) > maxShown {
			t.Fatalf("%q gives %+v", content, i)
		}
		versions, err := readPackages(strings.NewReader(status))
		if err != nil {
			t.Fatal(err)
		}
		for c, v := range versions {
			if v != "" && !versionText.MatchString(v) {
				t.Fatalf("%q gives %s %q", status, c, v)
			}
		}
	})
}
