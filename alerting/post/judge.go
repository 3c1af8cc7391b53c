package post

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"gpuvigil/alerting"
)

const (
	defaultWait = 30 * time.Second // for a rate limit that names no time
	longestWait = time.Hour
)

// Judge says what an answer means for a message: nil where the server took it, a
// *alerting.Wait where it wants a pause, a *alerting.Refusal where trying again makes
// no sense, and another error where it may pass later.
func (a *Answer) Judge(now time.Time) error {
	switch {
	case a.Status >= 200 && a.Status < 300:
		return nil
	case a.Status == http.StatusTooManyRequests, a.Status == http.StatusServiceUnavailable && a.Header.Get("Retry-After") != "":
		return &alerting.Wait{For: a.retryAfter(now)}
	case a.Status >= 500, a.Status == http.StatusRequestTimeout, a.Status == http.StatusTooEarly:
		return fmt.Errorf("it answers HTTP status %d", a.Status)
	}
	refusal := &alerting.Refusal{Reason: fmt.Sprintf("http_%d", a.Status)}
	switch a.Status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		refusal.Content = true
		refusal.Hint = "the server does not take this message; its own log says why"
	case http.StatusUnauthorized, http.StatusForbidden:
		refusal.Hint = "check the token or password in the configuration, and what its holder may do"
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone:
		refusal.Hint = "check the URL and its path in the configuration"
	default:
		refusal.Hint = "check the URL in the configuration"
		if a.Status >= 300 && a.Status < 400 {
			refusal.Hint = "the server redirects elsewhere, which is not followed: configure the URL that it redirects to"
		}
	}
	return refusal
}

// retryAfter reads how long the server wants to be left alone, in either form.
// https://www.rfc-editor.org/rfc/rfc9110#field.retry-after
func (a *Answer) retryAfter(now time.Time) time.Duration {
	wish := a.Header.Get("Retry-After")
	wait := defaultWait
	if s, err := strconv.Atoi(wish); err == nil && s >= 0 {
		wait = time.Duration(min(s, int(longestWait/time.Second))) * time.Second
	} else if at, err := http.ParseTime(wish); err == nil {
		wait = at.Sub(now)
	}
	return min(max(wait, time.Second), longestWait)
}
