package detect

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"gpuvigil/collector"
)

func TestRate(t *testing.T) {
	var r rate
	now := day
	for _, step := range []struct {
		after time.Duration
		value float64
		want  float64
		why   string
	}{
		{0, 100, math.NaN(), "the first reading has nothing before it"},
		{10 * time.Second, 150, 5, "50 in 10 s"},
		{0, 160, math.NaN(), "no time has passed"},
		{10 * time.Second, math.NaN(), math.NaN(), "the reading is absent"},
		{10 * time.Second, 190, 2, "40 in 20 s, over the absent one"},
		{10 * time.Second, 3, math.NaN(), "the counter began anew"},
		{10 * time.Second, 13, 1, "it grows again"},
		{time.Hour, 1e6, math.NaN(), "nobody looked for an hour"},
	} {
		now = now.Add(step.after)
		got := r.next(now, step.value)
		if got != step.want && !(math.IsNaN(got) && math.IsNaN(step.want)) {
			t.Errorf("%s: the rate is %v, want %v", step.why, got, step.want)
		}
	}
}

func TestClassTellsWorkloadsApartAndNotTheirReplicas(t *testing.T) {
	for id, want := range map[string]string{
		"nlp/chat-7d8f9c6b54-x2x4z": "nlp/chat",
		"nlp/chat-70b-0":            "nlp/chat-70b",
		"nlp/train-zk9xw":           "nlp/train",
		"nlp/chat":                  "nlp/chat",
		"nlp/gpu-burner":            "nlp/gpu-burner",
		"nlp/-0":                    "nlp/-0",
		"nlp/llama-three":           "nlp/llama-three",
	} {
		if got := classOf(collector.Owner{Kind: "pod", ID: id}, nil).Name; got != want {
			t.Errorf("pod %s is of class %q, want %q", id, got, want)
		}
	}
	one := classOf(collector.Owner{Kind: "job", ID: "slurm/1", Team: "nlp"}, &collector.Workload{Stage: "training"})
	two := classOf(collector.Owner{Kind: "job", ID: "slurm/2", Team: "nlp"}, &collector.Workload{Stage: "training"})
	if one != two {
		t.Errorf("two runs of a team's training are of two classes: %+v and %+v", one, two)
	}
}

// A habit says the same whether it is fed each second or each minute, and through a
// restart.
func TestHabit(t *testing.T) {
	key := habitKey{Subject: Subject{"gpu", "GPU-0"}, Reading: "a", Class: class{Kind: "pod", Name: "nlp/chat"}}
	hs := newHabits()
	rng := rand.New(rand.NewPCG(1, 2))
	at, alarms := day, 0
	feed := func(level float64, minutes int) (worst float64) {
		for range minutes {
			for range 4 {
				at = at.Add(15 * time.Second)
				if score, whole := hs.get(key, at).add(at, level+rng.NormFloat64()); whole && score >= 1 {
					alarms++
					worst = max(worst, score)
				}
			}
		}
		return worst
	}
	feed(50, 12*60)
	if alarms > 0 {
		t.Errorf("%d alarms on a steady reading", alarms)
	}
	data, err := json.Marshal(hs)
	if err != nil {
		t.Fatal(err)
	}
	hs = newHabits()
	if err := json.Unmarshal(data, hs); err != nil {
		t.Fatal(err)
	}
	if !hs.get(key, at).young() {
		t.Error("a habit of twelve hours is not called young")
	}
	if feed(90, 10) < 1 {
		t.Error("a reading that nearly doubled after a restart is not unusual")
	}
}

func TestHabitsAreBounded(t *testing.T) {
	hs := newHabits()
	for i := range maxHabits + 10 {
		k := habitKey{Subject: Subject{"gpu", fmt.Sprint(i)}}
		if v := hs.get(k, day); v != nil {
			v.add(day, 1)
		}
	}
	if len(hs.of) != maxHabits {
		t.Errorf("there are %d habits, want at most %d", len(hs.of), maxHabits)
	}
	if hs.get(habitKey{Reading: "new"}, day.Add(habitsKept+time.Hour)) == nil {
		t.Error("habits that have not been seen for a week still take the room of a new one")
	}
}
