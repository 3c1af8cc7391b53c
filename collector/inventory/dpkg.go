package inventory

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

// maxDpkg bounds the database of packages.
const maxDpkg = 128 << 20

// readDpkg reads the database of Debian's packages if it has changed.
func (n *nodeReader) readDpkg(node *root) error {
	f, err := node.open("/var/lib/dpkg/status")
	if errors.Is(err, fs.ErrNotExist) {
		n.packages = nil
		for _, rpm := range []string{"/usr/lib/sysimage/rpm", "/var/lib/rpm"} {
			if node.has(rpm) {
				n.absent = []string{"versions of packages: the database of rpm is not read"}
				break
			}
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the database of packages: %w", err)
	}
	now, err := stampOf(f)
	if err == nil && now != n.dpkg {
		if n.packages, err = readPackages(f); err == nil {
			n.dpkg = now
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("read the database of packages: %w", err)
	}
	return nil
}

// readPackages reads dpkg's status file and returns the versions of components.
func readPackages(r io.Reader) (map[string]string, error) {
	lines := bufio.NewReaderSize(io.LimitReader(r, maxDpkg), 64<<10)
	found, rank := map[string]string{}, map[string]int{}
	var name, status, version string
	settle := func() {
		for _, c := range components {
			i := slices.IndexFunc(c.packages, func(p *regexp.Regexp) bool { return p.MatchString(name) })
			if i < 0 || !strings.HasSuffix(status, " installed") {
				continue
			}
			if best, ok := rank[c.name]; !ok || i < best {
				found[c.name], rank[c.name] = upstream(version), i
			}
		}
		name, status, version = "", "", ""
	}
	for {
		line, err := lines.ReadSlice('\n')
		if key, value, ok := strings.Cut(strings.TrimSpace(string(line)), ": "); ok && line[0] != ' ' {
			switch key {
			case "Package":
				name = value
			case "Status":
				status = value
			case "Version":
				version = value
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			settle()
			return found, nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return nil, cause(err)
		case len(line) == 1 && line[0] == '\n':
			settle()
		}
	}
}

// upstream returns a package's version without what the packager added, so that a
// program's own word for it is the same: 5:28.3.3-1~ubuntu.24.04 is 28.3.3.
func upstream(version string) string {
	if epoch, rest, ok := strings.Cut(version, ":"); ok && !strings.ContainsAny(epoch, ".-") {
		version = rest
	}
	if i := strings.LastIndexByte(version, '-'); i > 0 {
		version = version[:i]
	}
	if !versionText.MatchString(version) {
		return ""
	}
	return version
}
