package server

import (
	"fmt"
	"strconv"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// maxListed is how many processes the page lists, those with most memory.
const maxListed = 20

// sourceRow is how well one source looks.
type sourceRow struct {
	Name  string
	Tone  tone
	State string
	Age   string
	Every string
	Took  string
	Error string
	Fails uint64
	Page  string // of another exporter, that it reads
}

// endpointRow is one inference server.
type endpointRow struct {
	URL, Engine, Model              string
	Running, Waiting, QueueTime, KV string
}

// processRow is one process on one GPU.
type processRow struct {
	PID, UID   string
	Name       string
	GPU        string
	Memory, SM string
	Owner      ownerCell
}

func (p *page) sources(s *collector.Snapshot, now time.Time) {
	for _, src := range s.Sources {
		row := sourceRow{
			Name: oneLine(src.Name), Tone: toneOK, State: "fresh", Age: none, Took: none,
			Every: duration(src.Interval), Error: oneLine(src.Err), Fails: src.Errors,
		}
		if !src.Last.IsZero() {
			row.Age, row.Took = duration(now.Sub(src.Last))+" ago", took(src.Duration)
		}
		switch {
		case src.Fresh(now):
		case src.Expected:
			row.Tone, row.State = tonePage, "stale"
			p.Notices = append(p.Notices, notice{toneTicket, "not seen", row.Name + ": " + ailment(src, now)})
		default:
			row.Tone, row.State = toneQuiet, "absent"
		}
		for _, x := range s.Pages {
			if x.Source == src.Name {
				row.Page = oneLine(x.String())
			}
		}
		p.Sources = append(p.Sources, row)
	}
}

func took(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds()*1e3, 'f', 1, 64) + " ms"
}

func (p *page) host(s *collector.Snapshot) {
	n := s.Node
	p.Host = []fact{
		{"CPU busy", percent(n.Value(metric.CPUBusy)), "busiest core " + percent(n.Value(metric.CPUBusiest))},
		{"Load", quantity(n.Value(metric.Load), 1, ""), "on " + quantity(n.Value(metric.CPUCount), 0, "CPUs")},
		{"Memory in use", memoryInUse(n), "of " + quantity(gib(n.Value(metric.HostMemoryCapacity)), 0, "GiB")},
	}
	if !s.Boot.IsZero() {
		p.Host = append(p.Host, fact{"Up for", duration(s.Time.Sub(s.Boot)), ""})
	}
	for _, v := range n.Versions {
		p.Versions = append(p.Versions, fact{Name: oneLine(v.Component), Value: oneLine(v.Value)})
	}
}

func memoryInUse(n collector.Node) string {
	return quantity(gib(n.Value(metric.HostMemoryCapacity)-n.Value(metric.HostMemoryAvailable)), 0, "GiB")
}

func (p *page) endpoints(s *collector.Snapshot) {
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		p.Endpoints = append(p.Endpoints, endpointRow{
			URL: oneLine(e.URL), Engine: oneLine(e.Engine), Model: oneLine(e.Model),
			Running:   count(e.Value(metric.RequestsRunning)),
			Waiting:   count(e.Value(metric.RequestsWaiting)),
			QueueTime: quantity(e.Value(metric.QueueTimeP95), 2, "s"),
			KV:        percent(e.Value(metric.KVCacheUsage)),
		})
	}
}

func (p *page) processes(s *collector.Snapshot) {
	for _, proc := range biggest(s.Processes, maxListed) {
		row := processRow{
			PID: strconv.Itoa(proc.PID), UID: none, Name: oneLine(proc.Name), Owner: owned([]collector.Owner{proc.Owner}),
			GPU:    strconv.Itoa(proc.GPU),
			Memory: quantity(gib(proc.Value(metric.ProcessMemoryUsed)), 1, "GiB"),
			SM:     percent(proc.Value(metric.ProcessUtilization)),
		}
		if proc.UID >= 0 {
			row.UID = strconv.Itoa(proc.UID)
		}
		if proc.MIG != "" {
			row.GPU = fmt.Sprintf("%d, MIG %s", proc.GPU, oneLine(proc.MIG))
		}
		p.Processes = append(p.Processes, row)
	}
	p.MoreProcesses = len(s.Processes) - len(p.Processes)
}

func count(v float64) string {
	if !finite(v) {
		return none
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}
