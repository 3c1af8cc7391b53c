package slack

import (
	"net/url"
	"strings"
	"unicode/utf16"

	"github.com/slack-go/slack"

	"gpuvigil/alerting"
	"gpuvigil/rules"
)

// Slack's limits, in characters. What a character is it does not say: here it is
// a UTF-16 unit, of which no other count has more but bytes.
const (
	maxHeader  = 150  // https://docs.slack.dev/reference/block-kit/blocks/header-block
	maxSection = 3000 // https://docs.slack.dev/reference/block-kit/blocks/section-block
	maxBody    = 9000 // all of a message's blocks: near 13,000 Slack answers msg_blocks_too_long (slackapi/bolt-js#2509)
	maxSummary = 1000 // of the text beside the blocks, which notifications show
	maxPlain   = 1500 // of a message that was refused with blocks
	maxLinks   = 2000
)

const (
	shortLine  = 60 // characters that are not broken at semicolons
	maxClauses = 8
)

// blocks lays a message out. Whatever the text, Slack takes the blocks, and
// nothing in it but t.Mentions becomes a mention, a link or a command.
func blocks(t alerting.Text) []slack.Block {
	var set []slack.Block
	if t.Simulated {
		set = append(set, section("*"+fit(alerting.SimulatedMark, maxHeader)+"*"))
	}
	head := slack.NewTextBlockObject(slack.PlainTextType, fit(mark(t)+" "+t.Headline, maxHeader), false, false)
	set = append(set, slack.NewHeaderBlock(head))
	if said := mentions(t.Mentions); said != "" {
		set = append(set, section(said))
	}
	for _, body := range bodies(t.Lines) {
		set = append(set, section(body))
	}
	if links := linkLine(t.Links); links != "" {
		set = append(set, slack.NewContextBlock("", mrkdwn(links)))
	}
	return set
}

// mark is the colour of a message, for eyes that scan a channel; its words say the same.
func mark(t alerting.Text) string {
	if t.Resolved {
		return "🟢"
	}
	return []string{rules.Info: "🔵", rules.Ticket: "🟠", rules.Page: "🔴"}[t.Severity]
}

func section(text string) slack.Block { return slack.NewSectionBlock(mrkdwn(text), nil, nil) }

// mrkdwn returns a text object in which names and addresses stay text.
func mrkdwn(text string) *slack.TextBlockObject {
	return slack.NewTextBlockObject(slack.MarkdownType, text, false, true)
}

// bodies puts the lines into as few sections as hold them.
func bodies(lines []alerting.Line) []string {
	var all []string
	var b strings.Builder
	used, total := 0, 0
	for _, l := range lines {
		line := "*" + fit(l.Label, 50) + "*  " + clauses(l)
		n := units(line) + 1
		if total += n; total > maxBody {
			break
		}
		if used+n > maxSection {
			all = append(all, b.String())
			b.Reset()
			used = 0
		}
		if used > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(line)
		used += n
	}
	if used > 0 {
		all = append(all, b.String())
	}
	return all
}

// lists are the lines whose semicolons stand between things of a list; elsewhere they are
// a sentence's.
var lists = map[string]bool{"Who": true, "Seen": true, "Before": true, "Also": true}

// clauses escapes a line and breaks a long list at its semicolons: on a phone each clause
// is a line of its own.
func clauses(l alerting.Line) string {
	const most = maxSection - 200
	if !lists[l.Label] || units(l.Text) < shortLine {
		return fit(l.Text, most)
	}
	parts, room := strings.SplitN(l.Text, "; ", maxClauses), most
	for k, part := range parts {
		parts[k] = fit(part, room)
		room = max(room-units(parts[k]), 0)
	}
	return strings.Join(parts, "\n  •  ")
}

var linkEscaper = strings.NewReplacer("|", "%7C", "<", "%3C", ">", "%3E", " ", "%20", "&", "&amp;")

// linkLine writes the links that are web pages on one line.
func linkLine(links []alerting.Link) string {
	line := ""
	for _, l := range links {
		u, err := url.Parse(l.URL)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			continue
		}
		link := "<" + linkEscaper.Replace(u.String()) + "|" + strings.ReplaceAll(fit(l.Title, 100), "|", "/") + ">"
		if line != "" {
			link = "  ·  " + link
		}
		if units(line)+units(link) <= maxLinks {
			line += link
		}
	}
	return line
}

// summary is what a notification shows: what happened and what was seen.
func summary(t alerting.Text) string {
	text := mark(t) + " " + t.Headline
	if t.Simulated {
		text = alerting.SimulatedMark + "\n" + text
	}
	for _, l := range t.Lines {
		if l.Label == "Seen" {
			text += "\n" + l.Text
		}
	}
	return calling(t.Mentions, fit(text, maxSummary))
}

// plain is the whole message as short plain text.
func plain(t alerting.Text) string {
	return calling(t.Mentions, fit(mark(t)+" "+t.String(), maxPlain))
}

var escapes = map[rune]string{'&': "&amp;", '<': "&lt;", '>': "&gt;"}

// fit escapes text and cuts it, marked, to at most limit units. An escape is
// never cut in two.
func fit(text string, limit int) string {
	var b strings.Builder
	used, cut := 0, 0 // cut is where the mark would go
	for _, r := range strings.ToValidUTF8(text, "\uFFFD") {
		s, n := string(r), utf16.RuneLen(r)
		if e := escapes[r]; e != "" {
			s, n = e, len(e)
		}
		if used+n > limit {
			return b.String()[:cut] + "…"
		}
		b.WriteString(s)
		if used += n; used < limit {
			cut = b.Len()
		}
	}
	return b.String()
}

// units counts characters as Slack may.
func units(s string) int {
	n := 0
	for _, r := range s {
		n += utf16.RuneLen(r)
	}
	return n
}
