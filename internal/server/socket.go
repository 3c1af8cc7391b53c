package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"gpuvigil/internal/cost"
)

// maxAnswer bounds what a command reads from the agent's socket.
const maxAnswer = 64 << 20

// ListenSocket listens on the agent's socket, which only its user can open. It
// takes the place of a socket that a dead agent left, and of nothing else. The
// listener removes the socket when it is closed.
func ListenSocket(ctx context.Context, path string) (net.Listener, error) {
	if err := vacate(ctx, path); err != nil {
		return nil, err
	}
	// The socket gets its name only once nobody else can open it.
	hidden := path + ".new"
	if err := os.Remove(hidden); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("removing an unfinished socket: %w", err)
	}
	var cfg net.ListenConfig
	l, err := cfg.Listen(ctx, "unix", hidden)
	if err != nil {
		return nil, fmt.Errorf("making the agent's socket: %w; is the state directory's path short and writable?", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(hidden, 0o600), os.Rename(hidden, path)); err != nil {
		return nil, errors.Join(fmt.Errorf("making the agent's socket: %w", err), l.Close(), os.Remove(hidden))
	}
	return &socket{l, path}, nil
}

// vacate removes a socket at path that nobody answers.
func vacate(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for the agent's socket: %w", err)
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("%s is in the way of the agent's socket: it is no socket; move it", path)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		return errors.Join(fmt.Errorf("another agent answers on %s: stop it, or give this one a --state.dir of its own", path), conn.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("trying the agent's socket: %w", err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("removing a dead agent's socket: %w", err)
	}
	return nil
}

// socket is a listener that removes its file.
type socket struct {
	net.Listener
	path string
}

func (s *socket) Close() error {
	err := s.Listener.Close()
	if errors.Is(err, net.ErrClosed) {
		return err
	}
	if gone := os.Remove(s.path); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return err
}

// Client asks a running agent over its socket.
type Client struct {
	path string
	http http.Client
}

// NewClient returns a client for the agent whose socket is at path.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
	return &Client{path: path, http: http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Findings returns what the agent's detectors say.
func (c *Client) Findings(ctx context.Context) (*Findings, error) {
	return ask[Findings](ctx, c, http.MethodGet, "/api/v1/findings")
}

// Snapshot returns the node as the agent saw it last.
func (c *Client) Snapshot(ctx context.Context) (*Snapshot, error) {
	return ask[Snapshot](ctx, c, http.MethodGet, "/api/v1/snapshot")
}

// Inventory returns what runs on the node, as the agent saw it last.
func (c *Client) Inventory(ctx context.Context) (*Inventory, error) {
	return ask[Inventory](ctx, c, http.MethodGet, "/api/v1/inventory")
}

// Costs returns what the agent has booked from since to until; a zero until is now.
func (c *Client) Costs(ctx context.Context, since, until time.Time) (*cost.Answer, error) {
	path := "/api/v1/costs?since=" + since.UTC().Format(time.RFC3339)
	if !until.IsZero() {
		path += "&until=" + until.UTC().Format(time.RFC3339)
	}
	return ask[cost.Answer](ctx, c, http.MethodGet, path)
}

// Release makes the agent let go of the GPU driver for the given time.
func (c *Client) Release(ctx context.Context, d time.Duration) (*Release, error) {
	return ask[Release](ctx, c, http.MethodPost, "/api/v1/release?for="+url.QueryEscape(d.String()))
}

func ask[A any](ctx context.Context, c *Client, method, path string) (*A, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("asking the agent on %s: %w; is it running, with the same --state.dir, and are you its user?", c.path, cause(err))
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("reading the agent's answer: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the agent says: %s", strings.TrimSpace(string(body)))
	}
	a := new(A)
	if err := json.Unmarshal(body, a); err != nil {
		return nil, fmt.Errorf("the agent's answer makes no sense: %w; is it of another version?", err)
	}
	return a, nil
}

// cause leaves out the URL, which is none that anybody could open.
func cause(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}
