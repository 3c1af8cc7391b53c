package detect

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/rules"
)

// versions is a stage whose node has versions that a test changes.
type versions struct {
	*stage
	of map[string]string
}

func newVersions(t *testing.T) *versions {
	v := &versions{stage: newStage(t, DetectorConfig{}, time.Minute), of: map[string]string{
		"driver": "550.54.15", "cuda": "12.4", "nvml": "12.550.54.15", "kernel": "6.8.0-45", "vbios": "96.00.74",
	}}
	v.set = func(s *collector.Snapshot) {
		s.Node.Versions = nil
		for _, c := range []string{"cuda", "driver", "fabricmanager", "kernel", "nvml", "zlib"} {
			if value := v.of[c]; value != "" {
				s.Node.Versions = append(s.Node.Versions, collector.Version{Component: c, Value: value})
			}
		}
		s.GPUs[0].VBIOS = v.of["vbios"]
	}
	return v
}

func (v *versions) change(component, value string) []Incident {
	v.of[component] = value
	return v.run(time.Minute)
}

func (v *versions) only() *Finding {
	v.t.Helper()
	findings := slices.DeleteFunc(slices.Clone(v.e.View().Findings), func(f Finding) bool { return f.Rule != rules.IDVersionChanged })
	if len(findings) != 1 {
		v.t.Fatalf("%d findings, want one: %+v", len(findings), findings)
	}
	return &findings[0]
}

func TestVersionChange(t *testing.T) {
	v := newVersions(t)
	v.run(3 * time.Hour)
	v.silent("versions that are seen for the first time")
	if n := len(v.e.View().VersionChanges); n != 0 {
		t.Errorf("%d components have changed", n)
	}
	told := v.change("kernel", "6.8.0-49")
	if len(told) != 1 || told[0].Severity != rules.Info || told[0].Cause != "kernel" {
		t.Fatalf("told %+v, want kernel as information", told)
	}
	f := v.only()
	v.says(f, "kernel 6.8.0-45 → 6.8.0-49", "6.8.0-45, as for the last 3 h")
	if f.Subject.String() != "node:n1" || f.Evidence.Observed != 1 || f.Evidence.Want != nil || f.Evidence.Confidence != Certain {
		t.Errorf("finding %+v, want node:n1, one change, certain", f)
	}
	v.run(59 * time.Minute)
	if f := v.only(); f.State != Firing {
		t.Errorf("it is %s within the hour", f.State)
	}
	v.run(2 * time.Minute)
	if f := v.only(); f.State != Resolved || f.Count != 1 {
		t.Errorf("after an hour it is %s with %d observations, want resolved with one", f.State, f.Count)
	}
	if got := v.e.View().VersionChanges; !maps.Equal(got, map[string]uint64{"kernel": 1}) {
		t.Errorf("changes are %v, want one of the kernel", got)
	}
}

// An upgrade replaces the agent, too: the versions before it must be remembered.
func TestVersionThatChangedWhileTheAgentWasAway(t *testing.T) {
	v := newVersions(t)
	v.run(time.Hour)
	v.restart()
	v.now = v.now.Add(20 * time.Minute)
	v.of["cuda"], v.of["nvml"] = "12.8", "12.570.86"
	v.change("driver", "570.86")
	v.says(v.only(), "driver 550.54.15 → 570.86 (with cuda 12.4 → 12.8, nvml 12.550.54.15 → 12.570.86)", "550.54.15, as for the last 1 h 20 min")
	if got := v.e.View().VersionChanges; !maps.Equal(got, map[string]uint64{"driver": 1, "cuda": 1, "nvml": 1}) {
		t.Errorf("changes are %v, want one of each", got)
	}
	v.restart()
	v.run(time.Minute)
	if got := v.e.View().VersionChanges; got["driver"] != 1 {
		t.Errorf("after another restart the driver has changed %d times, want once", got["driver"])
	}
	if len(v.told) != 1 {
		t.Errorf("told %d times, want once", len(v.told))
	}
}

func TestVersionThatFlaps(t *testing.T) {
	v := newVersions(t)
	v.run(time.Hour)
	for i, value := range []string{"570.86", "550.54.15", "570.86"} {
		v.change("driver", value)
		want := rules.Info
		if i == 2 {
			want = rules.Ticket
		}
		if f := v.fresh(); f.Severity != want {
			t.Errorf("after change %d the severity is %s, want %s", i+1, f.Severity, want)
		}
		v.run(3 * time.Hour)
	}
	v.change("driver", "550.54.15")
	f := v.fresh()
	v.says(f, "driver 570.86 → 550.54.15, 4 changes in 24 h", "about one change in 7 d")
	if f.Evidence.Confidence != VerySure || f.Evidence.Observed != 4 || f.Evidence.Why != "so many by chance: p = 2e-05" {
		t.Errorf("evidence %+v, want very sure, four changes, p = 2e-05 (Poisson with mean 1/7, four or more)", f.Evidence)
	}
	v.run(48 * time.Hour)
	v.change("driver", "570.86")
	if f := v.fresh(); f.Severity != rules.Info || !strings.HasSuffix(f.Evidence.Seen, ", change 5 since records began") {
		t.Errorf("two days later one change is %s: %s; want information and the fifth", f.Severity, f.Evidence.Seen)
	}
}

// fresh returns the finding that fires.
func (v *versions) fresh() *Finding {
	v.t.Helper()
	f := v.finding(rules.IDVersionChanged, "node:n1")
	if f == nil || f.State != Firing {
		v.t.Fatalf("no version finding fires: %+v", f)
	}
	return f
}

func TestVersionOfFirmwareAndOfUnknownComponents(t *testing.T) {
	v := newVersions(t)
	v.of["fabricmanager"], v.of["zlib"] = "550", "1.3"
	v.run(time.Hour)
	v.change("vbios", "96.00.99")
	f := v.only()
	v.says(f, "vbios 96.00.74 → 96.00.99", "96.00.74, as for the last 1 h")
	if f.Subject.String() != "gpu:GPU-0" || f.Cause != "vbios" || f.GPUIndex != 0 {
		t.Errorf("finding %+v, want vbios of GPU 0", f)
	}
	v.change("fabricmanager", "570")
	if f := v.fresh(); f.Cause != "other" || f.Evidence.Seen != "fabricmanager 550 → 570" {
		t.Errorf("finding %+v, want cause other and the component in words", f)
	}
}

// Upgrades in a row are no flapping, and what a driver brings along is told with it,
// whoever tells of it.
func TestUpgradesInARow(t *testing.T) {
	v := newVersions(t)
	gsp := "550.54.15"
	plain := v.set
	v.set = func(s *collector.Snapshot) {
		plain(s)
		for i := range s.GPUs {
			s.GPUs[i].GSP, s.GPUs[i].InfoROM = gsp, "G520"
		}
		s.Node.Versions = append(s.Node.Versions, collector.Version{Component: "fabric_manager", Value: v.of["fabric_manager"]},
			collector.Version{Component: "gsp", Value: gsp}, collector.Version{Component: "vbios", Value: "96.00.74"})
	}
	v.of["fabric_manager"] = "550.54.15"
	v.run(time.Hour)
	for _, value := range []string{"560.35", "565.57", "570.86", "575.57"} {
		gsp, v.of["nvml"] = value, "12."+value
		v.change("driver", value)
		v.of["fabric_manager"] = value // its package is read a minute later
		v.run(time.Hour)
	}
	for _, in := range v.told {
		if in.Rule == rules.IDVersionChanged && (in.Severity != rules.Info || in.Cause != "driver") {
			t.Errorf("four upgrades in a row raised a %s of %s: %s", in.Severity, in.Cause, in.Members[0].Evidence.Seen)
		}
	}
	v.says(v.finding(rules.IDVersionChanged, "node:n1"), "driver 570.86 → 575.57 (with nvml 12.570.86 → 12.575.57, gsp 570.86 → 575.57), change 4 since records began", "570.86, as for the last 1 h 1 min")
	want := map[string]uint64{"driver": 4, "nvml": 4, "gsp": 8, "fabric_manager": 4}
	if got := v.e.View().VersionChanges; !maps.Equal(got, want) {
		t.Errorf("changes are %v, want %v: firmware is counted on the GPU that it is on", got, want)
	}
}

// A source that has nothing to say is no change, nor is its coming back.
func TestVersionThatIsNotTold(t *testing.T) {
	v := newVersions(t)
	v.run(time.Hour)
	saved := maps.Clone(v.of)
	clear(v.of)
	v.run(time.Hour)
	maps.Copy(v.of, saved)
	v.run(time.Hour)
	v.silent("versions that were away for an hour")
}
