package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// What an API server can answer that is not a fault of the moment.
var (
	// ErrMissing is the answer of a server that does not know the kind.
	ErrMissing = errors.New("the API server does not know it")
	// ErrForbidden is the answer to somebody who may not read it.
	ErrForbidden = errors.New("this account may not read it")
	// ErrGone says that a list cannot be continued, or a watch: it begins anew.
	ErrGone = errors.New("the API server no longer has that version")
	// ErrTooLarge says that an answer exceeds what is read.
	ErrTooLarge = errors.New("the answer is larger than what is read")
)

// retryError is a request for a pause.
type retryError struct {
	after time.Duration
	err   error
}

func (r *retryError) Error() string { return r.err.Error() }
func (r *retryError) Unwrap() error { return r.err }

// Client asks one API server. It is safe for concurrent use.
type Client struct {
	base    *url.URL
	http    *http.Client
	timeout time.Duration
}

// Config says which API server is asked.
type Config struct {
	Kubeconfig string        // file; empty: the one of the cluster that this runs in
	UserAgent  string        // whom the server's audit log shows
	Timeout    time.Duration // of one page
}

// New returns a client. Nothing is asked yet. The account's token is read again from
// its file when it changes.
func New(cfg Config) (*Client, error) {
	c, err := connection(cfg.Kubeconfig)
	if err != nil {
		return nil, err
	}
	c.UserAgent = cfg.UserAgent
	base, _, err := rest.DefaultServerUrlFor(c)
	if err != nil {
		return nil, fmt.Errorf("find the API server's address: %w", err)
	}
	h, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("prepare the connection to the API server: %w", err)
	}
	// The token goes to the server that was named, and nowhere else.
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{base: base, http: h, timeout: cfg.Timeout}, nil
}

func connection(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		c, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("find the API server of this cluster: %w: run as a pod with a service account, or name a kubeconfig file", err)
		}
		return c, nil
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	c, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig file %s: %w", kubeconfig, err)
	}
	return c, nil
}

// get opens an answer; close it. An answer that is not 200 is an error.
func (c *Client) get(ctx context.Context, below string, query url.Values, metadata bool) (io.ReadCloser, error) {
	u := *c.base
	u.Path = path.Join("/", u.Path, below)
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, errors.New("the API server's address does not parse (not shown, it may hold a password)")
	}
	req.Header.Set("Accept", "application/json")
	if metadata {
		form := "as=PartialObjectMetadataList"
		if query.Has("watch") {
			form = "as=PartialObjectMetadata"
		}
		req.Header.Set("Accept", "application/json;"+form+";g=meta.k8s.io;v=v1")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // the rest of it repeats the URL
		}
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	return nil, refusal(resp)
}

// refusal makes an error of an answer that is not 200.
func refusal(resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxError))
	if err != nil {
		body = nil // the status says enough
	}
	return answered(resp.StatusCode, body, resp.Header.Get("Retry-After"))
}

// answered makes an error of a status and what the server says about it.
func answered(code int, body []byte, retry string) error {
	said := fmt.Sprintf("%d %s", code, http.StatusText(code))
	var s struct{ Message string }
	if json.Unmarshal(body, &s) == nil && s.Message != "" {
		said += ": " + shown(s.Message, 300)
	}
	err := fmt.Errorf("it answers %s", said)
	switch code {
	case http.StatusNotFound:
		err = fmt.Errorf("%w: %w", ErrMissing, err)
	case http.StatusForbidden:
		err = fmt.Errorf("%w: %w", ErrForbidden, err)
	case http.StatusGone:
		err = fmt.Errorf("%w: %w", ErrGone, err)
	}
	if seconds, bad := strconv.Atoi(strings.TrimSpace(retry)); bad == nil && seconds > 0 {
		after := min(time.Duration(min(seconds, 1<<20))*time.Second, maxRetry)
		err = &retryError{after, err}
	}
	return err
}
