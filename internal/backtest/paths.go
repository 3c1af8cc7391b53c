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

// PlaceError is of scores that would come to lie where the series are.
type PlaceError struct{ says string }

func (e *PlaceError) Error() string { return e.says }

// apart refuses directories of which one is in the other: scores would be read as
// series, or written over them.
func apart(series, scores string) error {
	switch {
	case SameFile(series, scores):
		return &PlaceError{fmt.Sprintf("the series are in %s, and the scores would be written over them: give the scores a directory of their own", series)}
	case within(series, scores):
		return &PlaceError{fmt.Sprintf("the scores would go to %s, which is in that of the series, %s, and be read as series: give a directory beside it", scores, series)}
	case within(scores, series):
		return &PlaceError{fmt.Sprintf("the series are in %s, which is in that of the scores, %s: give the scores a directory beside it", series, scores)}
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
			return &PlaceError{fmt.Sprintf("the scores of %s would go to %s, which is among the series in %s: give an empty directory for the scores", f, at, o.Series)}
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
