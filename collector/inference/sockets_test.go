package inference

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/page"
	"gpuvigil/internal/metric"
)

// procFS is a procfs with a server whose API is in the parent of the process on
// the GPU, below a shell at a terminal with a server of its own.
type procFS struct{ dir string }

func (p procFS) process(t *testing.T, pid, parent int, session int, tty int, cgroup, namespace string, files map[string]string, sockets ...int) {
	t.Helper()
	at := filepath.Join(p.dir, strconv.Itoa(pid))
	for _, d := range []string{"fd", "net", "ns"} {
		if err := os.MkdirAll(filepath.Join(at, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	content := map[string]string{
		"stat":     fmt.Sprintf("%d (a b) c) S %d %d %d %d 0 0\n", pid, parent, session, session, tty),
		"cgroup":   "0::" + cgroup + "\n",
		"net/tcp":  "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n",
		"net/tcp6": "  sl\n",
	}
	for name, text := range files {
		content[name] = text
	}
	for name, text := range content {
		if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := func(name, to string) {
		if err := os.Symlink(to, filepath.Join(at, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("ns/net", namespace)
	link("fd/0", "/dev/null")
	for i, inode := range sockets {
		link("fd/"+strconv.Itoa(3+i), fmt.Sprintf("socket:[%d]", inode))
	}
}

func row(address string, state string, inode int) string {
	return fmt.Sprintf("   0: %s 00000000:0000 %s 00000000:00000000 00:00000000 00000000  1000        0 %d 1 0 100 0 0 10 0\n", address, state, inode)
}

func TestListeningFindsTheServersProcess(t *testing.T) {
	ours, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Skip("this kernel has no network namespaces to look at: ", err)
	}
	p := procFS{t.TempDir()}
	// 0.0.0.0:8000, 127.0.0.1:9000, an established connection, a socket of nobody here, [::]:30000
	tcp := row("00000000:1F40", "0A", 11) + row("0100007F:2328", "0A", 12) + row("0100007F:2329", "01", 13) + row("0100007F:1111", "0A", 99)
	tcp6 := row("00000000000000000000000000000000:7530", "0A", 14)
	tables := map[string]string{"net/tcp": tcp, "net/tcp6": tcp6}
	p.process(t, 10, 1, 10, 34816, "/user", ours, map[string]string{"net/tcp": row("0100007F:0016", "0A", 20)}, 20) // a shell
	p.process(t, 100, 10, 10, 34816, "/user", ours, tables, 11, 13)                                                 // the API server
	p.process(t, 101, 100, 10, 34816, "/user", ours, tables)                                                        // the engine
	p.process(t, 102, 101, 10, 34816, "/user", ours, tables, 12)                                                    // the worker on the GPU
	p.process(t, 103, 100, 10, 34816, "/user", ours, tables, 14)                                                    // a child of the API server
	p.process(t, 104, 100, 10, 34816, "/other", ours, map[string]string{"net/tcp": row("0100007F:0017", "0A", 21)}, 21)
	p.process(t, 105, 10, 10, 34816, "/user", ours, map[string]string{"net/tcp": row("0100007F:0018", "0A", 22)}, 22)
	found, err := (&Sockets{p.dir}).Listening([]int{102})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(found[102]); got != "[127.0.0.1:8000 127.0.0.1:9000 127.0.0.1:30000]" {
		t.Errorf("the server listens at %s: its own sockets count, and neither the shell's nor another cgroup's", got)
	}
}

// In a container's network, a server that listens at any address is asked at the
// container's own; one at the loopback cannot be asked at all.
func TestListeningInAnotherNamespace(t *testing.T) {
	p := procFS{t.TempDir()}
	trie := "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.1.2.0\n        /24 link UNICAST\nLocal:\n     |-- 10.1.2.3\n        /32 host LOCAL\n     |-- 127.0.0.1\n        /32 host LOCAL\n"
	p.process(t, 7, 1, 7, 0, "/pod", "net:[1]", map[string]string{
		"net/tcp": row("00000000:1F40", "0A", 11) + row("0100007F:2328", "0A", 12) + row("0302010A:2329", "0A", 13) + row("0402010A:2330", "0A", 14), "net/fib_trie": trie,
	}, 11, 12, 13, 14)
	found, err := (&Sockets{p.dir}).Listening([]int{7})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(found[7]); got != "[10.1.2.3:8000 10.1.2.3:9001]" {
		t.Errorf("the container's server is asked at %s", got)
	}
}

func TestListeningSaysWhatItMayNotSee(t *testing.T) {
	p := procFS{t.TempDir()}
	p.process(t, 7, 1, 7, 0, "/pod", "net:[1]", nil)
	if err := os.RemoveAll(filepath.Join(p.dir, "7", "fd")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "7", "fd"), nil, 0o600); err != nil { // no directory
		t.Fatal(err)
	}
	if _, err := (&Sockets{p.dir}).Listening([]int{7}); err == nil || !strings.Contains(err.Error(), "process 7") {
		t.Errorf("sockets that cannot be read: %v", err)
	}
	if _, err := (&Sockets{filepath.Join(p.dir, "none")}).Listening([]int{7}); err == nil {
		t.Error("a procfs that is not there gives no error")
	}
	if found, err := (&Sockets{p.dir}).Listening([]int{99}); err != nil || len(found[99]) != 0 {
		t.Errorf("a process that has ended: %v, %v", found, err)
	}
}

func TestReachable(t *testing.T) {
	host := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("fe80::1")}
	pod := []netip.Addr{netip.MustParseAddr("10.1.2.3")}
	for _, c := range []struct {
		bound, want string
		own         []netip.Addr
	}{
		{"0.0.0.0:80", "127.0.0.1:80", host}, {"[::]:80", "127.0.0.1:80", host}, {"192.0.2.7:80", "192.0.2.7:80", host}, {"127.0.0.2:80", "127.0.0.2:80", host},
		{"192.0.2.8:80", "", host}, {"[fe80::1]:80", "", host},
		{"0.0.0.0:80", "10.1.2.3:80", pod}, {"127.0.0.1:80", "", pod}, {"0.0.0.0:80", "", nil},
	} {
		got, ok := reachable(netip.MustParseAddrPort(c.bound), c.own)
		if ok != (c.want != "") || ok && got.String() != c.want {
			t.Errorf("a socket at %s of %v is asked at %v (%v), want %q", c.bound, c.own, got, ok, c.want)
		}
	}
}

// The test's own process holds a GPU and serves a page: it is found through the
// real procfs, with the GPU, and lost when it stops.
func TestDiscoveryOfARealServer(t *testing.T) {
	page := recorded(t, "vllm-v1.prom")
	srv := httptest.NewServer(serve(page))
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	at, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	snap := &collector.Snapshot{Processes: []collector.Process{{PID: os.Getpid(), UUID: "GPU-7"}, {PID: os.Getpid(), UUID: "GPU-8"}}}
	s, err := New(Config{Timeout: patient, GPUs: func() *collector.Snapshot { return snap }, Sockets: &Sockets{"/proc"}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	part := sampleOf(t, s)
	mine := slices.IndexFunc(part.Targets, func(t collector.Target) bool { return strings.Contains(t.URL, ":"+at.Port()+"/") })
	if mine < 0 || !part.Targets[mine].Discovered || part.Targets[mine].Value(metric.TargetUp) != 1 {
		t.Fatalf("the server at %s is not among the targets %v", at.Host, part.Targets)
	}
	e := part.Endpoints[slices.IndexFunc(part.Endpoints, func(e collector.Endpoint) bool { return e.URL == part.Targets[mine].URL })]
	if e.Model != "acme/chat-8b" || fmt.Sprint(e.GPUs) != "[GPU-7 GPU-8]" {
		t.Errorf("found model %q on %v", e.Model, e.GPUs)
	}
	for _, target := range part.Targets {
		if _, port, _ := net.SplitHostPort(strings.TrimPrefix(other.URL, "http://")); strings.Contains(target.URL, ":"+port+"/") {
			t.Error("a port that serves no metrics is a target")
		}
	}
	srv.Close()
	s.found.looked = time.Time{}
	for _, target := range sampleOf(t, s).Targets {
		if target.URL == part.Targets[mine].URL {
			t.Error("a server that has ended is still a target")
		}
	}
}

// What has never been an inference server's page is left alone for a while; what
// has been one can fail.
func TestDiscoveryJudges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiscovery(nil)
		hidden := &target{found: &found{hidden: true}}
		if err := d.judge(hidden, page.Failing("html", "a page")); err != nil || time.Until(hidden.found.next) != againAfter {
			t.Errorf("a page of something else: %v, asked again in %v", err, time.Until(hidden.found.next))
		}
		if err := d.judge(hidden, page.Failing("unreachable", "refused")); err != nil || time.Until(hidden.found.next) != lookEvery {
			t.Errorf("a server that starts: %v, asked again in %v", err, time.Until(hidden.found.next))
		}
		if err := d.judge(hidden, nil); err != nil || hidden.found.hidden {
			t.Errorf("a good page: %v, hidden=%v", err, hidden.found.hidden)
		}
		if err := d.judge(hidden, page.Failing("status", "it answers 503")); err == nil {
			t.Error("a server that was found and fails gives no error")
		}
	})
}

func TestConfiguredTargetsAreNotFoundAgain(t *testing.T) {
	s := ofTargets(t, patient, Target{URL: "http://localhost:8000/metrics", Engine: "auto"}, Target{URL: "https://chat.example/metrics", Engine: "auto"},
		Target{URL: "http://127.0.0.1:9000/v1/metrics", Engine: "nim"})
	for u, want := range map[string]bool{
		"http://127.0.0.1:8000/metrics": true, "http://127.0.0.1:9000/metrics": true, "http://127.0.0.1:8001/metrics": false, "http://127.0.0.1:443/metrics": false,
	} {
		if got := s.configured(u); got != want {
			t.Errorf("%s is in the configuration: %v", u, got)
		}
	}
}
