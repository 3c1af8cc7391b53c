package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/series"
)

// WarmConfig says how much of the past a start takes in.
type WarmConfig struct {
	PrometheusConfig
	Length time.Duration // of the past, up to now; 0: none
	Step   time.Duration // DefaultStep
	Limit  time.Duration // for all of it, after which the start goes on with what it has; 0: none
}

// Warm primes whoever observes, and the assembler, with what a server has of the time up
// to now: what was usual is known before the first look. A server that is too slow for all
// of it within the limit is asked for the newest part only. An error says that the past
// ends earlier than now, or was not to be had; what was observed until then is good. An
// end of ctx is its error.
func Warm(ctx context.Context, cfg WarmConfig, now time.Time, a *series.Assembler, observe func(now time.Time, nodes []*collector.Snapshot)) (Stats, error) {
	if cfg.Length <= 0 {
		return Stats{}, nil
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	p, err := NewPrometheus(cfg.PrometheusConfig, Span{From: now.Add(-cfg.Length), To: now, Step: cfg.Step})
	if err != nil {
		return Stats{}, fmt.Errorf("take in the past: %w", err)
	}
	defer p.Close()
	limited, cancel := ctx, context.CancelFunc(func() {})
	if cfg.Limit > 0 {
		limited, cancel = context.WithTimeout(ctx, cfg.Limit)
	}
	defer cancel()
	began := time.Now()
	cfg.Log.Info("Taking in the past, before the first look at the present.", "from", p.span.From.UTC(), "at_most", cfg.Limit)
	stats, err := Replay(limited, &hasty{p: p, cfg: &cfg, began: began, told: began}, a, func(at time.Time, nodes []*collector.Snapshot) error {
		observe(at, nodes)
		return nil
	})
	if ctx.Err() != nil {
		return stats, ctx.Err()
	}
	log := cfg.Log.With("from", stats.From, "to", stats.To, "samples", stats.Samples, "queries", p.api.queries, "took", time.Since(began).Round(time.Second))
	switch {
	case errors.Is(err, context.DeadlineExceeded) && limited.Err() != nil:
		return stats, fmt.Errorf("take in the past: it was not over after %s, and is known up to %s: allow more time, or take in less", cfg.Limit, stats.To.Format(time.RFC3339))
	case err != nil:
		return stats, fmt.Errorf("take in the past: %w", err)
	}
	log.Info("The past is taken in.")
	return stats, nil
}

// hasty leaves out old windows where there is not time enough for all, and logs how far
// it is.
type hasty struct {
	p           *Prometheus
	cfg         *WarmConfig
	began, told time.Time
	windows     int
	asked       time.Duration // of the past, so far
}

const progressEvery = 15 * time.Second

// Next implements Source.
func (h *hasty) Next(ctx context.Context) (*Window, error) {
	h.hurry()
	w, err := h.p.Next(ctx)
	if err != nil {
		return nil, err
	}
	h.windows++
	h.asked += w.span.at(w.last).Sub(w.span.at(w.first - 1))
	if time.Since(h.told) >= progressEvery {
		h.told = time.Now()
		h.cfg.Log.Info("Still taking in the past.", "at", w.To(), "until", h.p.span.To.UTC())
	}
	return w, nil
}

// hurry skips what there is no time for, as far as the windows so far tell.
func (h *hasty) hurry() {
	const known = 3 // windows, before the pace is
	if h.cfg.Limit <= 0 || h.windows < known {
		return
	}
	spent := time.Since(h.began)
	left := h.cfg.Limit - spent
	if left <= 0 {
		return // the limit ends it
	}
	possible := time.Duration(0.8 * float64(h.asked) * float64(left) / float64(spent))
	if missing := h.p.span.To.Sub(h.p.At()) - possible; missing > possible/4 {
		to := h.p.At().Add(missing)
		h.cfg.Log.Warn("There is not time enough for all of the past: the newest part of it is taken in.", "left_out_from", h.p.At(), "left_out_to", to)
		h.p.Skip(to)
	}
}
