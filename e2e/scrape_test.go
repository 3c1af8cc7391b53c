package e2e

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// metrics is one scrape.
type metrics map[string]*dto.MetricFamily

func (a *agent) scrape() (metrics, error) {
	body, err := a.get("/metrics")
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(strings.NewReader(body))
}

// must scrapes or fails.
func (a *agent) must(t *testing.T) metrics {
	t.Helper()
	m, err := a.scrape()
	if err != nil {
		t.Fatalf("scrape: %v", err)
	}
	return m
}

// find returns the series of a family with the labels, given as name and value in
// turn.
func (m metrics) find(name string, labels ...string) []*dto.Metric {
	var found []*dto.Metric
	for _, s := range m[name].GetMetric() {
		if matches(s.GetLabel(), labels) {
			found = append(found, s)
		}
	}
	return found
}

func matches(have []*dto.LabelPair, want []string) bool {
	for l := range slices.Chunk(want, 2) {
		if !slices.ContainsFunc(have, func(h *dto.LabelPair) bool { return h.GetName() == l[0] && h.GetValue() == l[1] }) {
			return false
		}
	}
	return true
}

// value returns the one series with the labels, NaN if there is none.
func (m metrics) value(name string, labels ...string) float64 {
	found := m.find(name, labels...)
	if len(found) != 1 {
		return math.NaN()
	}
	if c := found[0].GetCounter(); c != nil {
		return c.GetValue()
	}
	return found[0].GetGauge().GetValue()
}

// sum adds up the series with the labels; it is 0 without any.
func (m metrics) sum(name string, labels ...string) (sum float64) {
	for _, s := range m.find(name, labels...) {
		sum += s.GetCounter().GetValue() + s.GetGauge().GetValue()
	}
	return sum
}

// expect is an error if the series has another value.
func (m metrics) expect(want float64, name string, labels ...string) error {
	if got := m.value(name, labels...); got != want {
		return fmt.Errorf("%s%q is %v, want %v", name, labels, got, want)
	}
	return nil
}

// absent is an error if there is such a series.
func (m metrics) absent(name string, labels ...string) error {
	if found := m.find(name, labels...); len(found) > 0 {
		return fmt.Errorf("%s%q is there: %v", name, labels, found)
	}
	return nil
}

// awaits scrapes until all is as it should be.
func (a *agent) awaits(t *testing.T, what string, check func(metrics) error) metrics {
	t.Helper()
	var last metrics
	eventually(t, what, func() error {
		m, err := a.scrape()
		if err != nil {
			return err
		}
		last = m
		return check(m)
	})
	return last
}
