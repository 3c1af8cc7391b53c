// Package store is the agent's state file: one bbolt database with a fixed list
// of buckets. It knows nothing of what the values mean.
//
// A file that cannot be read is never deleted: it is moved aside, with an error
// in the log, and an empty one is begun. Each value carries a checksum; one that is
// damaged is kept in a bucket of its own, and costs nothing else.
package store

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	vm "github.com/VictoriaMetrics/metrics"
	"go.etcd.io/bbolt"

	"gpuvigil/internal/metric"
)

// The buckets. A release may add one; files of older releases get it when they
// are opened.
const (
	Meta   = "meta"   // the schema, when the agent was first started
	Engine = "engine" // what the detectors remember
	Outbox = "outbox" // what is to be said, and what was
	Ledger = "ledger" // what GPUs were paid for

	Damaged = "damaged" // what could not be read, see SetAside
)

var buckets = []string{Meta, Engine, Outbox, Ledger, Damaged}

var writeErrors = vm.GetOrCreateCounter(metric.StateWriteErrors.Series())

// Store is an open state file. It may be used from several goroutines.
type Store struct {
	db   *bbolt.DB
	path string
	log  *slog.Logger

	unmarked atomic.Bool // the schema is still to be written
}

// Path returns the name of the file.
func (s *Store) Path() string { return s.path }

// Close waits for the open transactions and closes the file.
func (s *Store) Close() error { return s.db.Close() }

// Update runs fn in the one transaction that may write. What fn wrote is on disk
// when Update returns nil; it has left no trace when Update returns an error,
// which is fn's own or says why the file could not be written. Such a failure is
// counted, and the store stays usable: a later Update may succeed.
func (s *Store) Update(fn func(*Tx) error) error {
	var own error
	err := s.db.Update(func(tx *bbolt.Tx) error {
		if err := s.mark(tx); err != nil {
			return err
		}
		own = fn(&Tx{tx, s})
		return own
	})
	if err == nil || own != nil {
		return err
	}
	writeErrors.Inc()
	return fmt.Errorf("write state file %s: %w%s", s.path, err, hint(err))
}

// View runs fn in a transaction that sees the file as it was when it began. fn
// must not call Update.
func (s *Store) View(fn func(*Tx) error) error {
	return s.db.View(func(tx *bbolt.Tx) error { return fn(&Tx{tx, s}) })
}

// mark notes the schema with the first write, not when the file is opened: an agent
// starts on a full disk.
func (s *Store) mark(tx *bbolt.Tx) error {
	if !s.unmarked.Load() {
		return nil
	}
	tx.OnCommit(func() { s.unmarked.Store(false) })
	return tx.Bucket([]byte(Meta)).Put([]byte(schemaKey), seal(Meta, schemaKey, []byte(strconv.Itoa(schema))))
}

// hint says what to do about an error of the file system, or nothing.
func hint(err error) string {
	switch {
	case caused(err, syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG):
		return ": make room there; until then what is new is kept in memory only"
	case caused(err, syscall.EROFS):
		return ": the file system is mounted read-only; mount it writable or set --state.dir to another one"
	}
	return ""
}

// caused reports whether one of the system's errors is behind err. It looks at
// the text because bbolt does not wrap what it gets when it grows the file.
func caused(err error, by ...syscall.Errno) bool {
	return slices.ContainsFunc(by, func(e syscall.Errno) bool {
		return errors.Is(err, e) || strings.Contains(err.Error(), e.Error())
	})
}

// Tx is a transaction. It is valid only inside of the function that it was given
// to. A bucket that is not in this package's list is a bug and panics.
type Tx struct {
	tx    *bbolt.Tx
	store *Store
}

func (tx *Tx) bucket(name string) *bbolt.Bucket {
	if !slices.Contains(buckets, name) {
		panic("BUG: the state file has no bucket " + name)
	}
	return tx.tx.Bucket([]byte(name))
}

// Put stores value under key, which must not be empty.
func (tx *Tx) Put(bucket, key string, value []byte) error {
	if err := tx.bucket(bucket).Put([]byte(key), seal(bucket, key, value)); err != nil {
		return fmt.Errorf("put %s/%q: %w", bucket, key, err)
	}
	return nil
}

// Get returns a copy of what is stored under key, or nil; also nil for what was
// damaged since the file was opened, which is logged.
func (tx *Tx) Get(bucket, key string) []byte {
	v, _ := tx.read(bucket, key, tx.bucket(bucket).Get([]byte(key)))
	return bytes.Clone(v)
}

func (tx *Tx) read(bucket, key string, raw []byte) (v []byte, ok bool) {
	v, err := unseal(bucket, key, raw)
	if err != nil {
		tx.store.log.Error("A part of the state cannot be read.", "file", tx.store.path, "part", bucket+"/"+key, "err", err)
	}
	return v, err == nil
}

// Delete removes key; it is no error if it is not there.
func (tx *Tx) Delete(bucket, key string) error {
	if err := tx.bucket(bucket).Delete([]byte(key)); err != nil {
		return fmt.Errorf("delete %s/%q: %w", bucket, key, err)
	}
	return nil
}

// Range calls fn for each key from the given one on, in the order of the keys'
// bytes, until fn returns false. v is valid only during the call, and fn must not
// change the bucket. What was damaged since the file was opened is logged and left out.
func (tx *Tx) Range(bucket, from string, fn func(k string, v []byte) bool) {
	c := tx.bucket(bucket).Cursor()
	for k, raw := c.Seek([]byte(from)); k != nil; k, raw = c.Next() {
		if v, ok := tx.read(bucket, string(k), raw); ok && !fn(string(k), v) {
			return
		}
	}
}

// OnCommit has fn called once the transaction is on disk. It is not called if
// the transaction fails.
func (tx *Tx) OnCommit(fn func()) { tx.tx.OnCommit(fn) }
