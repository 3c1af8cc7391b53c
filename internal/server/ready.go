package server

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"gpuvigil/collector"
)

// healthy says that the process answers.
func healthy(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintln(w, "healthy")
}

// ready says whether fresh data comes from every source that is expected, and
// what is missing otherwise.
func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	if missing := unready(s.cfg.Snapshot(), time.Now()); len(missing) > 0 {
		http.Error(w, "not ready\n"+strings.Join(missing, "\n"), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

// unready returns one line for each thing that is missing.
func unready(s *collector.Snapshot, now time.Time) []string {
	if s == nil {
		return []string{"no snapshot yet: the first samples are being taken"}
	}
	var missing []string
	if stale(s, now) {
		missing = append(missing, fmt.Sprintf("the last snapshot is %s old: the sampler has stopped", duration(now.Sub(s.Time))))
	}
	for _, src := range s.Sources {
		if src.Expected && !src.Fresh(now) {
			missing = append(missing, src.Name+": "+ailment(src, now))
		}
	}
	return missing
}

// ailment says what is wrong with a source that is not fresh.
func ailment(src collector.SourceState, now time.Time) string {
	said := "no good sample yet"
	if !src.Last.IsZero() {
		said = "last good sample " + duration(now.Sub(src.Last)) + " ago"
	}
	said += ", expected every " + duration(src.Interval)
	if src.Err != "" {
		said += ": " + oneLine(src.Err)
	}
	return said
}
