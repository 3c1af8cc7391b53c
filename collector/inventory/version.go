package inventory

import (
	"bytes"
	"errors"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	maxPackages    = 8192     // names in a directory of Python's packages
	maxVersionFile = 64 << 10 // of a file that holds a version
)

// teller finds versions in the files of one process's root directory.
type teller struct {
	root  *root
	sites map[string][]dist // by directory
	err   error             // the first failure that is worth telling
}

// dist is an installed Python distribution.
type dist struct {
	name, version string // the name in lower case with _ for - and .
	dir           string
}

// versionOf returns the version of what was found, or unknown. What lies beside a
// deleted file is of what replaced it and says nothing of what is loaded.
func (t *teller) versionOf(f *find) string {
	if f.site != "" && !f.deleted {
		if v := t.distribution(f.site, f.dists); v != "" {
			return v
		}
		for _, name := range f.files {
			if v := t.fromFile(path.Join(f.site, name)); v != "" {
				return v
			}
		}
	}
	if f.soname != "" {
		return f.soname
	}
	return unknown
}

// fromFile reads a file that holds nothing but a version, or sets it in Python.
func (t *teller) fromFile(name string) string {
	content, err := t.root.begin(strings.Replace(name, "//", "/", 1), maxVersionFile)
	if err != nil {
		t.fail(err)
		return ""
	}
	if v := strings.TrimSpace(string(content)); versionText.MatchString(v) {
		return v
	}
	return pythonVersion(content)
}

var assignment = regexp.MustCompile(`(?m)^(?:__version__|_version|version|full_version)(?:\s*=\s*version)?(?:\s*:\s*\w+)?\s*=\s*['"]([^'"\n]{1,64})['"]`)

// pythonVersion returns the version that a file of Python sets.
func pythonVersion(source []byte) string {
	if m := assignment.FindSubmatch(source); m != nil && versionText.Match(m[1]) {
		return string(m[1])
	}
	return ""
}

// distribution returns the version of one of the distributions that the directory
// has, or nothing if it has none or several that do not agree.
func (t *teller) distribution(site string, names []string) string {
	if names == nil {
		return ""
	}
	installed, ok := t.sites[site]
	if !ok {
		list, err := t.root.list(site, maxPackages)
		if err != nil {
			t.fail(err)
		}
		for _, name := range list {
			if d, ok := parseDist(name); ok {
				installed = append(installed, d)
			}
		}
		if t.sites == nil {
			t.sites = map[string][]dist{}
		}
		t.sites[site] = installed
	}
	for _, name := range names {
		var versions []string
		for _, d := range installed {
			if d.is(name) && !slices.Contains(versions, d.version) {
				versions = append(versions, d.version)
			}
		}
		if len(versions) > 1 { // an upgrade has left the old directory behind
			versions = slices.DeleteFunc(versions, func(v string) bool { return !t.recorded(site, name, v, installed) })
		}
		if len(versions) == 1 {
			return versions[0]
		}
	}
	return ""
}

// fail keeps the first failure that somebody could do something about. That a file
// is not there, or no file, is an answer.
func (t *teller) fail(err error) {
	if t.err == nil && (errors.Is(err, errNoOpenat2) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)) {
		t.err = err
	}
}

// recorded reports whether a distribution's metadata is there and is of the version.
func (t *teller) recorded(site, name, version string, installed []dist) bool {
	for _, d := range installed {
		if !d.is(name) || d.version != version {
			continue
		}
		text, err := t.root.begin(path.Join(site, d.dir, "METADATA"), maxVersionFile)
		if err == nil && metadataVersion(text) == version {
			return true
		}
	}
	return false
}

// metadataVersion returns the Version of a distribution's metadata.
func metadataVersion(text []byte) string {
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			return "" // the description begins
		}
		if key, value, ok := bytes.Cut(line, []byte(":")); ok && bytes.EqualFold(key, []byte("Version")) {
			if v := bytes.TrimSpace(value); versionText.Match(v) {
				return string(v)
			}
			return ""
		}
	}
	return ""
}

// is reports whether the distribution has the name, perhaps with the CUDA version
// that it was built for: nvidia_cudnn_cu12, tensorrt_cu12_libs.
func (d *dist) is(name string) bool {
	return d.name == name || cuda.ReplaceAllString(d.name, "") == name
}

var cuda = regexp.MustCompile(`_cu[0-9]{2}`)

// parseDist reads the name of a directory such as torch-2.9.1+cu128.dist-info.
func parseDist(dir string) (dist, bool) {
	base, ok := strings.CutSuffix(dir, ".dist-info")
	if !ok {
		return dist{}, false
	}
	name, version, ok := strings.Cut(base, "-")
	if !ok || name == "" || !versionText.MatchString(version) {
		return dist{}, false
	}
	return dist{name: strings.NewReplacer("-", "_", ".", "_").Replace(strings.ToLower(name)), version: version, dir: dir}, true
}
