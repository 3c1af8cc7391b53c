package rules

import (
	"encoding/csv"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestXidBookKnowsEveryCodeOnce(t *testing.T) {
	times := map[int]int{}
	for _, r := range xidBook {
		if r.class == "" || r.meaning == "" || r.action == "" {
			t.Errorf("the row of codes %v is not complete", r.codes)
		}
		for _, c := range r.codes {
			times[c]++
		}
	}
	for code := 1; code <= 173; code++ {
		if times[code] != 1 {
			t.Errorf("Xid %d is in the book %d times, want once", code, times[code])
		}
	}
}

func TestXidInfo(t *testing.T) {
	for _, c := range []struct {
		code     int
		class    XidClass
		severity Severity
		meaning  string
	}{
		{13, XidApp, Info, "graphics engine exception"},
		{31, XidApp, Info, "page fault"},
		{43, XidApp, Info, "channel was reset"},
		{45, XidFollowOn, Info, "torn down"},
		{48, XidReset, Page, "double bit"},
		{63, XidNote, Info, "remapping"},
		{74, XidFabric, Page, "NVLink"},
		{79, XidNode, Page, "fallen off the bus"},
		{92, XidWatch, Ticket, "corrected memory errors"},
		{119, XidReset, Page, "does not answer"},
		{154, XidFollowOn, Info, "recovery"},
		{99999, XidWatch, Ticket, "does not know"},
		{-1, XidWatch, Ticket, "does not know"},
	} {
		x := XidInfo(c.code)
		if x.Class != c.class || x.Severity != c.severity || !strings.Contains(x.Meaning, c.meaning) || x.Action == "" {
			t.Errorf("Xid %d is %+v, want class %s, severity %s, meaning with %q", c.code, x, c.class, c.severity, c.meaning)
		}
	}
}

// TestXidOfRealMessages holds the book against real messages of the kernel log.
func TestXidOfRealMessages(t *testing.T) {
	text, err := os.ReadFile("testdata/xid-messages.txt")
	if err != nil {
		t.Fatal(err)
	}
	messages := strings.Split(strings.TrimSpace(string(text)), "\n")
	f, err := os.Open("testdata/expected-xid.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	// What each word of the expectation means in the book: the classes, and the
	// worst severity.
	type bounds struct {
		classes []XidClass
		worst   Severity
	}
	book := map[string]bounds{
		"app":             {[]XidClass{XidApp}, Info},
		"lost":            {[]XidClass{XidNode}, Page},
		"follow-on":       {[]XidClass{XidFollowOn}, Info},
		"memory":          {[]XidClass{XidNote, XidApp, XidReset}, Page},
		"gsp":             {[]XidClass{XidReset}, Page},
		"nvlink":          {[]XidClass{XidNote, XidFabric}, Page},
		"recovery-action": {[]XidClass{XidWatch, XidReset, XidNode}, Page},
		"other":           {[]XidClass{XidNote, XidApp, XidWatch}, Ticket},
	}
	met := map[string]bool{}
	for _, row := range rows[1:] {
		line, _ := strconv.Atoi(row[0])
		code, _ := strconv.Atoi(row[1])
		link, word := row[5], row[6]
		x := XidOf(code, messages[line-1])
		want, ok := book[word]
		if met[word] = true; !ok {
			t.Errorf("line %d: the book has nothing for the word %q", line, word)
		}
		if !slices.Contains(want.classes, x.Class) || x.Severity > want.worst {
			t.Errorf("line %d, Xid %d (%s): class %s, severity %s; want one of %v, at most %s", line, code, word, x.Class, x.Severity, want.classes, want.worst)
		}
		if word == "nvlink" && x.Severity != map[string]Severity{"Fatal": Page, "Nonfatal": Info}[link] {
			t.Errorf("line %d, Xid %d %s: severity %s", line, code, link, x.Severity)
		}
		if Lost(code) != (word == "lost") {
			t.Errorf("line %d, Xid %d (%s): lost is %v", line, code, word, Lost(code))
		}
	}
	if len(met) != len(book) {
		t.Errorf("the messages have %d of the %d words: the test proves less than it seems", len(met), len(book))
	}
}

func TestRecoveryDecides(t *testing.T) {
	for message, want := range map[string]struct {
		class    XidClass
		severity Severity
		action   string // a word of it
	}{
		"GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)":               {XidWatch, Ticket, "no new job"},
		"GPU recovery action changed from 0x4 (Drain and Reset) to 0x1 (GPU Reset Required)": {XidReset, Page, "reset it"},
		"GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)":            {XidNote, Info, "no action"},
		"Node Reboot Required": {XidNode, Page, "reboot"},
		"Drain P2P":            {XidWatch, Ticket, "several GPUs"},
		"action 7":             {XidFollowOn, Info, "driver recommends"},
		"":                     {XidFollowOn, Info, "driver recommends"},
	} {
		x := XidOf(RecoveryXid, message)
		if x.Class != want.class || x.Severity != want.severity || !strings.Contains(x.Action, want.action) {
			t.Errorf("%q is %s, %s, %q; want %s, %s and %q", message, x.Class, x.Severity, x.Action, want.class, want.severity, want.action)
		}
	}
	if x := XidOf(31, "Node Reboot Required"); x.Severity != Info {
		t.Errorf("an application's error that quotes a recovery has severity %s", x.Severity)
	}
}
