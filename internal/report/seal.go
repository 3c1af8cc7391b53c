package report

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// frozenFiles are what a frozen month is made of, in the order in which they are
// published: the checksums come last, and seal the others.
var frozenFiles = []string{".csv", ".focus.csv", ".json", ".sha256"}

// What corrects it is in files of its own.
const (
	correctionsFile  = ".corrections.jsonl"
	correctionsFOCUS = ".corrections.focus.csv"
)

// checksums is what sha256sum reads.
func checksums(month string, content map[string][]byte) string {
	var out strings.Builder
	for _, suffix := range []string{".json", ".csv", ".focus.csv"} {
		fmt.Fprintf(&out, "%x  %s%s\n", sha256.Sum256(content[suffix]), month, suffix)
	}
	return out.String()
}

// sealed returns the JSON of a frozen month after it has held all of its files against
// their checksums; nil without any of them. A month of which files are missing is
// refused: it cannot be told whether somebody took them, or a freeze was cut short.
func sealed(base string) ([]byte, error) {
	content := map[string][]byte{}
	var there, missing []string
	for _, suffix := range append([]string{correctionsFile, correctionsFOCUS}, frozenFiles...) {
		name := filepath.Base(base) + suffix
		data, err := os.ReadFile(base + suffix)
		switch {
		case err == nil:
			content[suffix], there = data, append(there, name)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		case slices.Contains(frozenFiles, suffix):
			missing = append(missing, name)
		}
	}
	if len(there) == 0 {
		return nil, nil
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("there is %s and no %s: put back what was frozen; if no freeze has ever ended well there, move away all files of the month", there[0], strings.Join(missing, ", "))
	}
	want := checksums(filepath.Base(base), content)
	for line := range strings.Lines(want) {
		if !strings.Contains(string(content[".sha256"]), line) {
			_, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
			return nil, fmt.Errorf("%s is not what its checksum in %s.sha256 says: put back what was frozen", name, base)
		}
	}
	if string(content[".sha256"]) != want {
		return nil, fmt.Errorf("%s.sha256 is not what was written: put it back", base)
	}
	return content[".json"], nil
}

// lock keeps a second freeze out of the directory, which it makes if need be.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		d.Close()
		return nil, fmt.Errorf("another one is under way there: %w", err)
	}
	return func() { d.Close() }, nil
}

// publish puts a file in its place whole, on disk and read-only.
func publish(path string, content []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".freeze-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(0o444)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
