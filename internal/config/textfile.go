package config

import (
	"path/filepath"
	"time"
)

// Textfile is the directory in which workloads tell of their own work.
type Textfile struct {
	Directory string   `yaml:"directory"` // empty: none
	MaxFiles  int      `yaml:"max_files"` // that are read
	MaxBytes  int      `yaml:"max_bytes"` // of one file
	MaxAge    Duration `yaml:"max_age"`   // of a file whose readings still stand
}

// The bounds of what one node can mean to write.
const (
	maxTextfiles     = 10000
	maxTextfileBytes = 16 << 20
)

func defaultTextfile() Textfile {
	return Textfile{MaxFiles: 256, MaxBytes: 64 << 10, MaxAge: Duration(5 * time.Minute)}
}

func (t *Textfile) check(fail func(key, format string, args ...any)) {
	if t.Directory != "" && !filepath.IsAbs(t.Directory) {
		fail("textfile.directory", "found %q, allowed: a path that begins with /, or \"\"", clean(t.Directory))
	}
	if t.MaxFiles < 1 || t.MaxFiles > maxTextfiles {
		fail("textfile.max_files", "found %d, allowed: 1 to %d", t.MaxFiles, maxTextfiles)
	}
	if t.MaxBytes < 1 || t.MaxBytes > maxTextfileBytes {
		fail("textfile.max_bytes", "found %d, allowed: 1 to %d", t.MaxBytes, maxTextfileBytes)
	}
	if age := time.Duration(t.MaxAge); age < time.Minute || age > 24*time.Hour {
		fail("textfile.max_age", "found %s, allowed: 1m to 1d: a file that is not written again says nothing of now", t.MaxAge)
	}
}
