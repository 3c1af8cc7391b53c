package inventory

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func anything(string) bool { return true }

const line = "7f3a2c000000-7f3a2c021000 r-xp 00000000 08:01 1234567                    "

func TestReadMaps(t *testing.T) {
	f := func(text string, want ...mapped) {
		t.Helper()
		got, cut, err := readMaps(strings.NewReader(text), anything)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(mapped{})); diff != "" || cut || err != nil {
			t.Errorf("maps %.80q (-want +got; cut %v, %v):\n%s", text, cut, err, diff)
		}
	}
	f("")
	f(line+"/usr/lib/libc.so.6\n"+line+"/usr/lib/libc.so.6\n"+line+"/usr/lib/libm.so.6", mapped{path: "/usr/lib/libc.so.6"}, mapped{path: "/usr/lib/libm.so.6"})
	f(line+"/tmp/a b  c.so\n", mapped{path: "/tmp/a b  c.so"})
	f(line+"/usr/lib/x.so (deleted)\n"+line+"/usr/lib/x.so\n", mapped{"/usr/lib/x.so", true}, mapped{path: "/usr/lib/x.so"})
	f("7ffd1c9c4000-7ffd1c9e5000 rw-p 00000000 00:00 0                          [stack]\n7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \n")
	f(line+"/opt/a\\012line/libcudart.so.12\n", mapped{path: "/opt/a\nline/libcudart.so.12"})
	f("garbage\n\n \n - - - - - /x\n")
	longest := strings.Repeat("/\n", 2048) // that the kernel knows
	f(line+strings.ReplaceAll(longest, "\n", `\012`)+"\n"+line+"/after.so\n", mapped{path: longest}, mapped{path: "/after.so"})
}

func TestMapsThatAreTooMuch(t *testing.T) {
	files, cut, err := readMaps(strings.NewReader(line+"/"+strings.Repeat("x", maxMapsLine)+"\n"+line+"/after.so\n"), anything)
	if len(files) != 1 || files[0].path != "/after.so" || !cut || err != nil {
		t.Errorf("a line that is too long: %v, cut %v, %v; want the next one, and that it is said", files, cut, err)
	}
	many := func(yield func(int) string) io.Reader {
		i := 0
		return readerFunc(func(p []byte) (int, error) { i++; return copy(p, yield(i)), nil })
	}
	files, cut, err = readMaps(many(func(i int) string { return fmt.Sprintf("%s/lib/%d.so\n", line, i) }), anything)
	if len(files) != maxFiles || !cut || err != nil {
		t.Errorf("maps without end: %d files, cut %v, %v", len(files), cut, err)
	}
	files, cut, err = readMaps(many(func(int) string { return strings.Repeat("x", 4096) }), anything)
	if len(files) != 0 || !cut || err != nil {
		t.Errorf("a line without end: %d files, cut %v, %v", len(files), cut, err)
	}
	files, cut, err = readMaps(many(func(i int) string { return line + "/lib/libcudart.so.12\n" }), anything)
	if len(files) != 1 || !cut || err != nil {
		t.Errorf("one library mapped without end: %d files, cut %v, %v", len(files), cut, err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func FuzzReadMaps(f *testing.F) {
	f.Add([]byte(line + "/usr/lib/libc.so.6\n" + line + "/x (deleted)\n"))
	f.Add([]byte(" - - - - - /\n\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		files, _, err := readMaps(strings.NewReader(string(text)), anything)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range files {
			if !strings.HasPrefix(m.path, "/") {
				t.Fatalf("a path is %q", m.path)
			}
			for _, found := range identify(m) {
				if found.component == "" || len(found.soname) > 64 {
					t.Fatalf("%q is found to be %+v", m.path, found)
				}
			}
		}
	})
}
