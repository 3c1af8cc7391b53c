package owner

import (
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
)

// A pod's labels give it a team, and are said of it.
func TestLabelsOfPods(t *testing.T) {
	now := time.Now()
	s, err := New(Config{ProcFS: t.TempDir(), PodLabels: func(namespace, name string) map[string]string {
		if namespace == "ml" && name == "chat" {
			return map[string]string{"app": "chat-70b", "tier": "gold"}
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	rules := []Rule{{Labels: map[string]*regexp.Regexp{"app": regexp.MustCompile("^chat-.*$")}, Team: "assistants"}}
	id := s.identities.get(key{kindPod, "ml/chat"}, now)
	s.learnPod(id, "ml", "chat")
	w := describe(id, rules)
	want := []collector.Label{{Name: "app", Value: "chat-70b"}, {Name: "tier", Value: "gold"}}
	if diff := cmp.Diff(want, w.Labels); diff != "" || w.Team != "assistants" {
		t.Errorf("the pod's team is %q; its labels differ (-want +got):\n%s", w.Team, diff)
	}
	other := s.identities.get(key{kindPod, "ml/other"}, now)
	s.learnPod(other, "ml", "other")
	if w := describe(other, rules); w.Team != "" || w.Labels != nil {
		t.Errorf("a pod whose labels are not known has team %q and labels %v", w.Team, w.Labels)
	}
}

// The device of a claim is the GPU that the API server says it is.
func TestDeviceOfAClaim(t *testing.T) {
	const uuid = "GPU-00000000-0000-4000-8000-000000000001"
	b := newBoard(&collector.Snapshot{GPUs: []collector.GPU{{Index: 0, UUID: uuid}},
		Instances: []collector.Instance{{UUID: uuid, MIGUUID: "MIG-1", GI: 3, CI: 0}}}, nil)
	s := &Source{cfg: Config{Device: func(pool, device string) string {
		return map[string]string{"n1/gpu-0": uuid, "n1/mig-0": "MIG-1", "n1/gpu-9": "GPU-of-another-node"}[pool+"/"+device]
	}}}
	f := func(device string, want []spot) {
		t.Helper()
		if got := s.spotsOf(b, grant{claimed: true, pool: "n1", claim: device}); !cmp.Equal(got, want, cmp.AllowUnexported(spot{})) {
			t.Errorf("%s is %v, want %v", device, got, want)
		}
	}
	f("gpu-0", []spot{{uuid, ""}})
	f("mig-0", []spot{{uuid, "3/0"}})
	f("gpu-9", nil)
	f("unknown", nil)
	s.cfg.Device = nil
	f("gpu-0", nil)
}
