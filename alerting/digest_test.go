package alerting_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/detect"
	"gpuvigil/rules"
)

func routingMany(n int, state detect.State) []detect.Incident {
	var is []detect.Incident
	for k := range n {
		i := incident(fmt.Sprintf("i%02d", k), state)
		i.Members[0].GPUIndex, i.Members[0].Subject = k, detect.Subject{Kind: "gpu", ID: fmt.Sprintf("GPU-%02d", k)}
		is = append(is, i)
	}
	return is
}

func TestAStormIsToldInOneMessageAndNothingIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRoutingBench(t)
		b.cfg.Burst = 3
		b.start()
		b.tell(append(routingMany(40, detect.Firing), page("p", detect.Firing))...)
		sent := b.messages()
		if len(sent) != 5 {
			t.Fatalf("40 tickets and a page begin at once: %d messages, want 3 tickets, the page, and one for the rest", len(sent))
		}
		var storm alerting.Message
		for _, m := range sent {
			if m.Incident.Rule == "many" {
				storm = m
			}
		}
		text := alerting.Render(storm).String()
		for _, want := range []string{"TICKET gpu-117 +37", "and 37 more incidents", "idle_gpu 37 ×; 37 of them still fire", "Also: gpu-117/3", "and 32 more"} {
			if !strings.Contains(text, want) {
				t.Errorf("the message of many does not say %q:\n%s", want, text)
			}
		}
		b.end()
		b.start() // the parts are known after a restart
		ended := routingMany(40, detect.Resolved)
		b.tell(ended[3:10]...)
		if m := b.only("seven end"); m.Incident.ID != storm.Incident.ID || !strings.Contains(alerting.Render(m).String(), "30 of them still fire") {
			t.Errorf("it says:\n%s", alerting.Render(m))
		}
		worse := routingMany(11, detect.Firing)[10]
		worse.Severity = rules.Page
		b.tell(worse)
		alone := 0
		for _, m := range b.messages() {
			if m.Incident.ID == worse.ID {
				alone++
			} else if !strings.Contains(alerting.Render(m).String(), "and 36 more incidents") {
				t.Errorf("the others are told as:\n%s", alerting.Render(m))
			}
		}
		if alone != 1 {
			t.Errorf("an incident that became a page has %d messages of its own", alone)
		}
		b.tell(ended[11:]...)
		if m := b.only("all end"); m.Incident.State != detect.Resolved {
			t.Errorf("all have ended and the message says:\n%s", alerting.Render(m))
		}
		if n := b.counted("merged"); n != 37 {
			t.Errorf("%d incidents are counted as merged, 37 were", n)
		}
		time.Sleep(time.Hour)
		b.tell(routingMany(1, detect.Firing)...)
		b.only("one more after the storm is told alone")
		b.end()
	})
}

func TestDigestsAreSentOnceAndLateAfterADowntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock begins at midnight UTC, Saturday 1 January 2000
		b := newRoutingBench(t)
		var asked []string
		b.cfg.Digest = &alerting.DigestConfig{
			Receivers: []string{b.to.Name}, Daily: true, Weekly: true, Hour: 8, Weekday: time.Monday, Location: time.UTC,
			Write: func(from, to time.Time) []alerting.Line {
				asked = append(asked, from.Format("2 15:04")+" to "+to.Format("2 15:04"))
				return []alerting.Line{{Label: "Cost", Text: "12.0 GPU-h, 30.00 USD\x1b[31m"}}
			},
		}
		b.cfg.Shadow = 7 * 24 * time.Hour
		b.start()
		b.tell(incident("kept", detect.Firing))
		b.nothing("before eight")
		time.Sleep(9 * time.Hour)
		text := alerting.Render(b.only("after eight")).String()
		for _, want := range []string{"Daily digest of gpu-117: Fri 31 Dec 08:00 to Sat 1 Jan 08:00 UTC", "Cost: 12.0 GPU-h, 30.00 USD"} {
			if !strings.Contains(text, want) || strings.Contains(text, "\x1b") {
				t.Errorf("the digest does not say %q, or says what nobody should see:\n%s", want, text)
			}
		}
		b.end()
		b.start()
		time.Sleep(time.Hour)
		b.nothing("it is not sent again after a restart")
		b.end()
		time.Sleep(3 * 24 * time.Hour) // Tuesday, 10:00
		b.start()
		time.Sleep(time.Hour)
		late := b.messages()
		if len(late) != 2 {
			t.Fatalf("%d digests after three days, want the last of each kind", len(late))
		}
		if said := strings.Join(asked, "; "); said != "31 08:00 to 1 08:00; 3 08:00 to 4 08:00; 27 08:00 to 3 08:00" {
			t.Errorf("the digests are of: %s", said)
		}
		weekly := alerting.Render(late[1]).String()
		if !strings.Contains(weekly, "Weekly digest") {
			t.Errorf("the second is not the weekly one:\n%s", weekly)
		}
		b.end()
	})
}

func TestADigestSaysWhatWasKeptBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRoutingBench(t)
		b.cfg.Digest = &alerting.DigestConfig{Receivers: []string{b.to.Name}, Daily: true, Hour: 8, Location: time.UTC,
			Write: func(_, _ time.Time) []alerting.Line { return nil }}
		b.cfg.Shadow = 7 * 24 * time.Hour
		b.start()
		i := incident("kept", detect.Firing)
		i.Opened = time.Now()
		b.tell(i)
		time.Sleep(9 * time.Hour)
		if text := alerting.Render(b.only("the digest")).String(); !strings.Contains(text, "Not sent: idle_gpu 1 ×") {
			t.Errorf("a finding of the first week is not in the digest:\n%s", text)
		}
		b.end()
	})
}

func TestADrillTakesTheWayOfAllOthersAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRoutingBench(t)
		b.cfg.Shadow = 7 * 24 * time.Hour
		b.start()
		sent, err := b.outbox.Drill(page("drill-1", detect.Firing), 5*time.Minute)
		if err != nil || len(sent) != 1 || !sent[0].Good || sent[0].What != "is told" {
			t.Errorf("the drill is %+v, %v", sent, err)
		}
		time.Sleep(30 * time.Second)
		if text := alerting.Render(b.only("the drill")).String(); !strings.HasPrefix(text, "DRILL PAGE gpu-117") || !strings.Contains(text, alerting.DrillMark) {
			t.Errorf("the drill is not marked as one:\n%s", text)
		}
		if d := b.outbox.Drills(); len(d) != 1 || !d[0].Drill {
			t.Errorf("senders without an outbox see the drills %+v", d)
		}
		b.end() // killed in the middle of it
		b.start()
		time.Sleep(10 * time.Minute)
		m := b.only("its end, after a restart")
		if m.Incident.State != detect.Resolved || !strings.HasPrefix(alerting.Render(m).Headline, "DRILL RESOLVED") || b.outbox.Drills()[0].State != detect.Resolved {
			t.Errorf("the end of the drill is told as %q", alerting.Render(m).Headline)
		}
		time.Sleep(time.Hour)
		if d := b.outbox.Drills(); len(d) != 0 {
			t.Errorf("an hour after its end there are still the drills %+v", d)
		}
		if _, err := b.outbox.Drill(page("drill-2", detect.Firing), 25*time.Hour); err == nil {
			t.Error("a drill can go on for more than a day")
		}
		b.end()
	})
}

func TestATestMessageSaysWhatBecameOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRoutingBench(t)
		b.start()
		b.said.answers(nil, &alerting.Refusal{Reason: "invalid_auth", Hint: "replace the token"}, &alerting.Wait{For: time.Minute}, errDown)
		for _, want := range []string{"was delivered", "was refused: invalid_auth: replace the token", "was not delivered: the receiver wants no message for 1 min", "was not delivered: the server has an internal error"} {
			sent, err := b.outbox.Try(t.Context(), "")
			if err != nil || len(sent) != 1 || sent[0].What != want || sent[0].Good != (want == "was delivered") {
				t.Errorf("got %+v, %v, want %q", sent, err, want)
			}
		}
		if m := b.messages(); !strings.HasPrefix(alerting.Render(m[0]).Headline, "TEST gpu-117") {
			t.Errorf("the test message reads %q", alerting.Render(m[0]).Headline)
		}
		if _, err := b.outbox.Try(t.Context(), "nobody"); err == nil || !strings.Contains(err.Error(), b.to.Name) {
			t.Errorf("a test of a receiver that is not there says: %v", err)
		}
		b.end()
	})
}
