package slacktest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
	"unicode/utf16"
)

// carryOut does what the request asks for.
func (s *Server) carryOut(method string, req *http.Request, body []byte) reply {
	if method == "webhook" {
		return s.webhook(req.URL.Path, body)
	}
	if method == "upload" {
		return s.upload(req, body)
	}
	if method == "apps.connections.open" {
		return s.open(req)
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return refuse("invalid_form_data")
	}
	if form.Get("token") != s.token {
		return refuse("invalid_auth")
	}
	switch method {
	case "auth.test":
		return answer(map[string]any{"ok": true, "user": "gpuvigil", "team": "stand-in", "user_id": "U0000000001"})
	case "chat.postMessage":
		return s.post(form)
	case "chat.update":
		return s.update(form)
	case "chat.postEphemeral":
		return s.whisper(form)
	case "conversations.history":
		return s.page(form, true, func(m *Message) bool { return m.Thread == "" || m.Broadcast })
	case "conversations.replies":
		return s.replies(form)
	case "files.getUploadURLExternal":
		return s.uploadURL(form)
	case "files.completeUploadExternal":
		return s.completeUpload(form)
	}
	return refuse("unknown_method")
}

func (s *Server) post(form url.Values) reply {
	m := &Message{At: time.Now(), Text: form.Get("text"), Blocks: json.RawMessage(form.Get("blocks"))}
	if word := check(m.Text, m.Blocks); word != "" {
		return refuse(word)
	}
	if !metadata(form, m) {
		return refuse("invalid_metadata_format")
	}
	id := s.id(form.Get("channel"))
	if m.Thread = form.Get("thread_ts"); m.Thread != "" {
		if !slices.ContainsFunc(s.channels[id], func(p *Message) bool { return p.TS == m.Thread && p.Thread == "" }) {
			return refuse("thread_not_found")
		}
		m.Broadcast = form.Get("reply_broadcast") == "true"
	}
	m.TS = s.nextTS()
	s.channels[id] = append(s.channels[id], m)
	return answer(map[string]any{"ok": true, "channel": id, "ts": m.TS})
}

// update knows channels by id only, as Slack does.
func (s *Server) update(form url.Values) reply {
	all, known := s.channels[form.Get("channel")]
	if !known {
		return refuse("channel_not_found")
	}
	i := slices.IndexFunc(all, func(m *Message) bool { return m.TS == form.Get("ts") })
	if i < 0 {
		return refuse("message_not_found")
	}
	if word := check(form.Get("text"), json.RawMessage(form.Get("blocks"))); word != "" {
		return refuse(word)
	}
	m := all[i]
	if !metadata(form, m) {
		return refuse("invalid_metadata_format")
	}
	m.Text, m.Blocks = form.Get("text"), json.RawMessage(form.Get("blocks"))
	m.Edits++
	return answer(map[string]any{"ok": true, "channel": form.Get("channel"), "ts": m.TS, "text": m.Text})
}

func metadata(form url.Values, m *Message) bool {
	meta := form.Get("metadata")
	return meta == "" || json.Unmarshal([]byte(meta), &m.Metadata) == nil
}

// replies returns the message and its thread.
func (s *Server) replies(form url.Values) reply {
	ts := form.Get("ts")
	of := func(m *Message) bool { return m.TS == ts || m.Thread == ts }
	if !slices.ContainsFunc(s.channels[form.Get("channel")], of) {
		return refuse("thread_not_found")
	}
	return s.page(form, false, of)
}

// page returns some messages of a channel, a page at a time.
func (s *Server) page(form url.Values, newestFirst bool, which func(*Message) bool) reply {
	stands, known := s.channels[form.Get("channel")]
	if !known {
		return refuse("channel_not_found")
	}
	var all []*Message
	for _, m := range stands {
		if which(m) {
			all = append(all, m)
		}
	}
	if newestFirst {
		slices.Reverse(all)
	}
	limit, err := strconv.Atoi(form.Get("limit"))
	if err != nil || limit < 1 {
		limit = 100
	}
	skip, _ := strconv.Atoi(form.Get("cursor")) // no cursor is the first page
	page := []map[string]any{}
	for i := skip; i < len(all) && len(page) < limit; i++ {
		m := map[string]any{"type": "message", "ts": all[i].TS, "text": all[i].Text}
		if all[i].Thread != "" {
			m["thread_ts"] = all[i].Thread
		}
		if all[i].Files != nil {
			m["files"] = all[i].Files
		}
		if form.Get("include_all_metadata") == "1" {
			m["metadata"] = all[i].Metadata
		}
		page = append(page, m)
	}
	next := ""
	if skip+len(page) < len(all) {
		next = strconv.Itoa(skip + len(page))
	}
	return answer(map[string]any{"ok": true, "messages": page, "has_more": next != "", "response_metadata": map[string]any{"next_cursor": next}})
}

func (s *Server) webhook(path string, body []byte) reply {
	if path != webhookPath {
		return reply{status: http.StatusForbidden, body: "invalid_token", word: "invalid_token"}
	}
	var msg struct {
		Text   string
		Blocks json.RawMessage
	}
	word := "invalid_payload"
	if err := json.Unmarshal(body, &msg); err == nil {
		word = check(msg.Text, msg.Blocks)
	}
	if word != "" {
		return reply{status: http.StatusBadRequest, body: word, word: word}
	}
	m := &Message{TS: s.nextTS(), Text: msg.Text, Blocks: msg.Blocks}
	s.channels[WebhookChannel] = append(s.channels[WebhookChannel], m)
	return reply{status: http.StatusOK, body: "ok"}
}

func answer(v map[string]any) reply {
	b, err := json.Marshal(v)
	if err != nil {
		return reply{status: http.StatusInternalServerError, body: err.Error()}
	}
	return reply{status: http.StatusOK, body: string(b), header: http.Header{"Content-Type": {"application/json; charset=utf-8"}}}
}

func refuse(word string) reply {
	r := answer(map[string]any{"ok": false, "error": word})
	r.word = word
	return r
}

// block is what the limits are about.
type block struct {
	Type     string
	Text     *text
	Elements []json.RawMessage
}

// button is an element of a block of actions.
type button struct {
	Type     string
	ActionID string `json:"action_id"`
	Value    string
	Text     text
}

type text struct{ Type, Text string }

// check holds a message against Slack's limits and returns its word for what is
// wrong, or nothing.
func check(message string, raw json.RawMessage) string {
	var blocks []block
	if len(raw) > 0 && json.Unmarshal(raw, &blocks) != nil {
		return "invalid_blocks"
	}
	if message == "" && len(blocks) == 0 {
		return "no_text"
	}
	if units(message) > 40000 {
		return "msg_too_long"
	}
	total := 0
	for _, b := range blocks {
		n, ok := b.size()
		if !ok {
			return "invalid_blocks"
		}
		total += n
	}
	switch {
	case len(blocks) > 50:
		return "invalid_blocks"
	case total > 13000:
		return "msg_blocks_too_long"
	}
	return ""
}

// size returns the characters of a block, and whether it is within the limits.
func (b block) size() (n int, ok bool) {
	if b.Type == "actions" {
		return b.sizeOfButtons()
	}
	limit := map[string]int{"header": 150, "section": 3000, "context": 3000, "divider": 0}
	most, known := limit[b.Type]
	if !known || len(b.Elements) > 10 || b.Type == "header" && (b.Text == nil || b.Text.Type != "plain_text") {
		return 0, false
	}
	texts := make([]text, len(b.Elements))
	for k, e := range b.Elements {
		if json.Unmarshal(e, &texts[k]) != nil {
			return 0, false
		}
	}
	if b.Text != nil {
		texts = append(texts, *b.Text)
	}
	ok = len(texts) > 0 || b.Type == "divider"
	for _, t := range texts {
		u := units(t.Text)
		n += u
		ok = ok && u > 0 && u <= most
	}
	return n, ok
}

// sizeOfButtons holds a row of buttons against its limits.
// https://docs.slack.dev/reference/block-kit/block-elements/button-element
func (b block) sizeOfButtons() (n int, ok bool) {
	seen := map[string]bool{}
	for _, e := range b.Elements {
		var one button
		if json.Unmarshal(e, &one) != nil || one.Type != "button" || one.ActionID == "" || len(one.ActionID) > 255 || seen[one.ActionID] ||
			units(one.Value) > 2000 || one.Text.Type != "plain_text" || one.Text.Text == "" || units(one.Text.Text) > 75 {
			return 0, false
		}
		seen[one.ActionID] = true
		n += units(one.Text.Text)
	}
	return n, len(b.Elements) > 0 && len(b.Elements) <= 25
}

func units(s string) int { return len(utf16.Encode([]rune(s))) }
