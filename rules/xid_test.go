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
	allowed := map[string][]XidClass{
		"app": {XidApp}, "lost": {XidNode}, "follow-on": {XidFollowOn}, "recovery-action": {XidFollowOn}, "gsp": {XidReset},
		"memory": {XidNote, XidReset, XidApp}, "other": {XidNote, XidWatch, XidApp},
	}
	for _, row := range rows[1:] {
		line, _ := strconv.Atoi(row[0])
		code, _ := strconv.Atoi(row[1])
		link, class := row[5], row[6]
		x := XidOf(code, messages[line-1])
		if class == "nvlink" {
			if want := map[string]Severity{"Fatal": Page, "Nonfatal": Info}[link]; x.Severity != want {
				t.Errorf("line %d, Xid %d %s: severity %s, want %s", line, code, link, x.Severity, want)
			}
			continue
		}
		if !slices.Contains(allowed[class], x.Class) {
			t.Errorf("line %d, Xid %d: class %s, want one of %v", line, code, x.Class, allowed[class])
		}
		if class == "app" && x.Severity != Info {
			t.Errorf("line %d, Xid %d is an application's fault but has severity %s", line, code, x.Severity)
		}
	}
}
