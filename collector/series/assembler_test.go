package series

import (
	"math"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// gpuSample is a sample of dcgm-exporter.
func gpuSample(name, uuid, host, instance string, v float64, more ...Label) sample {
	return sample{append([]Label{{"__name__", name}, {"gpu", "0"}, {"UUID", uuid}, {"Hostname", host}, {"instance", instance}, {"job", "dcgm"}}, more...), v}
}

func power(t *testing.T, s *collector.Snapshot) float64 {
	t.Helper()
	if len(s.GPUs) == 0 {
		t.Fatal("the snapshot has no GPU")
	}
	return s.GPUs[0].Value(metric.PowerDraw)
}

func TestLateAndDuplicateSamplesAreDropped(t *testing.T) {
	a := New(Config{})
	s := a.Series(gpuSample("DCGM_FI_DEV_POWER_USAGE", "GPU-a", "n1", "n1:9400", 0).labels)
	a.Add(s, noon, 300)
	a.Add(s, noon, 400)
	a.Add(s, noon.Add(-time.Second), 500)
	if got := a.tally.samples; got != [outcomes]int{taken: 1, duplicate: 1, outOfOrder: 1} {
		t.Errorf("counted %v", got)
	}
	if got := power(t, one(t, a.Snapshots(noon))); got != 300 {
		t.Errorf("power %v, the first sample's is 300", got)
	}
}

func TestSamplesOfTheFutureDoNotKeepOutLaterOnes(t *testing.T) {
	a := New(Config{})
	all := []sample{gpuSample("DCGM_FI_DEV_POWER_USAGE", "GPU-a", "n1", "n1:9400", 300)}
	add(a, noon.Add(24*time.Hour), all)
	if got := a.Snapshots(noon); len(got) != 0 {
		t.Errorf("a sample of tomorrow made a snapshot of today")
	}
	add(a, noon.Add(15*time.Second), all)
	if got := power(t, one(t, a.Snapshots(noon.Add(15*time.Second)))); got != 300 {
		t.Errorf("power %v after a sample of the future, 300 came since", got)
	}
}

func TestAStaleMarkerEndsASeries(t *testing.T) {
	a := New(Config{})
	both := []sample{gpuSample("DCGM_FI_DEV_POWER_USAGE", "GPU-a", "n1", "n1:9400", 300), gpuSample("DCGM_FI_DEV_GPU_TEMP", "GPU-a", "n1", "n1:9400", 50)}
	add(a, noon, both)
	a.Snapshots(noon)
	next := noon.Add(15 * time.Second)
	a.Add(a.Series(both[0].labels), next, math.Float64frombits(staleMarker))
	add(a, next, both[1:])
	s := one(t, a.Snapshots(next))
	if s.GPUs[0].Has(metric.PowerDraw) || !s.GPUs[0].Has(metric.Temperature) {
		t.Errorf("power %v, temperature %v: the first has ended, the second not", s.GPUs[0].Value(metric.PowerDraw), s.GPUs[0].Value(metric.Temperature))
	}
}

func TestANodeIsLeftOutAfterTheLookbackAndComesBack(t *testing.T) {
	a := New(Config{Lookback: 5 * time.Minute})
	all := []sample{gpuSample("DCGM_FI_DEV_POWER_USAGE", "GPU-a", "n1", "n1:9400", 300)}
	add(a, noon, all)
	held := one(t, a.Snapshots(noon.Add(4*time.Minute)))
	if at := held.GPUs[0].SampledAt(metric.Fast); !at.Equal(noon) || power(t, held) != 300 {
		t.Errorf("within the lookback the reading is %v as of %v", power(t, held), at)
	}
	if got := a.Snapshots(noon.Add(6 * time.Minute)); len(got) != 0 {
		t.Errorf("a node that has been silent for six minutes is still shown")
	}
	hour := noon.Add(time.Hour)
	add(a, hour, all)
	if got := one(t, a.Snapshots(hour)); len(got.Events) != 0 || power(t, got) != 300 {
		t.Errorf("after a gap of an hour: events %v, power %v", got.Events, power(t, got))
	}
}

func TestASeriesThatWasForgottenIsTakenUpAgain(t *testing.T) {
	a := New(Config{Forget: 10 * time.Minute})
	handle := a.Series(gpuSample("DCGM_FI_DEV_POWER_USAGE", "GPU-a", "n1", "n1:9400", 0).labels)
	a.Add(handle, noon, 300)
	a.Snapshots(noon)
	later := noon.Add(time.Hour)
	a.Snapshots(later)
	if a.index.series != 0 || len(a.nodes) != 0 || len(a.index.sets) != 0 {
		t.Errorf("after an hour of silence %d series in %d sets of %d nodes are kept", a.index.series, len(a.index.sets), len(a.nodes))
	}
	for i := range 3 {
		later = later.Add(15 * time.Second)
		a.Add(handle, later, float64(i))
	}
	if got := power(t, one(t, a.Snapshots(later))); got != 2 || a.index.series != 1 {
		t.Errorf("the old handle's power is %v in %d series", got, a.index.series)
	}
}

func TestOfTwoReplicasOneIsReadAndStays(t *testing.T) {
	a := New(Config{Failover: time.Minute})
	from := func(replica string, v float64) []sample {
		return []sample{gpuSample("DCGM_FI_DEV_POWER_USAGE", "GPU-a", "n1", "n1:9400", v, Label{"prometheus_replica", replica})}
	}
	at := noon
	look := func(want float64, why string) {
		t.Helper()
		if got := power(t, one(t, a.Snapshots(at))); got != want {
			t.Errorf("%s: power %v, want %v", why, got, want)
		}
	}
	add(a, at, from("a", 1))
	add(a, at.Add(5*time.Second), from("b", 2))
	at = at.Add(10 * time.Second)
	look(1, "both tell")
	add(a, at, from("b", 3))
	look(1, "the other is newer, not by much")
	at = at.Add(90 * time.Second)
	add(a, at, from("b", 4))
	look(4, "the first is silent")
	at = at.Add(5 * time.Second)
	add(a, at, from("a", 5))
	look(4, "the first is back")
}

func TestAGPUThatMovesIsNotLost(t *testing.T) {
	a := New(Config{Failover: time.Minute})
	gpu := func(host, uuid string) []sample {
		return []sample{gpuSample("DCGM_FI_DEV_POWER_USAGE", uuid, host, host+":9400", 300)}
	}
	at := noon
	add(a, at, gpu("n1", "GPU-a"))
	add(a, at, gpu("n1", "GPU-b"))
	a.Snapshots(at)
	for range 30 { // n1 stays, with the other GPU
		at = at.Add(15 * time.Second)
		add(a, at, gpu("n1", "GPU-b"))
		a.Snapshots(at)
	}
	at = at.Add(15 * time.Second)
	add(a, at, gpu("n2", "GPU-a"))
	add(a, at, gpu("n1", "GPU-b"))
	all := a.Snapshots(at)
	if len(all) != 2 || len(all[0].GPUs) != 1 || all[0].GPUs[0].UUID != "GPU-b" || len(all[1].GPUs) != 1 || all[1].GPUs[0].UUID != "GPU-a" {
		t.Fatalf("after GPU-a was moved to n2: %d nodes, GPUs %v and %v", len(all), all[0].GPUs, all[1:])
	}
}

func TestAMachineWithTwoNamesHasItsGPUsOnce(t *testing.T) {
	a := New(Config{})
	for i := range 20 {
		at := noon.Add(time.Duration(i) * 15 * time.Second)
		add(a, at, []sample{gpuSample("DCGM_FI_DEV_POWER_USAGE", "GPU-a", "n1", "n1:9400", 1), gpuSample("DCGM_FI_DEV_POWER_USAGE", "GPU-a", "n1.example", "n1.example:9400", 1)})
		gpus := 0
		for _, s := range a.Snapshots(at) {
			gpus += len(s.GPUs)
		}
		if gpus != 1 {
			t.Fatalf("look %d: one GPU under two names of its node is %d GPUs", i, gpus)
		}
	}
}

func TestNodesAreFoundByWhatOtherSeriesSay(t *testing.T) {
	a := New(Config{})
	add(a, noon, []sample{
		{[]Label{{"__name__", "node_load1"}, {"instance", "10.0.0.5:9100"}, {"job", "node"}}, 7},
		{[]Label{{"__name__", "vllm:num_requests_running"}, {"model_name", "m"}, {"namespace", "chat"}, {"pod", "vllm-0"}, {"instance", "10.244.1.9:8000"}}, 3},
		{[]Label{{"__name__", "node_uname_info"}, {"nodename", "gpu-1"}, {"release", "6.8"}, {"instance", "10.0.0.5:9100"}, {"job", "node"}}, 1},
		gpuSample("DCGM_FI_DEV_POWER_USAGE", "GPU-a", "gpu-1", "10.244.1.2:9400", 300, Label{"exported_pod", "vllm-0"}, Label{"exported_namespace", "chat"}, Label{"pod", "dcgm-x"}, Label{"namespace", "gpu"}),
		{[]Label{{"__name__", "kube_pod_info"}, {"namespace", "chat"}, {"pod", "vllm-0"}, {"node", "gpu-1"}, {"pod_ip", "10.244.1.9"}, {"host_ip", "10.0.0.5"}, {"instance", "10.244.0.3:8080"}}, 1},
		{[]Label{{"__name__", "kube_node_spec_unschedulable"}, {"node", "gpu-1"}, {"instance", "10.244.0.3:8080"}}, 1},
	})
	a.Snapshots(noon)
	at := noon.Add(15 * time.Second)
	add(a, at, []sample{{[]Label{{"__name__", "vllm:num_requests_running"}, {"model_name", "m"}, {"namespace", "chat"}, {"pod", "vllm-0"}, {"instance", "10.244.1.9:8000"}}, 4}})
	s := one(t, a.Snapshots(at))
	if s.Node.Name != "gpu-1" || s.Node.Value(metric.Load) != 7 || len(s.GPUs) != 1 || len(s.Endpoints) != 1 || s.Node.Value(metric.Drained) != 1 {
		t.Fatalf("node %q: load %v, %d GPUs, %d endpoints, drained %v", s.Node.Name, s.Node.Value(metric.Load), len(s.GPUs), len(s.Endpoints), s.Node.Value(metric.Drained))
	}
	if got := s.Endpoints[0].GPUs; len(got) != 1 || got[0] != "GPU-a" {
		t.Errorf("the server in pod vllm-0 runs on %v, the pod was given GPU-a", got)
	}
}

func TestAPodThatAskedForAllGPUsHasThem(t *testing.T) {
	a := New(Config{})
	all := []sample{
		gpuSample("DCGM_FI_DEV_POWER_USAGE", "GPU-a", "gpu-1", "gpu-1:9400", 300),
		gpuSample("DCGM_FI_DEV_POWER_USAGE", "GPU-b", "gpu-1", "gpu-1:9400", 300, Label{"device", "nvidia1"}),
		{[]Label{{"__name__", "kube_pod_container_resource_requests"}, {"namespace", "nlp"}, {"pod", "train-0"}, {"container", "c"}, {"node", "gpu-1"}, {"resource", "nvidia_com_gpu"}}, 2},
	}
	add(a, noon, all)
	a.Snapshots(noon)
	add(a, noon.Add(15*time.Second), all)
	s := one(t, a.Snapshots(noon.Add(15*time.Second)))
	for _, g := range s.GPUs {
		if len(g.Allocations) != 1 || g.Allocations[0].Owner.String() != "pod:nlp/train-0" {
			t.Errorf("GPU %s was given to %v, train-0 asked for both", g.UUID, g.Allocations)
		}
	}
	if got := s.Node.Value(metric.AllocationsKnown); got != 1 {
		t.Errorf("allocations are known: %v", got)
	}
}

func TestLimitsHoldAndAreCounted(t *testing.T) {
	a := New(Config{MaxSeries: 3, MaxNodes: 2})
	for i, host := range []string{"n1", "n2", "n3"} {
		s := a.Series(gpuSample("DCGM_FI_DEV_POWER_USAGE", "GPU-a", host, host+":9400", 0).labels)
		if (s == nil) != (i == 2) {
			t.Errorf("node %d: %v, the third is one too many", i, s)
		}
	}
	for i, name := range []string{"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_UTIL"} {
		if s := a.Series(gpuSample(name, "GPU-a", "n1", "n1:9400", 0).labels); (s == nil) != (i == 1) {
			t.Errorf("series %d: %v, the fourth is one too many", i+3, s)
		}
	}
	a.Series([]Label{{"__name__", "up"}, {"instance", "n1:9100"}})
	a.Series([]Label{{"__name__", "node_load1"}})
	if got := a.tally.refused; got != [refusals]int{unwanted: 1, noNode: 0, seriesLimit: 2, nodeLimit: 1} {
		t.Errorf("counted %v", got)
	}
}

func TestLabelsInAnyOrderAreOneSeries(t *testing.T) {
	a := New(Config{})
	labels := gpuSample("DCGM_FI_DEV_POWER_USAGE", "GPU-a", "n1", "n1:9400", 0).labels
	first := a.Series(labels)
	for range labels {
		labels = append(labels[1:len(labels):len(labels)], labels[0])
		if again := a.Series(append(labels, Label{"empty", ""})); again != first {
			t.Fatalf("labels %v are another series", labels)
		}
	}
	if other := a.Series(gpuSample("DCGM_FI_DEV_POWER_USAGE", "GPU-b", "n1", "n1:9400", 0).labels); other == first {
		t.Error("two GPUs share a series")
	}
}
