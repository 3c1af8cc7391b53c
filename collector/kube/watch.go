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

// change is one frame of a watch.
type change struct {
	Type   string // ADDED, MODIFIED, DELETED, BOOKMARK, ERROR
	Object json.RawMessage
}

// watch gives each change since the version to each until the server ends the watch,
// which it does from time to time. An error says why it was not the server's wish.
func (c *Client) watch(ctx context.Context, k Kind, path, version string, opened func(), each func(change) error) error {
	ctx, cancel := context.WithTimeout(ctx, watchFor+watchGrace)
	defer cancel()
	q := url.Values{"watch": {"1"}, "resourceVersion": {version}, "allowWatchBookmarks": {"true"},
		"timeoutSeconds": {strconv.Itoa(int(watchFor / time.Second))}}
	if k.Fields != "" {
		q.Set("fieldSelector", k.Fields)
	}
	body, err := c.get(ctx, path, q, k.Meta)
	if err != nil {
		return fmt.Errorf("watch %s: %w", k, err)
	}
	defer body.Close()
	opened()
	in := &bounded{r: body}
	for d := json.NewDecoder(in); ; {
		in.left = maxObject + maxError // of the next frame; what was read ahead is already there
		var ch change
		switch err := d.Decode(&ch); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("watch %s: it breaks off: %w", k, err)
		}
		if err := each(ch); err != nil {
			return fmt.Errorf("watch %s: %w", k, err)
		}
	}
}

// bounded lets so many bytes through.
type bounded struct {
	r    io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, ErrTooLarge
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// failed makes an error of a frame that holds the server's: most often that the version
// is too old.
func failed(object json.RawMessage) error {
	var s struct{ Code int }
	if err := json.Unmarshal(object, &s); err != nil {
		return notJSON(err)
	}
	return answered(s.Code, object, "")
}
