package sim

import (
	"math"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/demand"
	"gpuvigil/internal/metric"
)

const (
	stepTime       = 1.25 // seconds
	stepSamples    = 512
	sampleTokens   = 4096
	loaderShare    = 0.03 // of a step's time
	epochSteps     = 60000
	firstStep      = 41200 // of the run that is under way when the scenario begins
	evaluationName = "eval_accuracy"
)

// learner is how far a training has come.
type learner struct {
	step       float64
	kept       float64   // at the last checkpoint
	checkpoint time.Time // when that was complete
	worked     float64   // seconds of steps since the run began
	waited     float64   // of these, for data
	score      float64   // of the evaluation at the last checkpoint
	progress   demand.Progress
	told       time.Time // when it wrote its file last
}

func (l *learner) begin(now time.Time) {
	if l.kept == 0 {
		l.kept, l.checkpoint, l.score = firstStep, now, accuracy(firstStep)
	}
	l.step = math.Floor(l.kept) // what came after the checkpoint is lost
}

// learn is a second of training at the given age of the run.
func (w *workload) learn(now time.Time) {
	l, age := &w.learner, now.Sub(w.since)
	switch {
	case w.on || !w.broken.IsZero() || age < warmUp:
	case age%checkpointEvery >= checkpointEvery-checkpointLasts:
		if age%checkpointEvery == checkpointEvery-time.Second {
			l.kept, l.checkpoint, l.score = l.step, now, accuracy(l.step)
		}
	default:
		l.step += 1 / stepTime
		l.worked++
		l.waited += loaderShare
	}
}

// observeFiles tells of a file for each training, in which it tells of its work.
func (s *Sim) observeFiles() {
	trainings := 0.0
	for _, w := range s.workloads {
		if w.Kind == Training {
			trainings++
		}
	}
	setAll(s.host.readings, metric.TextfileFiles, []float64{trainings, 0, 0})
	s.host.readings.Stamp(metric.Slow, s.now)
}

func accuracy(step float64) float64 { return 0.82 - 0.5*math.Exp(-step/3e4) }

// observe tells of the training as a file that it wrote now would.
func (l *learner) observe(now time.Time, r collector.Readings) []collector.Figure {
	s := demand.NoSignals(now)
	s.Steps = math.Floor(l.step)
	s.Samples = stepSamples * s.Steps
	s.Tokens = sampleTokens * s.Samples
	s.Epoch = l.step / epochSteps
	s.Loss = 1.6 + 7*math.Exp(-l.step/2e4) + 0.02*math.Sin(l.step)
	s.StepTime = demand.Sum{Seconds: l.worked, Count: l.worked / stepTime}
	s.LoaderWait = l.waited
	s.Checkpoint = float64(l.checkpoint.Unix())
	s.Finished = 0
	l.progress.Add(s)
	l.told = now
	return l.tell(now, r)
}

// left is what a training that has ended has left in its file.
func (w *workload) left(now time.Time) collector.Workload {
	out := collector.Workload{Owner: w.Owner, Readings: collector.NewReadings(metric.Workload)}
	out.Quality = w.learner.tell(now, out.Readings)
	out.Stamp(metric.Slow, now)
	return out
}

// tell tells what was written last. It stands while the training is started again.
func (l *learner) tell(now time.Time, r collector.Readings) []collector.Figure {
	l.progress.Set(r, true)
	r.Set(metric.WorkloadSignalAge, now.Sub(l.told).Seconds())
	return []collector.Figure{{Name: evaluationName, Value: math.Round(l.score*1e4) / 1e4}}
}
