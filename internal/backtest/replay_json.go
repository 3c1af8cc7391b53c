package backtest

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"time"

	"gpuvigil/detect"
	"gpuvigil/rules"
)

// replayedJSON is the form of a replay that programs read.
type replayedJSON struct {
	Recordings []Recording    `json:"recordings"`
	Incidents  []incidentJSON `json:"incidents"`
	Labels     []foundJSON    `json:"labels,omitempty"`
	Figures    *figuresJSON   `json:"figures,omitempty"` // only with labels
	Alerts     []alertJSON    `json:"alerts"`            // false ones if there are labels
	History    *historyJSON   `json:"history,omitempty"`
}

// incidentJSON has the incident's severity, which is the highest of its findings', and
// beside it the finding that is its root cause.
type incidentJSON struct {
	Time     time.Time      `json:"time"`
	Resolved time.Time      `json:"resolved,omitzero"`
	Severity rules.Severity `json:"severity"`
	By       rules.ID       `json:"severity_by,omitempty"` // whose finding makes it so severe; empty: that has become less severe since
	findingJSON
	Findings int           `json:"findings"`
	Members  []findingJSON `json:"members"`         // the root cause first
	Label    string        `json:"label,omitempty"` // right or false
}

type findingJSON struct {
	Rule    rules.ID       `json:"rule"`
	Cause   string         `json:"cause"`
	Own     rules.Severity `json:"finding_severity"`
	Subject string         `json:"subject"`
	Node    string         `json:"node"`
	Seen    string         `json:"seen"`
}

func findingOf(f *detect.Finding) findingJSON {
	return findingJSON{f.Rule, f.Cause, f.Severity, f.Subject.String(), f.Node, f.Evidence.Seen}
}

type foundJSON struct {
	Truth
	Found   bool     `json:"found"`
	By      rules.ID `json:"by,omitempty"`
	Seconds *float64 `json:"after_seconds"` // null if it was not found
}

type figuresJSON struct {
	Precision   *float64 `json:"precision"`            // null if nothing was told
	Recall      *float64 `json:"recall"`               // null if there are no labels
	F1          *float64 `json:"f1"`                   // null if both
	DelayMedian *float64 `json:"delay_median_seconds"` // null if nothing was found
	DelayP95    *float64 `json:"delay_p95_seconds"`
	Outside     int      `json:"labels_of_no_recorded_time"`
}

type alertJSON struct {
	Severity rules.Severity     `json:"severity"`
	Count    int                `json:"count"`
	Weeks    float64            `json:"gpu_weeks"`
	Per      *float64           `json:"a_gpu_week,omitempty"`
	AtMost   *float64           `json:"a_gpu_week_at_most,omitempty"`
	Fleets   map[string]float64 `json:"a_week_by_gpus,omitempty"`
	Mosts    map[string]float64 `json:"a_week_by_gpus_at_most,omitempty"`
}

// WriteJSON writes the same for programs. Times are in seconds.
func (r *Replayed) WriteJSON(w io.Writer) error {
	out := replayedJSON{Recordings: r.Recordings, Incidents: []incidentJSON{}, History: r.historyJSON()}
	told := r.Told()
	for i := range told {
		in := &told[i].Incident
		one := incidentJSON{Time: told[i].First, Resolved: in.Resolved, Severity: in.Severity, findingJSON: findingOf(&in.Members[0]), Findings: len(in.Members)}
		if by := gravest(in); by != nil {
			one.By = by.Rule
		}
		for k := range in.Members {
			one.Members = append(one.Members, findingOf(&in.Members[k]))
		}
		if r.Labelled {
			one.Label = r.verdictOf(&told[i])
		}
		out.Incidents = append(out.Incidents, one)
	}
	rate := r.Alerts
	if r.Labelled {
		rate = r.Figures.Rate
		for _, f := range r.Found {
			out.Labels = append(out.Labels, foundJSON{f.Truth, f.Rule != "", f.Rule, seconds(f.After, f.Rule != "")})
		}
		out.Figures = r.figuresJSON(&r.Figures)
	}
	for _, s := range []rules.Severity{rules.Page, rules.Ticket, rules.Info} {
		out.Alerts = append(out.Alerts, r.alertOf(s, rate(s)))
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(out)
}

func (r *Replayed) figuresJSON(f *Figures) *figuresJSON {
	return &figuresJSON{shareOf(f.Precision()), shareOf(f.Recall()), shareOf(f.F1()), seconds(f.Delay(0.5), f.Found > 0), seconds(f.Delay(0.95), f.Found > 0), r.Outside}
}

func (r *Replayed) alertOf(s rules.Severity, x Incidence) alertJSON {
	a := alertJSON{Severity: s, Count: x.Count, Weeks: x.Exposure}
	if x.Exposure > 0 { // else nothing was watched, and there is no rate
		per, most := x.Per(), x.AtMost()
		a.Per, a.AtMost, a.Fleets, a.Mosts = &per, &most, map[string]float64{}, map[string]float64{}
		for _, n := range FleetSizes {
			in, of := r.weekly(s, n), fmt.Sprint(n)
			a.Fleets[of], a.Mosts[of] = in.Per()*float64(n), in.AtMost()*float64(n)
		}
	}
	return a
}

// shareOf is nil for a share of nothing.
func shareOf(share float64) *float64 {
	if math.IsNaN(share) {
		return nil
	}
	return &share
}

// seconds is nil for what was not found.
func seconds(d time.Duration, found bool) *float64 {
	if !found {
		return nil
	}
	s := d.Seconds()
	return &s
}
