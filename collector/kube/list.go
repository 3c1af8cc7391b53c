package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"
)

// Meta is what every object has.
type Meta struct {
	Name, Namespace, UID string
	ResourceVersion      string
	Created              time.Time `json:"creationTimestamp"`
	Labels, Annotations  map[string]string
	Owners               []struct {
		Kind, Name string
		Controller bool
	} `json:"ownerReferences"`
}

// Controller is what made the object; empty if nothing did.
func (m *Meta) Controller() (kind, name string) {
	for _, o := range m.Owners {
		if o.Controller {
			return o.Kind, o.Name
		}
	}
	return "", ""
}

// page is one page of a list. The objects stay as they are, so that one that cannot be
// read costs only itself.
type page struct {
	Metadata struct {
		ResourceVersion string
		Continue        string
	}
	Items []json.RawMessage
}

// list gives each object of a kind to each, page by page, and returns the version of
// the list and the bytes that it took.
func (c *Client) list(ctx context.Context, k Kind, path string, each func(json.RawMessage)) (version string, size int64, err error) {
	q := url.Values{}
	if k.Fields != "" {
		q.Set("fieldSelector", k.Fields)
	}
	if k.Cached {
		q.Set("resourceVersion", "0")
	} else {
		q.Set("limit", strconv.Itoa(pageSize))
	}
	for range maxPages {
		p, n, err := c.page(ctx, path, q, k.Meta)
		size += n
		if err != nil {
			return "", size, fmt.Errorf("list %s: %w", k, err)
		}
		for _, raw := range p.Items {
			each(raw)
		}
		if p.Metadata.Continue == "" {
			return p.Metadata.ResourceVersion, size, nil
		}
		q.Del("resourceVersion")
		q.Set("limit", strconv.Itoa(pageSize))
		q.Set("continue", p.Metadata.Continue)
	}
	return "", size, fmt.Errorf("list %s: the API server goes on after %d pages", k, maxPages)
}

func (c *Client) page(ctx context.Context, path string, q url.Values, metadata bool) (*page, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	body, err := c.get(ctx, path, q, metadata)
	if err != nil {
		return nil, 0, err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, maxPage+1))
	size := int64(len(text))
	if err != nil {
		return nil, size, fmt.Errorf("its answer breaks off: %w", err)
	}
	if size > maxPage {
		return nil, size, fmt.Errorf("%w: more than %d MiB for a page of %d objects", ErrTooLarge, maxPage>>20, pageSize)
	}
	p := &page{}
	if err := json.Unmarshal(text, p); err != nil {
		return nil, size, notJSON(err)
	}
	return p, size, nil
}

// notJSON is the error of an answer that is none of an API server.
func notJSON(err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return errors.New("its answer is not the JSON of an API server: is there a proxy between?")
	}
	return fmt.Errorf("read its answer: %w", err)
}
