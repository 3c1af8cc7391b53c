package docs_test

import (
	"strings"
	"testing"
)

// TestTheExampleOfAMessageIsOne holds that the message in the docs is what is sent.
func TestTheExampleOfAMessageIsOne(t *testing.T) {
	said, _, _ := strings.Cut(read(t, "../alerting/testdata/job_hung.golden"), "Page: ")
	if page := read(t, "slack.md"); !strings.Contains(page, "\n🔴 "+said+"```") {
		t.Errorf("docs/slack.md shows another message than is sent:\n%s", said)
	}
}
