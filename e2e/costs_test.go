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
		a.kill()
		time.Sleep(4 * time.Second) // more than three intervals: what is shorter is seen from both sides
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
	if booked := total(before); booked > time.Since(began).Seconds() {
		t.Errorf("%v s of a GPU are exported, %v have passed", booked, time.Since(began))
	}
	a := d.start(o)
	a.ready(t)
	eventually(t, "the API shows the time in which no agent ran as unobserved", func() error {
		answer, err := decode[cost.Answer](a, "/api/v1/costs")
		if err != nil {
			return err
		}
		sums := map[cost.State]time.Duration{}
		for _, r := range answer.Rows {
			if r.GPU == 0 {
				sums[r.State] += time.Duration(r.Time)
			}
		}
		if sums[cost.Unobserved] == 0 {
			return fmt.Errorf("booked is %v", sums)
		}
		return nil
	})
}

func total(by map[string]float64) (sum float64) {
	for _, v := range by {
		sum += v
	}
	return sum
}
