// Package page asks servers for their metrics pages: within a time and a number of
// bytes, with a certificate and a secret of its own for each, and never where a page
// may not come from. What is on a page is for the sources that want it.
package page

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

// Address is where a page is, and what it takes to be given it.
type Address struct {
	URL      string
	TLS      TLS
	Token    func() (string, error) // bearer token; nil: none
	User     string                 // of basic authentication
	Password func() (string, error) // nil: none
}

// TLS says how a server is trusted. The zero TLS trusts what the system does.
type TLS struct {
	CAFile     string // certificates that are trusted instead of the system's
	CertFile   string // certificate by which the server knows who asks; with KeyFile
	KeyFile    string
	ServerName string // that the certificate must be for, instead of the URL's host
	Insecure   bool   // any certificate will do
}

// Page is one server's page. It may be used from one goroutine at a time.
type Page struct {
	address Address
	shown   string
	client  *http.Client
}

// New returns the page at an address, each request for which may take so long. It
// fails if a certificate cannot be read or the URL does not parse.
func New(a Address, timeout time.Duration) (*Page, error) {
	u, err := url.Parse(a.URL)
	if err != nil {
		return nil, errors.New("the URL of a metrics page does not parse (not shown, it may hold a password)")
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	client, err := newClient(a.TLS, timeout)
	if err != nil {
		return nil, err
	}
	return &Page{address: a, shown: u.String(), client: client}, nil
}

// URL returns the page's URL without user info and query.
func (p *Page) URL() string { return p.shown }

// Close closes the connections that are kept for the next request.
func (p *Page) Close() { p.client.CloseIdleConnections() }

const maxRedirects = 3

var (
	errForbidden = errors.New("link-local addresses and those of cloud metadata services are not read")
	errRedirect  = errors.New("it redirects elsewhere, which is not followed")
)

// metadata are the addresses of clouds' metadata services that are not link-local.
var metadata = []netip.Addr{netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("100.100.100.200")}

func newClient(trust TLS, timeout time.Duration) (*http.Client, error) {
	transport := &http.Transport{
		DialContext:         (&net.Dialer{Control: refuseForbidden}).DialContext,
		MaxIdleConnsPerHost: 1,
		IdleConnTimeout:     time.Minute,
	}
	if trust != (TLS{}) {
		transport.TLSClientConfig = &tls.Config{ServerName: trust.ServerName, InsecureSkipVerify: trust.Insecure}
	}
	if trust.CertFile != "" {
		load := func() (*tls.Certificate, error) {
			c, err := tls.LoadX509KeyPair(trust.CertFile, trust.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("read the certificate %s with its key %s, by which a server knows who asks: %w", trust.CertFile, trust.KeyFile, err)
			}
			return &c, nil
		}
		if _, err := load(); err != nil {
			return nil, err
		}
		// Read anew for each connection: such certificates are short-lived.
		transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	if trust.CAFile != "" {
		pem, err := os.ReadFile(trust.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the certificates that a metrics page is trusted by: %w", err)
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

// refuseForbidden keeps a page, or a name that resolves to its address, from being the
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

// Open asks for the page. The caller closes the response's body and reads no more of
// it than it has bounded. The error is a *Failure.
func (p *Page) Open(ctx context.Context) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.address.URL, nil)
	if err != nil {
		return nil, Failing("unreachable", "its URL does not parse (not shown, it may hold a password)")
	}
	req.Header.Set("Accept", "text/plain;version=0.0.4")
	if err := p.address.authorize(req); err != nil {
		return nil, &Failure{"credentials", err}
	}
	resp, err := p.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // the rest of it repeats the URL
		}
		return nil, &Failure{unreached(err), err}
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
	return nil, Failing(reason, "it answers %s", resp.Status)
}

func (a *Address) authorize(req *http.Request) error {
	if a.Token != nil {
		token, err := a.Token()
		if err != nil {
			return fmt.Errorf("read its bearer token: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if a.Password != nil {
		password, err := a.Password()
		if err != nil {
			return fmt.Errorf("read its password: %w", err)
		}
		req.SetBasicAuth(a.User, password)
	}
	return nil
}
