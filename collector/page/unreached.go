package page

import (
	"errors"
	"net/url"
)

// Unreached returns the *Failure of a request that got no answer, or whose answer breaks
// off. It has no URL in it, which may hold what is secret.
func Unreached(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return &Failure{unreached(err), err}
}
