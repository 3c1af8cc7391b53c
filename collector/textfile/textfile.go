// Package textfile is the source of what workloads tell of their own work: the steps,
// samples and tokens of a training, its loss, its checkpoints, and figures of quality.
// They write it to files of one directory, in Prometheus' text format, which works for
// any framework; docs/training.md has the names.
//
// A file may be half written, a pipe, a link, a gigabyte long or somebody else's: that
// costs this file only, and is counted.
package textfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/demand"
	"gpuvigil/internal/metric"
)

// SourceName is the source's name among the sources of samples.
const SourceName = "textfile"

const (
	suffix     = ".prom"
	maxEntries = 65536 // of the directory, whatever they are called
	maxPerUser = 32    // files of one user who is not privileged: nobody crowds out the others
	keepRounds = 240   // samples for which a workload that tells nothing is remembered
)

// Config is what the source needs.
type Config struct {
	Directory string
	MaxFiles  int           // that are read
	MaxBytes  int64         // of one file
	MaxAge    time.Duration // of a file whose readings still stand

	// Snapshot returns the newest snapshot, or nil. Who may speak for whom depends on
	// its processes.
	Snapshot func() *collector.Snapshot

	Log *slog.Logger
}

// Source reads the directory. It is used from one goroutine.
type Source struct {
	cfg   Config
	files map[string]*file // by path below the directory
	round uint64
	tells map[collector.Owner]*teller
	told  map[complaint]time.Time // when a file was last said not to count
	mute  bool                    // there are more than are told, which is said
}

var _ collector.Source = (*Source)(nil)

// teller is what is kept of a workload between samples.
type teller struct {
	progress demand.Progress
	seen     uint64
}

// New returns a source.
func New(cfg Config) *Source {
	return &Source{cfg: cfg, files: map[string]*file{}, tells: map[collector.Owner]*teller{}, told: map[complaint]time.Time{}}
}

// Inherit goes on with what an earlier source has counted, which is not used any more.
func (s *Source) Inherit(old *Source) {
	s.round, s.tells, s.told, s.mute = old.round, old.tells, old.told, old.mute
}

// Name is SourceName.
func (s *Source) Name() string { return SourceName }

// Sample reads the files that have changed. The error says what is wrong with the
// directory as a whole.
func (s *Source) Sample(ctx context.Context) (*collector.Part, error) {
	now := time.Now()
	s.round++
	s.forget(now)
	part := &collector.Part{Time: now}
	part.Node.Readings = collector.NewReadings(metric.Node)
	part.Node.Stamp(metric.Slow, now)
	root, err := os.OpenRoot(s.cfg.Directory)
	if err != nil {
		return part, fmt.Errorf("open the directory of workloads' own signals: %w: make it, or name another with textfile.directory", err)
	}
	defer root.Close()
	trust, err := trustOf(root, s.cfg.Directory)
	if err != nil {
		return part, err
	}
	err = s.scan(ctx, root, trust, now)
	snap := s.cfg.Snapshot()
	if snap == nil {
		snap = &collector.Snapshot{}
	}
	claims := s.settle(snap, trust, now, part.Node.Readings)
	part.Workloads = s.workloads(claims, now)
	return part, err
}

// scan looks at all files and drops those that are gone.
func (s *Source) scan(ctx context.Context, root *os.Root, trust trust, now time.Time) error {
	names, err := list(root, trust)
	if err != nil {
		return fmt.Errorf("list the directory of workloads' own signals %s: %w", s.cfg.Directory, err)
	}
	found, of := map[string]*file{}, map[int]int{}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("read the files in %s: %w", s.cfg.Directory, err)
		}
		info, err := root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it is gone
		}
		uid := userOf(info)
		if len(found) >= s.cfg.MaxFiles || !privileged(uid) && of[uid] >= maxPerUser {
			counted("too_many_files").Inc()
			s.tell(name, "too_many_files", words["too_many_files"], now)
			continue
		}
		of[uid]++
		if f := s.look(root, name, info, err, now); f != nil {
			found[name] = f
		}
	}
	s.files = found
	return nil
}

// list returns the files' paths in their order: those in the directory itself, and, if
// it is trusted, in directories that are named as an owner is.
func list(root *os.Root, trust trust) ([]string, error) {
	top, err := entries(root, ".")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range top {
		name := e.Name()
		_, owned := parseOwner(name)
		switch {
		case !e.IsDir():
			names = append(names, name)
		case owned && trust == trusted:
			below, err := entries(root, name)
			if err != nil {
				continue // it went, or is closed to us: its files are not there
			}
			for _, f := range below {
				if !f.IsDir() {
					names = append(names, path.Join(name, f.Name()))
				}
			}
		}
	}
	names = slices.DeleteFunc(names, func(n string) bool {
		return !strings.HasSuffix(n, suffix) || strings.HasPrefix(path.Base(n), ".")
	})
	slices.Sort(names)
	return names, nil
}

func entries(root *os.Root, name string) ([]fs.DirEntry, error) {
	dir, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	list, err := dir.ReadDir(maxEntries)
	if errors.Is(err, io.EOF) {
		err = nil // it is empty
	}
	return list, err
}

// workloads makes the readings of those for whom a file speaks.
func (s *Source) workloads(claims map[collector.Owner]*claim, now time.Time) []collector.Workload {
	var out []collector.Workload
	for o, c := range claims {
		t := s.tells[o]
		if t == nil {
			t = &teller{}
			s.tells[o] = t
		}
		t.seen = s.round
		w := collector.Workload{Owner: o, Readings: collector.NewReadings(metric.Workload)}
		age := max(0, now.Sub(c.signals.At))
		fresh := age <= s.cfg.MaxAge
		t.progress.Add(c.signals)
		t.progress.Set(w.Readings, fresh)
		w.Set(metric.WorkloadSignalAge, age.Seconds())
		if fresh {
			w.Quality = c.quality
		}
		w.Stamp(metric.Slow, now)
		out = append(out, w)
	}
	for o, t := range s.tells {
		if s.round-t.seen > keepRounds {
			delete(s.tells, o)
		}
	}
	slices.SortFunc(out, func(a, b collector.Workload) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID)) })
	return out
}
