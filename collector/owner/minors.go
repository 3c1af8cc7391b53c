package owner

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// readMinors returns the uuids of the GPUs by the minor number of their device files,
// as the driver tells it to everybody in /proc. It is what GKE and Slurm count by; the
// index of NVML is another number on a node where some GPUs are hidden or reordered.
func readMinors(procfs string) (map[int]string, error) {
	root := filepath.Join(procfs, "driver", "nvidia", "gpus")
	minors := map[int]string{}
	entries, err := entriesOf(root)
	if errors.Is(err, fs.ErrNotExist) {
		return minors, nil
	}
	if err != nil {
		return minors, fmt.Errorf("list the GPUs' minor numbers in %s: %w", root, err)
	}
	var errs []error
	for _, e := range entries {
		content, err := readRegular(filepath.Join(root, e, "information"), maxProcFile)
		if err != nil {
			errs = append(errs, fmt.Errorf("read the minor number of GPU %q: %w", e, err))
			continue
		}
		if minor, uuid := parseInformation(content); minor >= 0 && uuid != "" {
			minors[minor] = uuid
		}
	}
	return minors, errors.Join(errs...)
}

// parseInformation reads the driver's description of one GPU. While the GPU has not
// been used the driver writes question marks for its uuid.
func parseInformation(content string) (minor int, uuid string) {
	minor = -1
	for line := range strings.Lines(content) {
		key, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); strings.TrimSpace(key) {
		case "Device Minor":
			minor = number(value)
		case "GPU UUID":
			if d, ok := parseDevice(value, false); ok && d.uuid == value {
				uuid = value
			}
		}
	}
	return minor, uuid
}
