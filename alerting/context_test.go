package alerting_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/alerting"
	"gpuvigil/collector"
	"gpuvigil/detect"
)

// conversation is a Notifier that answers as scripted, with a reference in any case.
type conversation struct {
	mu   sync.Mutex
	got  []alerting.Message
	refs []string
	next []error
}

func (c *conversation) Notify(_ context.Context, m alerting.Message, ref string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got, c.refs = append(c.got, m), append(c.refs, ref)
	var err error
	if len(c.next) > 0 {
		err, c.next = c.next[0], c.next[1:]
	}
	return "ref", err
}

// TestTheReachOfAnIncidentSurvivesARestart holds that a message names the work that a
// fault has ended, also when the agent was restarted between its beginning and its end.
func TestTheReachOfAnIncidentSurvivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		said := &conversation{}
		b.to.Notifier = said
		job := collector.Owner{Kind: "job", ID: "slurm/4711", Team: "nlp"}
		b.cfg.Context = func(i *detect.Incident) alerting.Context {
			return alerting.Context{Owners: []collector.Owner{job}, GPUs: 8, Money: &alerting.Money{Currency: "USD", PerHour: 20, GPUs: 8}}
		}
		b.start()
		b.enqueue(incident("a", detect.Firing))
		time.Sleep(10 * time.Second)
		b.end()

		b.cfg.Context = func(*detect.Incident) alerting.Context { return alerting.Context{Cluster: "eu-1"} }
		b.start()
		b.enqueue(incident("a", detect.Resolved))
		time.Sleep(10 * time.Second)
		b.end()
		if len(said.got) != 2 {
			t.Fatalf("%d messages, want the beginning and the end", len(said.got))
		}
		want := alerting.Context{Cluster: "eu-1", Owners: []collector.Owner{job}, GPUs: 8, Money: &alerting.Money{Currency: "USD", PerHour: 20, GPUs: 8}}
		if diff := cmp.Diff(want, said.got[1].Context); diff != "" {
			t.Errorf("the end of the incident is told with another reach (-want +got):\n%s", diff)
		}
	})
}

// TestWhatWasDeliveredBeforeAnErrorIsKept holds that a notifier which delivered a part is
// asked to go on from there, and is told that it should look.
func TestWhatWasDeliveredBeforeAnErrorIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		said := &conversation{next: []error{errors.New("the thread was cut off")}}
		b.to.Notifier = said
		b.start()
		b.enqueue(incident("a", detect.Firing))
		time.Sleep(10 * time.Second)
		b.end()
		if diff := cmp.Diff([]string{"", "ref"}, said.refs); diff != "" {
			t.Errorf("the attempts got other references (-want +got):\n%s", diff)
		}
		if last := said.got[len(said.got)-1]; !last.Doubt {
			t.Error("the second attempt does not know that the first may have delivered more")
		}
	})
}
