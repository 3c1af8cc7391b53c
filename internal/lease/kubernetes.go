package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gpuvigil/collector/kube"
)

// Kubernetes keeps the record in a Lease of coordination.k8s.io.
type Kubernetes struct {
	Client          *kube.Client
	Namespace, Name string
}

// Get reads the Lease. Its version is that of the object.
func (k Kubernetes) Get(ctx context.Context) (Record, string, error) {
	l, err := k.Client.Lease(ctx, k.Namespace, k.Name)
	if errors.Is(err, kube.ErrMissing) {
		return Record{}, "", ErrNone
	}
	if err != nil {
		return Record{}, "", k.failed(err)
	}
	r := Record{Holder: l.Holder, Duration: l.Duration, Renewed: l.Renewed, Transitions: l.Transitions}
	if at, err := time.Parse(time.RFC3339Nano, l.Note); err == nil {
		r.Told = at // who else would have written it has told nothing of ours
	}
	return r, l.Version, nil
}

// Put makes or replaces the Lease.
func (k Kubernetes) Put(ctx context.Context, r Record, version string) error {
	l := kube.Lease{Namespace: k.Namespace, Name: k.Name, Version: version, Holder: r.Holder, Duration: r.Duration,
		Renewed: r.Renewed, Transitions: r.Transitions}
	if !r.Told.IsZero() {
		l.Note = r.Told.UTC().Format(time.RFC3339Nano)
	}
	err := k.Client.PutLease(ctx, l)
	switch {
	case errors.Is(err, kube.ErrConflict):
		return ErrConflict
	case err != nil:
		return k.failed(err)
	}
	return nil
}

func (k Kubernetes) failed(err error) error {
	if errors.Is(err, kube.ErrForbidden) {
		return fmt.Errorf("the Lease %s in the namespace %s: %w: the service account needs a Role with get, create and update of leases there", k.Name, k.Namespace, err)
	}
	return fmt.Errorf("the Lease %s in the namespace %s: %w", k.Name, k.Namespace, err)
}
