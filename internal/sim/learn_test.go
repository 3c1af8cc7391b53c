package sim

import (
	"testing"
	"time"

	"gpuvigil/internal/metric"
)

// The demo's training loses a GPU at four minutes before it goes live and begins again
// where its last checkpoint was.
func TestTrainingGoesBackToItsCheckpoint(t *testing.T) {
	s := newSim(t, "demo")
	last, fell, steps := 0.0, 0.0, 0.0
	for at := -30 * time.Minute; at < 10*time.Minute; at += 15 * time.Second {
		for _, w := range s.Part(start.Add(at)).Workloads {
			if w.Kind != "job" || !w.Has(metric.WorkloadStep) {
				continue
			}
			step := w.Value(metric.WorkloadStep)
			if step < last {
				fell += last - step
			}
			if done := w.Value(metric.WorkloadSteps); done < steps {
				t.Fatalf("at %v the steps that it has done fall from %v to %v", at, steps, done)
			} else {
				steps = done
			}
			last = step
			if len(w.Quality) != 1 || w.Quality[0].Name != evaluationName {
				t.Fatalf("its quality is told as %v, want one score of an evaluation", w.Quality)
			}
			if v := w.Value(metric.WorkloadStepTime); w.Has(metric.WorkloadStepTime) && (v < 1.2 || v > 1.3) {
				t.Fatalf("at %v a step takes %v s, want 1.25", at, v)
			}
		}
	}
	if fell < 60 || fell > 20*60/stepTime {
		t.Errorf("after the loss of a GPU %v steps are done again, want some, and no more than lie between two checkpoints", fell)
	}
	if steps < 1000 {
		t.Errorf("in 40 minutes %v steps were done", steps)
	}
}
