package rules

import (
	"strings"
	"testing"
)

func TestCompareVersions(t *testing.T) {
	for _, c := range []struct {
		a, b  string
		order int
		ok    bool
	}{
		{"2.28.9", "2.29.3", -1, true},
		{"2.29.3", "2.29.3", 0, true},
		{"2.29", "2.29.0", 0, true},
		{"2.9.1+cu128", "2.10.0", -1, true},
		{"0.8.5.post1", "0.8.5", 0, true},
		{"v1.17.8", "1.17.8-rc.1", 0, true},
		{"570.124.06", "570.86.15", 1, true},
		{"99999999999999999999999.0", "2.0", 1, true},
		{"unknown", "2.0", 0, false},
		{"2.0", "", 0, false},
	} {
		if order, ok := CompareVersions(c.a, c.b); order != c.order || ok != c.ok {
			t.Errorf("%q against %q is %d, %t; want %d, %t", c.a, c.b, order, ok, c.order, c.ok)
		}
		if order, ok := CompareVersions(c.b, c.a); order != -c.order || ok != c.ok {
			t.Errorf("%q against %q is %d, %t; want %d, %t", c.b, c.a, order, ok, -c.order, c.ok)
		}
	}
}

func TestKnownBadVersions(t *testing.T) {
	for _, c := range []struct {
		component, version, model, why string
	}{
		{"container_toolkit", "1.16.1", "NVIDIA H100", "CVE-2025-23359"},
		{"container_toolkit", "1.17.4", "NVIDIA H100", ""}, // only in a mode that is not its default
		{"container_toolkit", "1.17.5", "NVIDIA H100", "CVE-2025-23266"},
		{"container_toolkit", "1.17.7", "NVIDIA H100", "CVE-2025-23266"},
		{"container_toolkit", "1.17.8", "NVIDIA H100", ""},
		{"container_toolkit", "unknown", "NVIDIA H100", ""},
		{"nccl", "2.28.9", "NVIDIA GB200", "hang"},
		{"nccl", "2.28.9", "NVIDIA B200", ""},
		{"nccl", "2.29.3", "NVIDIA GB200", ""},
		{"nccl", "2.27.7", "NVIDIA GB200", ""},
		{"torch", "1.17.5", "NVIDIA H100", ""},
	} {
		b := KnownBad(c.component, c.version, []string{c.model})
		switch {
		case b == nil && c.why != "":
			t.Errorf("nothing is known against %s %s beside %s", c.component, c.version, c.model)
		case b != nil && (c.why == "" || !strings.Contains(b.Why, c.why)):
			t.Errorf("%s %s beside %s is bad because %q; want %q", c.component, c.version, c.model, b.Why, c.why)
		}
	}
	for _, b := range knownBad {
		order, ok := CompareVersions(b.From, b.Before)
		if b.Why == "" || !strings.HasPrefix(b.Source, "https://") || b.From != "" && (!ok || order >= 0) {
			t.Errorf("the entry %+v has no reason, no source or no range", b)
		}
	}
}

// The table of NVIDIA's page on minor version compatibility.
func TestCUDAOfDrivers(t *testing.T) {
	for version, major := range map[string]int{
		"580.65.06": 13, "575.57.08": 12, "570.124.06": 12, "525.60.13": 12, "520.61.05": 11, "450.80.02": 11, "450.36.06": 0, "590": 13, "": 0,
	} {
		if got := CUDAOfDriver(version); got != major {
			t.Errorf("driver %q runs CUDA %d, want %d", version, got, major)
		}
	}
	if DriverOfCUDA(13) != "580" || DriverOfCUDA(12) != "525" || DriverOfCUDA(9) != "" {
		t.Error("the first driver of a version of CUDA is not that of the table")
	}
	if n, ok := Major("13.0.48"); n != 13 || !ok {
		t.Errorf("the major version of 13.0.48 is %d, %t", n, ok)
	}
	if _, ok := Major("unknown"); ok {
		t.Error("an unknown version has a major one")
	}
}

func FuzzCompareVersions(f *testing.F) {
	for _, s := range []string{"2.28.9", "v1.17.8-rc.1", "570.124.06", "99999999999999999999999.0", "1..2", ".", "", "2.9.1+cu128"} {
		f.Add(s, "2.28")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		order, ok := CompareVersions(a, b)
		back, also := CompareVersions(b, a)
		if order != -back || ok != also {
			t.Errorf("%q against %q is %d, %t and the other way %d, %t", a, b, order, ok, back, also)
		}
		if same, known := CompareVersions(a, a); same != 0 {
			t.Errorf("%q against itself is %d, %t", a, same, known)
		}
	})
}
