package slack

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"gpuvigil/alerting"
	"gpuvigil/alerting/internal/example"
	"gpuvigil/internal/golden"
)

func TestBlocksOfTheRules(t *testing.T) {
	for _, i := range example.Incidents() {
		i.Members[0].Simulated = true
		var got bytes.Buffer
		e := json.NewEncoder(&got)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(blocks(alerting.Render(example.Message(i)))); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", string(i.Rule)+".blocks.json")
		golden.Check(t, path, got.String(), string(i.Rule)+" looks different in Slack")
	}
}

func TestFitCutsBetweenCharacters(t *testing.T) {
	for _, test := range []struct {
		text  string
		limit int
		want  string
	}{
		{"short", 5, "short"},
		{"longer", 5, "long…"},
		{"a<b", 6, "a&lt;b"},
		{"a<b", 5, "a…"},
		{"<!channel>", 100, "&lt;!channel&gt;"},
		{"&lt;", 100, "&amp;lt;"},
		{"ok \xff", 10, "ok \uFFFD"},
		{"😀😀", 4, "😀😀"},
		{"😀😀", 3, "😀…"},
		{"", 0, ""},
	} {
		if got := fit(test.text, test.limit); got != test.want {
			t.Errorf("fit(%q, %d) = %q, want %q", test.text, test.limit, got, test.want)
		}
	}
}

// own matches the angle brackets that we write ourselves: links to web pages.
var own = regexp.MustCompile(`<https?://[^<>|\s]*\|[^<>|]*>`)

// FuzzBlocks holds that Slack takes whatever we lay out, and that nobody's text
// becomes a mention or a link.
func FuzzBlocks(f *testing.F) {
	f.Add("gpu <!channel> <@U123>", strings.Repeat("&", 3001), "https://h/?a=1&b=<x>", 3)
	f.Add("caf\xe9", strings.Repeat("😀", 2000), "javascript:alert(1)", 200)
	f.Add("*|*", "`code`", "http://h/|x> <!here>", 60)
	f.Add("Seen", "jupyter/<@U042>; o'hara & \"søns\" *lead*; team research, and what else there is", "http://h/", 4)
	f.Fuzz(func(t *testing.T, name, value, link string, n int) {
		text := alerting.Text{Headline: name + value, Simulated: n%2 == 0}
		for range min(max(n, 0), 150) {
			text.Lines = append(text.Lines, alerting.Line{Label: name, Text: value}, alerting.Line{Label: "Seen", Text: value + "; " + name})
			text.Links = append(text.Links, alerting.Link{Title: name, URL: link})
		}
		set := blocks(text)
		if len(set) > 50 || len(set) == 0 {
			t.Errorf("%d blocks", len(set))
		}
		raw, err := json.Marshal(set)
		if err != nil {
			t.Fatal(err)
		}
		type words struct{ Type, Text string }
		var parsed []struct {
			Type     string
			Text     *words
			Elements []words
		}
		if err := json.Unmarshal(raw, &parsed); err != nil {
			t.Fatal(err)
		}
		total := 0
		for _, b := range parsed {
			texts := b.Elements
			if b.Text != nil {
				texts = append(texts, *b.Text)
			}
			for _, w := range texts {
				total += len(utf16.Encode([]rune(w.Text)))
				safe(t, b.Type, w.Text, map[string]int{"header": 150, "section": 3000, "context": 3000}[b.Type])
			}
		}
		if total > 13000 {
			t.Errorf("%d characters of block text", total)
		}
		safe(t, "summary", summary(text), 4000)
		safe(t, "plain", plain(text), 4000)
	})
}

func safe(t *testing.T, what, text string, limit int) {
	t.Helper()
	if n := len(utf16.Encode([]rune(text))); n > limit || !utf8.ValidString(text) {
		t.Errorf("%s has %d characters, valid %v: Slack would refuse it", what, n, utf8.ValidString(text))
	}
	rest := own.ReplaceAllString(text, "")
	if strings.ContainsAny(rest, "<>") {
		t.Errorf("%s has a bracket of somebody else: %q", what, rest)
	}
	for _, amp := range strings.SplitAfter(rest, "&")[1:] {
		if !strings.HasPrefix(amp, "amp;") && !strings.HasPrefix(amp, "lt;") && !strings.HasPrefix(amp, "gt;") {
			t.Errorf("%s has a raw & or half an escape: %q", what, amp)
		}
	}
}
