package kernellog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"gpuvigil/collector"
)

// feed is one of the logs with what is said of it.
type feed struct {
	path  string
	what  string // with what to do if it cannot be read
	file  *stream
	tried time.Time
	err   error

	optional bool // most machines do not have it
}

// follow opens a log if need be and reads it. A log that is not there, or not for
// this user, is absent; that is said once and tried again now and then.
func (s *Source) follow(f *feed, now time.Time, read func(*stream) error) error {
	if f.path == "" {
		return nil
	}
	if f.file == nil {
		if !f.tried.IsZero() && now.Sub(f.tried).Abs() < retryAfter {
			return f.err
		}
		f.tried = now
		file, err := openStream(f.path)
		if err != nil {
			return f.fails(s.cfg.Log, err)
		}
		f.file = file
		if f.err != nil {
			s.cfg.Log.Info("A log can be read now.", "path", f.path)
		}
		f.err = nil
	}
	if err := read(f.file); err != nil {
		f.tried = now
		return errors.Join(f.fails(s.cfg.Log, err), f.close())
	}
	return nil
}

func (f *feed) fails(log *slog.Logger, err error) error {
	first := f.err == nil
	f.err = fmt.Errorf("%w: to read %s", err, f.what)
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return f.err
	}
	f.err = fmt.Errorf("%w: %w", collector.ErrAbsent, f.err)
	level := slog.LevelInfo
	if f.optional && errors.Is(err, fs.ErrNotExist) {
		level = slog.LevelDebug
	}
	if first {
		log.Log(context.Background(), level, "A log is not read: faults that only it tells of stay unknown.", "err", f.err)
	}
	return f.err
}

func (f *feed) close() error {
	if f.file == nil {
		return nil
	}
	file := f.file
	f.file = nil
	return file.close()
}
