package inventory

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"gpuvigil/collector/proc"
)

// The bounds of one process's mappings. A process may have 65530 of them by
// default and many more where that was raised.
const (
	maxMapsBytes = 32 << 20
	maxMapsLine  = 4*4096 + 128 // the longest path, of line breaks only, and what stands before it
	maxFiles     = 4096         // different ones that are of interest
)

// mapped is a file that a process has mapped.
type mapped struct {
	path    string // as the process sees it
	deleted bool   // what lies at the path now, if anything, is another file
}

// readMaps lists the files in the text of /proc/PID/maps that the filter wants,
// each once, in their order. cut says that something was left out: the rest of a text
// that is too long, or a line that is.
func readMaps(r io.Reader, want func(path string) bool) (files []mapped, cut bool, err error) {
	limited := &io.LimitedReader{R: r, N: maxMapsBytes}
	lines := bufio.NewReaderSize(limited, maxMapsLine)
	seen := map[mapped]bool{}
	last, long := "", false
	for {
		line, err := lines.ReadSlice('\n')
		tooLong := errors.Is(err, bufio.ErrBufferFull)
		if path := pathOf(line); !long && !tooLong && path != "" && path != last {
			last = path // a library has several mappings in a row
			f := mapped{path: path}
			f.path, f.deleted = strings.CutSuffix(f.path, " (deleted)")
			if want(f.path) && !seen[f] {
				if len(files) == maxFiles {
					return files, true, nil
				}
				seen[f] = true
				files = append(files, f)
			}
		}
		long, cut = tooLong, cut || tooLong
		switch {
		case err == nil || tooLong:
		case errors.Is(err, io.EOF):
			return files, cut || limited.N <= 0, nil
		default:
			return files, cut, fmt.Errorf("read its maps: %w", proc.Gone(err))
		}
	}
}

// pathOf returns the path in a line such as
//
//	7f3a2c000000-7f3a2c021000 r-xp 00000000 08:01 1234567   /usr/lib/libc.so.6
//
// or nothing if it is not the mapping of a file. The kernel writes a line break in it as
// \012 and a backslash as it is, so that a directory that is really called \012 looks
// like one: its library is told all the same, perhaps without what lies beside it.
func pathOf(line []byte) string {
	line = bytes.TrimSuffix(line, []byte{'\n'})
	for range 5 {
		i := bytes.IndexByte(line, ' ')
		if i <= 0 {
			return ""
		}
		line = line[i+1:]
	}
	line = bytes.TrimLeft(line, " ")
	if len(line) == 0 || line[0] != '/' {
		return ""
	}
	return strings.ReplaceAll(string(line), `\012`, "\n")
}
