package kernellog

import (
	"encoding/csv"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func lines(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimRight(string(text), "\n"), "\n")
}

func TestXidLines(t *testing.T) {
	messages := lines(t, "xid-messages.txt")
	f, err := os.Open("testdata/expected-xid.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 29 {
		t.Fatalf("%d rows in the expectation, want 28 and a header", len(rows))
	}
	for _, row := range rows[1:] {
		n, _ := strconv.Atoi(row[0])
		code, _ := strconv.Atoi(row[1])
		pid, _ := strconv.Atoi(row[3])
		x, ok := parseXid(messages[n-1])
		if !ok || x.code != code || x.pci != row[2]+".0" || x.pid != pid || x.name != row[4] {
			t.Errorf("line %d (%s) is read as %+v, %v; want code %d on %s, pid %d, process %q", n, messages[n-1], x, ok, code, row[2], pid, row[4])
		}
		if severity := row[5]; severity != "" && !strings.Contains(" "+x.gist(), " "+severity+",") {
			t.Errorf("line %d: of the message %q is kept, want the severity %s", n, x.gist(), severity)
		}
		if name := row[4]; name != "" && strings.Contains(x.gist(), name) {
			t.Errorf("line %d: the name of the process leaves the parser: %q", n, x.gist())
		}
	}
}

func TestGist(t *testing.T) {
	for line, want := range map[string]string{
		"149, NETIR Fatal XC0 i0 Link -1 (0x000fe406)":                                 "NETIR Fatal, link -1",
		"145, RLW_REMAP Nonfatal XC0 i0 Link 00 (0x00000004 0x00000001)":               "RLW_REMAP Nonfatal, link 0",
		"145, pid=1, name=SAW Fatal, RLW Nonfatal XC0 i0 Link 17":                      "RLW Nonfatal, link 17",
		"148, a unit of tomorrow: Nonfatal":                                            "Nonfatal",
		"148, ":                                                                        "",
		"154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)":    "Drain and Reset",
		"154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)": "None",
		"154, GPU recovery action changed from 0x0 (None) to 0x5 (of tomorrow)":        "Recover IMEX Domain",
		"154, GPU recovery action changed from 0x0 (None) to 0x7 (of tomorrow)":        "action 7",
		"154, Node Reboot Required":                                                    "Node Reboot Required",
		"154, something else":                                                          "",
		"45, pid=4246, name=python3, Ch 00000001 caused by previous Xid 149":           "caused by previous Xid 149",
		"31, pid=4243, name=secret project, Ch 0000000a":                               "",
		"13, pid=4243, name=Nonfatal, Graphics Exception":                              "",
	} {
		x, ok := parseXid("NVRM: Xid (PCI:0000:04:00): " + line)
		if got := x.gist(); !ok || got != want {
			t.Errorf("of %q is kept %q, want %q", line, got, want)
		}
	}
}

func TestAddresses(t *testing.T) {
	for line, want := range map[string]string{
		"NVRM: Xid (0000:03:00): 14, Channel 00000001":                         "0000:03:00.0",
		"NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08": "0018:01:00.0",
		"NVRM: Xid (PCI:00000000:3B:00.0): 79":                                 "0000:3b:00.0",
		"NVRM: Xid (PCI:0000:65:00 GPU-I:05): 13, pid=7, name=a":               "0000:65:00.0", // in a MIG instance
	} {
		if x, ok := parseXid(line); !ok || x.pci != want {
			t.Errorf("%s: address %q, want %q", line, x.pci, want)
		}
	}
	for _, line := range []string{
		"copied from somewhere: NVRM: Xid (PCI:0000:3b:00): 79", "NVRM: Xid in a line", "NVRM: Xid (PCI:0000:3b:00): , none",
		"NVRM: Xid (PCI:0000:3b:00): 99999999999999999999, too long",
	} {
		if x, ok := parseXid(line); ok {
			t.Errorf("%q is taken for an error: %+v", line, x)
		}
	}
}

func message0(t *testing.T, text string) []collector.Event {
	t.Helper()
	p := newParser()
	return p.message(text, noon)
}

func lost(pci string) []collector.Event {
	return []collector.Event{{Time: noon, Kind: collector.XidEvent, Code: 79, PCI: pci, Source: FromKernel}}
}

// R38: a card that is lost is told in several ways.
func TestLostGPUWithoutCode(t *testing.T) {
	for name, text := range map[string]string{
		"one line":    "NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.",
		"three lines": "NVRM: The NVIDIA GPU 0000:18:00.0\nNVRM: (PCI ID: 10de:0000) installed in this system has\nNVRM: fallen off the bus and is not responding to commands.",
		"in one":      "NVRM: The NVIDIA GPU 0000:18:00.0 (PCI ID: 10de:0000) installed in this system has fallen off the bus and is not responding to commands.",
		"with code":   "NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.",
		"all of it":   "NVRM: Xid (PCI:0000:18:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\nNVRM: GPU 0000:18:00.0: GPU has fallen off the bus.",
		"with time":   "[680111.646286] NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.",
	} {
		if diff := cmp.Diff(lost("0000:18:00.0"), message0(t, text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, text := range []string{
		"NVRM: fallen off the bus and is not responding to commands.", // whose?
		"NVRM: The NVIDIA GPU 0000:18:00.0\nNVRM: a\nNVRM: b\nNVRM: c\nNVRM: fallen off the bus and is not responding to commands.",
		"nvidia 0000:18:00.0: enabling device (0140 -> 0142)",
	} {
		if got := message0(t, text); got != nil {
			t.Errorf("%q gives %+v", text, got)
		}
	}
	t.Run("records apart", func(t *testing.T) {
		p := newParser()
		var got []collector.Event
		for _, line := range lines(t, "journal-fallen-multiline.txt") {
			_, text, found := strings.Cut(line, "kernel: ")
			if !found {
				text = strings.TrimSpace(line)
			}
			got = append(got, p.message(text, noon)...)
		}
		if diff := cmp.Diff(lost("0000:18:00.0"), got); diff != "" {
			t.Errorf("one GPU is lost (-want +got):\n%s", diff)
		}
	})
	t.Run("again later", func(t *testing.T) {
		p := newParser()
		const text = "NVRM: GPU 0000:18:00.0: GPU has fallen off the bus."
		if n := len(p.message(text, noon)) + len(p.message(text, noon.Add(59*time.Second))) + len(p.message(text, noon.Add(5*time.Minute))); n != 2 {
			t.Errorf("a GPU that is lost again after five minutes is told %d times in all, want 2", n)
		}
	})
}

func TestKernelNamesGPUs(t *testing.T) {
	got := message0(t, "NVRM: GPU at PCI:0000:9b:00: GPU-00000000-0000-4000-8000-00000000009b\nNVRM: Xid (PCI:0000:9b:00): 62, pid=4251, name=python3, 0000(0000)")
	want := []collector.Event{{Time: noon, Kind: collector.XidEvent, Code: 62, PCI: "0000:9b:00.0", UUID: "GPU-00000000-0000-4000-8000-00000000009b", Source: FromKernel}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the driver has told the uuid (-want +got):\n%s", diff)
	}
}

func TestSwitchErrors(t *testing.T) {
	const text = "nvidia-nvswitch3: SXid (PCI:0000:a9:00.0): 20034, Fatal, Link 30 LTSSM Fault Up\n" +
		"nvidia-nvswitch3: SXid (PCI:0000:a9:00.0): 20034, Severity 1 Engine instance 30 Sub-engine instance 00\n" +
		"nvidia-nvswitch3: SXid (PCI:0000:a9:00.0): 20034, Data {0x50610002, 0x10100030}\n" +
		"nvidia-nvswitch0 SXid (PCI:0000:a8:00.0): 12028, Non-fatal, Link 05 egress non-posted PRIV error\n" +
		"nvidia-nvswitch0: SXid (PCI:0000:a8:00.0): 19084, Non-fatal, AN1 Heartbeat Timeout Error"
	want := []collector.Event{
		{Time: noon, Kind: collector.SXidEvent, Code: 20034, PCI: "0000:a9:00.0", Fatal: true, Text: "link 30", Source: FromKernel},
		{Time: noon, Kind: collector.SXidEvent, Code: 12028, PCI: "0000:a8:00.0", Text: "link 5", Source: FromKernel},
		{Time: noon, Kind: collector.SXidEvent, Code: 19084, PCI: "0000:a8:00.0", Source: FromKernel},
	}
	if diff := cmp.Diff(want, message0(t, text)); diff != "" {
		t.Errorf("errors of switches (-want +got):\n%s", diff)
	}
}

func TestFabricLines(t *testing.T) {
	local := func(day, hour, minute, second int, month time.Month) time.Time {
		return time.Date(2026, month, day, hour, minute, second, 0, time.Local)
	}
	want := []collector.Event{
		{Time: local(17, 1, 51, 39, time.April), Kind: collector.FabricEvent, Text: "failed to find the GPU handle 1 in the multicast team request setup 2.", Source: FromFabric},
		{Time: local(15, 12, 34, 56, time.February), Kind: collector.SXidEvent, Code: 20034, PCI: "0000:47:00.0", Fatal: true, Text: "link 21", Source: FromFabric},
		{Time: local(15, 12, 34, 56, time.February), Kind: collector.SXidEvent, Code: 12028, PCI: "0000:47:00.0", Text: "link 15", Source: FromFabric},
		{Time: time.Date(2026, 7, 15, 4, 18, 55, 513286000, time.UTC), Kind: collector.SXidEvent, Code: 23001, PCI: "0000:59:00.0", Fatal: true, Text: "link 12", Source: FromFabric},
	}
	var got []collector.Event
	for _, line := range lines(t, "fabricmanager.log") {
		if ev, ok := parseFabric(line); ok {
			got = append(got, ev)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the fabric manager's log (-want +got):\n%s", diff)
	}
	ev, ok := parseFabric("[no time] [ERROR] [tid 1] a\x1b[2Jb" + strings.Repeat("x", 500))
	if !ok || !ev.Time.IsZero() || strings.Contains(ev.Text, "\x1b") || len(ev.Text) > maxFabricText {
		t.Errorf("a line without a time is read as %+v, %v", ev, ok)
	}
}

func TestRecords(t *testing.T) {
	for line, want := range map[string]record{
		`3,1003,2002195733,-;NVRM: Xid (PCI:0000:3b:00): 79`: {severity: 3, seq: 1003, stamp: 2002195733 * time.Microsecond, text: "NVRM: Xid (PCI:0000:3b:00): 79"},
		`12,2003,2100000003,-;from a user; really`:           {facility: 1, severity: 4, seq: 2003, stamp: 2100000003 * time.Microsecond, text: "from a user; really"},
		`4,2002,5,-,caller=T4251;text`:                       {severity: 4, seq: 2002, stamp: 5 * time.Microsecond, text: "text"},
		`4,1,0,c;\x0a and \x5c, \xzz, \x4`:                   {severity: 4, seq: 1, text: "\n and \\, \\xzz, \\x4"},
	} {
		if got, ok := parseRecord(line); !ok || got != want {
			t.Errorf("%s is read as %+v, %v; want %+v", line, got, ok, want)
		}
	}
	for _, line := range []string{"", " SUBSYSTEM=pci", " DEVICE=+pci:0000:9b:00.0", "4,1,0;too short", "a,1,0,-;x", "4,-1,0,-;x", "4,1,-5,-;x", "4,1,9223372036854775807,-;x"} {
		if got, ok := parseRecord(line); ok {
			t.Errorf("%q is taken for a record: %+v", line, got)
		}
	}
}

func TestJournalEntries(t *testing.T) {
	for line, want := range map[string]string{
		`{"_TRANSPORT":"kernel","SYSLOG_FACILITY":"0","__REALTIME_TIMESTAMP":"1772366400000000","MESSAGE":"a\nb"}`: "a\nb",
		`{"_TRANSPORT":"kernel","__REALTIME_TIMESTAMP":"5","MESSAGE":[78,86,255]}`:                                 "NV\xff",
	} {
		if got, _, ok := parseEntry([]byte(line)); !ok || got != want {
			t.Errorf("%s is read as %q, %v", line, got, ok)
		}
	}
	for name, line := range map[string]string{
		"a program's":          `{"_TRANSPORT":"syslog","__REALTIME_TIMESTAMP":"5","MESSAGE":"NVRM: Xid (PCI:0000:3b:00): 79"}`,
		"a program's in kmsg":  `{"_TRANSPORT":"kernel","SYSLOG_FACILITY":"1","__REALTIME_TIMESTAMP":"5","MESSAGE":"NVRM: Xid (PCI:0000:3b:00): 79"}`,
		"one that is too long": `{"_TRANSPORT":"kernel","__REALTIME_TIMESTAMP":"5","MESSAGE":null}`,
		"one without message":  `{"_TRANSPORT":"kernel","__REALTIME_TIMESTAMP":"5"}`,
		"one without time":     `{"_TRANSPORT":"kernel","MESSAGE":"x"}`,
		"no bytes":             `{"_TRANSPORT":"kernel","__REALTIME_TIMESTAMP":"5","MESSAGE":[1,300]}`,
		"no JSON":              `{"_TRANSPORT`,
	} {
		if got, _, ok := parseEntry([]byte(line)); ok {
			t.Errorf("%s entry is read as the kernel's: %q", name, got)
		}
	}
}

// The same lines as other tools print them.
func TestPrintedLines(t *testing.T) {
	var codes []int
	p := newParser()
	for _, line := range lines(t, "dmesg-xid.txt") {
		for _, ev := range p.message(line, noon) {
			codes = append(codes, ev.Code)
		}
	}
	if diff := cmp.Diff([]int{14, 32, 31, 79, 31, 13}, codes); diff != "" {
		t.Errorf("errors in what dmesg prints, the lost GPU once (-want +got):\n%s", diff)
	}
	codes = nil
	p = newParser()
	for _, line := range lines(t, "journal-short-xid.txt") {
		_, text, ok := strings.Cut(line, " kernel: ")
		if !ok { // a program quotes the kernel
			_, text, _ = strings.Cut(line, " app[77]: ")
		}
		for _, ev := range p.message(text, noon) {
			codes = append(codes, ev.Code)
		}
	}
	if diff := cmp.Diff([]int{79, 63}, codes); diff != "" {
		t.Errorf("errors in what journalctl prints (-want +got):\n%s", diff)
	}
}
