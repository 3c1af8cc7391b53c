package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuvigil/alerting/slack/slacktest"
	"gpuvigil/detect"
)

// recorded writes the recorded records into the kernel log, with their numbers and of now.
func (l *logged) recorded() {
	l.t.Helper()
	text, err := os.ReadFile(kernelCases + "kmsg-xid.txt")
	if err != nil {
		l.t.Fatal(err)
	}
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if fields := strings.SplitN(line, ",", 4); len(fields) == 4 && line[0] != ' ' {
			if l.next, err = strconv.Atoi(fields[1]); err != nil {
				l.t.Fatal(err)
			}
			l.next++
			fields[2] = l.uptime()
			line = strings.Join(fields, ",")
		}
		b.WriteString(line)
	}
	l.append(l.kernel, b.String())
}

// joined waits for the one message of an error, and for its finding with the words. What follows from the error has no
// finding of its own.
func (l *logged) joined(a *agent, slack *slacktest.Server, cause string, words ...string) {
	l.t.Helper()
	eventually(l.t, "a finding "+cause+" tells of what followed, and has one message", func() error {
		f, err := a.findings()
		if err != nil {
			return err
		}
		var found []string
		for _, f := range f.Findings {
			switch {
			case f.Subject.ID != uuidAt(l.t, quiet):
			case f.Cause == "xid_45", f.Cause == "xid_154":
				l.t.Errorf("a follow-on error is told alone: %s", f.Evidence.Seen)
			case f.Cause == cause:
				found = append(found, f.Evidence.Seen+"; "+f.Evidence.Why+"; "+f.Action)
			}
		}
		if len(found) != 1 || !containsAll(found[0], words) {
			return fmt.Errorf("the findings are %q, want one with %q", found, words)
		}
		for _, i := range f.Incidents {
			if i.Cause != cause {
				continue
			}
			all := messagesOf(slack, i.ID)
			if len(all) != 1 || !containsAll(all[0].Text, words[:1]) {
				return fmt.Errorf("its messages are %q", texts(all))
			}
			return nil
		}
		return errors.New("it has no incident")
	})
}

// hostile writes what no kernel should: each such record costs itself and nothing beside it.
func (l *logged) hostile(a *agent, want map[int]float64, counted func(metrics) error) {
	l.t.Helper()
	lost := a.must(l.t).value("vigil_kernel_log_lost_records_total")
	l.append(l.kernel, fmt.Sprintf("3,%d,%s,-;NVRM: Xid (PCI:%s): 48, pid=", l.next, l.uptime(), quiet))
	l.append(l.fabric, "[Apr 17 2026 01:51:40] [ERROR] [tid 1] <!channel> <https://evil.example|click> \x1b[2J\x00\xff *bold*\n")
	// The fabric manager's log is read after the kernel's.
	m := a.awaits(l.t, "the logs are read on", func(m metrics) error { return m.expect(1, "vigil_fabric_manager_errors_total") })
	if err := m.absent("vigil_gpu_xid_errors_total", "gpu", l.index(quiet), "xid", "48"); err != nil {
		l.t.Errorf("half a record is counted: %v", err)
	}
	l.append(l.kernel, "1, name=\x1b[31m<!here>, half\n")
	want[48]++
	l.next++
	l.xid(quiet, "48\x00\xff") // no code
	l.record("3", "\x1b[2J<!channel> NVRM: Xid (PCI:"+quiet+"): 48, of no driver")
	l.xid(quiet, "48, "+strings.Repeat("x", 1<<20)) // a record longer than any
	l.xid(quiet, "31, pid=1, name=<https://evil.example|click>\x1b[2J, Ch 00000003")
	want[31]++
	a.awaits(l.t, "a record that was written in two halves is counted, and the good ones beside bad ones", func(m metrics) error {
		return errors.Join(counted(m), m.expect(lost+1, "vigil_kernel_log_lost_records_total"))
	})
	if a.gone() {
		l.t.Fatal("the agent has ended")
	}
}

// switches has errors of NVSwitches stand in both logs.
func (l *logged) switches(a *agent, slack *slacktest.Server) {
	l.t.Helper()
	text, err := os.ReadFile(kernelCases + "fabricmanager.log")
	if err != nil {
		l.t.Fatal(err)
	}
	l.append(l.fabric, string(text))
	l.record("3", "nvidia-nvswitch1: SXid (PCI:0000:47:00.0): 20034, Fatal, Link 21 LTSSM Fault Up")
	l.record("3", "nvidia-nvswitch1: SXid (PCI:0000:47:00.0): 20034, Severity 1 Engine instance 21 Sub-engine instance 00")
	sxid := func(n float64, address, code, severity string) func(metrics) error {
		return func(m metrics) error {
			return m.expect(n, "vigil_nvswitch_sxid_errors_total", "switch", address, "sxid", code, "severity", severity)
		}
	}
	a.awaits(l.t, "an error of a switch that both logs tell is counted once", func(m metrics) error {
		return errors.Join(sxid(1, "0000:47:00.0", "20034", "fatal")(m), sxid(1, "0000:47:00.0", "12028", "non_fatal")(m),
			sxid(1, "0000:59:00.0", "23001", "fatal")(m), m.expect(5, "vigil_fabric_manager_errors_total"))
	})
	l.record("3", "nvidia-nvswitch1: SXid (PCI:0000:47:00.0): 20034, Fatal, Link 21 LTSSM Fault Up")
	a.awaits(l.t, "a second one is counted, too", sxid(2, "0000:47:00.0", "20034", "fatal"))
	eventually(l.t, "the fatal errors of the switches have one message, with what the fabric manager wrote before", func() error {
		f, err := a.findings()
		if err != nil {
			return err
		}
		i := slices.IndexFunc(f.Incidents, func(i detect.Incident) bool { return i.Rule == "sxid" && i.Cause == "fatal" })
		if i < 0 {
			return errors.New("there is no incident")
		}
		all := messagesOf(slack, f.Incidents[i].ID)
		if len(all) != 1 || !containsAll(all[0].Text+string(all[0].Blocks), []string{"20034", "23001", "evil.example"}) {
			return fmt.Errorf("its messages are %q", texts(all))
		}
		return nil
	})
}

// texts are messages as a terminal can show them.
func texts(all []slacktest.Message) (texts []string) {
	for _, m := range all {
		texts = append(texts, m.Text+"\n"+string(m.Blocks))
	}
	return texts
}

// harmless looks into all that was told for what would call people, lead them astray or paint their terminal.
func harmless(t *testing.T, slack *slacktest.Server, last *agent, before ...*agent) {
	t.Helper()
	bad := []string{"<!channel>", "<!here>", "<https://evil", "\x1b", "\x00", "\xff", "python3", "my job"}
	check := func(what, text string, bad []string) {
		for _, b := range bad {
			if strings.Contains(text, b) {
				t.Errorf("%s holds %q", what, b)
			}
		}
	}
	for _, m := range slack.Messages(channel) {
		var blocks any
		if err := json.Unmarshal(m.Blocks, &blocks); err != nil {
			t.Fatal(err)
		}
		check("a message", m.Text, bad)
		markup(blocks, func(text string) { check("a message", text, bad) })
	}
	for _, path := range []string{"/", "/metrics", "/api/v1/findings"} {
		page, err := last.get(path)
		if err != nil {
			t.Fatal(err)
		}
		check(path, page, bad)
	}
	for _, command := range []string{"why", "status"} {
		_, said := last.ask(t, command)
		check("gpuvigil "+command, said, bad[3:])
	}
	for _, a := range append(before, last) {
		check("the log", a.log.String(), bad[3:])
	}
}

// markup calls f with each text that Slack reads as markup.
func markup(v any, f func(string)) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			markup(e, f)
		}
	case map[string]any:
		if text, ok := v["text"].(string); ok && v["type"] == "mrkdwn" {
			f(text)
		}
		for _, e := range v {
			markup(e, f)
		}
	}
}

// TestExportedJournal reads the kernel's messages from a FIFO into which journalctl writes, where the log itself is not
// for this user.
func TestExportedJournal(t *testing.T) {
	t.Parallel()
	l := newLogged(t, []string{"0000:10:1c", "0000:3b:00"})
	fifo := filepath.Join(t.TempDir(), "journal")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	a := l.start(options{config: quick + fmt.Sprintf("host: {kmsg: /nonexistent, journal: %s, fabric_manager_log: \"\"}\n", fifo)})
	a.ready(t)
	a.awaits(t, "the journal is read", func(m metrics) error { return m.expect(0, "vigil_kernel_log_records_total") })
	text, err := os.ReadFile(kernelCases + "journal-short-xid.txt")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		transport := "kernel"
		_, message, ok := strings.Cut(strings.TrimSpace(line), " kernel: ")
		if !ok { // a program quotes the kernel
			_, message, _ = strings.Cut(strings.TrimSpace(line), " app[77]: ")
			transport = "syslog"
		}
		entry, err := json.Marshal(map[string]string{"_TRANSPORT": transport, "__REALTIME_TIMESTAMP": strconv.FormatInt(time.Now().UnixMicro(), 10), "MESSAGE": message})
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(entry, '\n'))
	}
	l.append(fifo, b.String())
	l.tells("0000:3b:00", 79)
	l.show()
	a.awaits(t, "each error in the journal is counted once, and what a program quotes is not", func(m metrics) error {
		return errors.Join(m.expect(1, "vigil_gpu_xid_errors_total", "xid", "79"), m.expect(1, "vigil_gpu_xid_errors_total", "xid", "63"))
	})
}
