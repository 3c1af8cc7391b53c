package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// State is how well a kind can be read.
type State string

// The states of a Mirror.
const (
	Waiting   State = "waiting" // nothing was answered yet
	Up        State = "up"
	Missing   State = "missing"   // the cluster does not have the kind
	Forbidden State = "forbidden" // the account may not read it
	Failing   State = "failing"   // the last try failed
)

// States are all states of a Mirror.
var States = []State{Waiting, Up, Missing, Forbidden, Failing}

// Health is how well a kind is read.
type Health struct {
	Kind         Kind
	State        State
	Err          error     // of the last try, nil while all is well
	Synced       time.Time // when what is kept was last known to be what the server has; zero: never
	Objects      int
	Good, Failed uint64 // lists and watches since the start
	Absent       uint64 // those that were answered with that the cluster does not have the kind
	Bytes        uint64 // of lists
	Skipped      uint64 // objects that could not be read or were too large or too many
}

// Reader reads one kind, whatever its objects are.
type Reader interface {
	Run(ctx context.Context)
	Health() Health
}

// Object is what is kept of an object. ID is its uid.
type Object interface{ ID() string }

// Mirror keeps what a decoder makes of the objects of one kind, as the server has them.
type Mirror[T Object] struct {
	client *Client
	kind   Kind
	decode func(json.RawMessage) (T, error)
	log    *slog.Logger

	mu      sync.Mutex
	objects map[string]*T // by uid
	health  Health
	live    bool // a watch is open
	path    int  // of kind.Paths: the version that the server has
	version string
	told    State
}

// NewMirror returns a mirror that reads nothing until Run. The decoder's result is
// shared: it must not be changed later.
func NewMirror[T Object](c *Client, k Kind, decode func(json.RawMessage) (T, error), log *slog.Logger) *Mirror[T] {
	return &Mirror[T]{client: c, kind: k, decode: decode, log: log, health: Health{Kind: k, State: Waiting}, told: Waiting}
}

// Run lists and watches until ctx ends. After a failure it waits, twice as long each
// time up to a minute, or for as long as the server asks.
func (m *Mirror[T]) Run(ctx context.Context) {
	wait := time.Duration(0)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		err := m.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > longestWait {
			wait = 0 // it went well for long
		}
		wait = m.settle(err, wait)
		timer.Reset(wait)
	}
}

// once lists if it must, and watches.
func (m *Mirror[T]) once(ctx context.Context) error {
	if m.version == "" {
		if err := m.relist(ctx); err != nil {
			return err
		}
	}
	err := m.client.watch(ctx, m.kind, m.kind.Paths[m.path], m.version, m.opened, m.take)
	m.closed()
	if errors.Is(err, ErrGone) || errors.Is(err, ErrTooLarge) || errors.Is(err, ErrMissing) {
		m.version = ""
	}
	return err
}

// relist takes the list in place of what was kept.
func (m *Mirror[T]) relist(ctx context.Context) error {
	for {
		fresh := map[string]*T{}
		skipped := uint64(0)
		began := time.Now()
		version, size, err := m.client.list(ctx, m.kind, m.kind.Paths[m.path], func(raw json.RawMessage) {
			object, err := m.read(raw)
			if err != nil || len(fresh) >= maxObjects {
				skipped++
				return
			}
			fresh[(*object).ID()] = object
		})
		m.mu.Lock()
		m.health.Bytes += uint64(size)
		m.mu.Unlock()
		if errors.Is(err, ErrMissing) && m.path+1 < len(m.kind.Paths) {
			m.path++ // an older version, then
			continue
		}
		if errors.Is(err, ErrMissing) {
			m.path = 0 // next time it may be any of them
		}
		if err != nil {
			return err
		}
		m.mu.Lock()
		m.objects, m.version = fresh, version
		m.health.Synced = began
		m.health.Skipped += skipped
		m.mu.Unlock()
		if version == "" {
			return fmt.Errorf("list %s: the answer has no resourceVersion: it cannot be watched", m.kind)
		}
		return nil
	}
}

// try lists once, of the versions that there are the newest.
func (m *Mirror[T]) try(ctx context.Context) error {
	var err error
	for _, path := range m.kind.Paths {
		if _, _, err = m.client.list(ctx, m.kind, path, func(json.RawMessage) {}); !errors.Is(err, ErrMissing) {
			break
		}
	}
	return err
}

// read decodes one object.
func (m *Mirror[T]) read(raw json.RawMessage) (*T, error) {
	if len(raw) > maxObject {
		return nil, ErrTooLarge
	}
	v, err := m.decode(raw)
	if err == nil && v.ID() == "" {
		err = errors.New("it has no uid")
	}
	return &v, err
}

// take applies one change of a watch.
func (m *Mirror[T]) take(ch change) error {
	if ch.Type == "ERROR" {
		return failed(ch.Object)
	}
	var head struct{ Metadata Meta }
	if err := json.Unmarshal(ch.Object, &head); err != nil {
		return notJSON(err)
	}
	if head.Metadata.ResourceVersion == "" {
		return errors.New("a change has no resourceVersion")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.version = head.Metadata.ResourceVersion
	uid := head.Metadata.UID
	switch ch.Type {
	case "BOOKMARK":
	case "DELETED":
		delete(m.objects, uid)
	case "ADDED", "MODIFIED":
		object, err := m.read(ch.Object)
		if _, known := m.objects[uid]; err != nil || !known && len(m.objects) >= maxObjects {
			delete(m.objects, uid) // what was known of it is no longer true
			m.health.Skipped++
			return nil
		}
		m.objects[uid] = object
	default:
		return fmt.Errorf("a change is %q, which is not known", shown(ch.Type, 20))
	}
	return nil
}

func (m *Mirror[T]) opened() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.live = true
	m.health.Good++
	m.become(Up, nil)
}

func (m *Mirror[T]) closed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.live {
		m.live, m.health.Synced = false, time.Now()
	}
}

// settle notes how a try ended and says how long to wait for the next.
func (m *Mirror[T]) settle(err error, last time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	// A server that ends each watch at once is not asked more often than one that fails.
	wait := min(max(2*last, firstWait), longestWait)
	if err == nil {
		return wait
	}
	if errors.Is(err, ErrMissing) {
		m.health.Absent++
	} else {
		m.health.Failed++
	}
	switch {
	case errors.Is(err, ErrGone): // it happens to every watch that was away for long
	case errors.Is(err, ErrMissing):
		m.become(Missing, err)
		wait = missingWait
	case errors.Is(err, ErrForbidden):
		m.become(Forbidden, err)
		wait = missingWait
	default:
		m.become(Failing, err)
	}
	var asked *retryError
	if errors.As(err, &asked) {
		wait = max(wait, asked.after)
	}
	return wait
}

// become says once how it has become.
func (m *Mirror[T]) become(s State, err error) {
	m.health.State, m.health.Err = s, err
	if s == m.told {
		return
	}
	before := m.told
	m.told = s
	switch s {
	case Up:
		m.log.Info("The API server is read.", "what", m.kind.String(), "objects", len(m.objects))
	case Missing:
		m.objects = nil
		m.log.Info("This cluster does not have it: nothing is said about it.", "what", m.kind.String())
	case Forbidden:
		m.log.Warn("This account may not read it: nothing is said about it. Allow get, list and watch, or switch it off.", "what", m.kind.String(), "err", err)
	default:
		m.log.Warn("The API server could not be read.", "what", m.kind.String(), "before", before, "err", err)
	}
}

// All returns what is kept, in no order, nil before the first list. The objects must
// not be changed.
func (m *Mirror[T]) All() []*T {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.objects == nil {
		return nil
	}
	all := make([]*T, 0, len(m.objects))
	for _, o := range m.objects {
		all = append(all, o)
	}
	return all
}

// Health returns how well the kind is read.
func (m *Mirror[T]) Health() Health {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.health
	h.Objects = len(m.objects)
	if m.live {
		h.Synced = time.Now()
	}
	return h
}
