package config

import (
	"path/filepath"
	"time"
)

// Textfile is the directory in which workloads tell of their own work.
type Textfile struct {
	Directory string   `yaml:"directory"`                  // empty: none
	MaxFiles  int      `yaml:"max_files" in:"1..10000"`    // that are read
	MaxBytes  int      `yaml:"max_bytes" in:"1..16777216"` // of one file
	MaxAge    Duration `yaml:"max_age" in:"1m..1d"`        // of a file whose readings still stand
}

func defaultTextfile() Textfile {
	return Textfile{MaxFiles: 256, MaxBytes: 64 << 10, MaxAge: Duration(5 * time.Minute)}
}

func (t *Textfile) check(fail func(key, format string, args ...any)) {
	if t.Directory != "" && !filepath.IsAbs(t.Directory) {
		fail("textfile.directory", "found %q, allowed: a path that begins with /, or \"\"", clean(t.Directory))
	}
}
