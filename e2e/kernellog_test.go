package e2e

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gpuvigil/alerting/slack/slacktest"
	"gpuvigil/internal/fakenvml"
)

// kernelCases are the recorded lines that the package of the kernel log is tested with.
const kernelCases = "../collector/kernellog/testdata/"

// quiet is the address of a GPU that the recorded lines do not speak of.
const quiet = "0000:18:00"

// logged is a driver whose errors stand in a kernel log and in the fabric manager's, too.
type logged struct {
	*driver
	kernel, fabric string
	gpus           []string // addresses, by index
	next           int      // number of the kernel's next record
}

// newLogged has a GPU at each address of the recorded lines, and one more.
func newLogged(t *testing.T, gpus []string) *logged {
	t.Helper()
	dir := t.TempDir()
	l := &logged{driver: newDriver(t, len(gpus)), kernel: filepath.Join(dir, "kmsg"), fabric: filepath.Join(dir, "fabricmanager.log"), gpus: gpus, next: 999}
	for i, address := range gpus {
		l.Set(fakenvml.GPU(i), "nvmlDeviceGetPciInfo_v3", "0000"+strings.ToUpper(address)+".0", "0x233010DE", "0x16C110DE")
		l.Set(fakenvml.GPU(i), "nvmlDeviceGetUUID", uuidAt(t, address))
	}
	l.show()
	l.record("6", "boot")
	l.append(l.fabric, "[Apr 17 2026 01:51:39] [INFO] [tid 1] began\n")
	return l
}

// uuidAt names a GPU by where it is, as the recorded lines do.
func uuidAt(t *testing.T, address string) string {
	t.Helper()
	var domain, bus uint64
	if _, err := fmt.Sscanf(address, "%x:%x:", &domain, &bus); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("GPU-00000000-0000-4000-8000-%012x", domain<<16|bus)
}

func (l *logged) append(path, text string) {
	l.t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// record writes a record of the kernel as of now.
func (l *logged) record(level, text string) {
	l.t.Helper()
	l.append(l.kernel, fmt.Sprintf("%s,%d,%s,-;%s\n", level, l.next, l.uptime(), text))
	l.next++
}

// uptime is the stamp of a record that the kernel would write now.
func (l *logged) uptime() string {
	l.t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		l.t.Fatal(err)
	}
	return strconv.FormatInt(ts.Nano()/1000, 10)
}

// xid writes an error into the kernel log.
func (l *logged) xid(address, text string) {
	l.t.Helper()
	l.record("3", fmt.Sprintf("NVRM: Xid (PCI:%s): %s", address, text))
}

// tells lets the driver tell of an error through NVML.
func (l *logged) tells(address string, code uint64) {
	l.Event(fakenvml.GPU(slices.Index(l.gpus, address)), xidEvents, code)
}

func (l *logged) index(address string) string { return strconv.Itoa(slices.Index(l.gpus, address)) }

func (l *logged) config(more string) string {
	return quick + fmt.Sprintf("host: {kmsg: %s, fabric_manager_log: %s}\n", l.kernel, l.fabric) + more
}

// expectedXids are the errors in the recorded lines, by address and code. The three lines of one lost GPU are one.
func expectedXids(t *testing.T) (gpus []string, want map[string]map[int]float64) {
	t.Helper()
	f, err := os.Open(kernelCases + "expected-xid.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want = map[string]map[int]float64{"0000:9b:00": {62: 1}} // a record of the kernel's only
	for _, row := range rows[1:] {
		code, err := strconv.Atoi(row[1])
		if err != nil {
			t.Fatal(err)
		}
		if want[row[2]] == nil {
			want[row[2]] = map[int]float64{}
		}
		if want[row[2]][code]++; code == 79 {
			want[row[2]][code] = 1
		}
	}
	for address := range want {
		gpus = append(gpus, address)
	}
	slices.Sort(gpus)
	return append(gpus, quiet), want
}

// TestKernelLog has the same errors fall in the kernel log, through NVML and in the fabric manager's log: each is
// counted once and told once, before and after the agent was killed.
func TestKernelLog(t *testing.T) {
	t.Parallel()
	gpus, want := expectedXids(t)
	l := newLogged(t, gpus)
	slack := slacktest.New()
	t.Cleanup(slack.Close)
	o := options{config: l.config(slackConfig(slack, write(t, "token", slacktest.Token))), state: filepath.Join(shortDir(t), "state")}
	a := l.start(o)
	a.ready(t)
	a.awaits(t, "the kernel log is read", func(m metrics) error { return m.expect(1, "vigil_kernel_log_records_total") })
	counted := func(m metrics) error {
		total := 0.0
		var errs []error
		for address, codes := range want {
			for code, n := range codes {
				total += n
				errs = append(errs, m.expect(n, "vigil_gpu_xid_errors_total", "gpu", l.index(address), "xid", strconv.Itoa(code)))
			}
		}
		if sum := m.sum("vigil_gpu_xid_errors_total"); sum != total {
			errs = append(errs, fmt.Errorf("%v errors are counted in all, want %v", sum, total))
		}
		return errors.Join(errs...)
	}

	l.recorded()
	for address, code := range map[string]uint64{"0000:3b:00": 79, "0000:ca:00": 31, "0000:04:00": 48, "0019:01:00": 149, "0000:cb:00": 13, "0000:9b:00": 62} {
		l.tells(address, code)
	}
	l.show()
	a.awaits(t, "each recorded error is counted once, though NVML tells of some, too", counted)

	l.xid(quiet, "95, pid=4711, name=<!channel>, Uncontained: memory error")
	l.xid(quiet, "45, pid=4711, name=<!channel>, Ch 00000001 caused by previous Xid 95")
	l.xid(quiet, "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)")
	l.tells(quiet, 95)
	l.tells(quiet, 45)
	l.show()
	want[quiet] = map[int]float64{95: 1, 45: 1, 154: 1}
	a.awaits(t, "an error and what follows from it are counted once", counted)
	l.joined(a, slack, "xid_95", "Xid 95", "followed by Xid 45, Xid 154 (GPU Reset Required)", "through NVML", "kernel log", "Drain the GPU and reset it")

	l.hostile(a, want[quiet], counted)
	l.switches(a, slack)

	a.kill()
	l.xid(quiet, "62, 0000(0000)")
	want[quiet][62]++
	o.address = a.address
	b := l.start(o)
	b.ready(t)
	b.awaits(t, "after a crash only the new error is new", counted)
	if code := b.end(); code != 0 {
		t.Fatalf("the agent exits %d when it is asked to stop", code)
	}
	c := l.start(o)
	c.ready(t)
	l.xid(quiet, "62, 0000(0000)")
	want[quiet][62]++
	m := c.awaits(t, "after a stop and a start only the new error is new", func(m metrics) error {
		return errors.Join(counted(m), m.expect(2, "vigil_nvswitch_sxid_errors_total", "switch", "0000:47:00.0", "sxid", "20034", "severity", "fatal"))
	})
	if n := m.value("vigil_kernel_log_records_total"); n != 1 {
		t.Errorf("%v records count as read since the start, want the one that came then", n)
	}
	l.joined(c, slack, "xid_95", "Xid 95", "followed by Xid 45, Xid 154 (GPU Reset Required)")
	harmless(t, slack, a, b, c)
}
