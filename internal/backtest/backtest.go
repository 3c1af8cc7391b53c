// Package backtest runs a detector over files of recorded series, as it would have
// run live: a row's score follows from that row and earlier ones alone.
package backtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// Options say what to run over what.
type Options struct {
	Series   string // directory of CSV files, read with all below it
	Scores   string // directory that gets a file of scores for each, at the same relative path
	Detector string // one of Detectors
	Workers  int    // how many files, or groups of peers, at a time; 0: one for each CPU
}

// Summary counts what was done.
type Summary struct {
	Files, Rows int
	Absent      int // rows without a value, which have no score
	Alarms      int // rows with a score of 1 or more
	// Unjudged names the groups of peers of which there were never enough at a time: their
	// rows have no score.
	Unjudged []string
	Disorder []Disorder
}

func (s *Summary) add(o Summary) {
	s.Files += o.Files
	s.Rows += o.Rows
	s.Absent += o.Absent
	s.Alarms += o.Alarms
	s.Unjudged = append(s.Unjudged, o.Unjudged...)
	s.Disorder = append(s.Disorder, o.Disorder...)
}

// Run writes the scores of every CSV file below the directory of series. What it
// writes does not depend on the number of workers. A file that cannot be read or
// written costs its own scores, and those of its peers, and makes Run return an error
// that names it; the others are written all the same. So does a run in which no group
// of peers could be judged.
func Run(ctx context.Context, o Options) (Summary, error) {
	var sum Summary
	if err := apart(o.Series, o.Scores); err != nil {
		return sum, err
	}
	files, err := list(o.Series)
	if err != nil {
		return sum, err
	}
	m, err := readMap(o.Series)
	if err != nil {
		return sum, err
	}
	if err := eachApart(o, files); err != nil {
		return sum, err
	}
	jobs, err := plan(o, files, m)
	if err != nil {
		return sum, err
	}
	sums, errs := make([]Summary, len(jobs)), make([]error, len(jobs))
	var group errgroup.Group
	group.SetLimit(workers(o.Workers))
	for i, job := range jobs {
		group.Go(func() error {
			if errs[i] = ctx.Err(); errs[i] == nil {
				sums[i], errs[i] = job(ctx)
			}
			return nil
		})
	}
	err = group.Wait()
	for _, s := range sums {
		sum.add(s)
	}
	if ctx.Err() != nil {
		return sum, ctx.Err()
	}
	if len(sum.Unjudged) == len(jobs) {
		errs = append(errs, fmt.Errorf("no group has %d members with a value at one time, so that none could be judged: put the series of one job into one directory, or name its peers in %s", peersLeast, MapFile))
	}
	return sum, errors.Join(append(errs, err)...)
}

func workers(n int) int {
	if n > 0 {
		return n
	}
	return runtime.GOMAXPROCS(0)
}

// list returns the CSV files below dir as slash-separated relative paths, sorted.
func list(dir string) ([]string, error) {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return nil, fmt.Errorf("look for series: %w: give a directory of .csv files", err)
	case !info.IsDir():
		return nil, fmt.Errorf("look for series: %s is no directory: give the one that it is in", dir)
	}
	var files []string
	err = fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) == ".csv" {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for series below %s: %w", dir, err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("look for series below %s: there is no file that ends in .csv", dir)
	}
	return files, nil
}
