package lease

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"gpuvigil/collector/kube"
)

// keeps checks what every store must do.
func keeps(t *testing.T, s Store) {
	t.Helper()
	ctx := context.Background()
	if _, _, err := s.Get(ctx); !errors.Is(err, ErrNone) {
		t.Fatalf("before there is one: %v", err)
	}
	want := Record{Holder: "a", Duration: 15 * time.Second, Renewed: time.Unix(1796040000, 0).UTC(), Told: time.Unix(1796039999, 5000).UTC(), Transitions: 3}
	if err := s.Put(ctx, want, ""); err != nil {
		t.Fatal(err)
	}
	got, version, err := s.Get(ctx)
	if diff := gocmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v, it is read as another (-want +got):\n%s", err, diff)
	}
	if err := s.Put(ctx, Record{Holder: "b"}, ""); !errors.Is(err, ErrConflict) {
		t.Errorf("one more is made beside it: %v", err)
	}
	next := want
	next.Holder, next.Told = "", time.Time{}
	if err := s.Put(ctx, next, version); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(ctx, want, version); !errors.Is(err, ErrConflict) {
		t.Errorf("it is replaced by who has seen an older one: %v", err)
	}
	if got, _, err := s.Get(ctx); err != nil || gocmp.Diff(next, got) != "" {
		t.Errorf("error %v, it is read as another (-want +got):\n%s", err, gocmp.Diff(next, got))
	}
	// Of many that see the same, one writes.
	_, version, _ = s.Get(ctx)
	var group sync.WaitGroup
	errs := make([]error, 16)
	for i := range errs {
		group.Go(func() {
			errs[i] = s.Put(ctx, Record{Holder: fmt.Sprint(i), Duration: time.Second, Renewed: want.Renewed}, version)
		})
	}
	group.Wait()
	written := 0
	for _, err := range errs {
		if err == nil {
			written++
		} else if !errors.Is(err, ErrConflict) {
			t.Errorf("one of many: %v", err)
		}
	}
	if written != 1 {
		t.Errorf("%d of 16 that have seen the same have written it", written)
	}
}

func TestFile(t *testing.T) {
	f := File{filepath.Join(t.TempDir(), "lease")}
	keeps(t, f)
	left, err := filepath.Glob(f.Path + ".*")
	if err != nil || len(left) != 1 {
		t.Errorf("beside the file there are %q, want its lock alone", left)
	}
	// A file that is torn is somebody's until it has not changed for a while.
	if err := os.WriteFile(f.Path, []byte(`{"holder": "a", "dur`), 0o600); err != nil {
		t.Fatal(err)
	}
	got, version, err := f.Get(t.Context())
	if err != nil || got.Holder == "" || got.Duration != time.Minute {
		t.Errorf("what cannot be read is read as %+v, %v", got, err)
	}
	if err := f.Put(t.Context(), Record{Holder: "b"}, version); err != nil {
		t.Errorf("what cannot be read cannot be replaced: %v", err)
	}
	if err := (File{filepath.Join(t.TempDir(), "absent", "lease")}).Put(t.Context(), Record{Holder: "b"}, ""); err == nil {
		t.Error("a directory that does not exist is written to")
	}
}

func FuzzFile(f *testing.F) {
	f.Add([]byte(`{"holder": "a", "duration_seconds": 15, "renewed": "2026-01-01T00:00:00Z", "told": "2026-01-01T00:00:00Z", "transitions": 1}`))
	f.Add([]byte(`{"duration_seconds": 1e308}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := parse(data); err == nil && (r.Duration < 0 || r.Duration > time.Hour || len(r.Holder) > 4*maxIdentity) {
			t.Errorf("%q is read as %+v", data, r)
		}
	})
}

// leases is an API server that knows leases alone, and checks them as one does.
type leases struct {
	mu      sync.Mutex
	objects map[string]map[string]any
	version int
	refuse  int // the status of all answers; 0: none is refused
}

func (l *leases) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fail := func(code int) {
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind": "Status", "message": "no: %d", "code": %d}`, code, code)
	}
	const base = "/apis/coordination.k8s.io/v1/namespaces/gpuvigil/leases"
	name := strings.Trim(strings.TrimPrefix(r.URL.Path, base), "/")
	if l.refuse != 0 || !strings.HasPrefix(r.URL.Path, base) {
		fail(cmp.Or(l.refuse, http.StatusNotFound))
		return
	}
	var sent map[string]any
	if r.Method != http.MethodGet {
		data, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(data, &sent) != nil || sent["kind"] != "Lease" || sent["apiVersion"] != "coordination.k8s.io/v1" || r.Header.Get("Content-Type") != "application/json" {
			fail(http.StatusBadRequest)
			return
		}
	}
	meta, _ := sent["metadata"].(map[string]any)
	switch r.Method {
	case http.MethodGet:
		if l.objects[name] == nil {
			fail(http.StatusNotFound)
			return
		}
		sent = l.objects[name]
	case http.MethodPost:
		if name = fmt.Sprint(meta["name"]); l.objects[name] != nil {
			fail(http.StatusConflict)
			return
		}
		w.WriteHeader(http.StatusCreated)
	case http.MethodPut:
		old, _ := l.objects[name]["metadata"].(map[string]any)
		if old == nil || old["resourceVersion"] != meta["resourceVersion"] {
			fail(http.StatusConflict)
			return
		}
	}
	if r.Method != http.MethodGet {
		l.version++
		meta["resourceVersion"] = fmt.Sprint(l.version)
		l.objects[name] = sent
	}
	if err := json.NewEncoder(w).Encode(sent); err != nil {
		panic(err)
	}
}

func TestKubernetes(t *testing.T) {
	server := &leases{objects: map[string]map[string]any{}}
	h := httptest.NewServer(server)
	defer h.Close()
	config := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(config, []byte(fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "k", "cluster": {"server": %q}}], "contexts": [{"name": "c", "context": {"cluster": "k", "user": ""}}]}`, h.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := kube.New(kube.Config{Kubeconfig: config, UserAgent: "gpuvigil-test", Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	k := Kubernetes{client, "gpuvigil", "fleet"}
	keeps(t, k)
	server.refuse = http.StatusForbidden
	if _, _, err := k.Get(t.Context()); err == nil || !strings.Contains(err.Error(), "get, create and update of leases") {
		t.Errorf("who may not is told: %v", err)
	}
}
