package simfake

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"gpuvigil/collector"
)

// commLength is how much of its name the kernel keeps of a process.
const commLength = 15

// WriteProc makes dir the procfs of a machine on which the part's processes run,
// as far as an agent reads it: comm, stat, status and cgroup of each. Processes that
// are not in the part are removed.
func WriteProc(dir string, p *collector.Part) error {
	here := map[string]bool{}
	owners := map[int]collector.Owner{}
	for _, a := range p.Attributions {
		owners[a.PID] = a.Owner
	}
	for i := range p.Processes {
		name := strconv.Itoa(p.Processes[i].PID)
		if here[name] {
			continue
		}
		here[name] = true
		if err := WriteProcess(dir, &p.Processes[i]); err != nil {
			return err
		}
		cgroup := filepath.Join(dir, name, "cgroup")
		if err := os.WriteFile(cgroup, []byte("0::"+CgroupPath(owners[p.Processes[i].PID])+"\n"), 0o644); err != nil {
			return fmt.Errorf("write the simulated procfs: %w", err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write the simulated procfs: %w", err)
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil || here[e.Name()] {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("write the simulated procfs: %w", err)
		}
	}
	return nil
}

// WriteHost makes dir the procfs of the host, in whose pids the driver counts.
func WriteHost(dir string) error {
	dir = filepath.Join(dir, "self", "ns")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write the simulated procfs: %w", err)
	}
	err := os.Symlink("pid:[4026531836]", filepath.Join(dir, "pid"))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("write the simulated procfs: %w", err)
	}
	return nil
}

// WriteProcess adds one process to the procfs in dir.
func WriteProcess(dir string, p *collector.Process) error {
	dir = filepath.Join(dir, strconv.Itoa(p.PID))
	comm := p.Name[:min(len(p.Name), commLength)]
	files := map[string]string{
		"comm": comm + "\n",
		"stat": fmt.Sprintf("%d (%s) S 1 %[1]d %[1]d 0 -1 4194304 0 0 0 0 100 20 0 0 20 0 1 0 %[3]d 0 0 "+
			"18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n", p.PID, comm, p.Start),
		"status": fmt.Sprintf("Name:\t%s\nState:\tS (sleeping)\nTgid:\t%d\nPid:\t%[2]d\nPPid:\t1\nUid:\t%[3]d\t%[3]d\t%[3]d\t%[3]d\nGid:\t%[3]d\t%[3]d\t%[3]d\t%[3]d\n",
			comm, p.PID, p.UID),
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write the simulated procfs: %w", err)
	}
	var errs []error
	for name, text := range files {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("write the simulated procfs: %w", err)
	}
	return nil
}
