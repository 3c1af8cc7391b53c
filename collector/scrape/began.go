package scrape

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"gpuvigil/collector"
)

// maxStat is more than /proc/PID/stat has.
const maxStat = 8 << 10

// began adds when the processes began, which a page does not tell: without it a process
// could be taken for a later one with its pid. One that is not seen here is nobody's.
func (s *GPUReader) began(processes []collector.Process) error {
	if s.cfg.ProcFS == "" || len(processes) == 0 {
		return nil
	}
	if same, err := collector.HostPIDs(s.cfg.ProcFS); err != nil || !same {
		return err
	}
	var failed error
	for i := range processes {
		start, err := startOf(filepath.Join(s.cfg.ProcFS, strconv.Itoa(processes[i].PID), "stat"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = err
		}
		processes[i].Start = start
	}
	return failed
}

func startOf(path string) (uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	stat, err := io.ReadAll(io.LimitReader(f, maxStat))
	if err != nil {
		return 0, err
	}
	return collector.ProcessStart(string(stat))
}
