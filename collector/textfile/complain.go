package textfile

import (
	"maps"
	"slices"
	"strings"
	"time"

	"gpuvigil/internal/text"
)

// words are what a person is told of a reason; of a file that cannot be read it is what
// the system says.
var words = map[string]string{
	"not_regular":      "it is no regular file, or has a second name",
	"too_large":        "it is longer than textfile.max_bytes",
	"cut_off":          "it does not end with a line's end: write it under another name and rename it",
	"syntax":           "a line of it is no sample in Prometheus' text format",
	"future":           "its time is more than a minute ahead: compare the clocks",
	"too_many_files":   "there are more files than textfile.max_files, or more than 32 of its user",
	"too_many_figures": "it has more than 16 figures of quality; the rest of it counts",
	"foreign":          "its user has no process of that workload on a GPU, and so may not speak for it",
	"ambiguous":        "it names no workload, and its user has several: name the file after one",
}

const (
	againAfter    = time.Hour // a file that is written anew every few seconds is bad each time
	maxComplaints = 100       // that are logged in that time: anybody may make files
)

// complaint is a file that does not count, for one reason.
type complaint struct{ file, reason string }

// tell logs a file that does not count, or not as a whole, once for each reason.
func (s *Source) tell(name, reason, why string, now time.Time) {
	c := complaint{name, reason}
	if _, told := s.told[c]; told {
		return
	}
	if len(s.told) >= maxComplaints {
		if !s.mute {
			s.mute = true
			s.cfg.Log.Warn("More files of workloads' own signals do not count than are named here; vigil_textfile_errors_total counts them.", "directory", s.cfg.Directory)
		}
		return
	}
	s.told[c] = now
	s.cfg.Log.Warn("A file of a workload's own signals does not count, or not as a whole.", "file", shown(name), "reason", reason, "why", why)
}

// forget lets what was said long ago be said again.
func (s *Source) forget(now time.Time) {
	maps.DeleteFunc(s.told, func(_ complaint, at time.Time) bool { return now.Sub(at) >= againAfter || now.Before(at) })
	if len(s.told) < maxComplaints {
		s.mute = false
	}
}

// maxShown bounds the name of a file where it is shown.
const maxShown = 100

func shown(name string) string { return text.Clean(name, maxShown) }

// Refused is a file that is not read, and why, in words.
type Refused struct{ File, Why string }

// Refused returns the files that the last sample could not read, by name. Whether a file
// may speak for its workload is not among it.
func (s *Source) Refused() []Refused {
	var out []Refused
	for name, f := range s.files {
		if f.refused != "" {
			out = append(out, Refused{shown(name), f.why})
		}
	}
	slices.SortFunc(out, func(a, b Refused) int { return strings.Compare(a.File, b.File) })
	return out
}
