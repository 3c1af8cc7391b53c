package rules

import (
	"fmt"

	"gpuvigil/internal/metric"
)

// A finding's labels hold the GPU's uuid and nothing else about it. What a person
// wants to read, the summary asks Prometheus for when the alert is sent. A join in
// the alert's expression would give labels that come and go with the GPU, so that
// the alert of a lost one resolves and fires anew; and where two jobs scrape one
// agent, the join fails and nothing fires at all.

// summary is the annotation of an alert on a finding: what is wrong, with what,
// on which node, and that none of it is real where it is simulated.
func summary(title string) string {
	return simulatedMark + title + ": " + thing + " ({{ $labels.cause }}), told by " + node
}

var (
	simulatedMark = fmt.Sprintf(`{{ if printf "%s{instance=%%q,simulated='true'}" $labels.instance | query }}SIMULATED: {{ end }}`, metric.NodeInfo)

	thing = fmt.Sprintf(`{{ with printf "%s{instance=%%q,uuid=%%q}" $labels.instance (reReplaceAll "^gpu:" "" $labels.subject) | query }}`, metric.GPUInfo) +
		`GPU {{ first . | label "gpu" }}{{ with first . | label "model" }}, {{ . }}{{ end }}{{ else }}{{ $labels.subject }}{{ end }}`

	node = fmt.Sprintf(`{{ with printf "%s{instance=%%q}" $labels.instance | query }}`, metric.NodeInfo) +
		`{{ first . | label "node" }} ({{ $labels.instance }}){{ else }}{{ $labels.instance }}{{ end }}`
)

// example is an input over which an alert fires, once for each of what it tells.
type example struct {
	name  string
	input []series
	tells []told
}

// told is one alert: its labels and its summary.
type told struct {
	labels  map[string]string
	summary string
}

// fleet is an example of everything that can surround a finding at once: a GPU whose
// agent is scraped by two jobs, a lost GPU that no metric names any more, the node
// itself, and a demo.
func (r *Rule) fleet() example {
	e := example{name: "in a fleet"}
	add := func(format string, args ...any) {
		e.input = append(e.input, series{fmt.Sprintf(format, args...), 1, 0, 10})
	}
	finding := func(job, instance, subject, about string) {
		labels := map[string]string{
			"job": job, "instance": instance, "rule": string(r.ID), "severity": r.Severity.String(), "subject": subject, "cause": "a_cause",
		}
		add("%s", seriesName(metric.FindingActive.Name, labels))
		e.tells = append(e.tells, told{labels, about})
	}
	agent := func(job, instance, name string, simulated bool, uuids ...string) {
		add(`%s{job=%q,instance=%q,node=%q,simulated="%t"}`, metric.NodeInfo, job, instance, name, simulated)
		for i, uuid := range uuids {
			add(`%s{job=%q,instance=%q,gpu="%d",uuid=%q,model="NVIDIA H100"}`, metric.GPUInfo, job, instance, i, uuid)
		}
	}
	agent("gpuvigil", "n1:9400", "gpu-117", false, "GPU-1", "GPU-2")
	agent("again", "n1:9400", "gpu-117", false, "GPU-1", "GPU-2")
	agent("gpuvigil", "n2:9400", "gpu-118", false, "GPU-3")
	agent("gpuvigil", "n3:9400", "demo", true, "GPU-1")
	const known = "GPU 1, NVIDIA H100 (a_cause), told by gpu-117 (n1:9400)"
	finding("gpuvigil", "n1:9400", "gpu:GPU-2", r.Title+": "+known)
	finding("again", "n1:9400", "gpu:GPU-2", r.Title+": "+known)
	finding("gpuvigil", "n2:9400", "gpu:GPU-lost", r.Title+": gpu:GPU-lost (a_cause), told by gpu-118 (n2:9400)")
	finding("gpuvigil", "n2:9400", "node:gpu-118", r.Title+": node:gpu-118 (a_cause), told by gpu-118 (n2:9400)")
	finding("gpuvigil", "n3:9400", "gpu:GPU-1", "SIMULATED: "+r.Title+": GPU 0, NVIDIA H100 (a_cause), told by demo (n3:9400)")
	return e
}
