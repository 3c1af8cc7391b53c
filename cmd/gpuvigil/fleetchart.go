package main

import (
	"context"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/alerting/chart"
	"gpuvigil/collector"
	"gpuvigil/collector/history"
	"gpuvigil/collector/series"
	"gpuvigil/detect"
	"gpuvigil/internal/config"
	"gpuvigil/internal/fleet"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/text"
	"gpuvigil/rules"
)

const (
	chartAround = 3 * time.Hour    // before an incident began and after it, that are drawn
	chartLimit  = 10 * time.Second // for all that is asked for one
	chartKept   = time.Minute      // for which a chart is not asked for again
	chartsKept  = 64
)

// fleetCharts draws incidents of nodes by what a PromQL API has of the hours around their
// beginning: the role keeps no readings. A nil fleetCharts draws nothing.
type fleetCharts struct {
	ask    history.PrometheusConfig // Metrics apart
	series series.Config
	view   func() *fleet.View
	log    *slog.Logger

	mu   sync.Mutex
	kept map[string]keptChart // by incident
}

type keptChart struct {
	at    time.Time
	chart *alerting.Chart
}

// newFleetCharts returns what draws by the server that the nodes are read from.
func newFleetCharts(p *config.FleetPrometheus, log *slog.Logger) *fleetCharts {
	return &fleetCharts{
		ask:    history.PrometheusConfig{Address: address(p.Page), Headers: headers(p), Match: p.Match, Timeout: chartLimit, MaxSamples: 200_000},
		series: series.Config{NodeLabels: p.NodeLabels, Lookback: time.Duration(p.Lookback)},
		log:    log, kept: map[string]keptChart{},
	}
}

// of returns the chart of an incident: of the readings that its rule watches the one that
// left what was usual the farthest. It is nil if nothing tells of them.
func (c *fleetCharts) of(ctx context.Context, i *detect.Incident) *alerting.Chart {
	if c == nil || len(i.Members) == 0 {
		return nil
	}
	now := time.Now()
	c.mu.Lock()
	known, ok := c.kept[i.ID]
	c.mu.Unlock()
	if ok && now.Sub(known.at).Abs() < chartKept {
		return known.chart
	}
	ctx, cancel := context.WithTimeout(ctx, chartLimit)
	defer cancel()
	drawn, err := c.draw(ctx, i, now)
	if err != nil {
		c.log.Warn("An incident has no chart: what its readings were is not to be had.", "incident", i.ID, "err", err)
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.kept) >= chartsKept {
		clear(c.kept)
	}
	c.kept[i.ID] = keptChart{now, drawn}
	return drawn
}

func (c *fleetCharts) draw(ctx context.Context, i *detect.Incident, now time.Time) (*alerting.Chart, error) {
	root, rule := &i.Members[0], rules.Get(i.Rule)
	s := c.view().Snapshot(root.Node)
	if s == nil || rule == nil || len(rule.Watch) == 0 {
		return nil, nil
	}
	of, where := drawnSubject(s, root, root.Node)
	past, err := c.past(ctx, s, of, rule.Watch, spanOf(root, now))
	if err != nil {
		return nil, err
	}
	drawn := chartOf(past, rule, root.Since)
	if drawn != nil {
		drawn.Title = text.Clean(drawn.Title+" of "+where, 80)
		drawn.Simulated = root.Simulated
	}
	return drawn, nil
}

// spanOf is the time around the beginning of a finding, as far as it is over.
func spanOf(f *detect.Finding, now time.Time) history.Span {
	to := f.Since.Add(chartAround)
	if to.After(now) {
		to = now
	}
	return history.Span{From: f.Since.Add(-chartAround), To: to}
}

// past returns the rows' values of the subject, minute by minute.
func (c *fleetCharts) past(ctx context.Context, s *collector.Snapshot, of detect.Subject, rows []*metric.Def, span history.Span) ([]detect.History, error) {
	match := matcherOf(s, of)
	if match == "" {
		return nil, nil
	}
	assembler, ask := series.New(c.series), c.ask
	ask.Match = append(slices.Clone(c.ask.Match), match)
	for _, name := range assembler.Metrics() {
		if row := assembler.Row(name); row != nil && slices.Contains(rows, row) {
			ask.Metrics = append(ask.Metrics, name)
		}
	}
	from, err := history.NewPrometheus(ask, span)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	out := make([]detect.History, len(rows))
	for i, row := range rows {
		out[i].Reading = row
	}
	_, err = history.Replay(ctx, from, assembler, func(now time.Time, nodes []*collector.Snapshot) error {
		for _, node := range nodes {
			readings := readingsOf(node, of)
			if readings == nil {
				continue
			}
			for i, row := range rows {
				if row.Dim == nil && readings.Has(row) {
					v := readings.Value(row)
					out[i].Points = append(out[i].Points, detect.Point{Time: now, Min: v, Mean: v, Max: v})
				}
			}
		}
		return nil
	})
	return out, err
}

// matcherOf is what the subject's series are known by: the agent that tells of it, else
// the exporter's label of the GPU, or the page of the server. It is empty if nothing is.
func matcherOf(s *collector.Snapshot, of detect.Subject) string {
	if s.Agent != nil {
		return "instance=" + strconv.Quote(s.Agent.Instance)
	}
	switch of.Kind {
	case "gpu":
		label := "UUID"
		if slices.ContainsFunc(s.Pages, func(p collector.Page) bool { return p.Exporter == "nvidia_gpu_exporter" }) {
			label = "uuid"
		}
		return label + "=~" + strconv.Quote("(GPU-)?"+strings.TrimPrefix(of.ID, "GPU-"))
	case "endpoint":
		at, _, _ := strings.Cut(of.ID, "#")
		if u, err := url.Parse(at); err == nil && u.Host != "" {
			at = u.Host
		}
		return "instance=" + strconv.Quote(at)
	}
	return ""
}

func readingsOf(s *collector.Snapshot, of detect.Subject) *collector.Readings {
	switch of.Kind {
	case "gpu":
		if g := s.GPUByUUID(of.ID); g != nil {
			return &g.Readings
		}
		return nil
	case "endpoint":
		for k := range s.Endpoints {
			if e := &s.Endpoints[k]; e.Key().String() == of.ID {
				return &e.Readings
			}
		}
		return nil
	}
	return &s.Node.Readings
}

// picture is the chart of the incident with the id as a file; nil if there is nothing to
// draw.
func (c *fleetCharts) picture(ctx context.Context, id string) ([]byte, error) {
	if c == nil {
		return nil, nil
	}
	all := c.view().Incidents
	k := slices.IndexFunc(all, func(i detect.Incident) bool { return i.ID == id })
	if k < 0 {
		return nil, nil
	}
	drawn := c.of(ctx, &all[k])
	if drawn == nil || len(drawn.Points) < 2 {
		return nil, nil
	}
	return chart.PNG(drawn)
}
