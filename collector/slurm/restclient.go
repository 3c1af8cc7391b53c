package slurm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// rest asks slurmrestd. No error of it holds the user, the token or the URL, which may
// hold a password.
type rest struct {
	cfg    Config
	client *http.Client
}

func newREST(cfg Config) *rest {
	return &rest{cfg, &http.Client{
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Control: refuseLinkLocal}).DialContext,
			MaxIdleConnsPerHost: 1,
			IdleConnTimeout:     time.Minute,
		},
		// The token goes to the host that was named, and nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// refuseLinkLocal keeps a name from leading to the cloud's metadata service.
func refuseLinkLocal(_, address string, _ syscall.RawConn) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); ip != nil && (ip.IsLinkLocalUnicast() || ip.IsLinkLocalMulticast()) {
		return errors.New("link-local addresses are not asked")
	}
	return nil
}

func (r *rest) ask(ctx context.Context) (*Answer, int, error) {
	body, err := r.get(ctx, "jobs")
	if err != nil {
		return nil, 0, err
	}
	a := &Answer{}
	var bad, worse int
	if a.Jobs, bad, err = ParseRESTJobs(body); err != nil {
		return nil, 0, err
	}
	if bad > 0 && len(a.Jobs) == 0 {
		return nil, 0, fmt.Errorf("read slurmrestd's jobs: none of its %d entries can be read: is the version in fleet.slurm.slurmrestd_url one that it has?", bad)
	}
	if body, err = r.get(ctx, "nodes"); err != nil {
		return nil, 0, err
	}
	if a.Nodes, worse, err = ParseRESTNodes(body); err != nil {
		return nil, 0, err
	}
	if worse > 0 && len(a.Nodes) == 0 {
		return nil, 0, fmt.Errorf("read slurmrestd's nodes: none of its %d entries can be read: is the version in fleet.slurm.slurmrestd_url one that it has?", worse)
	}
	return a, bad + worse, nil
}

func (r *rest) get(ctx context.Context, what string) ([]byte, error) {
	fail := func(err error) error { return fmt.Errorf("ask slurmrestd for its %s: %w", what, err) }
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(r.cfg.URL, "/")+"/"+what, nil)
	if err != nil {
		return nil, fail(errors.New("fleet.slurm.slurmrestd_url does not parse (not shown, it may hold a password)"))
	}
	req.Header.Set("Accept", "application/json")
	for header, read := range map[string]func() (string, error){"X-SLURM-USER-NAME": r.cfg.User, "X-SLURM-USER-TOKEN": r.cfg.Token} {
		if read == nil {
			continue
		}
		value, err := read()
		if err != nil {
			return nil, fail(err)
		}
		if strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c == 0x7f }) {
			return nil, fail(fmt.Errorf("the file for the header %s holds control characters (not shown): it must be one line", header))
		}
		req.Header.Set(header, value)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // the rest of it repeats the URL
		}
		return nil, fail(err)
	}
	defer resp.Body.Close()
	status := fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	switch {
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		return nil, fail(fmt.Errorf("it answers %s: renew the token with scontrol token, and let it be the named user's", status))
	case resp.StatusCode != http.StatusOK:
		return nil, fail(fmt.Errorf("it answers %s: is its version in fleet.slurm.slurmrestd_url, as in http://slurm:6820/slurm/v0.0.40?", status))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxREST+1))
	if err != nil {
		return nil, fail(fmt.Errorf("its answer breaks off: %w", err))
	}
	if len(body) > maxREST {
		return nil, fail(fmt.Errorf("its answer is larger than %d MiB", maxREST>>20))
	}
	return body, nil
}

// maxREST bounds an answer: a job takes about 5 KiB of JSON, so this is 50,000 jobs.
const maxREST = 256 << 20
