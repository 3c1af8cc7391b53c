package textfile

import (
	"math"
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/demand"
	"gpuvigil/collector/exposition"
	"gpuvigil/internal/text"
)

const (
	maxFigures = 16 // of one workload
	maxSpeaks  = 64 // workloads that one file speaks for
	maxFigure  = 64 // letters of a figure's name
	maxID      = 253
)

// content is what a file says, by whom it is about.
type content struct {
	about   []ref
	says    []saying
	figures int // that were too many
}

// ref is an owner as a file names him; the zero ref is whomever the file is of.
type ref struct{ kind, id string }

// saying is what is said of one workload.
type saying struct {
	signals demand.Signals
	quality []collector.Figure
}

// fields are the names of docs/training.md. What repeats one, as ranks do, is the same
// fact: the largest value counts.
var fields = map[string]func(*demand.Signals) *float64{
	"training_steps_total":                  func(s *demand.Signals) *float64 { return &s.Steps },
	"training_samples_total":                func(s *demand.Signals) *float64 { return &s.Samples },
	"training_tokens_total":                 func(s *demand.Signals) *float64 { return &s.Tokens },
	"training_epoch":                        func(s *demand.Signals) *float64 { return &s.Epoch },
	"training_loss":                         func(s *demand.Signals) *float64 { return &s.Loss },
	"training_step_seconds_sum":             func(s *demand.Signals) *float64 { return &s.StepTime.Seconds },
	"training_step_seconds_count":           func(s *demand.Signals) *float64 { return &s.StepTime.Count },
	"training_loader_wait_seconds_total":    func(s *demand.Signals) *float64 { return &s.LoaderWait },
	"training_checkpoint_timestamp_seconds": func(s *demand.Signals) *float64 { return &s.Checkpoint },
	"training_finished":                     func(s *demand.Signals) *float64 { return &s.Finished },
}

// qualityName is the one name whose label says what it is.
const qualityName = "workload_quality"

// lay takes in one sample. Names that are not known are somebody else's.
func (c *content) lay(name string, labels []exposition.Label, v float64) {
	field := fields[name]
	if field == nil && name != qualityName || math.IsNaN(v) || math.IsInf(v, 0) {
		return
	}
	about := refOf(labels)
	i := slices.Index(c.about, about)
	if i < 0 {
		if i = len(c.about); i >= maxSpeaks {
			return
		}
		c.about = append(c.about, about)
		c.says = append(c.says, saying{signals: demand.NoSignals(time.Time{})})
	}
	if field != nil {
		into := field(&c.says[i].signals)
		if math.IsNaN(*into) || v > *into {
			*into = v
		}
		return
	}
	figure := text.Clean(valueOf(labels, "name"), maxFigure)
	if figure == "" {
		return
	}
	if !c.says[i].figure(collector.Figure{Name: figure, Value: v}) {
		c.figures++
	}
}

// figure takes in a figure; of one name the last counts. It is false if there are too
// many.
func (s *saying) figure(f collector.Figure) bool {
	at := slices.IndexFunc(s.quality, func(have collector.Figure) bool { return have.Name == f.Name })
	switch {
	case at >= 0:
		s.quality[at] = f
	case len(s.quality) >= maxFigures:
		return false
	default:
		s.quality = append(s.quality, f)
	}
	return true
}

// refOf reads whom the labels name.
func refOf(labels []exposition.Label) ref {
	if job := valueOf(labels, "slurm_job_id"); job != "" {
		return ref{kindJob, slurmPrefix + text.Clean(job, maxID)}
	}
	if pod := valueOf(labels, "pod"); pod != "" {
		return ref{kindPod, text.Clean(valueOf(labels, "namespace")+"/"+pod, 2*maxID)}
	}
	if name := valueOf(labels, "container"); name != "" {
		return ref{kindContainer, text.Clean(name, maxID)}
	}
	return ref{}
}

func valueOf(labels []exposition.Label, name string) string {
	for _, l := range labels {
		if string(l.Name) == name {
			return string(l.Value)
		}
	}
	return ""
}
