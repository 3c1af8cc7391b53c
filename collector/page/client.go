package page

import (
	"net/http"
	"time"
)

// Client returns a client for requests of another kind to the address, each of which may
// take so long. It trusts the same certificates, connects to no link-local address, and
// follows no redirect: what is sent must not go elsewhere, nor be taken for sent when
// somebody else has answered.
func (a *Address) Client(timeout time.Duration) (*http.Client, error) {
	c, err := newClient(a.TLS, timeout)
	if err != nil {
		return nil, err
	}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c, nil
}

// Authorize adds to a request what the address wants to know the sender by, read anew.
func (a *Address) Authorize(req *http.Request) error { return a.authorize(req) }
