package inventory

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
)

// The bounds of what is read for the node's components.
const (
	maxProgram = 512 << 20
	maxAttr    = 4 << 10
	maxDevices = 64
)

// component is a part of the node whose version is a Go program's, or a package's.
type component struct {
	name     string
	programs []string // the first that tells wins; a program is what runs, a package what was installed
	packages []*regexp.Regexp
}

func packages(patterns ...string) []*regexp.Regexp {
	var all []*regexp.Regexp
	for _, p := range patterns {
		all = append(all, regexp.MustCompile("^(?:"+p+")$"))
	}
	return all
}

var components = []component{
	{"containerd", []string{"/usr/bin/containerd", "/usr/local/bin/containerd"}, packages(`containerd\.io`, `containerd`)},
	{"docker", []string{"/usr/bin/dockerd", "/usr/local/bin/dockerd"}, packages(`docker-ce`, `docker\.io`)},
	{"crio", []string{"/usr/bin/crio", "/usr/local/bin/crio"}, packages(`cri-o`, `cri-o-[0-9.]+`)},
	{"kubelet", []string{"/usr/bin/kubelet", "/usr/local/bin/kubelet"}, packages(`kubelet`)},
	{"container_toolkit", []string{"/usr/bin/nvidia-container-runtime", "/usr/local/nvidia/toolkit/nvidia-container-runtime.real"},
		packages(`nvidia-container-toolkit`, `nvidia-container-toolkit-base`)},
	{"fabric_manager", nil, packages(`nvidia-fabricmanager(?:-[0-9]+)?`)},
	{"ofed", nil, packages(`ofed-scripts`, `mlnx-ofed-kernel-utils`, `doca-ofed`, `doca-runtime`)},
}

// stamp tells whether a file is still what it was.
type stamp struct {
	size     int64
	modified time.Time
}

// nodeReader finds the versions of the node's components. It runs nothing: it reads
// what the package manager keeps and what the programs' files say of themselves.
type nodeReader struct {
	sysfs    string
	programs map[string]told // by path
	dpkg     stamp
	packages map[string]string // versions by component
	absent   []string
}

// told is what a file said when it was last read.
type told struct {
	stamp   stamp
	version string
}

func newNodeReader(sysfs string) *nodeReader {
	return &nodeReader{sysfs: sysfs, programs: map[string]told{}}
}

// versions returns what is known of each component. node is the node's root
// directory, nil if it cannot be looked into.
func (n *nodeReader) versions(node *root) ([]collector.Version, error) {
	n.absent = nil
	found := map[string]string{}
	var errs []error
	if node != nil {
		errs = append(errs, n.readDpkg(node))
		for _, c := range components {
			found[c.name] = n.packages[c.name]
			for _, program := range c.programs {
				v, err := n.program(node, program)
				errs = append(errs, err)
				if v != "" {
					found[c.name] = v
					break
				}
			}
		}
		found["driver_library"] = driverLibrary(node)
	}
	found["kernel_module"] = n.attribute("module/nvidia/version")
	found["bios"] = n.attribute("class/dmi/id/bios_version")
	found["hca_firmware"] = n.attributes("class/infiniband/*/fw_ver")
	if v := n.attribute("module/mlx5_core/version"); v != "" && v != inbox {
		found["ofed"] = v // what is loaded, not what was installed
	}
	var out []collector.Version
	for name, version := range found {
		if version != "" {
			out = append(out, collector.Version{Component: name, Value: version})
		}
	}
	slices.SortFunc(out, func(a, b collector.Version) int { return strings.Compare(a.Component, b.Component) })
	return out, errors.Join(errs...)
}

// driverFolder is where a container that installs the driver shows its own files.
const driverFolder = "/run/nvidia/driver"

// driverLibrary returns the version of the library that programs which start now talk
// to the driver with, as the link to it says. What lies on a node whose driver comes
// in a container is of an earlier installation.
func driverLibrary(node *root) string {
	folders := []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"}
	if node.has(driverFolder + "/usr") {
		for i, f := range folders {
			folders[i] = driverFolder + f
		}
	}
	for _, f := range folders {
		file, err := node.base(f + "/libnvidia-ml.so.1")
		if err != nil {
			continue // a node has one of them
		}
		if _, version, ok := soname(file); ok && strings.Contains(version, ".") {
			return version
		}
	}
	return ""
}

// inbox is the version that the kernel's own mlx5 driver has always had.
const inbox = "5.0-0"

// program returns the version that the file of a Go program has in it, or nothing.
func (n *nodeReader) program(node *root, name string) (string, error) {
	f, err := node.open(name)
	if err != nil {
		delete(n.programs, name)
		if errors.Is(err, errNoOpenat2) {
			return "", err
		}
		return "", nil // most nodes have few of them
	}
	now, err := stampOf(f)
	if was, ok := n.programs[name]; err == nil && (!ok || was.stamp != now) {
		version := ""
		if now.size <= maxProgram {
			version = builtVersion(f)
		}
		n.programs[name] = told{now, version}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	return n.programs[name].version, nil
}

func stampOf(f *os.File) (stamp, error) {
	info, err := f.Stat()
	if err != nil {
		return stamp{}, err
	}
	return stamp{info.Size(), info.ModTime()}, nil
}

var (
	linked  = regexp.MustCompile(`-X[= ]['"]?[^ '"=]*[./](?:gitVersion|version|Version)=v?([0-9][0-9A-Za-z.+_-]*)`)
	release = regexp.MustCompile(`^v?([0-9]+\.[0-9]+\.[0-9]+(?:-(?:alpha|beta|rc)[0-9A-Za-z.-]*)?)(?:\+[0-9A-Za-z.]+)?$`)
)

// builtVersion returns what Go's linker was told the version is, or the main
// module's version. A program that was built otherwise does not tell.
func builtVersion(f io.ReaderAt) string {
	info, err := buildinfo.Read(f)
	if err != nil {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "-ldflags" {
			if m := linked.FindStringSubmatch(s.Value); m != nil {
				return m[1]
			}
		}
	}
	if m := release.FindStringSubmatch(info.Main.Version); m != nil {
		return m[1]
	}
	return ""
}

// attribute returns a file of sysfs, which is one line.
func (n *nodeReader) attribute(name string) string {
	f, err := os.Open(filepath.Join(n.sysfs, name))
	if err != nil {
		return "" // no such device, or no module with a version
	}
	content, err := io.ReadAll(io.LimitReader(f, maxAttr))
	if err = errors.Join(err, f.Close()); err != nil {
		return ""
	}
	return shown(string(content))
}

// attributes returns what several devices tell, each answer once.
func (n *nodeReader) attributes(pattern string) string {
	files, err := filepath.Glob(filepath.Join(n.sysfs, pattern))
	if err != nil {
		return ""
	}
	var all []string
	for _, file := range files[:min(len(files), maxDevices)] {
		name, err := filepath.Rel(n.sysfs, file)
		if v := n.attribute(name); err == nil && v != "" && !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
