// Package example has one incident of each rule, for the tests of what is said
// about them.
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
)

// Incidents returns one firing incident of each rule, in the order of the book.
func Incidents() []detect.Incident {
	lost := finding(rules.IDXid, "xid_79", detect.Evidence{
		Seen:       "Xid 79 at 03:12:04, the GPU does not answer, 7 peers fine",
		Expected:   "no errors",
		Confidence: detect.Certain, Why: "reported by the driver",
		Title: "The GPU has fallen off the bus (Xid 79)", Action: rules.XidInfo(79).Action,
	})
	lost.Before = []collector.Event{
		{Time: Start.Add(-9 * time.Minute), Kind: collector.ClocksEvent, Text: "hw_thermal"},
		{Time: Start.Add(-6 * time.Second), Kind: collector.XidEvent, UUID: uuid, Code: 74},
	}
	saturated := finding(rules.IDSaturatedGPU, "gpu_bound", detect.Evidence{
		Seen:       "GPU 98 % busy for 9 min, CPU 11 %, 38 requests waiting, queue-time p95 4.1 s",
		Expected:   "queue-time p95 below its usual 0.3 s",
		Confidence: detect.VerySure, Why: "above the threshold for 9 min",
	})
	saturated.Owner = collector.Owner{Kind: "pod", ID: "serving/chat-70b-0", Team: "inference"}
	idle := finding(rules.IDIdleGPU, "held_by_process", detect.Evidence{
		Seen:       "0 % busy for 8 h 10 min with 61 GiB held",
		Expected:   "work within 20 min",
		Confidence: detect.Certain, Why: "measured over the whole time",
	})
	version := finding(rules.IDVersionChanged, "driver", detect.Evidence{
		Seen:       "driver 570.124.06 → 575.57.08, the third change in 7 days",
		Expected:   "no change",
		Confidence: detect.Certain, Why: "reported by the driver", Title: "Driver version keeps changing",
	})
	version.Subject = detect.Subject{Kind: "node", ID: node}
	version.GPUIndex, version.GPUModel, version.Owner = -1, "", collector.Owner{}
	return []detect.Incident{
		incident(rules.Page, lost), incident(rules.Ticket, saturated),
		incident(rules.Ticket, idle), incident(rules.Ticket, version),
	}
}

func finding(rule rules.ID, cause string, e detect.Evidence) detect.Finding {
	return detect.Finding{
		Rule: rule, Cause: cause, State: detect.Firing, Since: Start, Fired: Start, Evidence: e,
		Subject: detect.Subject{Kind: "gpu", ID: uuid}, Node: node, GPUIndex: 3, GPUModel: model,
		Owner: collector.Owner{Kind: "job", ID: "slurm/4711", Team: "nlp"},
	}
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

// Message returns the incident with what the outbox adds to it.
func Message(i detect.Incident) alerting.Message {
	return alerting.Message{Incident: i, Rule: rules.Get(i.Rule), Node: node, Links: []alerting.Link{
		{Title: "Page", URL: "http://gpu-117:9835/"},
		{Title: "Runbook", URL: "https://example.com/runbooks#" + string(i.Rule)},
	}}
}
