package server

import (
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/cost"
	"gpuvigil/internal/golden"
	"gpuvigil/internal/metric"
)

// booked is what a ledger has to show of two GPUs: one without a price and with too many
// owners, one that is nobody's for a while.
func booked() *cost.Export {
	nan := math.NaN()
	job := collector.Owner{Kind: "job", ID: `slurm/"4711"`, Team: "nlp"}
	return &cost.Export{
		Accounts: []cost.Account{
			{Key: cost.Key{UUID: "GPU-a", State: cost.Free}, Model: "NVIDIA L4", Currency: "USD", Amounts: cost.Amounts{Time: 5e8, List: 1e6, Effective: 1e6}},
			{Key: cost.Key{UUID: "GPU-a", Owner: job, State: cost.Busy}, Model: "NVIDIA L4", Currency: "USD",
				Amounts: cost.Amounts{Time: 7200e9, List: 1_609_600_000, Contracted: 1_500_000_000, Effective: 1_500_000_000}},
			{Key: cost.Key{UUID: "GPU-b", Owner: collector.Owner{Kind: metric.OtherOwners, ID: metric.OtherOwners}, State: cost.Busy}, GPU: 1, Model: "Unknown", Currency: "USD",
				Amounts: cost.Amounts{Time: 1e9, Unpriced: 1e9}},
			{Key: cost.Key{UUID: "GPU-b", Owner: job, State: cost.IdleHeld}, GPU: 1, Model: "Unknown", Currency: "USD", Amounts: cost.Amounts{Time: 1e9, Unpriced: 1e9}},
		},
		Owners: []cost.OwnerEnergy{
			{Owner: job, Model: "NVIDIA L4", Currency: "USD", Amounts: cost.Amounts{Energy: 36e8, Electric: 2e8, Carbon: 38e10}},
			{Owner: collector.Owner{}, Model: "NVIDIA L4", Currency: "USD", Amounts: cost.Amounts{Energy: 1e6}},
		},
		Prices: []cost.Price{
			{GPU: 0, UUID: "GPU-a", Model: "NVIDIA L4", Kind: "contracted", Nano: 750_000_000, Currency: "USD", Source: "contract 4711", AsOf: "2026-01-01"},
			{GPU: 1, UUID: "GPU-b", Model: "Unknown"},
		},
		Budgets: []cost.Budget{{Team: "nlp", Currency: "USD", PerMonth: 40000}},
		Work: []cost.OwnerWork{
			{Owner: job, Currency: "USD", Tells: true, Open: 90e9,
				Work:     cost.Work{Units: [cost.Units]int64{cost.Steps: 5000}, Kept: 6000e9, Lost: 1200e9, LostCost: 250_000_000, Interruptions: 2},
				UnitCost: [cost.Units]float64{0.0003, nan, nan, nan}, UnitEnergy: [cost.Units]float64{720, nan, nan, nan}},
			{Owner: collector.Owner{Kind: "pod", ID: "chat/a"}, Currency: "USD", Work: cost.Work{Units: [cost.Units]int64{cost.Tokens: 9e6, cost.Requests: 12000}},
				UnitCost: [cost.Units]float64{nan, nan, 0.75, 0.0006}, UnitEnergy: [cost.Units]float64{nan, nan, 2.5e5, 200}},
		},
		Months: []cost.TeamMonth{{Team: "nlp", Currency: "USD", Spent: 1200, End: &cost.Projection{Expected: 36000, Low: 34000, High: 38000}},
			{Team: "new", Currency: "USD", Spent: 3}},
	}
}

func TestPageShowsWhatWasBooked(t *testing.T) {
	for name, full := range map[string]bool{"costs.metrics": false, "costs_full.metrics": true} {
		w := &world{snap: &collector.Snapshot{Time: soon()}, booked: booked(), full: full}
		golden.Check(t, filepath.Join("testdata", name), plainText(t, w.server(t)), "the scrape page shows the ledger otherwise")
	}
}

func TestCostsAreAskedForBySpan(t *testing.T) {
	var since, until time.Time
	var failure error
	w := &world{costs: func(a, b time.Time) (*cost.Answer, error) {
		since, until = a, b
		return &cost.Answer{Node: "n1", Rows: []cost.Row{{State: cost.HeldWithoutProcess, Amounts: cost.Amounts{Time: 1<<62 + 1}}}}, failure
	}}
	ask := func(query string) *httptest.ResponseRecorder {
		out := httptest.NewRecorder()
		w.server(t).SocketHandler().ServeHTTP(out, httptest.NewRequest(http.MethodGet, "/api/v1/costs"+query, nil))
		return out
	}
	out := ask("?since=2026-11-01T00:00:00Z&until=2026-12-01T00:00:00%2B01:00")
	if out.Code != http.StatusOK || since.Day() != 1 || !until.Equal(time.Date(2026, 11, 30, 23, 0, 0, 0, time.UTC)) {
		t.Errorf("answer %d for %v to %v: %s", out.Code, since, until, out.Body)
	}
	if body := out.Body.String(); !strings.Contains(body, `"state":"held_without_process"`) || !strings.Contains(body, `"time_ns":4611686018427387905`) {
		t.Errorf("whole numbers or the state are lost: %s", body)
	}
	if ask(""); !since.IsZero() || time.Since(until) > time.Hour {
		t.Errorf("without a span all up to now is meant, not %v to %v", since, until)
	}
	for query, want := range map[string]string{"?since=yesterday": "yesterday", "?since=2026-12-01T00:00:00Z&until=2026-11-01T00:00:00Z": "is not before"} {
		if out := ask(query); out.Code != http.StatusBadRequest || !strings.Contains(out.Body.String(), want) {
			t.Errorf("%s: answer %d: %s", query, out.Code, out.Body)
		}
	}
	failure = errors.New("the disk is gone")
	if out := ask(""); out.Code != http.StatusInternalServerError || !strings.Contains(out.Body.String(), "the disk is gone") {
		t.Errorf("a ledger that cannot be read: answer %d: %s", out.Code, out.Body)
	}
	w.costs = nil
	if out := ask(""); out.Code != http.StatusNotFound {
		t.Errorf("without a ledger: answer %d", out.Code)
	}
}
