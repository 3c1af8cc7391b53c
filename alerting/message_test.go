package alerting_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"gpuvigil/alerting"
	"gpuvigil/alerting/internal/example"
	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/golden"
	"gpuvigil/rules"
)

func TestMessagesOfTheRules(t *testing.T) {
	for _, i := range example.Incidents() {
		for _, resolved := range []bool{false, true} {
			name := string(i.Rule)
			if resolved {
				name += "-resolved"
				i = example.Resolve(i)
			}
			t.Run(name, func(t *testing.T) {
				got := alerting.Render(example.Message(i)).String()
				path := filepath.Join("testdata", name+".golden")
				golden.Check(t, path, got, "the message reads differently")
			})
		}
	}
}

func TestASimulatedMessageSaysSoFirst(t *testing.T) {
	i := example.Incidents()[0]
	i.Members[len(i.Members)-1].Simulated = true
	text := alerting.Render(example.Message(i)).String()
	if first, _, _ := strings.Cut(text, "\n"); first != alerting.SimulatedMark {
		t.Errorf("the first line of a simulated incident is %q", first)
	}
}

// TestWhatChangedBeforeIsTold holds that a message names what changed, and neither
// where data lies nor who somebody is.
func TestWhatChangedBeforeIsTold(t *testing.T) {
	pod, user := collector.Owner{Kind: "pod", ID: "chat/a", Team: "x"}, collector.Owner{Kind: "user", ID: "ana"}
	f := func(e collector.Event, want string) {
		t.Helper()
		i := example.Incidents()[0]
		i.Members[0].Before = []collector.Event{e}
		text := alerting.Render(example.Message(i)).String()
		if !strings.Contains(text, want) || strings.Contains(text, "10.0.0.1") || strings.Contains(text, "ana") {
			t.Errorf("%+v is told as, want %q:\n%s", e, want, text)
		}
	}
	f(collector.Event{Kind: collector.VersionEvent, Owner: pod, Component: "vllm", From: "0.10.2", To: "0.11.0"}, "vllm 0.10.2 → 0.11.0 (pod chat/a, team x)")
	f(collector.Event{Kind: collector.VersionEvent, Owner: user, Component: "torch", From: "1", To: "2"}, "torch 1 → 2 (a user (name withheld))")
	f(collector.Event{Kind: collector.InventoryEvent, Owner: pod, Component: "image", From: "a:1", To: "a:2"}, "image a:1 → a:2 (pod chat/a, team x)")
	f(collector.Event{Kind: collector.InventoryEvent, Owner: pod, Component: "api", To: "port 8000", Text: "any"}, "api port 8000 came (pod")
	f(collector.Event{Kind: collector.InventoryEvent, Owner: pod, Component: "dataset", To: "10.0.0.1:/ana", Text: "nfs"}, "nfs data set came (pod")
	f(collector.Event{Kind: collector.InventoryEvent, Owner: pod, Component: "dataset", From: "pvc-7", Text: "claim"}, "claim data set pvc-7 went (pod")
}

func TestAMessageCountsWhatItDoesNotShow(t *testing.T) {
	i := example.Incidents()[0]
	peer := i.Members[0]
	for k := range 24 {
		peer.GPUIndex = k + 4
		i.Members = append(i.Members, peer)
	}
	for range 7 {
		i.Members[0].Before = append(i.Members[0].Before, collector.Event{Kind: collector.GPUGone, UUID: "GPU-x"})
	}
	text := alerting.Render(example.Message(i))
	for _, want := range []string{"gpu-117/3 +24", "; and 19 more", "; and 4 more"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("25 findings in one incident: the message does not say %q:\n%s", want, text)
		}
	}
}

func TestAPersonsNameDoesNotGoIntoAChannel(t *testing.T) {
	i := example.Incidents()[0]
	i.Members[0].Owner = collector.Owner{Kind: "user", ID: "jdoe", Team: "nlp"}
	i.Members[0].Before = []collector.Event{{Kind: collector.OwnerEvent, UUID: "GPU-x", From: "user:jdoe", To: "job:slurm/7"}}
	text := alerting.Render(example.Message(i)).String()
	if strings.Contains(text, "jdoe") || !strings.Contains(text, "team nlp") {
		t.Errorf("the message names the user or drops the team:\n%s", text)
	}
}

func TestACriticalWorkloadIsNamedSo(t *testing.T) {
	i := example.Incidents()[0]
	i.Members[0].Critical = true
	if text := alerting.Render(example.Message(i)).String(); !strings.Contains(text, "team nlp (critical)") {
		t.Errorf("the message does not say why it is more serious:\n%s", text)
	}
}

func TestAnIncidentOfAnUnknownRuleStillReads(t *testing.T) {
	i := detect.Incident{ID: "x", Rule: "gone_rule", Severity: rules.Ticket, State: detect.Firing, Opened: time.Unix(0, 0)}
	want := "TICKET gpu-117: gone_rule"
	if got := alerting.Render(alerting.Message{Incident: i, Node: "gpu-117"}).Headline; got != want {
		t.Errorf("headline %q, want %q", got, want)
	}
}

// FuzzRender holds that no name, however malicious, breaks a message: lines stay
// lines, valid, visible and short.
func FuzzRender(f *testing.F) {
	f.Add("gpu-117", "job <!channel>", "caf\xe9 \x1b[31m red", "xid_79")
	f.Add("a\nb", "\u202egpj.exe", strings.Repeat("é", 5000), "xid_"+strings.Repeat("9", 40))
	f.Fuzz(func(t *testing.T, node, name, seen, cause string) {
		i := example.Incidents()[0]
		r := &i.Members[0]
		r.Node, r.Owner.ID, r.Owner.Team, r.Evidence.Seen, r.Evidence.Why, r.Cause = node, name, seen, seen, name, cause
		r.GPUModel, r.Subject.ID = name, node
		r.Before = []collector.Event{{Kind: collector.VersionEvent, Component: name, From: seen, To: node}, {Kind: "other", Text: seen}}
		i.Members = append(i.Members, *r, *r)
		m := example.Message(i)
		m.Node = node
		text := alerting.Render(m)
		if n := utf8.RuneCountInString(text.Headline); n > 140 {
			t.Errorf("the headline has %d characters: %q", n, text.Headline)
		}
		for _, l := range append(text.Lines, alerting.Line{Label: "headline", Text: text.Headline}) {
			bad := strings.IndexFunc(l.Text, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) })
			if !utf8.ValidString(l.Text) || bad >= 0 || utf8.RuneCountInString(l.Text) > 1000 {
				t.Errorf("%s is not a clean line: %q", l.Label, l.Text)
			}
		}
	})
}
