package e2e

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"gpuvigil/internal/metric"
)

// pushConfig pushes to the engine every second.
func pushConfig(e *engine, format string) string {
	return fmt.Sprintf("push: {url: '%s', format: %s, interval: 1s, labels: {cluster: eu-1}}\n", e.write, format)
}

// number returns the value of a series on the agent's page.
func (a *agent) number(series string) (float64, error) {
	page, err := a.get("/metrics")
	if err != nil {
		return 0, err
	}
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(page)
	if m == nil {
		return 0, fmt.Errorf("%s is not on the page", series)
	}
	return strconv.ParseFloat(m[1], 64)
}

// waits is an error unless what waits to be pushed is at least so old.
func (a *agent) waits(age time.Duration) error {
	got, err := a.number(metric.PushAge.Name)
	if err == nil && got < age.Seconds() {
		err = fmt.Errorf("the oldest sample that waits is %v s old, not %v yet", got, age)
	}
	return err
}

// outage is how long the receiver is away, at least; and a gap that is none.
const (
	outage = 10 * time.Second
	noGap  = 5 * time.Second
)

// A receiver that is away and an agent that is killed meanwhile lose no sample that was
// taken, and each has the time at which it was.
func TestPushThroughOutageAndKill(t *testing.T) {
	t.Parallel()
	f := func(t *testing.T, e *engine, format string) {
		t.Helper()
		t.Parallel()
		e.start(t)
		state := filepath.Join(shortDir(t), "state")
		a := startAgent(t, options{command: "demo", config: pushConfig(e, format), state: state})
		series := fmt.Sprintf("%s{job=\"gpuvigil\",instance=\"demo-gpu-01\",cluster=\"eu-1\"}", metric.AgentInfo)
		arrived := func(n int) func() error {
			return func() error {
				got, err := e.samples(t.Context(), series)
				if err == nil && len(got) < n {
					err = fmt.Errorf("%d samples have arrived", len(got))
				}
				return err
			}
		}
		eventually(t, "samples arrive", arrived(3))
		e.end()
		eventually(t, "samples wait", func() error { return a.waits(outage) })
		a.kill()
		killed := time.Now()
		a = startAgent(t, options{command: "demo", config: pushConfig(e, format), state: state})
		started := time.Now()
		eventually(t, "what the killed agent left still waits", func() error { return a.waits(outage) })
		e.start(t)
		eventually(t, "all has arrived", func() error {
			left, err := a.number(metric.PushBytes.Name)
			if err == nil && left > 0 {
				err = fmt.Errorf("%v bytes wait", left)
			}
			return err
		})
		eventually(t, "nothing is missing", func() error {
			got, err := e.samples(t.Context(), series)
			if err == nil && len(got) < 15 {
				err = fmt.Errorf("%d samples are there", len(got))
			}
			if err != nil {
				return err
			}
			for i := 1; i < len(got); i++ {
				from, to := got[i-1].Timestamp.Time(), got[i].Timestamp.Time()
				dead := from.After(killed.Add(-noGap)) && to.Before(started.Add(noGap))
				if to.Sub(from) > noGap && !dead {
					return fmt.Errorf("nothing is known from %v to %v, though an agent ran; it was killed at %v", from, to, killed)
				}
			}
			return nil
		})
		for _, reason := range metric.PushLosses {
			if n, err := a.number(metric.PushLost.Series(reason)); err == nil { // it is there from the first lost sample on
				t.Errorf("%v samples are counted as lost: %s", n, reason)
			}
		}
	}
	t.Run("remote write to Prometheus", func(t *testing.T) { f(t, newPrometheus(t, ""), "remote_write") })
	t.Run("text to VictoriaMetrics", func(t *testing.T) { f(t, newVictoria(t), "import") })
}
