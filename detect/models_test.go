package detect

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect/stream"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// beside puts a model on the page of the endpoint that l makes, ahead of it in the
// snapshot's order, with the readings of other.
func beside(l, other load) func(*collector.Snapshot) {
	return func(s *collector.Snapshot) {
		other.gpus = l.gpus
		other.apply(s)
		s.Endpoints[0].Model = "a-small-one"
		l.apply(s)
	}
}

var calmLoad = load{util: 0.98, cpu: 0.11, core: 0.4, running: 2, queue: 0.1, kv: 0.1, tokens: 20, endpoints: true, gpus: []string{"GPU-0"}}

func TestEachModelOfAPageIsJudged(t *testing.T) {
	st := newStage(t, withSLO, time.Second)
	st.set = beside(saturatedLoad, calmLoad)
	st.run(8 * time.Minute)
	st.says(st.fires(rules.IDSaturatedGPU),
		"chat-70b: GPU 98 % busy for 7 min, CPU 11 %, 38 requests waiting, queue-time p95 4.1 s, KV cache 97 %",
		"queue-time p95 below its SLO of 1 s")
}

// Each model has its own habit: one that always lets people wait is no excuse for the
// other on the page.
func TestEachModelHasItsOwnHabit(t *testing.T) {
	slow, quick := saturatedLoad, calmLoad
	slow.util, slow.queue = 0.7, 20
	st := newStage(t, DetectorConfig{}, 15*time.Second)
	st.set = beside(quick, slow)
	st.run(2 * time.Hour)
	st.restart()
	now := saturatedLoad
	st.set = beside(now, slow)
	st.run(8 * time.Minute)
	if f := st.fires(rules.IDSaturatedGPU); f.Evidence.Observed != 4.1 {
		t.Errorf("the finding is of a queue time of %v s, want the 4.1 s of the model that is slower than it ever was", f.Evidence.Observed)
	}
}

// Two models that serve nobody have done nothing, however different their counts of
// tokens are.
func TestIdleModelsOfOnePageAreNoReserve(t *testing.T) {
	st := newStage(t, DetectorConfig{Idle: IdleConfig{ReserveFor: time.Hour}}, time.Minute)
	st.set = func(s *collector.Snapshot) {
		for i, model := range []string{"a", "b"} {
			e := endpoint(s, "GPU-0")
			e.Model = model
			e.Set(metric.GeneratedTokens, float64(1000+i))
			e.Set(metric.RequestsRunning, 0)
		}
		hold(s, pod, "python3", 0, 118)
	}
	st.run(3 * time.Hour)
	st.fires(rules.IDIdleGPU)
}

// A release that told endpoints apart by URL had seen the first model only. What it
// learned of that one is not lost when it is replaced.
func TestWhatAnOlderReleaseKnewOfEndpoints(t *testing.T) {
	habit := stream.NewHistogram(queueHalfLife)
	habit.Add(day, 0.3, 7200)
	queue, err := json.Marshal(habit)
	if err != nil {
		t.Fatal(err)
	}
	d := NewSaturated(SaturatedConfig{}, NewJudge())
	if err := d.Restore([]byte(`{"version":1,"endpoints":{"http://chat-70b:8000/metrics":` + string(queue) +
		`},"seen":{"http://chat-70b:8000/metrics":"2026-03-01T00:00:00Z"}}`)); err != nil {
		t.Fatal(err)
	}
	snap := node(day, 1)
	endpoint(snap, "GPU-0")
	endpoint(snap, "GPU-0").Model = "other"
	first, second := &snap.Endpoints[0], &snap.Endpoints[1]
	d.Observe(snap, func(Observation) {})
	if w := d.endpoints[first.Key()].queue.Weight(); math.Abs(w-7200) > 60 {
		t.Errorf("%.0f s of the first model's habit are left, want the two hours that the older release saw", w)
	}
	if w := d.endpoints[second.Key()].queue.Weight(); w != 0 {
		t.Errorf("the second model begins with %.0f s of another one's habit", w)
	}

	idle := NewIdle(IdleConfig{})
	if err := idle.Restore([]byte(`{"version":1,"endpoints":{"http://chat-70b:8000/metrics":{"tokens":7,"last":"2026-01-01T00:00:00Z"}},"ledger":[]}`)); err != nil {
		t.Fatal(err)
	}
	snap = node(day, 1)
	e := endpoint(snap, "GPU-0")
	e.Set(metric.GeneratedTokens, 7)
	idle.Observe(snap, func(Observation) {})
	if got := idle.endpoints[e.Key()]; got == nil || got.Last.Format(time.DateOnly) != "2026-01-01" {
		t.Errorf("of the endpoint's last traffic %+v is left, want what the older release saw", got)
	}
}

func TestEachModelHasItsOwnChart(t *testing.T) {
	st := newStage(t, withSLO, time.Minute)
	st.set = beside(saturatedLoad, calmLoad)
	st.run(3 * time.Minute)
	s := node(day, 1)
	e := endpoint(s, "GPU-0")
	for _, h := range st.e.History(EndpointSubject(e)) {
		if h.Reading == metric.RequestsWaiting && h.Points[0].Min != 38 {
			t.Errorf("the model's chart shows %v to %v requests waiting, want its own 38", h.Points[0].Min, h.Points[0].Max)
		}
	}
	if len(st.e.History(EndpointSubject(e))) == 0 {
		t.Error("a model of a page with two has no chart")
	}
}
