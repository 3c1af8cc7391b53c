// Package post carries messages to servers over HTTP: within a time and a number of
// bytes, with a certificate and secrets of its own for each server, and to nobody
// else. None of its errors holds a URL or a secret.
package post

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"gpuvigil/alerting"
)

// Secret returns a password, token or URL. It is called for each request, so that a
// secret can be replaced while the agent runs. Its error must not hold the secret.
type Secret func() (string, error)

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 8 << 20

// Config is what it takes to be listened to by a server. The zero Config sends no
// credentials and trusts whom the system trusts.
type Config struct {
	CAFile     string // certificates that are trusted instead of the system's
	ServerName string // that the certificate must be for, instead of the URL's host
	Insecure   bool   // any certificate will do
	CertFile   string // client certificate and its key; read anew for each connection
	KeyFile    string
	Token      Secret // bearer token; nil: none
	User       string // of basic authentication
	Password   Secret // nil: none
	Timeout    time.Duration

	// MaxAnswer bounds what is read of an answer; 0 means 8 MiB.
	MaxAnswer int64
}

// Client sends requests by one Config. It may be used from several goroutines.
type Client struct {
	cfg  Config
	http *http.Client
}

// Answer is what a server says. Body is cut at the bound.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// New reads certificates and each secret once, so that one that cannot be read stops
// the start.
func New(cfg Config) (*Client, error) {
	if cfg.MaxAnswer <= 0 {
		cfg.MaxAnswer = maxAnswer
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{ServerName: cfg.ServerName, InsecureSkipVerify: cfg.Insecure}
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the certificates that the server is trusted by: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM", cfg.CAFile)
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	if cfg.CertFile != "" {
		own := func() (*tls.Certificate, error) {
			c, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("read the client certificate: %w", err)
			}
			return &c, nil
		}
		if _, err := own(); err != nil {
			return nil, err
		}
		transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own() }
	}
	c := &Client{cfg: cfg, http: &http.Client{
		Transport: transport, Timeout: cfg.Timeout,
		// A message followed elsewhere would be read by somebody else, and one that a
		// redirect turns into a GET would seem to have arrived.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	return c, c.authorize(&http.Request{Header: http.Header{}})
}

// Close closes the connections that are kept for the next request.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Fingerprint is another once the token or the password is; empty if it cannot be read.
func (c *Client) Fingerprint() string {
	req := &http.Request{Header: http.Header{}}
	err := c.authorize(req)
	return alerting.Fingerprint(req.Header.Get("Authorization"), err)
}

func (c *Client) authorize(req *http.Request) error {
	if c.cfg.Token != nil {
		token, err := c.cfg.Token()
		if err != nil {
			return fmt.Errorf("read the bearer token: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if c.cfg.Password != nil {
		password, err := c.cfg.Password()
		if err != nil {
			return fmt.Errorf("read the password: %w", err)
		}
		req.SetBasicAuth(c.cfg.User, password)
	}
	return nil
}

// Do makes one request and returns the answer, whatever its status.
func (c *Client) Do(ctx context.Context, method, to string, header http.Header, body []byte) (*Answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, to, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("its URL does not parse (not shown, it may be secret)")
	}
	for name, values := range header {
		req.Header[name] = values
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "gpuvigil")
	}
	if err := c.authorize(req); err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, withoutURL(err, req.URL)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(io.LimitReader(resp.Body, c.cfg.MaxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", withoutURL(err, req.URL))
	}
	return &Answer{Status: resp.StatusCode, Header: resp.Header, Body: content}, nil
}

// withoutURL keeps of an error what does not name the URL, which may be the secret:
// its host and port may be told, all else may not.
func withoutURL(err error, u *url.URL) error {
	if e := (*url.Error)(nil); errors.As(err, &e) {
		err = e.Err
	}
	password, _ := u.User.Password()
	said := err.Error()
	for _, secret := range []string{u.RequestURI(), u.EscapedPath(), u.Path, u.RawQuery, password} {
		if len(secret) > 1 {
			said = strings.ReplaceAll(said, secret, "[redacted]")
		}
	}
	if said == err.Error() {
		return err
	}
	return errors.New(said)
}
