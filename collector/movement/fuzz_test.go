package movement

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// each calls f with the lines of a file that anybody may have written.
func each(content string, f func(string) error) error {
	return lines(strings.NewReader(content), smallFile, f)
}

func FuzzGroups(f *testing.F) {
	f.Add("0::/kubepods.slice/x\n", "pod")
	f.Add("4:cpu,cpuacct:/../../docker/"+id64+" (deleted)\n", "container")
	f.Fuzz(func(t *testing.T, content, kind string) {
		for _, unified := range []bool{true, false} {
			paths, err := parseGroups(unified, func(line func(string) error) error { return each(content, line) })
			if err != nil {
				continue
			}
			for _, p := range paths {
				own := ownGroup(kind, p)
				if own != "" && !strings.HasPrefix(p, own) {
					t.Errorf("%q is not above %q", own, p)
				}
				if in := inside(own); strings.HasPrefix(in, "/") || in == ".." || strings.HasPrefix(in, "../") {
					t.Errorf("%q leads out: %q", own, in)
				}
			}
		}
	})
}

func FuzzGroupFiles(f *testing.F) {
	f.Add("259:0 rbytes=1048576 wbytes=4096 rios=12\n253:1 \n8:0 Read 5\nmax 100000\n")
	f.Fuzz(func(t *testing.T, content string) {
		add := func(device string, at int, _ uint64) {
			if device == "" || at < 0 || at > 1 {
				t.Errorf("%q tells of device %q in column %d", content, device, at)
			}
		}
		for _, parse := range []func(string) error{
			func(l string) error { return parseIOStat(l, add) },
			func(l string) error { return parseServiceBytes(l, add) },
			keyed(func(name string, _ uint64) {
				if strings.Contains(name, " ") {
					t.Errorf("%q has a name with a blank: %q", content, name)
				}
			}),
			func(l string) error {
				if v, limited, err := parseLimit(l); !limited && v != 0 || err != nil && limited {
					t.Errorf("%q is a limit of %d: %v %v", l, v, limited, err)
				}
				return nil
			},
		} {
			_ = each(content, parse) // an error is an answer
		}
	})
}

func FuzzNetwork(f *testing.F) {
	f.Add(hostDev)
	f.Add("eth0:1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n")
	f.Fuzz(func(t *testing.T, content string) {
		n := &namespace{received: map[string]uint64{}, sent: map[string]uint64{}}
		if err := each(content, n.device); err == nil && len(n.received) != len(n.sent) {
			t.Errorf("%q has %d interfaces that receive and %d that send", content, len(n.received), len(n.sent))
		}
		for name := range n.received {
			if n.counted(name) && name == "lo" {
				t.Error("loopback counts")
			}
		}
	})
}

func FuzzRemotes(f *testing.F) {
	f.Add(socket("10.0.0.7:1", "8.8.8.8:443", "01"))
	f.Add(socket("[2001:db8::1]:1", "[::ffff:8.8.8.8]:443", "01"))
	f.Fuzz(func(t *testing.T, content string) {
		r := remotes{local: map[netip.Addr]bool{}, remote: map[netip.Addr]bool{}}
		_ = each(content, r.line) // an error is an answer
		for _, a := range r.others() {
			if !a.IsValid() || a.IsLoopback() || a.Is4In6() {
				t.Errorf("%q has the remote address %v", content, a)
			}
		}
	})
}

func FuzzMounts(f *testing.F) {
	f.Add(nfsMount, nfsStats(1, 2))
	f.Fuzz(func(t *testing.T, info, stats string) {
		m := &mountTable{nfs: map[string]string{}, read: map[string]uint64{}, written: map[string]uint64{}}
		if each(info, m.mount) != nil {
			return
		}
		var point string
		if each(stats, func(l string) error { return m.stat(&point, l) }) != nil {
			return
		}
		for p := range m.read {
			if m.nfs[p] == "" {
				t.Errorf("bytes of %q, which is no NFS mount", p)
			}
		}
	})
}

func TestLongFilesAreNotRead(t *testing.T) {
	n := 0
	count := func(string) error { n++; return nil }
	if err := lines(strings.NewReader(strings.Repeat("x\n", 100)), 200, count); err != nil || n != 100 {
		t.Errorf("a file of just the limit: %d lines, %v", n, err)
	}
	for _, s := range []string{strings.Repeat("x\n", 101), strings.Repeat("x", maxLine+1)} {
		if err := lines(strings.NewReader(s), 200, count); err == nil {
			t.Errorf("a file of %d bytes was read to its end", len(s))
		}
	}
}

func TestInside(t *testing.T) {
	got := []string{inside("/../../a/b"), inside("/a"), inside("/..a"), inside("/.."), inside("/")}
	if want := []string{"a/b", "a", "..a", "", ""}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
