package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// engine is a time-series database that is sent samples. It can be ended and started
// again where it was, with what it has.
type engine struct {
	v1.API
	name    string
	address string
	write   string // URL of what it takes
	program string
	args    []string
	running *server
}

// freeAddress returns an address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// newEngine returns an engine that does not run yet.
func newEngine(t *testing.T, name, program, address, path string, args ...string) *engine {
	t.Helper()
	client, err := api.NewClient(api.Config{Address: "http://" + address})
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{API: v1.NewAPI(client), name: name, address: address, write: "http://" + address + path, program: tool(t, program), args: args}
	t.Cleanup(func() {
		if e.running == nil {
			return
		}
		e.end()
		if t.Failed() {
			t.Logf("%s' log:\n%s", e.name, e.running.log)
		}
	})
	return e
}

// newPrometheus is a Prometheus that takes remote write and has the further configuration.
func newPrometheus(t *testing.T, config string) *engine {
	t.Helper()
	dir, address := t.TempDir(), freeAddress(t)
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return newEngine(t, "Prometheus", "prometheus", address, "/api/v1/write", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--web.enable-remote-write-receiver")
}

// newVictoria is a VictoriaMetrics, with what it takes as text.
func newVictoria(t *testing.T) *engine {
	t.Helper()
	address := freeAddress(t)
	return newEngine(t, "VictoriaMetrics", "victoria-metrics", address, "/api/v1/import/prometheus", "-storageDataPath="+filepath.Join(t.TempDir(), "data"),
		"-httpListenAddr="+address, "-search.latencyOffset=0s")
}

// start starts the engine and waits until it answers.
func (e *engine) start(t *testing.T) {
	t.Helper()
	s, err := launch(e.program, e.args, nil)
	if err != nil {
		t.Fatal(err)
	}
	e.running = s
	eventually(t, e.name+" answers", func() error {
		if s.gone() {
			t.Fatalf("%s ended: %s", e.name, s.log)
		}
		client := http.Client{Timeout: 5 * time.Second}
		r, err := client.Get("http://" + e.address + "/-/ready")
		if err == nil {
			if r.Body.Close(); r.StatusCode != http.StatusOK {
				err = errors.New(r.Status)
			}
		}
		return err
	})
}

func (e *engine) end() { e.running.end() }

// samples returns those of the only series that comes of the selector, in the last half hour.
func (e *engine) samples(ctx context.Context, selector string) ([]model.SamplePair, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	v, _, _, err := e.Query(ctx, selector+"[30m]", time.Now())
	if err != nil {
		return nil, err
	}
	m, ok := v.(model.Matrix)
	if !ok || len(m) != 1 {
		return nil, fmt.Errorf("%s: %s comes of %s, want one series", e.name, v, selector)
	}
	return m[0].Values, nil
}

// has is an error if the expression gives nothing now.
func (e *engine) has(ctx context.Context, expr string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	v, _, _, err := e.Query(ctx, expr, time.Now())
	if err != nil {
		return err
	}
	if vector, ok := v.(model.Vector); !ok || len(vector) == 0 {
		return fmt.Errorf("%s: nothing comes of %s", e.name, expr)
	}
	return nil
}
