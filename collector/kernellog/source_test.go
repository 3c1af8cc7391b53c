package kernellog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// stand is a source over files of a test, with a clock of the test's.
type stand struct {
	*Source
	t   *testing.T
	dir string
	log *bytes.Buffer
	now time.Time
	up  time.Duration
}

const bootID = "6f1c1c1e-1b2a-4c3d-8e4f-0123456789ab"

func newStand(t *testing.T) *stand {
	s := &stand{t: t, dir: t.TempDir(), now: noon, up: time.Hour}
	s.write("sys/kernel/random/boot_id", bootID+"\n")
	s.restart(collector.LogPosition{})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// restart makes another source that goes on where the one before has stopped.
func (s *stand) restart(at collector.LogPosition) {
	s.t.Helper()
	if s.Source != nil {
		if err := s.Close(); err != nil {
			s.t.Fatal(err)
		}
	}
	s.log = &bytes.Buffer{}
	s.Source = New(Config{Kmsg: s.path("kmsg"), Journal: s.path("journal"), Fabric: s.path("fabricmanager.log"), ProcFS: s.dir,
		Log: slog.New(slog.NewTextHandler(s.log, nil))})
	s.Source.now = func() (time.Time, time.Duration) { return s.now, s.up }
	s.Restore(at)
}

func (s *stand) path(name string) string { return filepath.Join(s.dir, name) }

func (s *stand) write(name, text string) {
	s.t.Helper()
	if err := os.MkdirAll(filepath.Dir(s.path(name)), 0o755); err != nil {
		s.t.Fatal(err)
	}
	f, err := os.OpenFile(s.path(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stand) sample() *collector.Part {
	s.t.Helper()
	p, err := s.Sample(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// after lets a second pass and samples.
func (s *stand) after(d time.Duration) *collector.Part {
	s.t.Helper()
	s.now, s.up = s.now.Add(d), s.up+d
	return s.sample()
}

func codes(p *collector.Part) []int {
	var codes []int
	for _, ev := range p.Events {
		codes = append(codes, ev.Code)
	}
	return codes
}

func TestKernelLog(t *testing.T) {
	s := newStand(t)
	s.write("kmsg", strings.Join(lines(t, "kmsg-xid.txt"), "\n")+"\n")
	p := s.sample()
	want := []int{14, 32, 31, 79, 31, 13, 13, 109, 43, 45, 63, 64, 48, 94, 119, 119, 120, 149, 145, 150, 154, 154, 154, 69, 99999, 13, 62}
	if diff := cmp.Diff(want, codes(p)); diff != "" {
		t.Errorf("errors in the kernel log: the three lines of one lost GPU are one, what a user wrote is none (-want +got):\n%s", diff)
	}
	if at := p.Events[0].Time; !at.Equal(noon.Add(2000*time.Second - time.Hour)) {
		t.Errorf("the first error is of %s, want the time of its record: 2000 s after boot", at)
	}
	if last := p.Events[len(p.Events)-1]; last.UUID != "GPU-00000000-0000-4000-8000-00000000009b" {
		t.Errorf("the last error is of GPU %q, whose uuid the driver has told in the log", last.UUID)
	}
	for _, ev := range p.Events {
		if strings.Contains(fmt.Sprintf("%+v", ev), "python3") || strings.Contains(ev.Text, "my job") {
			t.Errorf("an event has the name of a process: %+v", ev)
		}
	}
	if n := p.Node.Value(metric.KernelLogRecords); n != 33 || p.Node.Value(metric.KernelLogLost) != 2000-1028 {
		t.Errorf("%v records are counted and %v as lost, want 33 and what the numbers leave out", n, p.Node.Value(metric.KernelLogLost))
	}
	if p.Log == nil || p.Log.Boot != bootID || p.Log.Kernel != 2005 {
		t.Errorf("the position is %+v, want record 2005 of this boot", p.Log)
	}
	if again := s.after(time.Second); len(again.Events) != 0 {
		t.Errorf("the same records are told again: %v", codes(again))
	}
}

func TestOnlyNewRecordsAfterARestart(t *testing.T) {
	s := newStand(t)
	const first, second = "4,10,3599000000,-;NVRM: Xid (PCI:0000:3b:00): 31\n", "4,11,3599500000,-;NVRM: Xid (PCI:0000:3b:00): 13\n"
	s.write("kmsg", "6,9,1,-;NVRM: GPU at PCI:0000:3b:00: GPU-00000000-0000-4000-8000-00000000003b\n"+first)
	at := *s.sample().Log
	s.write("kmsg", second)
	s.restart(at)
	p := s.sample()
	if diff := cmp.Diff([]int{13}, codes(p)); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}
	if p.Events[0].UUID == "" {
		t.Error("after a restart it is forgotten which GPU is where, though the log tells")
	}
	at.Boot = "another"
	s.restart(at)
	if diff := cmp.Diff([]int{31, 13}, codes(s.sample())); diff != "" {
		t.Errorf("after a boot (-want +got):\n%s", diff)
	}
	s.restart(collector.LogPosition{Boot: bootID, Kernel: 5})
	if n := s.sample().Node.Value(metric.KernelLogLost); n != 4 {
		t.Errorf("%v records are counted as lost, want the 4 that were overwritten while nobody read", n)
	}
}

// The kernel's stamps run by another clock than the wall: a record that was not
// there a second ago is not older than that.
func TestRecordsAreDatedByWhenTheyCame(t *testing.T) {
	s := newStand(t)
	s.write("kmsg", "6,1,1,-;first\n")
	s.sample()
	for stamp, want := range map[string]time.Duration{
		"3600500000": 500 * time.Millisecond, // half a second after the last look
		"3590000000": 0,                      // long before it
		"3700000000": time.Second,            // in the future
	} {
		from := s.now
		s.write("kmsg", "4,"+fmt.Sprint(s.pos.Kernel)+","+stamp+",-;NVRM: Xid (PCI:0000:3b:00): 31\n")
		s.up = time.Hour
		if got := s.after(time.Second).Events[0].Time.Sub(from); got != want {
			t.Errorf("a record with stamp %s is dated %v after the last look, want %v", stamp, got, want)
		}
	}
}

func TestRecordsAfterTheClockWasSetBack(t *testing.T) {
	s := newStand(t)
	s.write("kmsg", "6,1,1,-;first\n")
	s.sample()
	s.now = s.now.Add(-6 * time.Hour)
	s.write("kmsg", "4,2,3600500000,-;NVRM: Xid (PCI:0000:3b:00): 31\n")
	if at := s.after(time.Second).Events[0].Time; !at.Equal(s.now.Add(-500 * time.Millisecond)) {
		t.Errorf("the record is dated %s, now is %s", at, s.now)
	}
}

func TestOverwrittenRecordsAreCounted(t *testing.T) {
	s := newStand(t)
	s.write("kmsg", "6,1,1,-;first\n")
	s.sample()
	script := []any{
		"4,2,2,-;NVRM: Xid (PCI:0000:3b:00): 31\n KEY=value\n", unix.EINTR, unix.EPIPE, "4,50,3,-;NVRM: Xid (PCI:0000:3b:00): 13\n", unix.EAGAIN, unix.EIO,
	}
	s.kernel.file.readFD = func(_ int, b []byte) (int, error) {
		next := script[0]
		script = script[1:]
		if err, failed := next.(error); failed {
			return 0, err
		}
		return copy(b, next.(string)), nil
	}
	p := s.after(time.Second)
	if diff := cmp.Diff([]int{31, 13}, codes(p)); diff != "" {
		t.Errorf("errors around overwritten records (-want +got):\n%s", diff)
	}
	if n := p.Node.Value(metric.KernelLogLost); n != 47 {
		t.Errorf("%v records are counted as lost, want 47", n)
	}
	if p, err := s.Sample(t.Context()); !errors.Is(err, unix.EIO) || errors.Is(err, collector.ErrAbsent) || p != nil {
		t.Errorf("a broken device gives %v, %v, want its error", p, err)
	}
	if _, err := s.Sample(t.Context()); !errors.Is(err, unix.EIO) {
		t.Errorf("right afterwards it is opened again: %v", err)
	}
	s.write("kmsg", "4,51,3,-;NVRM: Xid (PCI:0000:3b:00): 62\n")
	if diff := cmp.Diff([]int{62}, codes(s.after(time.Minute))); diff != "" {
		t.Errorf("a minute later it is read again (-want +got):\n%s", diff)
	}
}

func TestStormIsReadInPieces(t *testing.T) {
	s := newStand(t)
	var b strings.Builder
	for i := range 2500 {
		fmt.Fprintf(&b, "4,%d,%d,-;NVRM: Xid (PCI:0000:3b:00): 31\n", i+1, i)
	}
	s.write("kmsg", b.String())
	var sizes []int
	for range 4 {
		sizes = append(sizes, len(s.after(time.Second).Events))
	}
	if diff := cmp.Diff([]int{1024, 1024, 452, 0}, sizes); diff != "" {
		t.Errorf("events in each sample (-want +got):\n%s", diff)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	s.write("kmsg", b.String())
	if p, err := s.Sample(ended); err != nil || len(p.Events) != 0 {
		t.Errorf("beyond its deadline a sample goes on: %v, %v", p, err)
	}
}

// Without the right to read there is nothing to look at, and nothing to shout.
func TestUnreadableLogsAreAbsent(t *testing.T) {
	s := newStand(t)
	for range 100 {
		s.now = s.now.Add(10 * time.Second)
		p, err := s.Sample(t.Context())
		if p != nil || !errors.Is(err, collector.ErrAbsent) || !strings.Contains(err.Error(), "CAP_SYSLOG") {
			t.Fatalf("without logs: %v, %v, want that they are absent and what to do", p, err)
		}
	}
	if n := strings.Count(s.log.String(), "A log is not read"); n != 2 {
		t.Errorf("told %d times, want once for the kernel log and once for the journal:\n%s", n, s.log)
	}
	s.write("kmsg", "4,1,1,-;NVRM: Xid (PCI:0000:3b:00): 31\n")
	if diff := cmp.Diff([]int{31}, codes(s.after(time.Minute))); diff != "" {
		t.Errorf("once it may be read (-want +got):\n%s", diff)
	}
	if _, err := New(Config{Kmsg: s.path("kmsg"), ProcFS: t.TempDir(), Log: slog.New(slog.DiscardHandler)}).Sample(t.Context()); !errors.Is(err, collector.ErrAbsent) || !strings.Contains(err.Error(), "--path.procfs") {
		t.Errorf("without the host's /proc: %v, want that it is absent and what to do", err)
	}
	none := New(Config{ProcFS: s.dir, Log: slog.New(slog.DiscardHandler)})
	if _, err := none.Sample(t.Context()); !errors.Is(err, collector.ErrAbsent) {
		t.Errorf("without configured logs: %v", err)
	}
}

func TestJournalInstead(t *testing.T) {
	s := newStand(t)
	entry := func(code int, at time.Time) string {
		return fmt.Sprintf(`{"_TRANSPORT":"kernel","__REALTIME_TIMESTAMP":"%d","MESSAGE":"NVRM: Xid (PCI:0000:3b:00): %d"}`+"\n", at.UnixMicro(), code)
	}
	s.write("journal", entry(31, noon.Add(-time.Minute)))
	p := s.sample()
	if diff := cmp.Diff([]int{31}, codes(p)); diff != "" || !p.Events[0].Time.Equal(noon.Add(-time.Minute)) {
		t.Errorf("errors in the journal at %v (-want +got):\n%s", p.Events, diff)
	}
	s.write("kmsg", "4,1,1,-;NVRM: Xid (PCI:0000:3b:00): 31\n")
	if p := s.after(time.Hour); len(p.Events) != 0 {
		t.Errorf("the same error is told from both logs: %+v", p.Events)
	}
	s.write("journal", entry(13, s.now))
	at := *p.Log
	s.Config("", s.path("journal"))
	s.Restore(at)
	if diff := cmp.Diff([]int{13}, codes(s.after(time.Second))); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}
}

// Config restarts the stand without the kernel log.
func (s *stand) Config(kmsg, journal string) {
	s.t.Helper()
	s.restart(collector.LogPosition{})
	s.kernel.path, s.journal.path = kmsg, journal
}

func TestFabricManagerLog(t *testing.T) {
	s := newStand(t)
	s.write("kmsg", "6,1,1,-;first\n")
	s.write("fabricmanager.log", "[Apr 17 2026 01:51:39] [ERROR] [tid 2999] of before the agent\n")
	if p := s.sample(); len(p.Events) != 0 {
		t.Errorf("what stood there before the agent came is told: %+v", p.Events)
	}
	const line = "[Feb 15 2026 12:34:56] [ERROR] [tid 1234] detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:47:00.0 physical id 1 port 21\n"
	s.write("fabricmanager.log", line[:40])
	if p := s.after(time.Second); len(p.Events) != 0 {
		t.Errorf("half a line is told: %+v", p.Events)
	}
	s.write("fabricmanager.log", line[40:])
	p := s.after(time.Second)
	want := []collector.Event{{Time: s.now.Add(-time.Second), Kind: collector.SXidEvent, Code: 20034, PCI: "0000:47:00.0", Fatal: true, Text: "link 21", Source: FromFabric}}
	if diff := cmp.Diff(want, p.Events); diff != "" || p.Node.Value(metric.FabricManagerErrors) != 1 {
		t.Errorf("%v errors (-want +got):\n%s", p.Node.Value(metric.FabricManagerErrors), diff)
	}
	at := *p.Log
	s.write("fabricmanager.log", line)
	s.restart(at)
	if n := len(s.sample().Events); n != 1 {
		t.Errorf("of what was written while no agent ran %d errors are told, want 1", n)
	}
	if err := os.Rename(s.path("fabricmanager.log"), s.path("fabricmanager.log.1")); err != nil {
		t.Fatal(err)
	}
	s.write("fabricmanager.log.1", line)
	if n := len(s.after(time.Second).Events); n != 1 {
		t.Errorf("the last line of the old file is told %d times", n)
	}
	s.write("fabricmanager.log", line+line)
	if n := len(s.after(time.Second).Events); n != 2 {
		t.Errorf("of the new file's two errors %d are told", n)
	}
	if err := os.Truncate(s.path("fabricmanager.log"), 0); err != nil {
		t.Fatal(err)
	}
	s.after(time.Second)
	s.write("fabricmanager.log", line)
	if n := len(s.after(time.Second).Events); n != 1 {
		t.Errorf("after a truncation of the file's one error %d are told", n)
	}
	s.write("fabricmanager.log", strings.Repeat("x", 3*maxLine)+"\n"+line)
	if n := len(s.after(time.Second).Events); n != 1 {
		t.Errorf("after an endless line %d errors are told, want 1", n)
	}
}

func TestFIFO(t *testing.T) {
	s := newStand(t)
	if err := unix.Mkfifo(s.path("journal"), 0o600); err != nil {
		t.Fatal(err)
	}
	if p := s.sample(); len(p.Events) != 0 {
		t.Errorf("a FIFO without a writer tells %+v", p.Events)
	}
	s.write("journal", `{"_TRANSPORT":"kernel","__REALTIME_TIMESTAMP":"5","MESSAGE":"NVRM: Xid (PCI:0000:3b:00): 31"}`+"\n")
	if diff := cmp.Diff([]int{31}, codes(s.after(time.Second))); diff != "" {
		t.Errorf("what is written into the FIFO (-want +got):\n%s", diff)
	}
}

// The machine's own log, where it can be read: the device gives one record at a
// time and never waits.
func TestThisMachine(t *testing.T) {
	s := New(Config{Kmsg: "/dev/kmsg", ProcFS: "/proc", Log: slog.New(slog.DiscardHandler)})
	p, err := s.Sample(t.Context())
	if errors.Is(err, collector.ErrAbsent) {
		t.Skip("the kernel log cannot be read here: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if p.Node.Value(metric.KernelLogRecords) == 0 || p.Log.Kernel == 0 {
		t.Errorf("of this machine's kernel log nothing was read: %+v", p.Log)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
