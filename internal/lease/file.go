package lease

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"gpuvigil/internal/text"
)

// File keeps the record in a file of a directory that all processes write to. It is
// replaced as a whole, while a lock beside it is held; where a file system has no locks between
// machines, who has written looks once more whether that stands.
type File struct{ Path string }

// fileRecord is the record's form in the file.
type fileRecord struct {
	Holder      string     `json:"holder"`
	Seconds     float64    `json:"duration_seconds"`
	Renewed     time.Time  `json:"renewed"`
	Told        *time.Time `json:"told,omitempty"`
	Transitions int        `json:"transitions"`
}

const (
	maxFile     = 4096 // bytes
	maxIdentity = 200
)

// Get reads the record. Its version is the hash of the file.
func (f File) Get(context.Context) (Record, string, error) {
	data, err := os.ReadFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, "", ErrNone
	}
	if err != nil {
		return Record{}, "", err
	}
	r, err := parse(data)
	if err != nil {
		// The version lets it be replaced once it has not changed for long.
		return Record{Holder: "unreadable", Duration: time.Minute}, hash(data), nil
	}
	return r, hash(data), nil
}

func parse(data []byte) (Record, error) {
	var r fileRecord
	if len(data) > maxFile {
		return Record{}, errors.New("it is too large")
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return Record{}, err
	}
	if !(r.Seconds >= 0 && r.Seconds <= 3600) || r.Transitions < 0 {
		return Record{}, errors.New("its numbers make no sense")
	}
	out := Record{Holder: text.Clean(r.Holder, maxIdentity), Duration: time.Duration(r.Seconds * float64(time.Second)), Renewed: r.Renewed, Transitions: r.Transitions}
	if r.Told != nil {
		out.Told = *r.Told
	}
	return out, nil
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Put replaces the record.
func (f File) Put(ctx context.Context, r Record, version string) (err error) {
	lock, err := os.OpenFile(f.Path+".lock", os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	switch err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return ErrConflict
	case err != nil && !errors.Is(err, syscall.ENOTSUP) && !errors.Is(err, syscall.ENOLCK) && !errors.Is(err, syscall.ENOSYS):
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if err := f.unchanged(ctx, version); err != nil {
		return err
	}
	shown := fileRecord{Holder: r.Holder, Seconds: r.Duration.Seconds(), Renewed: r.Renewed.UTC(), Transitions: r.Transitions}
	if !r.Told.IsZero() {
		shown.Told = &r.Told
	}
	data, err := json.Marshal(shown)
	if err != nil {
		return err
	}
	if err := f.replace(data); err != nil {
		return err
	}
	return f.unchanged(ctx, hash(data))
}

func (f File) unchanged(ctx context.Context, version string) error {
	_, now, err := f.Get(ctx)
	if err != nil && !errors.Is(err, ErrNone) {
		return err
	}
	if now != version {
		return ErrConflict
	}
	return nil
}

// replace puts a new file in the place of the old one.
func (f File) replace(data []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(f.Path), filepath.Base(f.Path)+".*")
	if err != nil {
		return err
	}
	_, err = temp.Write(data)
	err = errors.Join(err, temp.Sync(), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), f.Path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return nil
}
