package alerting_test

import (
	"math"
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
	if got, book := len(example.Incidents()), len(rules.All()); got != book {
		t.Fatalf("%d rules have an example, the book has %d", got, book)
	}
	for k, i := range example.Incidents() {
		if want := rules.All()[k].ID; i.Rule != want {
			t.Fatalf("example %d is of rule %s, the book's is %s", k, i.Rule, want)
		}
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

// TestTheFirstLineDecides holds that a headline fits a phone's lock screen.
func TestTheFirstLineDecides(t *testing.T) {
	for _, i := range example.Incidents() {
		head := alerting.Render(example.Message(i)).Headline
		if n := utf8.RuneCountInString(head); n > 100 {
			t.Errorf("the headline of %s has %d characters, a lock screen shows about 100: %s", i.Rule, n, head)
		}
	}
}

// TestAnEndpointIsNamedWithoutItsAddress holds that a model's server is not shown as a URL.
func TestAnEndpointIsNamedWithoutItsAddress(t *testing.T) {
	f := func(id, want string) {
		t.Helper()
		i := example.Of(rules.IDQueueing)
		i.Members[0].Subject.ID = id
		text := alerting.Render(example.Message(i))
		if !strings.HasPrefix(text.Headline, "TICKET "+want+" on gpu-117: ") || strings.Contains(text.String(), "10.0.0.7") {
			t.Errorf("endpoint %s is told as %q, want it named %s:\n%s", id, text.Headline, want, text)
		}
	}
	f("http://10.0.0.7:8000/metrics#vllm/meta/llama", "meta/llama")
	f("http://10.0.0.7:8000/metrics#vllm", "vllm")
	f("http://10.0.0.7:8000/metrics", "the server on port 8000")
	f("http://10.0.0.7/metrics", "an inference server")
}

// FuzzRender holds that no name, however malicious, breaks a message of any rule: lines stay
// lines, valid, visible and short.
func FuzzRender(f *testing.F) {
	f.Add("gpu-117", "job <!channel>", "caf\xe9 \x1b[31m red", "xid_79", 0, 3.5)
	f.Add("a\nb", "\u202egpj.exe", strings.Repeat("é", 5000), "xid_"+strings.Repeat("9", 40), 7, math.Inf(1))
	f.Add("", "", "", "", 14, -1.0)
	f.Fuzz(func(t *testing.T, node, name, seen, cause string, which int, money float64) {
		examples := example.Incidents()
		i := examples[uint(which)%uint(len(examples))]
		r := &i.Members[0]
		r.Node, r.Owner.ID, r.Owner.Team, r.Evidence.Seen, r.Evidence.Why, r.Cause = node, name, seen, seen, name, cause
		r.GPUModel, r.Subject.ID, r.Evidence.Title = name, node, seen
		r.Before = []collector.Event{{Kind: collector.VersionEvent, Component: name, From: seen, To: node}, {Kind: "other", Text: seen}}
		i.Members = append(i.Members, *r, *r)
		m := example.Message(i)
		m.Node = node
		odd := collector.Owner{Kind: name, ID: seen, Team: cause}
		m.Context = alerting.Context{Cluster: name, Owners: []collector.Owner{odd, r.Owner, odd, odd, {Kind: "pod", Team: name}}, GPUs: which, Models: []string{seen, name, cause, node},
			Money: &alerting.Money{Currency: name, PerHour: money, GPUs: which}, Lost: &alerting.Lost{GPUHours: money, Cost: money, Currency: seen}}
		text := alerting.Render(m)
		clean(t, "headline", text.Headline, 140)
		for _, l := range text.Lines {
			clean(t, l.Label, l.Text, 1000)
		}
		end := example.Resolve(i)
		m.Incident = end
		news := alerting.Told{State: detect.Firing, Severity: rules.Info, Members: 1}.News(&m)
		if news == nil {
			t.Fatal("the end of an incident is no news")
		}
		for _, l := range news.Lines {
			clean(t, "a line of the thread", l, 1000)
		}
	})
}

func clean(t *testing.T, what, line string, limit int) {
	t.Helper()
	bad := strings.IndexFunc(line, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) })
	if n := utf8.RuneCountInString(line); !utf8.ValidString(line) || bad >= 0 || n > limit {
		t.Errorf("%s is not a clean line of at most %d characters: %q", what, limit, line)
	}
}
