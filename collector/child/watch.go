package child

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// DefaultWatch returns the files by which a replaced driver is noticed: the
// version of the loaded kernel module, and the library where distributions and
// container toolkits put it.
func DefaultWatch() []string {
	paths := []string{"/proc/driver/nvidia/version"}
	for _, dir := range []string{
		"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
		"/usr/local/nvidia/lib64", "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
	} {
		paths = append(paths, dir+"/libnvidia-ml.so.1")
	}
	return paths
}

// fingerprint changes when one of the files does.
func fingerprint(paths []string) string {
	var b strings.Builder
	for _, path := range paths {
		fmt.Fprintf(&b, "%s\n", identity(path))
	}
	return b.String()
}

// identity tells a file's versions apart. The kernel's files have neither a size
// nor a steady time, so there it is what they say.
func identity(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return "absent"
	}
	if info.Size() == 0 {
		f, err := os.Open(path)
		if err != nil {
			return "unreadable"
		}
		defer f.Close()
		content, err := io.ReadAll(io.LimitReader(f, 4<<10))
		if err != nil {
			return "unreadable"
		}
		return string(content)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Sprint(info.Size(), info.ModTime().UnixNano())
	}
	return fmt.Sprint(st.Dev, st.Ino, info.Size(), info.ModTime().UnixNano())
}
