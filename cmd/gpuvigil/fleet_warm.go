package main

import (
	"context"
	"log/slog"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/history"
	"gpuvigil/collector/promql"
	"gpuvigil/collector/series"
	"gpuvigil/internal/config"
	"gpuvigil/internal/fleet"
)

// warmStart shows the role what was, before it looks at what is. It goes on without what
// cannot be had of the past.
func warmStart(ctx context.Context, p *config.FleetPrometheus, headers []promql.Header, past *fleet.Past, a *series.Assembler, log *slog.Logger) {
	// The first look at the present is as of a whole interval, and comes after all looks at the past.
	until := time.Now().Truncate(time.Duration(p.Interval)).Add(-time.Second)
	_, err := history.Warm(ctx, history.WarmConfig{
		PrometheusConfig: history.PrometheusConfig{Address: address(p.Page), Headers: headers, Match: p.Match, Metrics: a.Metrics(), Log: log},
		Length:           time.Duration(p.WarmStart), Limit: time.Duration(p.WarmLimit),
	}, until, a, func(now time.Time, nodes []*collector.Snapshot) { past.Observe(now, nodes) })
	if err != nil && ctx.Err() == nil {
		log.Warn("Not all of the past was taken in: until the rest is known from now on, less is known of what is usual.", "err", err)
	}
	past.End()
}
