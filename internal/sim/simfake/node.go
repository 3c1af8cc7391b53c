package simfake

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/fakenvml"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/sim"
)

// Node is a simulated node that an agent can look at from outside: a values file
// for the fake NVML library, a procfs and, as an http.Handler, the metrics page
// of its inference server.
type Node struct {
	sim  *sim.Sim
	dir  string
	file fakenvml.File

	mu   sync.Mutex
	page string // empty while the server is down
}

// NewNode writes the files of the node, as it is at the time, into dir.
func NewNode(s *sim.Sim, dir string, now time.Time) (*Node, error) {
	n := &Node{sim: s, dir: dir}
	if err := WriteHost(n.ProcFS()); err != nil {
		return nil, err
	}
	_, err := n.Update(now)
	return n, err
}

// ValuesFile is what fakenvml.EnvFile shall name.
func (n *Node) ValuesFile() string { return filepath.Join(n.dir, "nvml.values") }

// ProcFS is where the node's procfs is.
func (n *Node) ProcFS() string { return filepath.Join(n.dir, "proc") }

// PodLogs is where the names of the node's pods are.
func (n *Node) PodLogs() string { return filepath.Join(n.dir, "pods") }

// JobMapping is where Slurm's prolog says which job has which GPU.
func (n *Node) JobMapping() string { return filepath.Join(n.dir, "jobs") }

// Update shows the node as it is at the time, which does not go back, and returns
// what it shows. Updates must not run side by side.
func (n *Node) Update(t time.Time) (*collector.Part, error) {
	p := n.sim.Part(t)
	Apply(&n.file, p)
	page := ""
	for _, e := range p.Endpoints {
		if e.Engine == "vllm" && e.Value(metric.EndpointUp) == 1 {
			page += VLLM(e)
		}
	}
	n.mu.Lock()
	n.page = page
	n.mu.Unlock()
	return p, errors.Join(WriteProc(n.ProcFS(), p), WriteOwners(n.dir, p), n.file.Write(n.ValuesFile()))
}

// Run updates the node by the wall clock until the context ends.
func (n *Node) Run(ctx context.Context, every time.Duration) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			if _, err := n.Update(now); err != nil {
				return err
			}
		}
	}
}

// ServeHTTP answers with the inference server's metrics page.
func (n *Node) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	n.mu.Lock()
	page := n.page
	n.mu.Unlock()
	if page == "" {
		http.Error(w, "the model is being loaded", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	// A client that has gone away is no concern of the node's.
	_, _ = fmt.Fprint(w, page)
}
