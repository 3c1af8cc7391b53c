package kernellog

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

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

// A log comes in pieces of any size: its lines are the same, but for those that are too long.
func FuzzStream(f *testing.F) {
	f.Add([]byte("one\ntwo\n\nhalf"), byte(3))
	f.Add([]byte(strings.Repeat("x", 3*maxLine)+"\nafter\n"), byte(255))
	f.Add([]byte("\n"+strings.Repeat("y", maxLine)+"\nz\n"), byte(200))
	path := f.TempDir() + "/log"
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, log []byte, size byte) {
		s, err := openStream(path)
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		rest := log
		s.readFD = func(_ int, b []byte) (int, error) {
			if len(rest) == 0 {
				return 0, unix.EAGAIN
			}
			n := copy(b[:min(len(b), 1+64*int(size))], rest)
			rest = rest[n:]
			return n, nil
		}
		whole := bytes.SplitAfter(log, []byte("\n"))
		for _, want := range whole[:len(whole)-1] {
			want = want[:len(want)-1]
			if len(want) > maxLine {
				if len(want) <= maxLine+len(s.buf) {
					return // given out or skipped, as its pieces fall
				}
				continue
			}
			line, ok, err := s.line()
			if err != nil || !ok || !bytes.Equal(line, want) {
				t.Fatalf("in pieces of %d bytes a line of %d bytes is read as %d, %v, %v", 1+64*int(size), len(want), len(line), ok, err)
			}
		}
		if line, ok, err := s.line(); ok || err != nil {
			t.Errorf("after the last line comes %q, %v", line, err)
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
