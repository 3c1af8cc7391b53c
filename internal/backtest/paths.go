package backtest

import (
	"fmt"
	"os"
	"path/filepath"
)

// SameFile reports whether two paths lead to one file, through whatever links; also to
// one that is not there yet.
func SameFile(a, b string) bool {
	if resolved(a) == resolved(b) {
		return true
	}
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// apart refuses directories of which one is in the other: scores would be read as
// series, or written over them.
func apart(series, scores string) error {
	if within(series, scores) || within(scores, series) {
		return fmt.Errorf("series are in %s and scores go to %s: one is in the other, give a directory beside it", series, scores)
	}
	return nil
}

// eachApart refuses scores that would come to lie among the series by a link below
// their own directory.
func eachApart(o Options, files []string) error {
	clear := map[string]bool{} // directories
	for _, f := range files {
		at := scoresOf(o.Scores, f)
		dir := filepath.Dir(at)
		if !clear[dir] {
			clear[dir] = !within(o.Series, dir)
		}
		if !clear[dir] || SameFile(at, filepath.Join(o.Series, filepath.FromSlash(f))) {
			return fmt.Errorf("the scores of %s would go to %s, which is among the series in %s: give an empty directory for the scores", f, at, o.Series)
		}
	}
	return nil
}

// within reports whether the path is the directory or in it.
func within(dir, path string) bool {
	for at := resolved(path); ; at = filepath.Dir(at) {
		if SameFile(at, dir) {
			return true
		}
		if at == filepath.Dir(at) {
			return false
		}
	}
}

// resolved is the absolute path with its symbolic links followed, as far as it is there.
func resolved(path string) string { return follow(path, 40) }

// follow gives up after so many links that lead nowhere, as the kernel does.
func follow(path string, links int) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	dir := filepath.Dir(path)
	if dir == path {
		return path
	}
	if to, err := os.Readlink(path); err == nil && links > 0 {
		if !filepath.IsAbs(to) {
			to = filepath.Join(dir, to)
		}
		return follow(to, links-1)
	}
	return filepath.Join(follow(dir, links), filepath.Base(path))
}
