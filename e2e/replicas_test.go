package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gpuvigil/alerting/slack/slacktest"
	"gpuvigil/internal/metric"
)

// faulty is a fleet whose GPUs can be made to report an error.
type faulty struct {
	generated
	mu  sync.Mutex
	xid map[int]float64 // by node, of its first GPU
}

func newFaulty(nodes int) *faulty {
	f := &faulty{xid: map[int]float64{}}
	f.generated = generated{nodes: nodes, names: meaningful, value: func(name string, node, gpu int, at time.Time) float64 {
		if name == "DCGM_FI_DEV_XID_ERRORS" && gpu == 0 {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.xid[node]
		}
		return busy(name, node, gpu, at)
	}}
	return f
}

func (f *faulty) fall(node int, code float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.xid[node] = code
}

// incidentsOf returns the ids of a role's incidents by the node of their first finding.
func incidentsOf(role *agent) (map[string]string, error) {
	var got struct {
		Incidents []struct {
			ID, Rule string
			Members  []struct{ Node string }
		}
	}
	if err := asks("http://"+role.address+"/api/v1/incidents", &got); err != nil {
		return nil, err
	}
	ids := map[string]string{}
	for _, i := range got.Incidents {
		if len(i.Members) > 0 {
			ids[i.Members[0].Node+" "+i.Rule] = i.ID
		}
	}
	return ids, nil
}

// Two replicas are sent the same. They find the same and call it the same; one of them tells,
// and when it dies the other one tells what is new, and nothing twice.
func TestReplicasTellOnce(t *testing.T) {
	t.Parallel()
	slack := slacktest.New()
	t.Cleanup(slack.Close)
	shared := t.TempDir()
	config := fmt.Sprintf("cluster: c1\nfleet:\n  receive: {enabled: true, interval: 2s, grace: 1s}\n  leader: {file: %s, duration: 5s}\n", filepath.Join(shared, "lease")) +
		slackConfig(slack, write(t, "token", slacktest.Token))
	a, b := startFleet(t, config, "127.0.0.1:0"), startFleet(t, config, "127.0.0.1:0")
	fleet := newFaulty(3)
	feed(t, &fleet.generated, a, b)

	leads := func(r *agent) bool {
		n, err := r.number(metric.FleetLeader.Name)
		return err == nil && n == 1
	}
	eventually(t, "one leads, and both know the nodes", func() error {
		for _, r := range []*agent{a, b} {
			if n, err := r.number(metric.FleetGPUs.Name); err != nil || n != 24 {
				return fmt.Errorf("it knows %v GPUs, %v", n, err)
			}
		}
		if leads(a) == leads(b) {
			return errors.New("none or both lead")
		}
		return nil
	})
	leader, follower := a, b
	if leads(b) {
		leader, follower = b, a
	}
	fleet.fall(0, 79)
	eventually(t, "it is told", func() error { return saysOnce(slack, generatedNode(0)) })
	var first map[string]string
	eventually(t, "both call it the same", func() error {
		of, err := incidentsOf(leader)
		other, err2 := incidentsOf(follower)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		key := generatedNode(0) + " xid"
		if first = of; of[key] == "" || of[key] != other[key] {
			return fmt.Errorf("the incidents are %v and %v", of, other)
		}
		return nil
	})
	if page, err := follower.get("/metrics"); err != nil || strings.Contains(page, metric.FleetFinding.Name+"{") {
		t.Errorf("who follows shows findings, which then count twice: %v", err)
	}
	if err := shows("http://"+follower.address+"/", "This replica does not notify"); err != nil {
		t.Errorf("the page of who follows: %v", err)
	}
	leader.kill()
	eventually(t, "the other one leads", func() error {
		if !leads(follower) {
			return errors.New("it does not")
		}
		return nil
	})
	fleet.fall(1, 79) // of the same incident, whose message the other one has posted
	eventually(t, "the message of the one before is found, and edited", func() error {
		for _, m := range slack.Messages(channel) {
			if m.Thread == "" && m.Edits > 0 && strings.Contains(m.Text, "+1: ") {
				return nil
			}
		}
		return errors.New("none is edited")
	})
	fleet.fall(2, 48)
	eventually(t, "the other one tells what is new", func() error { return saysOnce(slack, generatedNode(2)) })
	if all := slack.Messages(channel); len(all) != 2 {
		t.Errorf("in the channel stand %+v, want one message of each incident", all)
	}
	now, err := incidentsOf(follower)
	if key := generatedNode(0) + " xid"; err != nil || now[key] != first[key] {
		t.Errorf("the incident is called %s, it was %s, %v", now[key], first[key], err)
	}
}

// saysOnce is an error unless one message in the channel is about the node.
func saysOnce(slack *slacktest.Server, node string) error {
	var about []string
	for _, m := range slack.Messages(channel) {
		if m.Thread == "" && strings.Contains(m.Text, node) {
			about = append(about, m.Text)
		}
	}
	if len(about) != 1 {
		return fmt.Errorf("%d messages are about %s: %q", len(about), node, about)
	}
	return nil
}

// feed sends a fleet's samples to the roles each second, until the test ends.
func feed(t *testing.T, fleet *generated, roles ...*agent) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		gone := make([]bool, len(roles))
		for {
			at := time.Now()
			var bodies [][]byte
			if err := fleet.requests(at, func(body []byte) error { bodies = append(bodies, slices.Clone(body)); return nil }); err != nil {
				t.Error(err)
			}
			for i, r := range roles {
				for _, body := range bodies {
					if gone[i] = gone[i] || r.gone(); !gone[i] {
						if err := post("http://"+r.address+"/api/v1/write", body); err != nil && !r.gone() {
							t.Logf("a role does not take samples: %v", err)
						}
					}
				}
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
	})
}
