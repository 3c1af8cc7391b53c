package slack_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gpuvigil/alerting/internal/example"
	"gpuvigil/alerting/slack/slacktest"
	"gpuvigil/detect"
	"gpuvigil/rules"
)

// truth is what an engine said, and what of it was acknowledged: stored with its state.
type truth struct {
	rnd     *rand.Rand
	clock   time.Time
	opened  int
	said    map[string]detect.Incident // by id, as it was last acknowledged
	unsaved map[string]detect.Incident // said since then, and not acknowledged
	orphans map[string]bool            // never acknowledged before a kill: the engine found them anew
	keeps   bool                       // some are kept back for a while, and many are told in one message

	mu sync.Mutex // guards said and unsaved while others ask what is so
}

func newTruth(rnd *rand.Rand) *truth {
	return &truth{rnd: rnd, clock: example.Start, said: map[string]detect.Incident{}, unsaved: map[string]detect.Incident{}, orphans: map[string]bool{}}
}

// pick returns an incident that fires, or a new one.
func (u *truth) pick() detect.Incident {
	var open []string
	for k := 1; k <= u.opened; k++ {
		id := fmt.Sprint("i", k)
		if i, ok := u.latest(id); ok && i.State == detect.Firing {
			open = append(open, id)
		}
	}
	if len(open) == 0 || len(open) < 12 && u.rnd.IntN(3) == 0 {
		return u.open()
	}
	i, _ := u.latest(open[u.rnd.IntN(len(open))])
	return i
}

// open returns a new incident.
func (u *truth) open() detect.Incident {
	u.opened++
	i := example.Incidents()[u.rnd.IntN(len(example.Incidents()))]
	i.ID, i.Severity = fmt.Sprint("i", u.opened), rules.Ticket
	return i
}

// current returns an incident as it is now, nil if there is none. Any goroutine may ask.
func (u *truth) current(id string) *detect.Incident {
	u.mu.Lock()
	defer u.mu.Unlock()
	i, ok := u.latest(id)
	if !ok {
		return nil
	}
	return &i
}

func (u *truth) latest(id string) (detect.Incident, bool) {
	if i, ok := u.unsaved[id]; ok {
		return i, true
	}
	i, ok := u.said[id]
	return i, ok
}

// move returns the next state of an incident: it grows, gets worse, or ends. The engine's
// clock is set now and then.
func (u *truth) move(i detect.Incident) detect.Incident {
	u.clock = u.clock.Add(time.Duration(1+u.rnd.IntN(600)) * time.Second)
	if u.rnd.IntN(40) == 0 {
		u.clock = u.clock.Add(time.Duration(u.rnd.IntN(48)-24) * time.Hour)
	}
	i = example.Join(i, u.rnd.IntN(3))
	if u.rnd.IntN(5) == 0 {
		i.Severity = rules.Page
	}
	i.Members[0].Evidence.Seen = fmt.Sprintf("state %d of %s", u.rnd.IntN(1e9), i.ID)
	if _, known := u.latest(i.ID); known && u.rnd.IntN(8) == 0 {
		return u.end(i)
	}
	i.Updated = u.clock
	return i
}

func (u *truth) end(i detect.Incident) detect.Incident {
	u.clock = u.clock.Add(time.Minute)
	i = example.Resolve(i)
	i.Updated = u.clock
	return i
}

// state notes what is about to be said.
func (u *truth) state(i detect.Incident) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.unsaved[i.ID] = i
}

func (u *truth) acknowledge(i detect.Incident) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.said[i.ID] = i
	delete(u.unsaved, i.ID)
}

// killed forgets what nobody acknowledged, as an engine does whose state is as it was
// stored, and returns what such an engine says again.
func (u *truth) killed() (again []detect.Incident) {
	for k := 1; k <= u.opened; k++ {
		i, waits := u.unsaved[fmt.Sprint("i", k)]
		if !waits {
			continue
		}
		delete(u.unsaved, i.ID)
		if _, known := u.said[i.ID]; known {
			again = append(again, i)
		} else {
			u.orphans[i.ID] = true
		}
	}
	return again
}

// check compares what the channel shows with what was acknowledged.
func (u *truth) check(t *testing.T, s *slacktest.Server) {
	t.Helper()
	shown := map[string][]slacktest.Message{}
	for _, m := range s.Messages(channel) {
		if m.Thread == "" {
			id, _ := m.Metadata.EventPayload["id"].(string)
			shown[id] = append(shown[id], m)
		}
	}
	together := u.checkMany(t, shown)
	var alone []string
	for id, i := range u.said {
		all := shown[id]
		delete(shown, id)
		if len(all) == 0 && u.keeps {
			if i.State == detect.Firing {
				alone = append(alone, id)
			}
			continue // over before it was to be told, or told with others
		}
		if len(all) != 1 {
			t.Errorf("incident %s has %d messages in the channel", id, len(all))
			continue
		}
		want := []string{i.Members[0].Evidence.Seen}
		if i.State == detect.Resolved {
			want = append(want, "RESOLVED")
		}
		for _, w := range want {
			if !strings.Contains(all[0].Text, w) {
				t.Errorf("incident %s shows %q, its last state has %q", id, all[0].Text, w)
			}
		}
		u.checkThread(t, id, i, s.Replies(channel, all[0].TS))
	}
	// Of what was never acknowledged a message of many may count some.
	if together < len(alone) || together > len(alone)+len(u.orphans) {
		t.Errorf("the incidents %v fire and have no message of their own, and %d are told of in those of many", alone, together)
	}
	for id, all := range shown {
		if !u.orphans[id] || len(all) > 1 {
			t.Errorf("%d messages are about incident %s, of which nobody is to hear", len(all), id)
		}
	}
}

var stillFire = regexp.MustCompile(`; (\d+) of them still fire`)

// checkMany takes the messages of many incidents out of those that are shown, and returns
// how many incidents that fire they tell of.
func (u *truth) checkMany(t *testing.T, shown map[string][]slacktest.Message) (firing int) {
	t.Helper()
	for id, all := range shown {
		if !strings.HasPrefix(id, "many-") {
			continue
		}
		delete(shown, id)
		said := stillFire.FindStringSubmatch(all[0].Text)
		if len(all) != 1 || said == nil {
			t.Errorf("%d messages of many are called %s, the first says: %s", len(all), id, all[0].Text)
			continue
		}
		n, err := strconv.Atoi(said[1])
		if err != nil {
			t.Error(err)
		}
		firing += n
	}
	return firing
}

// checkThread holds that a thread says nothing twice, and tells the end.
func (u *truth) checkThread(t *testing.T, id string, i detect.Incident, replies []slacktest.Message) {
	t.Helper()
	seen, ends, pictures := map[string]bool{}, 0, 0
	for _, r := range replies {
		pictures += len(r.Files)
		if r.Text == "" {
			continue
		}
		if seen[r.Text] && !strings.Contains(r.Text, "snooze is over") {
			t.Errorf("the thread of incident %s says twice: %s", id, r.Text)
		}
		seen[r.Text] = true
		if strings.Contains(r.Text, "Resolved after") {
			ends++
		}
	}
	if pictures > 1 {
		t.Errorf("the thread of incident %s has %d pictures", id, pictures)
	}
	// An incident that was over before its message was posted has no history.
	if ends > 1 || ends == 0 && i.State == detect.Resolved && len(replies) > pictures {
		t.Errorf("the thread of incident %s tells its end %d times: %+v", id, ends, replies)
	}
}
