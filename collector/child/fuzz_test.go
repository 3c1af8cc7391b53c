package child

import (
	"bufio"
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

// A child and the libraries in it may write anything.
func FuzzSaid(f *testing.F) {
	f.Add([]byte("time=2026 level=WARN msg=\"x\"\nlevel=\n\x1b[2J\xff\x00"))
	f.Add([]byte(strings.Repeat("x", 100_000) + "\n\"level\":\"ERROR\"\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		r := bufio.NewReaderSize(bytes.NewReader(said), 64)
		for lines := 0; ; lines++ {
			raw, cut, err := readLine(r)
			line := clean(raw, cut)
			if !utf8.ValidString(line) || strings.ContainsAny(line, "\x00\x1b\n\r") || cut && !strings.HasSuffix(line, " …") {
				t.Errorf("%q is passed on as %q", raw, line)
			}
			level(line)
			if err != nil {
				if want := bytes.Count(said, []byte("\n")); lines != want {
					t.Errorf("%d lines are read of %d", lines, want)
				}
				return
			}
		}
	})
}
