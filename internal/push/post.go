package push

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/version"

	"gpuvigil/internal/text"
)

// maxAnswer is what is read of an answer.
const maxAnswer = 4 << 10

// maxSaid is what of it is shown, in letters.
const maxSaid = 300

// post sends one request. again reports whether the same may be taken another time, and
// after, if it is not 0, when the receiver wants it.
func (p *Pusher) post(ctx context.Context, r *record) (again bool, after time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.cfg.URL, bytes.NewReader(r.payload))
	if err != nil {
		return true, 0, errors.New("the URL does not parse (not shown, it may hold a password)")
	}
	for name, value := range p.cfg.Headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("User-Agent", "gpuvigil/"+version.Version)
	switch r.format {
	case RemoteWrite:
		req.Header.Set("Content-Type", "application/x-protobuf")
		req.Header.Set("Content-Encoding", "snappy")
		req.Header.Set("X-Prometheus-Remote-Write-Version", "0.1.0")
	case Import:
		req.Header.Set("Content-Type", "text/plain; version=0.0.4")
		req.Header.Set("Content-Encoding", "gzip")
	}
	if p.cfg.Authorize != nil {
		if err := p.cfg.Authorize(req); err != nil {
			return true, 0, err
		}
	}
	resp, err := p.cfg.Client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // the rest of it repeats the URL
		}
		return true, 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode/100 == 2 {
		return false, 0, nil
	}
	again, after = comesAgain(resp.StatusCode), retryAfter(resp.Header)
	said := strings.TrimSpace(string(body))
	if err != nil || said == "" {
		return again, after, fmt.Errorf("it answers %s", resp.Status)
	}
	return again, after, fmt.Errorf("it answers %s: %s", resp.Status, text.Clean(said, maxSaid))
}

// comesAgain reports whether what was answered so may be taken another time. Of what is
// wrong, only that counts as the samples' own fault which says so: a wrong token or path
// is mended, and must not cost what was looked at until then.
func comesAgain(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return false
	}
	return true
}

func retryAfter(h http.Header) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(value); err == nil {
		return time.Duration(max(0, seconds)) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// shown is a URL without user info and query.
func shown(of string) string {
	u, err := url.Parse(of)
	if err != nil {
		return "a URL that does not parse"
	}
	return u.Scheme + "://" + u.Host + u.Path
}
