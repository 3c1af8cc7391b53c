package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"gpuvigil/collector"
)

// NodeSourceName is the name of the source NodeSource.
const NodeSourceName = "kubernetes"

// NodeSource is the source "kubernetes" of an agent: the labels of its node's pods, and
// which GPU the device of a claim is. Its parts are empty; the source "owner" asks it.
type NodeSource struct {
	labels *Mirror[Labels] // nil: not asked for
	slices *Mirror[Slice]
	keep   time.Duration
	err    error // why nothing can be read

	known atomic.Pointer[known]
}

// known is what was found at the last sample. It is not changed.
type known struct {
	pods    map[podName]map[string]string
	devices map[DeviceName]string
}

type podName struct{ namespace, name string }

// NodeSourceConfig says what of a node is read.
type NodeSourceConfig struct {
	Client *Client
	Err    error         // why there is no client: each sample says so
	Node   string        // as Kubernetes calls it
	Labels []string      // of pods, that are kept; none: pods are not read
	Slices bool          // read which GPU the device of a claim is
	Keep   time.Duration // how long what was read stands while it cannot be read
	Log    *slog.Logger
}

// NewNodeSource returns a source. It reads nothing until Run.
func NewNodeSource(cfg NodeSourceConfig) *NodeSource {
	s := &NodeSource{keep: cfg.Keep, err: cfg.Err}
	if cfg.Err != nil {
		return s
	}
	if len(cfg.Labels) > 0 {
		pods := Pods.OnNode(cfg.Node)
		pods.Meta = true
		s.labels = NewMirror(cfg.Client, pods, DecodeLabels(cfg.Labels), cfg.Log)
	}
	if cfg.Slices {
		s.slices = NewMirror(cfg.Client, ResourceSlices.OnNode(cfg.Node), DecodeSlice, cfg.Log)
	}
	return s
}

// Name is "kubernetes".
func (s *NodeSource) Name() string { return NodeSourceName }

// Run reads until ctx ends.
func (s *NodeSource) Run(ctx context.Context) {
	var group sync.WaitGroup
	if s.labels != nil {
		group.Go(func() { s.labels.Run(ctx) })
	}
	if s.slices != nil {
		group.Go(func() { s.slices.Run(ctx) })
	}
	group.Wait()
}

// Sample takes up what was read. The error says what could not be.
func (s *NodeSource) Sample(context.Context) (*collector.Part, error) {
	now := time.Now()
	k := &known{pods: map[podName]map[string]string{}, devices: map[DeviceName]string{}}
	errs := []error{s.err}
	if s.labels != nil {
		h := s.labels.Health()
		errs = append(errs, h.problem("the labels of pods"))
		if fresh(h, now, s.keep) {
			for _, l := range s.labels.All() {
				k.pods[podName{l.Namespace, l.Name}] = l.Labels
			}
		}
	}
	if s.slices != nil {
		h := s.slices.Health()
		errs = append(errs, h.problem("which GPU the device of a claim is"))
		if fresh(h, now, s.keep) {
			for _, slice := range s.slices.All() {
				for _, d := range slice.Devices {
					k.devices[DeviceName{slice.Pool, d.Name}] = d.UUID
				}
			}
		}
	}
	s.known.Store(k)
	return &collector.Part{Time: now}, errors.Join(errs...)
}

// Try asks once for everything that the source reads. The error says what it may not.
func (s *NodeSource) Try(ctx context.Context) error {
	errs := []error{s.err}
	if s.labels != nil {
		errs = append(errs, s.labels.try(ctx))
	}
	if s.slices != nil {
		errs = append(errs, s.slices.try(ctx))
	}
	return errors.Join(errs...)
}

func fresh(h Health, now time.Time, keep time.Duration) bool {
	return !h.Synced.IsZero() && now.Sub(h.Synced) <= keep
}

// problem is what keeps a kind from being read; nil while nothing does.
func (h *Health) problem(what string) error {
	switch {
	case h.State == Up:
		return nil
	case h.Err == nil:
		return fmt.Errorf("read %s from the API server: it has not answered yet", what)
	case h.State == Forbidden:
		return fmt.Errorf("read %s from the API server: %w: allow get, list and watch of %s to the agent's account, or switch it off", what, h.Err, h.Kind)
	case h.State == Missing:
		return fmt.Errorf("read %s from the API server: %w: %w", what, h.Err, collector.ErrAbsent)
	}
	return fmt.Errorf("read %s from the API server: %w", what, h.Err)
}

// PodLabels returns the labels of a pod as of the last sample, those that are kept; nil
// if it is not known.
func (s *NodeSource) PodLabels(namespace, name string) map[string]string {
	if k := s.known.Load(); k != nil {
		return k.pods[podName{namespace, name}]
	}
	return nil
}

// Device returns the uuid of the device that a claim names; empty if it is not known.
func (s *NodeSource) Device(pool, device string) string {
	if k := s.known.Load(); k != nil {
		return k.devices[DeviceName{pool, device}]
	}
	return ""
}
