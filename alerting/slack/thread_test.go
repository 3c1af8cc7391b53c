package slack_test

import (
	"errors"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/alerting"
	"gpuvigil/alerting/internal/example"
	"gpuvigil/alerting/slack"
	"gpuvigil/alerting/slack/slacktest"
	"gpuvigil/detect"
	"gpuvigil/rules"
)

// talk is one incident's conversation with the stand-in.
type talk struct {
	t     *testing.T
	slack *slacktest.Server
	log   *journal
	bot   *slack.Bot
	ref   string
}

func newTalk(t *testing.T) *talk {
	s, log := standIn(t), &journal{}
	return &talk{t: t, slack: s, log: log, bot: bot(t, s, log)}
}

func (k *talk) say(m alerting.Message) error {
	k.t.Helper()
	ref, err := k.bot.Notify(k.t.Context(), m, k.ref)
	if ref != "" {
		k.ref = ref
	}
	return err
}

func (k *talk) mustSay(i detect.Incident) {
	k.t.Helper()
	if err := k.say(example.Message(i)); err != nil {
		k.t.Fatal(err)
	}
}

// thread returns what is in the thread of the one message in the channel.
func (k *talk) thread() (said []string) {
	k.t.Helper()
	for _, m := range k.slack.Replies(channel, k.slack.Messages(channel)[0].TS) {
		said = append(said, m.Text)
	}
	return said
}

func grown(n int, after time.Duration) detect.Incident {
	i := example.Join(example.Of(rules.IDThrottledGPU), n)
	i.Updated = example.Start.Add(after)
	return i
}

func TestHistoryGoesToTheThread(t *testing.T) {
	k := newTalk(t)
	k.mustSay(grown(0, 0))
	k.mustSay(grown(2, 6*time.Minute))
	worse := grown(2, 7*time.Minute)
	worse.Severity = rules.Page
	m := example.Message(worse)
	m.Ring, m.Rung, m.Mentions = "it got worse: page, was ticket", 1, []string{"U0123456789"}
	if err := k.say(m); err != nil {
		t.Fatal(err)
	}
	k.mustSay(example.Resolve(worse))
	want := []string{
		"2 more, 3 in all: gpu-117/5; gpu-117/4",
		"<@U0123456789> 🔴 PAGE gpu-117/3 +2: GPU held down by its thermal protection, 03:12 UTC\nWorse: page, was ticket",
		"Resolved after 14 min, from 2026-03-14 03:12:04 to 03:26:04 UTC; no longer seen",
	}
	if diff := cmp.Diff(want, k.thread()); diff != "" {
		t.Errorf("the thread reads differently (-want +got):\n%s", diff)
	}
	shown := k.slack.Messages(channel)
	if len(shown) != 2 || shown[0].Edits != 3 || !shown[1].Broadcast || shown[1].Text != want[1] {
		t.Errorf("the channel shows %+v; want one message, and the rise to a page beside it", shown)
	}
}

// TestWhatRingsSaysThatItIsSimulated holds that also a reply that stands in the channel for
// itself says that its numbers are made up.
func TestWhatRingsSaysThatItIsSimulated(t *testing.T) {
	k := newTalk(t)
	i := grown(0, 0)
	i.Members[0].Simulated = true
	k.mustSay(i)
	i.Severity, i.Updated = rules.Page, example.Start.Add(time.Minute)
	m := example.Message(i)
	m.Ring, m.Rung = "it got worse: page, was ticket", 1
	if err := k.say(m); err != nil {
		t.Fatal(err)
	}
	shown := k.slack.Messages(channel)
	if len(shown) != 2 || !strings.HasPrefix(shown[1].Text, alerting.SimulatedMark) {
		t.Errorf("the rise to a page of a simulated incident is shown as %+v", shown)
	}
}

// TestAReplyInDoubtIsNotRepeated holds that a thread does not say twice what arrived though
// its answer was lost, in the same process and in one that comes after a kill.
func TestAReplyInDoubtIsNotRepeated(t *testing.T) {
	for name, lost := range map[string]slacktest.Answer{
		"it had arrived":     {Done: true, Hangup: true},
		"it had not":         {Hangup: true},
		"the gateway failed": {Done: true, Status: 502, Body: "<html>"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newTalk(t)
			k.mustSay(grown(0, 0))
			k.slack.Answer("chat.postMessage", lost)
			m := example.Message(grown(2, 6*time.Minute))
			if err := k.say(m); err == nil {
				t.Fatal("a lost answer is taken for a success")
			}
			m.Doubt = true
			k.bot = bot(t, k.slack, k.log)
			for range 2 {
				if err := k.say(m); err != nil {
					t.Fatal(err)
				}
			}
			if n := len(k.thread()); n != 1 {
				t.Errorf("the thread has %d replies, want 1: %q", n, k.thread())
			}
		})
	}
}

// TestAMessageThatIsFoundAgainKnowsItsThread holds that also what a thread knows is found
// again, when nothing is left of the reference to its message.
func TestAMessageThatIsFoundAgainKnowsItsThread(t *testing.T) {
	k := newTalk(t)
	k.mustSay(grown(0, 0))
	k.mustSay(grown(2, 6*time.Minute))
	k.ref = ""
	m := example.Message(grown(2, 6*time.Minute))
	m.Doubt = true
	if err := k.say(m); err != nil {
		t.Fatal(err)
	}
	k.mustSay(grown(3, 20*time.Minute))
	want := []string{"2 more, 3 in all: gpu-117/5; gpu-117/4", "1 more, 4 in all: gpu-117/6"}
	if diff := cmp.Diff(want, k.thread()); diff != "" {
		t.Errorf("the thread reads differently (-want +got):\n%s", diff)
	}
	if n := len(k.slack.Messages(channel)); n != 1 {
		t.Errorf("%d messages stand in the channel, want 1", n)
	}
}

func TestAThreadThatIsLockedHoldsNothingBack(t *testing.T) {
	k := newTalk(t)
	k.mustSay(grown(0, 0))
	k.slack.Answer("chat.postMessage", slacktest.Answer{Body: `{"ok":false,"error":"restricted_action_thread_locked"}`})
	k.mustSay(grown(2, 6*time.Minute))
	if !strings.Contains(k.log.String(), "thread_locked") || !strings.Contains(k.slack.Messages(channel)[0].Text, "+2") {
		t.Errorf("the message is not edited, or nobody is told of the thread: %s", k.log)
	}
}

// TestAReplyThatMustWaitKeepsTheMessage holds that a limit between edit and reply does not
// make the incident a second message.
func TestAReplyThatMustWaitKeepsTheMessage(t *testing.T) {
	k := newTalk(t)
	k.mustSay(grown(0, 0))
	k.slack.Answer("chat.postMessage", slacktest.Answer{Status: 429, Header: http.Header{"Retry-After": {"7"}}})
	m := example.Message(grown(2, 6*time.Minute))
	var wait *alerting.Wait
	if err := k.say(m); !errors.As(err, &wait) || wait.For != 7*time.Second {
		t.Errorf("the limit is not passed on: %v", err)
	}
	if err := k.say(m); err != nil {
		t.Fatal(err)
	}
	if len(k.slack.Messages(channel)) != 1 || len(k.thread()) != 1 {
		t.Errorf("%d messages, %d replies", len(k.slack.Messages(channel)), len(k.thread()))
	}
}

// TestAReferenceOfAnEarlierReleaseIsEdited holds that an upgrade makes no second message.
func TestAReferenceOfAnEarlierReleaseIsEdited(t *testing.T) {
	k := newTalk(t)
	k.mustSay(grown(0, 0))
	k.ref = strings.Join(strings.SplitN(k.ref, "/", 3)[:2], "/")
	k.mustSay(grown(1, 10*time.Minute))
	k.mustSay(grown(2, 20*time.Minute))
	if len(k.slack.Messages(channel)) != 1 || len(k.thread()) != 1 {
		t.Errorf("%d messages, %d replies: want one of each, the history from now on", len(k.slack.Messages(channel)), len(k.thread()))
	}
}

func drawn() *alerting.Chart {
	c := &alerting.Chart{Title: "Power of gpu-117/3", Unit: "W", Low: 590, High: 650, Band: "usual before", Onset: example.Start}
	for m := range 60 {
		c.Points = append(c.Points, alerting.ChartPoint{Time: example.Start.Add(time.Duration(m-50) * time.Minute), Min: 600, Mean: 610, Max: 620})
	}
	return c
}

func charting(t *testing.T, on bool) (*talk, alerting.Message) {
	k := newTalk(t)
	var err error
	k.bot, err = slack.NewBot(slack.BotConfig{Token: fixed(slacktest.Token), Channel: channel, APIURL: k.slack.APIURL(), Log: k.log.logger(), Charts: on})
	if err != nil {
		t.Fatal(err)
	}
	m := example.Message(grown(0, 0))
	m.Chart = drawn
	return k, m
}

func (k *talk) files() (files []slacktest.File) {
	k.t.Helper()
	for _, m := range k.slack.Replies(channel, k.slack.Messages(channel)[0].TS) {
		files = append(files, m.Files...)
	}
	return files
}

func TestAChartIsUploadedOnlyWhereItIsSwitchedOn(t *testing.T) {
	k, m := charting(t, false)
	if err := k.say(m); err != nil || len(k.files()) != 0 {
		t.Errorf("a chart leaves the node though nobody asked for it: %v, %v", k.files(), err)
	}
	k, m = charting(t, true)
	for range 3 {
		if err := k.say(m); err != nil {
			t.Fatal(err)
		}
	}
	files := k.files()
	if len(files) != 1 || files[0].Name != "gpuvigil-throttled_gpu-1.png" || files[0].Title != "Power of gpu-117/3" || !strings.HasPrefix(string(files[0].Content), "\x89PNG") {
		t.Errorf("the thread has %d files, want one picture: %+v", len(files), k.log)
	}
}

// TestAChartThatFailsHoldsNothingBack holds that each step of an upload may fail, and that
// the chart comes with the incident's next change.
func TestAChartThatFailsHoldsNothingBack(t *testing.T) {
	for _, step := range []string{"files.getUploadURLExternal", "upload", "files.completeUploadExternal"} {
		t.Run(step, func(t *testing.T) {
			k, m := charting(t, true)
			k.slack.Answer(step, slacktest.Answer{Status: 503, Body: "not now"})
			if err := k.say(m); err != nil || len(k.slack.Messages(channel)) != 1 || len(k.files()) != 0 {
				t.Fatalf("a failed chart holds back the message: %v", err)
			}
			if err := k.say(m); err != nil || len(k.files()) != 1 {
				t.Errorf("the chart does not come with the next change: %v\n%s", err, k.log)
			}
			noSecret(t, "the log", k.log.String())
		})
	}
	t.Run("the scope is missing", func(t *testing.T) {
		k, m := charting(t, true)
		k.slack.Answer("files.getUploadURLExternal", slacktest.Answer{Body: `{"ok":false,"error":"missing_scope","needed":"files:write"}`})
		for range 2 {
			if err := k.say(m); err != nil {
				t.Fatal(err)
			}
		}
		if len(k.files()) != 0 || strings.Count(k.log.String(), "files:write") != 1 {
			t.Errorf("the missing scope is not said once: %s", k.log)
		}
	})
	t.Run("it had arrived", func(t *testing.T) {
		k, m := charting(t, true)
		k.slack.Answer("files.completeUploadExternal", slacktest.Answer{Done: true, Hangup: true})
		if err := k.say(m); err != nil {
			t.Fatal(err)
		}
		if err := k.say(m); err != nil || len(k.files()) != 1 {
			t.Errorf("the thread has %d pictures, want 1: %v", len(k.files()), err)
		}
	})
}

func TestWithoutDataThereIsNoChart(t *testing.T) {
	k, m := charting(t, true)
	for _, c := range []*alerting.Chart{nil, {Title: "x"}, {Title: "x", Points: drawn().Points[:1], Low: math.NaN(), High: math.NaN()}} {
		m.Chart = func() *alerting.Chart { return c }
		if err := k.say(m); err != nil || len(k.files()) != 0 {
			t.Errorf("%+v is drawn: %v", c, err)
		}
	}
}
