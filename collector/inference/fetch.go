package inference

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"syscall"
	"time"
)

// TLS says how a target is trusted. The zero TLS trusts what the system does.
type TLS struct {
	CAFile     string // certificates that are trusted instead of the system's
	ServerName string // that the certificate must be for, instead of the URL's host
	Insecure   bool   // any certificate will do
}

const maxRedirects = 3

var (
	errForbidden = errors.New("link-local addresses and those of cloud metadata services are not read")
	errRedirect  = errors.New("it redirects elsewhere, which is not followed")
)

// metadata are the addresses of clouds' metadata services that are not link-local.
var metadata = []netip.Addr{netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("100.100.100.200")}

// newClient returns a client that reads pages, each within the time.
func newClient(trust TLS, timeout time.Duration) (*http.Client, error) {
	transport := &http.Transport{
		DialContext:         (&net.Dialer{Control: refuseForbidden}).DialContext,
		MaxIdleConnsPerHost: 1,
		IdleConnTimeout:     time.Minute,
	}
	if trust != (TLS{}) {
		transport.TLSClientConfig = &tls.Config{ServerName: trust.ServerName, InsecureSkipVerify: trust.Insecure}
	}
	if trust.CAFile != "" {
		pem, err := os.ReadFile(trust.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the certificates of an inference target: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM", trust.CAFile)
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	return &http.Client{Timeout: timeout, Transport: transport, CheckRedirect: sameServer}, nil
}

// sameServer follows redirects within the server that the configuration names: a
// token must not go elsewhere, and neither to the same host without TLS.
func sameServer(req *http.Request, via []*http.Request) error {
	if req.URL.Host != via[0].URL.Host || req.URL.Scheme != via[0].URL.Scheme || len(via) > maxRedirects {
		return errRedirect
	}
	return nil
}

// refuseForbidden keeps a target, or a name that resolves to one, from being the
// cloud's metadata service: it sees the address that is dialled.
func refuseForbidden(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip := to.Addr().Unmap().WithZone("")
	if ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip == metadata[0] || ip == metadata[1] {
		return errForbidden
	}
	return nil
}

// ask asks for the target's page. The caller closes the body.
func (t *target) ask(ctx context.Context) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.URL, nil)
	if err != nil {
		return nil, failing("unreachable", "its URL does not parse (not shown, it may hold a password)")
	}
	req.Header.Set("Accept", "text/plain;version=0.0.4")
	if err := t.authorize(req); err != nil {
		return nil, &failure{"credentials", err}
	}
	resp, err := t.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // the rest of it repeats the URL
		}
		return nil, &failure{unreached(err), err}
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	resp.Body.Close()
	reason := "status"
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		reason = "credentials"
	}
	return nil, failing(reason, "it answers %s", resp.Status)
}

func (t *target) authorize(req *http.Request) error {
	if t.Token != nil {
		token, err := t.Token()
		if err != nil {
			return fmt.Errorf("read its bearer token: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if t.Password != nil {
		password, err := t.Password()
		if err != nil {
			return fmt.Errorf("read its password: %w", err)
		}
		req.SetBasicAuth(t.User, password)
	}
	return nil
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
