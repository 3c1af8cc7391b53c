package series

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// names of the nodes of which there are snapshots.
func seen(a *Assembler, at time.Time) (names []string) {
	for _, s := range a.Snapshots(at) {
		names = append(names, s.Node.Name)
	}
	return names
}

// Each node is in one shard, whichever labels its series have, and no shard has none.
func TestShardsHaveAllNodesOnce(t *testing.T) {
	const shards = 4
	labels := fleet(40)
	var all []string
	for i := range shards {
		a := New(Config{Shard: Shard{Index: i, Of: shards}})
		for round := range 3 {
			at := noon.Add(time.Duration(round) * 6 * time.Minute) // what is silent is swept in between
			for _, l := range labels {
				a.Add(a.Series(l), at, 1)
			}
			for n := range 40 { // of no node but by its instance, which the GPUs' series name
				a.Add(a.Series([]Label{{"__name__", "vllm:num_requests_running"}, {"instance", fmt.Sprintf("gpu-node-%05d:8000", n)}, {"job", "vllm"}, {"model_name", "m"}}), at, 1)
			}
			names := seen(a, at)
			if len(names) == 0 || len(names) == 40 {
				t.Fatalf("shard %d has %d of 40 nodes", i, len(names))
			}
			for _, name := range names {
				if !a.cfg.Shard.Has(name) {
					t.Errorf("shard %d has %s of another one", i, name)
				}
			}
			if round == 0 {
				all = append(all, names...)
			}
		}
		if n := a.index.series; n > 40*8*60*shards/10 {
			t.Errorf("shard %d keeps %d series, those of other shards with them", i, n)
		}
	}
	slices.Sort(all)
	if len(all) != 40 || len(slices.Compact(all)) != 40 {
		t.Errorf("the shards have %d nodes in all, there are 40", len(all))
	}
}

// By a label, what has the same value is together, and what lacks it is left out.
func TestShardsByALabelKeepTogetherWhatHasTheSame(t *testing.T) {
	in := map[string]int{}
	for i := range 3 {
		a := New(Config{Shard: Shard{Index: i, Of: 3, By: "pool"}})
		for n, l := range fleet(30) {
			pool := fmt.Sprint("pool-", n/480%5)
			a.Add(a.Series(append(slices.Clone(l), Label{"pool", pool})), noon, 1)
			a.Add(a.Series(append(slices.Clone(l), Label{"other", pool})), noon, 1)
		}
		for _, s := range a.Snapshots(noon) {
			var n int
			if _, err := fmt.Sscanf(s.Node.Name, "gpu-node-%d", &n); err != nil {
				t.Fatal(err)
			}
			pool := fmt.Sprint("pool-", n%5)
			if at, ok := in[pool]; ok && at != i {
				t.Errorf("%s is in the shards %d and %d", pool, at, i)
			}
			in[pool] = i
		}
		if refused := a.tally.published.refused[noShardLabel]; refused != 30*480 {
			t.Errorf("%d series without the label are counted, there are %d", refused, 30*480)
		}
	}
	if len(in) != 5 {
		t.Errorf("%d of 5 pools are in a shard", len(in))
	}
}

// A node that its address alone names belongs to the shard of its name, once another
// shard's series have told it.
func TestShardOfANodeThatIsNamedByOtherSeries(t *testing.T) {
	gpu := func(name string) []Label {
		return []Label{{"__name__", "DCGM_FI_DEV_GPU_UTIL"}, {"Hostname", name}, {"UUID", "GPU-1"}, {"gpu", "0"}, {"instance", "10.0.0.7:9400"}, {"job", "dcgm"}}
	}
	server := []Label{{"__name__", "vllm:num_requests_running"}, {"instance", "10.0.0.7:8000"}, {"job", "vllm"}, {"model_name", "m"}}
	for i := range 2 {
		a := New(Config{Shard: Shard{Index: i, Of: 2}})
		var want []string
		if a.cfg.Shard.Has("gpu-117") {
			want = []string{"gpu-117"}
		}
		for at := noon; at.Before(noon.Add(30 * time.Minute)); at = at.Add(time.Minute) {
			a.Add(a.Series(server), at, 1)
			a.Add(a.Series(gpu("gpu-117")), at, 1)
			if got := seen(a, at); !slices.Equal(got, want) {
				t.Fatalf("shard %d has %q after %v, want %q", i, got, at.Sub(noon), want)
			}
		}
	}
}
