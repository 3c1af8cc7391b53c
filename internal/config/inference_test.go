package config

import (
	"strings"
	"testing"
)

// Targets that would share their series are refused, and whoever reads it learns where
// both stand and what to do; what a query holds is not shown.
func TestTargetsThatWouldBeCalledAlike(t *testing.T) {
	f := func(targets string, want ...string) {
		t.Helper()
		_, err := Parse("gpuvigil.yml", []byte("inference:\n  targets:\n"+targets))
		switch {
		case len(want) == 0 && err != nil:
			t.Errorf("targets that can be told apart are refused: %v\n%s", err, targets)
		case len(want) > 0 && err == nil:
			t.Errorf("one of these targets hides the other, and they are accepted:\n%s", targets)
		case err != nil:
			for _, w := range want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("the error does not say %q: %v", w, err)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows what may be secret: %v", err)
			}
		}
	}
	f("  - url: http://h:1/q?f=hunter2\n  - url: http://h:1/q?g=hunter2\n",
		"gpuvigil.yml:4: inference.targets[1]", "http://h:1/q?g=…", "inference.targets[0] in line 3 is http://h:1/q?f=…", "name: chat")
	f("  - url: http://h:1/q?hunter2\n  - url: http://h:1/q\n", "http://h:1/q?…", "name")
	f("  - url: http://h:1/q#a\n  - url: http://h:1/q#b\n", "label endpoint")
	f("  - url: http://h:1/q?k=hunter2\n  - url: http://h:1/q?k=hunter2\n", "a second time", "line 3")
	f("  - {url: 'http://h:1/a', name: chat}\n  - {url: 'http://h:1/b', name: chat}\n", "both would be called chat")
	f("  - {url: 'http://h:1/a', name: 'http://h:1/b'}\n  - url: http://h:1/b\n", "both would be called http://h:1/b")
	f("  - {url: 'http://h:1/a', name: 'a#b'}\n", "targets[0].name")
	f("  - url: http://h:1/q?f=a\n  - {url: 'http://h:1/q?f=b', name: chat}\n")
	f("  - url: http://h:1/q\n  - url: http://h:2/q\n")
}

// What cannot be the uuid of a GPU would stand for one that does not exist.
func TestGPUsOfTargetsAreUUIDs(t *testing.T) {
	for gpus, good := range map[string]bool{
		"0": false, "GPU-does-not-exist": false, "GPU-5ca1ab1e": false, "''": false, "xGPU-5ca1ab1e-0000-4000-8000-000000000000": false,
		"GPU-5ca1ab1e-0000-4000-8000-000000000000":         true,
		"MIG-5ca1ab1e-0000-4000-8000-000000000000":         true,
		"MIG-GPU-5ca1ab1e-0000-4000-8000-000000000000/3/0": true,
		"GPU-5ca1ab1e-0000-4000-8000-000000000000/3/0":     false,
	} {
		_, err := Parse("gpuvigil.yml", []byte("inference:\n  targets:\n  - url: http://h/metrics\n    gpus: ["+gpus+"]\n"))
		if (err == nil) != good || err != nil && !strings.Contains(err.Error(), "gpuvigil.yml:4: inference.targets[0].gpus[0]: found") {
			t.Errorf("gpus: [%s] gives %v, want it accepted: %t, or its line and what is allowed", gpus, err, good)
		}
	}
}
