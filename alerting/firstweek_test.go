package alerting_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/detect"
	"gpuvigil/rules"
)

const aWeek = 7 * 24 * time.Hour

// told is a notifier that keeps the words.
type told struct {
	mu    sync.Mutex
	words []string
}

func (n *told) Notify(_ context.Context, m alerting.Message, _ string) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.words = append(n.words, alerting.Render(m).String())
	return "ref-" + m.Incident.ID, nil
}

func (n *told) texts() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.words)
}

func saturated(id string) detect.Incident {
	i := incident(id, detect.Firing)
	i.Rule, i.Members[0].Rule = rules.IDSaturatedGPU, rules.IDSaturatedGPU
	i.Members[0].Subject, i.Members[0].GPUIndex = detect.Subject{Kind: "gpu", ID: "GPU-1"}, 3
	return i
}

func TestTheFirstWeekIsSummedUpOnceForEachRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		words := &told{}
		b.to.Notifier = words
		b.cfg.Shadow = aWeek
		b.start()
		b.enqueue(incident("a", detect.Firing), saturated("b"), saturated("c"))
		b.enqueue(incident("a", detect.Resolved))
		low := incident("d", detect.Firing)
		low.Severity = rules.Info
		b.enqueue(low)
		time.Sleep(3 * 24 * time.Hour)
		b.end() // it is remembered over a restart
		b.start()
		time.Sleep(aWeek - 3*24*time.Hour - time.Hour)
		if len(words.texts()) != 0 {
			t.Fatalf("in the first week was sent: %q", words.texts())
		}
		time.Sleep(2 * time.Hour)
		if len(words.texts()) != 1 {
			t.Fatalf("after the first week %d messages were sent, want the sum alone: %q", len(words.texts()), words.texts())
		}
		for _, want := range []string{"INFO gpu-117", "3 findings would have been sent", "saturated_gpu 2 × (ticket, last 14 Mar", "on gpu-117/3", "; idle_gpu 1 ×", "gpuvigil promote"} {
			if !strings.Contains(words.texts()[0], want) {
				t.Errorf("the sum does not say %q:\n%s", want, words.texts()[0])
			}
		}
		b.end()
		b.start()
		time.Sleep(aWeek)
		if len(words.texts()) != 1 {
			t.Errorf("the first week is summed up %d times", len(words.texts()))
		}
		b.end()
	})
}

func TestAFirstWeekWithoutFindingsSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.Shadow = aWeek
		b.start()
		b.enqueue(page("p", detect.Firing))
		time.Sleep(aWeek + 2*time.Hour)
		b.expect("only the page, and no sum of nothing", "p:firing")
		b.end()
	})
}

func TestAPromotedRuleIsSentInTheFirstWeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.Shadow = aWeek
		b.cfg.Promoted = map[rules.ID]bool{rules.IDSaturatedGPU: true}
		b.start()
		b.enqueue(incident("a", detect.Firing), saturated("b"))
		time.Sleep(time.Minute)
		b.expect("of two tickets the promoted rule's", "b:firing")
		b.end()
	})
}
