package e2e

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"gpuvigil/internal/cost"
	"gpuvigil/internal/metric"
)

// TestCostsSurviveAKill kills an agent twice: no counter that was scraped is less
// afterwards, and what is booked of each GPU is the time that has passed, with the
// pauses unobserved.
func TestCostsSurviveAKill(t *testing.T) {
	t.Parallel()
	d := newDriver(t, 2)
	d.show()
	began := time.Now()
	o := options{state: filepath.Join(shortDir(t), "state"), config: "prices:\n  own:\n  - {gpu: '*', per_gpu_hour: 3600, currency: USD}\n"}
	before := map[string]float64{}
	for round := range 3 {
		a := d.start(o)
		a.ready(t)
		m := a.awaits(t, fmt.Sprintf("costs are scraped in round %d, and have grown", round), func(m metrics) error {
			if got := m.sum(metric.OwnerSeconds.Name, "gpu", "0"); got <= total(before) {
				return fmt.Errorf("%v s of GPU 0 are booked", got)
			}
			return nil
		})
		if round < 2 {
			a.kill()
		}
		for s := range cost.States {
			now := m.sum(metric.OwnerSeconds.Name, "gpu", "0", "state", s.String())
			if now < before[s.String()] {
				t.Errorf("after a kill the counter of %s time went back from %v to %v", s, before[s.String()], now)
			}
			before[s.String()] = now
			paid := m.sum(metric.OwnerCost.Name, "gpu", "0", "state", s.String(), "currency", "USD")
			if paid < now-1e-6 || paid > now+1e-6 {
				t.Errorf("%v s of %s time cost %v, want one dollar for each second", now, s, paid)
			}
		}
		o.state = a.state
	}
	if before["unobserved"] == 0 {
		t.Error("the time in which no agent ran is not shown as unobserved")
	}
	if sum, passed := total(before), time.Since(began).Seconds(); sum > passed {
		t.Errorf("%v s of a GPU are booked, %v have passed", sum, passed)
	}
}

func total(by map[string]float64) (sum float64) {
	for _, v := range by {
		sum += v
	}
	return sum
}
