package slack

import "testing"

// Something else than Slack may answer: no more than one of Slack's words is taken from it.
func FuzzAnswer(f *testing.F) {
	f.Add(`{"ok":false,"error":"missing_scope","needed":"chat:write"}`, 200)
	f.Add(`{"ok":true}`, 200)
	f.Add("invalid_token", 403)
	f.Add("<html>\x1b[2J", 502)
	f.Fuzz(func(t *testing.T, body string, status int) {
		x := &exchange{body: body, status: status}
		if word, _ := x.said(); word != "" && !wordPattern.MatchString(word) {
			t.Errorf("of %q the word %q is taken", body, word)
		}
		if word := x.word(); !wordPattern.MatchString(word) && status >= 0 {
			t.Errorf("of %q and %d the word %q is made", body, status, word)
		}
	})
}
