package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"time"
)

// ErrConflict says that another one has written an object since it was read.
var ErrConflict = errors.New("it has changed since it was read")

// Lease is an object of coordination.k8s.io by which processes agree who leads.
type Lease struct {
	Namespace, Name string
	Version         string // of the object; "": it is to be made

	Holder      string
	Duration    time.Duration
	Renewed     time.Time
	Transitions int
	Note        string // of the holder, an annotation
}

// noteKey is the annotation that has the holder's note.
const noteKey = "gpuvigil/told"

const (
	maxLease   = 1 << 20
	microTime  = "2006-01-02T15:04:05.000000Z07:00"
	leasesBase = "/apis/coordination.k8s.io/v1/namespaces/"
)

// leaseObject is a Lease in JSON. Whatever else an object has stays out of it: nobody but its
// holders writes one.
type leaseObject struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		Version     string            `json:"resourceVersion,omitempty"`
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	} `json:"metadata"`
	Spec struct {
		Holder      string `json:"holderIdentity"`
		Seconds     int    `json:"leaseDurationSeconds,omitempty"` // 0 is none that the server takes
		Renewed     string `json:"renewTime,omitempty"`
		Transitions int    `json:"leaseTransitions"`
	} `json:"spec"`
}

// Lease reads one. ErrMissing says that there is none, or that the server knows no leases.
func (c *Client) Lease(ctx context.Context, namespace, name string) (Lease, error) {
	body, err := c.get(ctx, leasesBase+url.PathEscape(namespace)+"/leases/"+url.PathEscape(name), nil, false)
	if err != nil {
		return Lease{}, err
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, maxLease+1))
	if err == nil && len(data) > maxLease {
		err = ErrTooLarge
	}
	if err != nil {
		return Lease{}, err
	}
	return DecodeLease(data)
}

// DecodeLease reads a Lease of the API server.
func DecodeLease(data []byte) (Lease, error) {
	var o leaseObject
	if err := json.Unmarshal(data, &o); err != nil {
		return Lease{}, fmt.Errorf("read a Lease: %w", err)
	}
	if o.Metadata.Version == "" || o.Spec.Seconds < 0 || o.Spec.Seconds > 1<<20 || o.Spec.Transitions < 0 {
		return Lease{}, errors.New("read a Lease: it has no version, or numbers that make no sense")
	}
	l := Lease{Namespace: o.Metadata.Namespace, Name: o.Metadata.Name, Version: o.Metadata.Version, Holder: shown(o.Spec.Holder, 300),
		Duration: time.Duration(o.Spec.Seconds) * time.Second, Transitions: o.Spec.Transitions, Note: o.Metadata.Annotations[noteKey]}
	if o.Spec.Renewed != "" {
		var err error
		if l.Renewed, err = time.Parse(time.RFC3339Nano, o.Spec.Renewed); err != nil {
			return Lease{}, fmt.Errorf("read a Lease: %w", err)
		}
	}
	return l, nil
}

// PutLease makes or replaces one. ErrConflict says that another one has.
func (c *Client) PutLease(ctx context.Context, l Lease) error {
	var o leaseObject
	o.APIVersion, o.Kind = "coordination.k8s.io/v1", "Lease"
	o.Metadata.Name, o.Metadata.Namespace, o.Metadata.Version = l.Name, l.Namespace, l.Version
	o.Metadata.Labels = map[string]string{"app.kubernetes.io/name": "gpuvigil-fleet"}
	if l.Note != "" {
		o.Metadata.Annotations = map[string]string{noteKey: l.Note}
	}
	o.Spec.Holder, o.Spec.Seconds, o.Spec.Transitions = l.Holder, int((l.Duration+time.Second-1)/time.Second), l.Transitions
	o.Spec.Renewed = l.Renewed.UTC().Format(microTime)
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	method, below := http.MethodPost, leasesBase+url.PathEscape(l.Namespace)+"/leases"
	if l.Version != "" {
		method, below = http.MethodPut, below+"/"+url.PathEscape(l.Name)
	}
	return c.send(ctx, method, below, data)
}

// send sends an object. What the server makes of it is not read.
func (c *Client) send(ctx context.Context, method, below string, object []byte) error {
	u := *c.base
	u.Path = path.Join("/", u.Path, below)
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(object))
	if err != nil {
		return errors.New("the API server's address does not parse (not shown, it may hold a password)")
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // the rest of it repeats the URL
		}
		return err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK, http.StatusCreated:
		return nil
	case http.StatusConflict:
		return fmt.Errorf("%w: %w", ErrConflict, refusal(resp))
	}
	return refusal(resp)
}
