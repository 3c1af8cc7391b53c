// Package example has one incident of each rule, for the tests of what is said
// about them. What they say is what the detectors said of simulated faults.
package example

import (
	"time"

	"gpuvigil/alerting"
	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/rules"
)

// Start is when the incidents began.
var Start = time.Date(2026, 3, 14, 3, 12, 4, 0, time.UTC)

const (
	node  = "gpu-117"
	uuid  = "GPU-5f2c0c6e-9c55-4a53-8d2e-7a3b9c1d2e3f"
	model = "NVIDIA H100 80GB HBM3"
	url   = "http://chat-70b:8000/metrics#vllm/chat-70b"
)

// Whose the GPUs of the examples are.
var (
	training = collector.Owner{Kind: "job", ID: "slurm/4711", Team: "nlp"}
	serving  = collector.Owner{Kind: "pod", ID: "serving/chat-70b-0", Team: "inference"}
)

// Incidents returns one firing incident of each rule, in the order of the book.
func Incidents() []detect.Incident {
	var all []detect.Incident
	for _, said := range book {
		all = append(all, incident(said.severity, said.finding()))
	}
	return all
}

// Of returns the example of one rule.
func Of(id rules.ID) detect.Incident {
	for _, i := range Incidents() {
		if i.Rule == id {
			return i
		}
	}
	panic("no example of rule " + id)
}

// said is what a detector says of a subject.
type said struct {
	rule     rules.ID
	cause    string
	severity rules.Severity
	subject  detect.Subject
	gpu      int // -1: not about one
	owner    collector.Owner
	evidence detect.Evidence
	before   []collector.Event
}

func (s *said) finding() detect.Finding {
	f := detect.Finding{
		Rule: s.rule, Cause: s.cause, State: detect.Firing, Since: Start, Fired: Start, Evidence: s.evidence, Before: s.before,
		Subject: s.subject, Node: node, GPUIndex: s.gpu, Owner: s.owner,
	}
	if s.subject.Kind == "queue" {
		f.Node = ""
	}
	if s.gpu >= 0 {
		f.GPUModel = model
	}
	return f
}

func incident(s rules.Severity, root detect.Finding) detect.Incident {
	root.Severity = s
	return detect.Incident{
		ID: string(root.Rule) + "-1", Rule: root.Rule, Cause: root.Cause, Severity: s, State: detect.Firing,
		Opened: Start, Updated: Start, Members: []detect.Finding{root},
	}
}

// Resolve returns the incident as it is 14 minutes after its beginning, when it
// has ended.
func Resolve(i detect.Incident) detect.Incident {
	i.State, i.Resolved, i.Updated = detect.Resolved, Start.Add(14*time.Minute), Start.Add(14*time.Minute)
	i.Members = append([]detect.Finding(nil), i.Members...)
	for k := range i.Members {
		i.Members[k].State, i.Members[k].Resolved, i.Members[k].Ended = detect.Resolved, i.Resolved, "cleared"
	}
	return i
}

// Join returns the incident with n more findings like its first, on the GPUs after its
// own, which began two minutes after the newest.
func Join(i detect.Incident, n int) detect.Incident {
	members := append([]detect.Finding(nil), i.Members...)
	for range n {
		f := members[len(members)-1]
		f.GPUIndex, f.Fired = f.GPUIndex+1, f.Fired.Add(2*time.Minute)
		f.Subject.ID += "x"
		members = append(members, f)
		i.Updated = f.Fired
	}
	i.Members = members
	return i
}

// Message returns the incident with what the outbox adds to it.
func Message(i detect.Incident) alerting.Message {
	m := alerting.Message{Incident: i, Rule: rules.Get(i.Rule), Node: node, Context: context(&i), Links: []alerting.Link{
		{Title: "Page", URL: "http://gpu-117:9836/"},
		{Title: "Dashboard", URL: "https://dashboards.example/d/gpuvigil-overview?from=1773447124000&to=now&var-instance=gpu-117"},
		{Title: "Runbook", URL: "https://example.com/runbooks#" + string(i.Rule)},
	}}
	return m
}

// context is what an agent knows of the incident's reach.
func context(i *detect.Incident) alerting.Context {
	c := alerting.Context{Cluster: "eu-1"}
	switch root := &i.Members[0]; root.Owner {
	case training:
		c.Owners, c.GPUs = []collector.Owner{training}, 8
		c.Money = &alerting.Money{Currency: "USD", PerHour: 20, GPUs: 8}
		c.Lost = &alerting.Lost{Since: Start.Add(-38 * time.Minute), GPUHours: 8 * 38.0 / 60, Cost: 8 * 38.0 / 60 * 2.5, Currency: "USD"}
		if i.Rule == rules.IDIdleGPU {
			c.Money = &alerting.Money{Currency: "USD", PerHour: 2.5, GPUs: 1}
		}
	case serving:
		c.Owners, c.GPUs, c.Models = []collector.Owner{serving}, 1, []string{"chat-70b (vllm)"}
		c.Money = &alerting.Money{Currency: "USD", PerHour: 2.5, GPUs: 1}
	default:
		if k := root.Subject.Kind; k == "node" || k == "interface" {
			c.Owners, c.GPUs, c.Models = []collector.Owner{training, serving}, 8, []string{"chat-70b (vllm)"}
			c.Money = &alerting.Money{Currency: "USD", PerHour: 20, GPUs: 8}
		}
	}
	return c
}
