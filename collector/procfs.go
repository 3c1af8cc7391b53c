package collector

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// BootID returns the id that the kernel gave the present boot. The error wraps
// fs.ErrNotExist if the procfs at the path has none.
func BootID(procPath string) (string, error) {
	text, err := os.ReadFile(filepath.Join(procPath, "sys", "kernel", "random", "boot_id"))
	if err != nil {
		return "", fmt.Errorf("read the id of the boot: %w: mount the host's /proc and name it with --path.procfs", err)
	}
	return strings.TrimSpace(string(text)), nil
}

const (
	// initialPIDNamespace is how the kernel names the first pid namespace, in which
	// the driver counts (PROC_PID_INIT_INO in include/linux/proc_ns.h).
	initialPIDNamespace = "pid:[4026531836]"

	kernelThread = 0x00200000 // PF_KTHREAD among the flags of a process

	// Fields of stat, after the name.
	flagsField = 6
	startField = 19
)

// ProcessStart reads when a process began, in clock ticks after boot, out of the text
// of /proc/PID/stat. With the pid it names a process for as long as the node is up.
func ProcessStart(stat string) (uint64, error) {
	fields := afterName(stat)
	if len(fields) <= startField {
		return 0, fmt.Errorf("read when the process began: its stat has %d fields after the name, want more than %d", len(fields), startField)
	}
	start, err := strconv.ParseUint(fields[startField], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read when the process began: %w", err)
	}
	return start, nil
}

// afterName returns the fields of a stat that follow the name. The process chose that
// itself: it may hold blanks and brackets.
func afterName(stat string) []string {
	return strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
}

// HostPIDs reports whether a pid of the host, as the driver tells it, is the same
// process in the procfs at the path: this process is in the host's pid namespace,
// or the procfs is the host's, which alone shows threads of the kernel. In another
// namespace the pid is somebody else's or nobody's.
func HostPIDs(procPath string) (bool, error) {
	// A process sees itself in the procfs of its own namespace and of those above it,
	// and there are none above the first.
	if ns, err := os.Readlink(filepath.Join(procPath, "self", "ns", "pid")); err == nil && ns == initialPIDNamespace {
		return true, nil
	}
	path := filepath.Join(procPath, "2", "stat")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("see whether %s is the host's: %w", procPath, err)
	}
	fields := afterName(string(text))
	if len(fields) <= flagsField {
		return false, fmt.Errorf("see whether %s is the host's: %s is cut short", procPath, path)
	}
	flags, err := strconv.ParseUint(fields[flagsField], 10, 64)
	if err != nil {
		return false, fmt.Errorf("see whether %s is the host's: %s: %w", procPath, path, err)
	}
	return flags&kernelThread != 0, nil
}
