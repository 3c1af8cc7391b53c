package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"gpuvigil/alerting/slack/slacktest"
	"gpuvigil/detect"
	"gpuvigil/internal/fakenvml"
)

// faultCodes are Xids that each are an incident of their own, on GPUs of their own.
var faultCodes = []uint64{31, 48, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140}

// arrivals notes when each incident first came to an Alertmanager.
type arrivals struct {
	mu sync.Mutex
	at map[string]time.Time // by incident
}

func (a *arrivals) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	var alerts []struct{ Annotations map[string]string }
	if r.Method != http.MethodPost {
		fmt.Fprint(w, "[]")
		return
	}
	if err := json.NewDecoder(r.Body).Decode(&alerts); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, alert := range alerts {
		if id := alert.Annotations["incident"]; a.at[id].IsZero() {
			a.at[id] = now
		}
	}
}

func (a *arrivals) of(id string) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.at[id]
}

// TestTimeToMessage measures how long it is from the sample that shows a fault to the
// message about it, over the engine, the disk and the network of this machine. The figures
// are logged and not judged: they are this machine's.
func TestTimeToMessage(t *testing.T) {
	t.Parallel()
	slack := slacktest.New()
	t.Cleanup(slack.Close)
	am := &arrivals{at: map[string]time.Time{}}
	server := httptest.NewServer(am)
	t.Cleanup(server.Close)
	d := newDriver(t, len(faultCodes))
	a := d.start(options{config: quick + slackConfig(slack, write(t, "token", slacktest.Token)) +
		fmt.Sprintf("  alertmanager:\n  - {name: am, urls: ['%s'], min_severity: info}\n", server.URL)})
	a.ready(t)
	bySlack, byAlertmanager := []time.Duration{}, []time.Duration{}
	for k, code := range faultCodes {
		d.Event(fakenvml.GPU(k), xidEvents, code)
		d.show()
		cause := fmt.Sprint("xid_", code)
		eventually(t, "the fault "+cause+" is told in Slack and to Alertmanager", func() error {
			in, err := a.incident(cause)
			if err != nil {
				return err
			}
			said := slack.Arrived(channel, in.ID)
			alerted := am.of(in.ID)
			if said.IsZero() || alerted.IsZero() {
				return fmt.Errorf("in Slack at %v, in Alertmanager at %v", said, alerted)
			}
			bySlack = append(bySlack, said.Sub(in.Opened))
			byAlertmanager = append(byAlertmanager, alerted.Sub(in.Opened))
			return nil
		})
	}
	for name, all := range map[string][]time.Duration{"Slack": bySlack, "Alertmanager": byAlertmanager} {
		slices.Sort(all)
		t.Logf("from sample to message, %s: p50 %v, p99 %v, of %d incidents", name, quantile(all, 0.5), quantile(all, 0.99), len(all))
	}
}

// incident is the one of the cause.
func (a *agent) incident(cause string) (*detect.Incident, error) {
	f, err := a.findings()
	if err != nil {
		return nil, err
	}
	for i := range f.Incidents {
		if f.Incidents[i].Cause == cause {
			return &f.Incidents[i], nil
		}
	}
	return nil, fmt.Errorf("no incident of %s", cause)
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[int(q*float64(len(sorted)-1)+0.5)].Round(time.Millisecond)
}
