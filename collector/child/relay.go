package child

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"gpuvigil/internal/text"
)

// Bounds on what a child may say.
const (
	maxLine    = 4 << 10 // bytes; what is longer is cut
	maxReason  = 500     // characters of the line that explains its end
	maxBurst   = 100     // lines in a window
	lineWindow = 10 * time.Second
)

// LastWords begins the line by which a child says why it ends. It is told with its
// end, and told once if the next one ends for the same reason.
const LastWords = "last words: "

// relay puts what a child says on its standard error into the agent's log.
type relay struct {
	log *slog.Logger

	mu   sync.Mutex
	last string
}

// symbolError is how the dynamic linker begins to say why it ends a process.
const symbolError = "symbol lookup error"

// lastLine returns the last line that was not empty.
func (r *relay) lastLine() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// copy reads lines until the end. It reads on when it no longer logs them: a child
// must not block on what it has to say.
func (r *relay) copy(from io.Reader, pid int) {
	lines := bufio.NewReaderSize(from, maxLine)
	var window time.Time
	said, left := 0, 0
	for {
		raw, cut, err := readLine(lines)
		if line := clean(raw, cut); line != "" {
			if now := time.Now(); now.Sub(window) > lineWindow {
				if left > 0 {
					r.log.Warn("the child said more than is logged", "pid", pid, "lines", left)
				}
				window, said, left = now, 0, 0
			}
			line, last := strings.CutPrefix(line, LastWords)
			if said++; said > maxBurst {
				left++
			} else if !last {
				r.log.Log(context.Background(), level(line), "the child says", "pid", pid, "line", line)
			}
			r.mu.Lock()
			if !strings.Contains(r.last, symbolError) { // which explains an end better than what follows it
				r.last = text.Clean(line, maxReason)
			}
			r.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// readLine reads to the end of a line and returns its beginning.
func readLine(r *bufio.Reader) (line []byte, cut bool, err error) {
	part, err := r.ReadSlice('\n')
	line = bytes.Clone(part)
	for err == bufio.ErrBufferFull {
		cut = true
		_, err = r.ReadSlice('\n')
	}
	return line, cut, err
}

// clean makes one printable line of what a child or a library wrote.
func clean(raw []byte, cut bool) string {
	line := text.Clean(string(raw), maxLine)
	if cut {
		line += " …"
	}
	return line
}

// level returns the level that a line says it has. What says none comes from a
// library or the dynamic linker and is worth a look.
func level(line string) slog.Level {
	for _, mark := range []string{"level=", `"level":"`} {
		_, after, ok := strings.Cut(line, mark)
		if !ok {
			continue
		}
		word := after[:len(after)-len(strings.TrimLeft(after, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"))]
		var l slog.Level
		if l.UnmarshalText([]byte(word)) == nil {
			return l
		}
	}
	return slog.LevelWarn
}
