package main

import (
	"fmt"
	"os"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/textfile"
	"gpuvigil/internal/config"
)

// signals returns the source of what workloads tell of their own work, if there is a
// directory for it.
func (p *pipeline) signals() []collector.Scheduled {
	c := p.cfg.Textfile
	if c.Directory == "" {
		return nil
	}
	p.textfile = textfile.New(textfile.Config{
		Directory: c.Directory, MaxFiles: c.MaxFiles, MaxBytes: int64(c.MaxBytes), MaxAge: time.Duration(c.MaxAge),
		Snapshot: func() *collector.Snapshot { return p.sampler.Latest() },
		Log:      p.log.With("component", textfile.SourceName),
	})
	slow := time.Duration(p.cfg.Sampling.Slow)
	return []collector.Scheduled{{Source: p.textfile, Interval: slow, Deadline: slow}}
}

// doctorTextfile says whether workloads can tell of their own work.
func doctorTextfile(c *config.Config) diagnosis {
	d := diagnosis{what: "workloads' own signals", found: "off; steps, loss and quality of workloads, and what failures lose, stay unknown",
		advice: "make a directory for them and name it with textfile.directory: docs/training.md"}
	if c.Textfile.Directory == "" {
		return d
	}
	info, err := os.Stat(c.Textfile.Directory)
	switch {
	case err != nil:
		d.found = err.Error()
	case !info.IsDir():
		d.found = c.Textfile.Directory + " is no directory"
	case info.Mode().Perm()&0o022 != 0 && info.Mode()&os.ModeSticky == 0:
		d.found, d.advice = fmt.Sprintf("%s may be written by others and has no sticky bit", c.Textfile.Directory), "run chmod +t on it, or take the right to write from group and others"
	default:
		return diagnosis{what: d.what, ok: true, found: c.Textfile.Directory + " is there"}
	}
	return d
}
