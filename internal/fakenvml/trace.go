package fakenvml

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// A Call is one call of the library, noted when it began: a call that hangs is in the trace.
type Call struct {
	PID, TID    int
	At          time.Time
	Entity, Key string
}

// ReadTrace returns the calls in the file that EnvTrace named, in the order in which they began. No file means that
// nobody has called yet.
func ReadTrace(path string) ([]Call, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the fake NVML's trace: %w", err)
	}
	var calls []Call
	for line := range bytes.Lines(text) {
		var c Call
		var us int64
		if _, err := fmt.Sscanf(string(line), "%d %d %d %s %s\n", &c.PID, &c.TID, &us, &c.Entity, &c.Key); err != nil {
			return nil, fmt.Errorf("read the fake NVML's trace %s: line %q: %w", path, line, err)
		}
		c.At = time.UnixMicro(us)
		calls = append(calls, c)
	}
	return calls, nil
}
