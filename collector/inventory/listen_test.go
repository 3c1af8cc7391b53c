package inventory

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const heading = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

func socket(address, state string, inode int) string {
	return fmt.Sprintf("   0: %s 00000000:0000 %s 00000000:00000000 00:00000000 00000000  1000        0 %d 1 0000 100 0 0 10 0\n", address, state, inode)
}

func TestReadListeners(t *testing.T) {
	f := func(text string, want ...listener) {
		t.Helper()
		got, err := readListeners(strings.NewReader(text))
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(listener{})); diff != "" || err != nil {
			t.Errorf("%q (-want +got, %v):\n%s", text, err, diff)
		}
	}
	f(heading)
	f(heading+socket("0100007F:1F40", "0A", 7)+socket("00000000:1F90", "0A", 8), listener{8000, scopeLoopback, 7}, listener{8080, scopeAny, 8})
	f(heading+socket("0A00000A:0050", "0A", 1)+socket("08080808:01BB", "01", 2)+socket("00000000:0016", "0A", 3), listener{80, scopePrivate, 1})
	f(heading+socket("08080808:01BB", "0A", 2), listener{443, scopePublic, 2})
	f(heading+socket("00000000000000000000000000000000:1F40", "0A", 1), listener{8000, scopeAny, 1})
	f(heading+socket("00000000000000000000000001000000:1F40", "0A", 1), listener{8000, scopeLoopback, 1})
	f(heading+socket("0000000000000000FFFF00000100007F:1F40", "0A", 1), listener{8000, scopeLoopback, 1})
	f(heading+socket("000000FD000000000000000001000000:1F40", "0A", 1), listener{8000, scopePrivate, 1})
	for _, bad := range []string{socket("0100007F", "0A", 1), socket("zz:1F40", "0A", 1), socket("0100:1F40", "0A", 1), strings.Replace(socket("0100007F:1F40", "0A", 1), " 1 1 ", " x 1 ", 1)} {
		if got, err := readListeners(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was read as %+v", bad, got)
		}
	}
}

// TestAServerAndItsPortsAreFound listens in this process. Ports that the kernel
// chose are not told: they cannot be what anybody was told to connect to.
func TestAServerAndItsPortsAreFound(t *testing.T) {
	low, high := chosenPorts("/proc")
	var fixed net.Listener
	for port := low - 1; port > low-500 && fixed == nil; port-- {
		fixed, _ = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	}
	if fixed == nil {
		t.Skipf("no free port below %d", low)
	}
	defer fixed.Close()
	chosen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer chosen.Close()
	p, err := openProcess("/proc", os.Getpid(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	found, err := p.serves(newTables("/proc"))
	if err != nil {
		t.Fatal(err)
	}
	ports := map[int]string{}
	for _, l := range found {
		ports[l.port] = l.scope
	}
	if got := ports[fixed.Addr().(*net.TCPAddr).Port]; got != scopeLoopback {
		t.Errorf("the port that this process listens at on loopback is told as %q, of %v", got, ports)
	}
	if port := chosen.Addr().(*net.TCPAddr).Port; port >= low && port <= high && ports[port] != "" {
		t.Errorf("port %d, which the kernel chose, is told as one of an API", port)
	}
}

// TestWorkersOfAServer is a process that holds no socket: its parent of the same
// program does.
func TestWorkersOfAServer(t *testing.T) {
	procfs := t.TempDir()
	table := socket("00000000:1F40", "0A", 777)
	server := fakeProcess{pid: 50, start: 1, tcp: table, network: "net:[1]", root: "/"}
	server.put(t, procfs)
	worker := fakeProcess{pid: 51, start: 2, tcp: table, network: "net:[1]", root: "/"}
	worker.put(t, procfs)
	put(t, procfs, map[string]string{"51/status": "PPid:\t50\n"})
	if err := os.Remove(procfs + "/51/fd/3"); err != nil {
		t.Fatal(err)
	}
	served := func() []listener {
		t.Helper()
		p, err := openProcess(procfs, 51, 2)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		found, err := p.serves(newTables(procfs))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if got := served(); len(got) != 1 || got[0].port != 8000 {
		t.Errorf("the worker of a server at port 8000 serves %+v", got)
	}
	if err := os.Remove(procfs + "/50/exe"); err != nil {
		t.Fatal(err)
	}
	link(t, "/usr/sbin/sshd", procfs+"/50/exe")
	if got := served(); len(got) != 0 {
		t.Errorf("what another program listens at is told as the worker's: %+v", got)
	}
}

func FuzzReadListeners(f *testing.F) {
	f.Add(heading + socket("0100007F:1F40", "0A", 7))
	f.Fuzz(func(t *testing.T, text string) {
		found, err := readListeners(strings.NewReader(text))
		for _, l := range found {
			if l.port < 0 || l.port > 65535 || wider(l.scope, "") == "" {
				t.Fatalf("%q gives %+v, %v", text, l, err)
			}
		}
	})
}
