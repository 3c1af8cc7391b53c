package page

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"

	"gpuvigil/collector/exposition"
)

// Failure is why a page cannot be had or is not understood: one word for a metric,
// and what to tell a person.
type Failure struct {
	Reason string
	Err    error
}

func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns what is told to a person.
func (f *Failure) Unwrap() error { return f.Err }

// Failing returns a *Failure for the reason.
func Failing(reason, format string, args ...any) error {
	return &Failure{reason, fmt.Errorf(format, args...)}
}

// Reason returns the word for an error: that of its *Failure, else unreachable.
func Reason(err error) string {
	var f *Failure
	if errors.As(err, &f) {
		return f.Reason
	}
	return "unreachable"
}

// Begin looks at the first character of a page and leaves it there: a login page is
// HTML with status 200. The error is a *Failure.
func Begin(r *bufio.Reader) (byte, error) {
	for {
		c, err := r.ReadByte()
		switch {
		case errors.Is(err, io.EOF):
			return 0, Failing("empty", "its page is empty")
		case err != nil:
			return 0, Broken(err)
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
		case c == '<':
			return 0, Failing("html", "it serves HTML: is this the metrics path, and does it want a login?")
		default:
			return c, r.UnreadByte()
		}
	}
}

// Broken is the *Failure of a page that ends before it should.
func Broken(err error) error {
	var f *Failure
	if errors.As(err, &f) {
		return err
	}
	switch {
	case errors.Is(err, exposition.ErrSample):
		return Failing("syntax", "its page is not in the text format: %w", err)
	case errors.Is(err, exposition.ErrLongLine):
		return &Failure{"syntax", err}
	case errors.Is(err, exposition.ErrCutOff):
		return &Failure{"cut_off", err}
	case timedOut(err):
		return Failing("timeout", "its page breaks off: %w", err)
	}
	return Failing("cut_off", "its page breaks off: %w", err)
}

// unreached says why there is no answer.
func unreached(err error) string {
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	switch {
	case errors.Is(err, errForbidden):
		return "forbidden_address"
	case errors.Is(err, errRedirect):
		return "redirect"
	case errors.As(err, &certificate), errors.As(err, &record), errors.As(err, &alert):
		return "tls"
	case timedOut(err):
		return "timeout"
	}
	return "unreachable"
}

func timedOut(err error) bool {
	var n net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}
