package alertmanager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/common/model"

	"gpuvigil/alerting"
	"gpuvigil/alerting/post"
)

// maxBatch bounds how many alerts are in one request.
const maxBatch = 64

// postable is an alert as POST /api/v2/alerts takes it.
// https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml
type postable struct {
	Labels       model.LabelSet `json:"labels"`
	Annotations  model.LabelSet `json:"annotations"`
	StartsAt     time.Time      `json:"startsAt"`
	EndsAt       time.Time      `json:"endsAt"`
	GeneratorURL string         `json:"generatorURL,omitempty"`
}

// tell sends the whole book, those that fire first. It goes on after a request that is
// refused for what is in it, and stops at any other that fails.
func (t *target) tell(ctx context.Context, now time.Time) error {
	all := make([]*entry, 0, len(t.book))
	for _, e := range t.book {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *entry) int {
		if a.ended.IsZero() != b.ended.IsZero() {
			if a.ended.IsZero() {
				return -1
			}
			return 1
		}
		return a.StartsAt.Compare(b.StartsAt)
	})
	var refused error
	for batch := range slices.Chunk(all, maxBatch) {
		err := t.post(ctx, batch, now)
		var refusal *alerting.Refusal
		switch {
		case err == nil:
			t.taken(batch, time.Now())
		case errors.As(err, &refusal) && refusal.Content:
			refused = err
		default:
			return err
		}
	}
	return refused
}

func (t *target) post(ctx context.Context, batch []*entry, now time.Time) error {
	alerts := make([]postable, len(batch))
	for k, e := range batch {
		alerts[k] = e.postable(now, now.Add(endsAhead*t.cfg.Resend))
	}
	answer, err := t.send(ctx, alerts)
	if err == nil {
		t.compareClocks(answer.Header)
	}
	return err
}

// send makes one request.
func (t *target) send(ctx context.Context, alerts []postable) (*post.Answer, error) {
	body, err := json.Marshal(alerts)
	if err != nil {
		return nil, fmt.Errorf("put alerts into JSON: %w", err)
	}
	answer, err := t.client.Do(ctx, http.MethodPost, t.base.JoinPath("api/v2/alerts").String(), http.Header{"Content-Type": {"application/json"}}, body)
	if err == nil {
		err = answer.Judge(time.Now())
	}
	if err != nil {
		return nil, fmt.Errorf("send alerts to Alertmanager at %s: %w", t.base.Host, err)
	}
	return answer, nil
}

// postable puts the alert into words that Alertmanager takes: an end that lies before
// the beginning would make it refuse the alert, one in the future would keep it open.
func (e *entry) postable(now, ahead time.Time) postable {
	p := postable{Labels: e.Labels, Annotations: e.Annotations, StartsAt: e.StartsAt, EndsAt: ahead, GeneratorURL: e.GeneratorURL}
	if p.StartsAt.After(now) {
		p.StartsAt = now
	}
	if !e.ended.IsZero() {
		p.EndsAt = e.ended
		if p.EndsAt.After(now) {
			p.EndsAt = now
		}
		if p.EndsAt.Before(p.StartsAt) {
			p.EndsAt = p.StartsAt
		}
	}
	return p
}

// compareClocks says so once if Alertmanager's clock is another than ours: it would
// take alerts that fire for such that have ended.
func (t *target) compareClocks(h http.Header) {
	theirs, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return
	}
	skew := time.Since(theirs)
	if skew = skew.Abs(); skew > maxSkew != t.skewed {
		t.skewed = !t.skewed
		if t.skewed {
			t.log.Warn("Alertmanager's clock is not ours: alerts may end early or late there; synchronise both machines", "difference", skew.Round(time.Second))
		}
	}
}
