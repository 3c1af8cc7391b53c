package store

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

const (
	fileMode = 0o600
	dirMode  = 0o700

	// growStep is how much the file grows at a time, in bytes. bbolt's own 16 MiB
	// fail on a disk that still has room for what is to be written.
	growStep = 32 << 10

	// schema is raised when an older release could no longer read what this one
	// writes. Values carry versions of their own, so it rarely is.
	schema    = 2 // 1: values without checksums
	schemaKey = "schema"
)

// Open opens the state file and makes it, and its directory, if there is none. It
// waits for as long as the timeout for another process to let go of the file.
//
// A file that is damaged is moved to PATH.corrupt-TIME and an empty one is begun;
// both are logged as an error. Where only values are damaged, those are set aside.
// A file of a newer release is refused.
func Open(path string, timeout time.Duration, log *slog.Logger) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(path), dirMode); err != nil {
		return nil, openError(path, err)
	}
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		log.Warn("the state file is empty: what the agent knew before is lost", "file", path)
	}
	db, err := openDB(path, timeout)
	if c := (*corruptError)(nil); errors.As(err, &c) {
		aside := path + ".corrupt-" + time.Now().UTC().Format("20060102T150405.000000000Z")
		if err := os.Rename(path, aside); err != nil {
			return nil, fmt.Errorf("move the damaged state file %s aside: %w: remove it by hand", path, err)
		}
		log.Error("the state file is damaged: an empty one is begun, open findings and unsent messages of before are lost",
			"file", path, "moved_to", aside, "damage", c.Error())
		db, err = openDB(path, timeout)
	}
	if err != nil {
		return nil, openError(path, err)
	}
	s := &Store{db: db, path: path, log: log}
	if err := errors.Join(s.prepare(), s.setDamagedAside()); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// corruptError says that the file is not, or no longer, a database.
type corruptError struct{ damage string }

func (e *corruptError) Error() string { return e.damage }

// openDB opens the database and reads all of it once, so that damage is found now
// and not when somebody needs the state.
func openDB(path string, timeout time.Duration) (db *bbolt.DB, err error) {
	var file *os.File
	open := func(name string, flag int, mode os.FileMode) (f *os.File, err error) {
		file, err = os.OpenFile(name, flag, mode)
		return file, err
	}
	// A file that is shorter than its pages say faults when the mapping is read,
	// and bbolt answers nonsense in a page with a panic.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			_ = file.Close() // only to let go of the lock; nothing was written
			db, err = nil, &corruptError{fmt.Sprint(r)}
		}
	}()
	db, err = bbolt.Open(path, fileMode, &bbolt.Options{Timeout: timeout, OpenFile: open, NoStatistics: true})
	if err != nil {
		return nil, classify(err)
	}
	db.AllocSize = growStep
	if err := checkShape(file); err != nil {
		return nil, errors.Join(classify(err), db.Close())
	}
	if err := db.View(verify); err != nil {
		return nil, errors.Join(&corruptError{err.Error()}, db.Close())
	}
	if err := file.Chmod(fileMode); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// classify tells a damaged file from one that could not be opened.
func classify(err error) error {
	var (
		path  *fs.PathError
		errno syscall.Errno
	)
	if errors.Is(err, berrors.ErrTimeout) || errors.As(err, &path) || errors.As(err, &errno) {
		return err
	}
	return &corruptError{err.Error()}
}

// verify reads every page. The walk comes first: it runs in this goroutine, where
// a fault is a panic; the check runs in one of its own, where it would be a crash.
func verify(tx *bbolt.Tx) error {
	err := tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			if v == nil || len(k) > bbolt.MaxKeySize || int64(len(v)) > tx.Size() {
				return fmt.Errorf("an entry of %d and %d bytes is no value", len(k), len(v))
			}
			touch(k)
			touch(v)
			return nil
		})
	})
	if err != nil {
		return err
	}
	for e := range tx.Check() {
		err = errors.Join(err, e)
	}
	return err
}

// touch reads a byte of each page that v lies on. Inlined, with its sum unused, it
// would read nothing.
//
//go:noinline
func touch(v []byte) (sum byte) {
	for i := 0; i < len(v); i += 512 {
		sum ^= v[i]
	}
	if len(v) > 0 {
		sum ^= v[len(v)-1]
	}
	return sum
}

// prepare checks the schema and makes the buckets that are missing. It writes
// only if there is something to write, so that an agent starts on a full disk.
func (s *Store) prepare() error {
	var version string
	var damage error
	var ours, others int
	err := s.db.View(func(tx *bbolt.Tx) error {
		if meta := tx.Bucket([]byte(Meta)); meta != nil {
			version, damage = readSchema(meta.Get([]byte(schemaKey)))
		}
		return tx.ForEach(func(name []byte, _ *bbolt.Bucket) error {
			if slices.Contains(buckets, string(name)) {
				ours++
			} else {
				others++
			}
			return nil
		})
	})
	if err != nil {
		return openError(s.path, err)
	}
	v, err := strconv.Atoi(version)
	switch {
	// The name of the schema, or of a bucket, may be damaged, but not all of them.
	case version == "" && damage == nil && ours < 2 && ours+others > 0:
		return fmt.Errorf("open state file %s: it is a database of another program: set --state.dir to a directory of gpuvigil's own", s.path)
	case version != "" && (err != nil || v > schema):
		return fmt.Errorf("open state file %s: it was written by a newer gpuvigil (schema %q, this one knows %d): run that release, or move the file away to begin anew",
			s.path, version, schema)
	}
	s.unmarked.Store(version != strconv.Itoa(schema))
	if ours+others > 0 && version == "" || others > 0 {
		s.log.Error("The state file has parts of unknown names, or its schema is damaged: they stay in the file, and what was in them is lost.",
			"file", s.path, "unknown", others, "err", damage)
	}
	if ours < len(buckets) {
		return s.create()
	}
	return nil
}

// readSchema returns the schema, empty where there is none. Releases that did not seal
// it wrote 1.
func readSchema(raw []byte) (string, error) {
	v, err := unseal(Meta, schemaKey, raw)
	if err != nil || len(v) == len(raw) && len(raw) > 0 && string(v) != "1" {
		return "", errDamaged
	}
	return string(v), nil
}

// create makes the buckets that are missing.
func (s *Store) create() error {
	err := s.db.Update(func(tx *bbolt.Tx) error {
		for _, b := range buckets {
			if _, err := tx.CreateBucketIfNotExists([]byte(b)); err != nil {
				return err
			}
		}
		return s.mark(tx)
	})
	if err != nil {
		return openError(s.path, err)
	}
	return nil
}

// openError says what to do about an error of the operating system.
func openError(path string, err error) error {
	what := hint(err)
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return fmt.Errorf("open state file %s: another gpuvigil agent has it: stop that one, or set --state.dir to another directory", path)
	case errors.Is(err, fs.ErrPermission):
		what = ": let the agent's user write to that directory, or set --state.dir to another one"
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR):
		what = ": set --state.dir to a directory"
	}
	return fmt.Errorf("open state file %s: %w%s", path, err, what)
}
