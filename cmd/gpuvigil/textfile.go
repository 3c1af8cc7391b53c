package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
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
		return doctorFiles(c, d.what)
	}
	return d
}

// maxRefused is how many refused files the doctor names.
const maxRefused = 5

// doctorFiles reads the files once and names those that are refused.
func doctorFiles(c *config.Config, what string) diagnosis {
	s := textfile.New(textfile.Config{
		Directory: c.Textfile.Directory, MaxFiles: c.Textfile.MaxFiles, MaxBytes: int64(c.Textfile.MaxBytes), MaxAge: time.Duration(c.Textfile.MaxAge),
		Snapshot: func() *collector.Snapshot { return nil }, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := s.Sample(ctx); err != nil {
		return diagnosis{what: what, found: err.Error(), advice: "let this user list and read the directory"}
	}
	refused := s.Refused()
	if len(refused) == 0 {
		return diagnosis{what: what, ok: true, found: c.Textfile.Directory + " is there, and no file in it is refused by its form"}
	}
	var named []string
	for _, r := range refused[:min(len(refused), maxRefused)] {
		named = append(named, r.File+": "+printable(r.Why))
	}
	if more := len(refused) - maxRefused; more > 0 {
		named = append(named, fmt.Sprintf("and %d more", more))
	}
	return diagnosis{what: what, found: fmt.Sprintf("%d files in %s do not count: %s", len(refused), c.Textfile.Directory, strings.Join(named, "; ")), advice: "docs/training.md says what a file may be"}
}
