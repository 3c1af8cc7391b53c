package kernellog

import (
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"gpuvigil/collector"
)

func FuzzMessage(f *testing.F) {
	for _, file := range []string{"xid-messages.txt", "kmsg-xid.txt"} {
		text, err := seed(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, line := range text {
			f.Add(line)
		}
	}
	f.Add("NVRM: The NVIDIA GPU 0000:18:00.0\nNVRM: fallen off the bus")
	f.Add("nvidia-nvswitch0: SXid (PCI:0000:00:00.0): 20034, Fatal, Link 30 x")
	f.Fuzz(func(t *testing.T, text string) {
		p := newParser()
		for _, ev := range p.message(text, noon) {
			check(t, ev)
			if x, ok := parseXid(text); ok && x.name != "" && len(x.name) > 8 && ev.Text == x.name {
				t.Errorf("the name of a process leaves the parser: %q", ev.Text)
			}
		}
	})
}

func FuzzRecord(f *testing.F) {
	text, err := seed("kmsg-xid.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, line := range text {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		r, ok := parseRecord(line)
		if ok && (r.stamp < 0 || r.severity > 7 || r.facility < 0 || len(r.text) > len(line)) {
			t.Errorf("%q is read as %+v", line, r)
		}
	})
}

func FuzzFabric(f *testing.F) {
	text, err := seed("fabricmanager.log")
	if err != nil {
		f.Fatal(err)
	}
	for _, line := range text {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if ev, ok := parseFabric(line); ok {
			check(t, ev)
		}
	})
}

func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"_TRANSPORT":"kernel","__REALTIME_TIMESTAMP":"5","MESSAGE":[78,86,255]}`))
	f.Add([]byte(`{"_TRANSPORT":"kernel","__REALTIME_TIMESTAMP":"5","MESSAGE":"x"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if text, stamp, ok := parseEntry(line); ok && (len(text) > len(line) || time.UnixMicro(int64(stamp)).IsZero()) {
			t.Errorf("%q is read as %q at %d", line, text, stamp)
		}
	})
}

// check holds what is true of every event, whatever the line was.
func check(t *testing.T, ev collector.Event) {
	t.Helper()
	if ev.Code < 0 || ev.Code > 999_999_999 || len(ev.Text) > 4*maxFabricText || !utf8.ValidString(ev.Text) {
		t.Errorf("an event with code %d and text %q", ev.Code, ev.Text)
	}
	if ev.PCI != "" && collector.PCIAddress(ev.PCI) != ev.PCI {
		t.Errorf("an event with address %q", ev.PCI)
	}
}

func seed(file string) ([]string, error) {
	text, err := os.ReadFile("testdata/" + file)
	return strings.Split(string(text), "\n"), err
}
