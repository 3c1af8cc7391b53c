package main

import (
	"strings"
	"testing"
)

func TestMaintenanceByCommandKeepsADrillBack(t *testing.T) {
	h := &tellingHook{}
	state := "--state.dir=" + tellingAgent(t, h)
	if out := tellingSoon(t, "maintenance", state); out != "no maintenance window\n" {
		t.Errorf("before any is begun: %s", out)
	}
	if out := tellingSoon(t, "maintenance", "start", "roll-out", `gpu="3"`, "--for=1h", "--by=ana", state); !strings.HasPrefix(out, "now\troll-out, until ") || !strings.Contains(out, `, by ana: gpu="3"`) {
		t.Errorf("start says: %s", out)
	}
	if out := tellingSoon(t, "drill", "gpu_lost", "--gpu=3", "--for=1h", state); !strings.Contains(out, "oncall is told later, if it still fires then: maintenance roll-out") {
		t.Errorf("a drill says:\n%s", out)
	}
	if out := tellingSoon(t, "maintenance", "list", state); !strings.Contains(out, "keeps back") {
		t.Errorf("list says: %s", out)
	}
	if out := tellingSoon(t, "maintenance", "end", "roll-out", state); out != "no maintenance window\n" {
		t.Errorf("end says: %s", out)
	}
	buttonsEventually(t, "the drill is told when the window was ended", func() bool { return strings.Contains(h.all(), "DRILL PAGE demo-gpu-01/3") })
	f := func(want string, args ...string) {
		t.Helper()
		if code, _, errs := gpuvigil(t, append(args, state)...); code != 1 || !strings.Contains(errs, want) {
			t.Errorf("%v: exit code %d: %s, want %q", args, code, errs, want)
		}
	}
	f("nobody has begun one", "maintenance", "end", "roll-out")
	f("allowed: severity, rule", "maintenance", "start", "x", "flavour=sweet")
	f("allowed: a matcher such as", "maintenance", "start", "x", "node")
	f("at most 30 d", "maintenance", "start", "x", "node=x", "--for=1000h")
}
