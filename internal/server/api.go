package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"gpuvigil/detect"
	"gpuvigil/internal/text"
	"gpuvigil/rules"
)

// maxRelease bounds how long the agent can be told to look away.
const maxRelease = 24 * time.Hour

// Findings is the answer of GET /api/v1/findings.
type Findings struct {
	Time      time.Time         `json:"time"` // of the snapshot that was judged last
	Node      string            `json:"node"`
	Simulated bool              `json:"simulated"`
	Findings  []Finding         `json:"findings"`  // pending, firing, and resolved in the last 24 h
	Incidents []detect.Incident `json:"incidents"` // what people were told
	Verdicts  []detect.Verdict  `json:"verdicts"`  // one for each GPU

	// Marks is, by the incident's id, what people said of those that have not ended.
	Marks map[string]Mark `json:"marks,omitempty"`
	// Muted is, by the incident's id, what keeps people from being told of it elsewhere.
	Muted map[string][]Mute `json:"muted,omitempty"`

	// Rules says of each rule how often it has fired and what it needs to be believed.
	Rules []detect.Standing `json:"rules"`

	// History holds, for each subject of a finding (kind:id), the last hours of
	// the readings that show its condition.
	History map[string][]History `json:"history"`
}

// Mute is something that keeps people from being told of an incident.
type Mute struct {
	Receiver string    `json:"receiver"`
	By       string    `json:"by"`                // silence, inhibition or time_interval
	ID       string    `json:"id,omitempty"`      // of the silence, the alert that inhibits it, or the interval's name
	Until    time.Time `json:"until,omitzero"`    // of a silence
	Comment  string    `json:"comment,omitempty"` // of a silence, as its author wrote it
}

// String says it in a line: silenced in Alertmanager until 14:05 UTC: being replaced.
func (m Mute) String() string {
	said := map[string]string{"silence": "silenced in Alertmanager", "inhibition": "inhibited in Alertmanager by another alert", "time_interval": "muted in Alertmanager by the time interval " + m.ID}[m.By]
	if !m.Until.IsZero() {
		said += " until " + m.Until.UTC().Format("2006-01-02 15:04 MST")
	}
	if m.Comment != "" {
		said += ": " + m.Comment
	}
	return text.Clean(said, 300)
}

// muted asks what keeps people from being told.
func (s *Server) muted() map[string][]Mute {
	if s.cfg.Muted == nil {
		return nil
	}
	return s.cfg.Muted()
}

// Finding is a finding with what the rule book says about it.
type Finding struct {
	detect.Finding
	Title   string `json:"title"`
	Meaning string `json:"meaning"`
	Action  string `json:"action"` // the first thing to do, the finding's own or the rule's
	Unit    string `json:"unit"`   // of observed and expected
}

// History is one reading over time.
type History struct {
	Metric string       `json:"metric"`
	Points [][4]float64 `json:"points"` // Unix time, minimum, mean and maximum of a minute
}

// Release is the answer of POST /api/v1/release.
type Release struct {
	Until time.Time `json:"until"` // when the agent looks at the GPUs again
}

func (s *Server) apiFindings(w http.ResponseWriter, _ *http.Request) {
	snap, view := s.cfg.Snapshot(), s.cfg.View()
	if snap == nil || view == nil || view.Time.IsZero() {
		http.Error(w, "nothing was judged yet: try again in a few seconds", http.StatusServiceUnavailable)
		return
	}
	answer := Findings{
		Time:      view.Time,
		Node:      snap.Node.Name,
		Simulated: snap.Simulated,
		Findings:  []Finding{},
		Incidents: orEmpty(view.Incidents),
		Verdicts:  orEmpty(view.Verdicts),
		Rules:     orEmpty(view.Standings),
		Marks:     s.marks(),
		Muted:     s.muted(),
		History:   map[string][]History{},
	}
	for _, f := range view.Findings {
		answer.Findings = append(answer.Findings, explained(f))
		if key := f.Subject.String(); answer.History[key] == nil {
			answer.History[key] = s.history(f.Subject)
		}
	}
	s.reply(w, answer)
}

// explained adds what the rule book says. A finding of a rule that this release
// no longer has stays as it is, under the rule's id.
func explained(f detect.Finding) Finding {
	out := Finding{Finding: f, Title: f.Title(), Action: f.Action()}
	if r := rules.Get(f.Rule); r != nil {
		out.Meaning, out.Unit = r.Meaning, r.Unit
	}
	return out
}

func (s *Server) history(of detect.Subject) []History {
	answer := []History{}
	if s.cfg.History == nil {
		return answer
	}
	for _, h := range s.cfg.History(of) {
		points := make([][4]float64, 0, len(h.Points))
		for _, p := range h.Points {
			if finite(p.Min, p.Mean, p.Max) {
				points = append(points, [4]float64{float64(p.Time.Unix()), p.Min, p.Mean, p.Max})
			}
		}
		answer = append(answer, History{Metric: h.Reading.Name, Points: points})
	}
	return answer
}

func (s *Server) apiSnapshot(w http.ResponseWriter, _ *http.Request) {
	snap := s.cfg.Snapshot()
	if snap == nil {
		http.Error(w, "no snapshot yet: the first samples are being taken", http.StatusServiceUnavailable)
		return
	}
	answer := snapshotOf(snap, time.Now())
	answer.Version = s.cfg.Version.Version
	answer.ReleasedUntil = s.releasedUntil()
	s.reply(w, answer)
}

func (s *Server) releasedUntil() time.Time {
	if s.cfg.ReleasedUntil == nil {
		return time.Time{}
	}
	return s.cfg.ReleasedUntil()
}

func (s *Server) release(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Release == nil {
		http.Error(w, "there is no GPU driver to release: this agent does not use one", http.StatusConflict)
		return
	}
	d, err := releaseTime(r.URL.Query().Get("for"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := s.cfg.Release(d); err != nil {
		http.Error(w, "releasing the GPU driver: "+err.Error(), http.StatusInternalServerError)
		return
	}
	s.reply(w, Release{Until: s.releasedUntil()})
}

func releaseTime(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > maxRelease {
		return 0, fmt.Errorf("cannot release the GPU driver for %q: the time is at most 24h, such as 15m; 0s takes the driver up again at once", text)
	}
	return d, nil
}

// reply writes the answer, or nothing of it.
func (s *Server) reply(w http.ResponseWriter, answer any) {
	body, err := json.Marshal(answer)
	if err != nil {
		s.cfg.Log.Error("writing an answer of the API", "err", err)
		http.Error(w, "writing the answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(append(body, '\n')) // an error means that the client has gone
}
