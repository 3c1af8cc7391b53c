package rules

import "strings"

// BadVersion is a range of versions of a component that are known to be bad.
type BadVersion struct {
	Component string   // as the inventory names it
	From      string   // the first that is bad; empty: all before
	Before    string   // the first that is good again
	Models    []string // only beside GPUs of one of these models; empty: any
	Severity  Severity
	Why       string // what is wrong with it, as a clause
	Source    string // URL of who says so
}

// knownBad has few entries: each is certain for everybody who runs the version, and
// somebody who answers for the component says so. It is no list of vulnerabilities.
var knownBad = []BadVersion{
	{
		Component: "container_toolkit", Before: "1.17.4", Severity: Ticket,
		Why:    "an image can mount the node's file system (CVE-2025-23359)",
		Source: "https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/security.html",
	},
	{
		Component: "container_toolkit", From: "1.17.5", Before: "1.17.8", Severity: Ticket,
		Why:    "an image can run code as root on the node (CVE-2025-23266)",
		Source: "https://www.cve.org/CVERecord?id=CVE-2025-23266",
	},
	{
		// The CPUs beside these GPUs are Arm's; which earlier releases are concerned
		// depends on how they were built.
		Component: "nccl", From: "2.28.9", Before: "2.29.3", Models: []string{"GH200", "GB200", "GB300"}, Severity: Info,
		Why:    "collectives may hang for ever on Arm where it was built with gcc before 10",
		Source: "https://github.com/NVIDIA/nccl/releases/tag/v2.29.3-1",
	},
}

// BadVersionsKnown returns all that is known to be bad. It must not be modified.
func BadVersionsKnown() []BadVersion { return knownBad }

// KnownBad returns what is known against a version of a component beside GPUs of the
// models, nil if nothing is.
func KnownBad(component, version string, models []string) *BadVersion {
	for i := range knownBad {
		b := &knownBad[i]
		if b.Component == component && b.holds(version) && b.beside(models) {
			return b
		}
	}
	return nil
}

func (b *BadVersion) holds(version string) bool {
	before, ok := CompareVersions(version, b.Before)
	if !ok || before >= 0 {
		return false
	}
	if b.From == "" {
		return true
	}
	from, ok := CompareVersions(version, b.From)
	return ok && from >= 0
}

func (b *BadVersion) beside(models []string) bool {
	if len(b.Models) == 0 {
		return true
	}
	for _, m := range models {
		for _, name := range b.Models {
			if strings.Contains(m, name) {
				return true
			}
		}
	}
	return false
}

// CompareVersions compares two releases number by number, and is false if one of them
// does not begin with a number. What follows the numbers, as the build in 2.9.1+cu128 or
// the post1 in 0.8.5.post1, does not count, and 2.28 is 2.28.0.
func CompareVersions(a, b string) (order int, ok bool) {
	a, b = strings.TrimPrefix(a, "v"), strings.TrimPrefix(b, "v")
	if !digit(a) || !digit(b) {
		return 0, false
	}
	for digit(a) || digit(b) {
		var x, y uint64
		x, a = leading(a)
		y, b = leading(b)
		if x != y {
			if x < y {
				return -1, true
			}
			return 1, true
		}
	}
	return 0, true
}

func digit(s string) bool { return s != "" && s[0] >= '0' && s[0] <= '9' }

// leading returns the number that a version begins with, and what comes after the dot
// behind it; nothing is 0.
func leading(s string) (n uint64, rest string) {
	for digit(s) {
		n = min(n*10+uint64(s[0]-'0'), 1<<58) // no version has a greater one
		s = s[1:]
	}
	if rest, ok := strings.CutPrefix(s, "."); ok && digit(rest) {
		return n, rest
	}
	return n, ""
}

// cudaDrivers are the first drivers on which every release of a major version of CUDA
// runs, with fewer features than on its own: NVIDIA's table of minor version
// compatibility, https://docs.nvidia.com/deploy/cuda-compatibility/.
var cudaDrivers = []struct {
	major  int
	driver string
}{{13, "580"}, {12, "525"}, {11, "450.80.02"}}

// CUDAOfDriver returns the newest major version of CUDA that runs on the driver, or in
// a process whose libcuda is of that version, and 0 if it is not known.
func CUDAOfDriver(version string) int {
	for _, c := range cudaDrivers {
		if order, ok := CompareVersions(version, c.driver); ok && order >= 0 {
			return c.major
		}
	}
	return 0
}

// DriverOfCUDA returns the first driver for a major version of CUDA, empty if it is
// not known.
func DriverOfCUDA(major int) string {
	for _, c := range cudaDrivers {
		if c.major == major {
			return c.driver
		}
	}
	return ""
}

// Major returns the first number of a version, and is false if it does not begin with
// one.
func Major(version string) (int, bool) {
	version = strings.TrimPrefix(version, "v")
	n, _ := leading(version)
	return int(min(n, 1<<31)), digit(version)
}
