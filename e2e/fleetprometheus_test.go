package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// exporter serves a recorded page, as it is until somebody changes it.
type exporter struct {
	mu   sync.Mutex
	page string
	http *httptest.Server
}

func startExporter(t *testing.T, recorded string) *exporter {
	t.Helper()
	content, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	e := &exporter{page: string(content)}
	e.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		e.mu.Lock()
		defer e.mu.Unlock()
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		io.WriteString(w, e.page)
	}))
	t.Cleanup(e.http.Close)
	return e
}

func (e *exporter) change(by func(page string) string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.page = by(e.page)
}

func (e *exporter) target() string { return e.http.Listener.Addr().String() }

// nodeExporters are those of one node without an agent.
type nodeExporters struct{ gpus, node, vllm *exporter }

func startNodeExporters(t *testing.T) nodeExporters {
	t.Helper()
	return nodeExporters{
		startExporter(t, "../collector/scrape/testdata/dcgm-4.8.prom"), startExporter(t, "../collector/scrape/testdata/node_exporter.prom"), startExporter(t, "../collector/inference/testdata/vllm-v1.prom"),
	}
}

// scrapes is Prometheus' configuration for them.
func (e nodeExporters) scrapes(t *testing.T) string {
	t.Helper()
	config := "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n"
	for _, job := range []struct{ name, target string }{{"dcgm", e.gpus.target()}, {"node", e.node.target()}, {"vllm", e.vllm.target()}} {
		config += fmt.Sprintf("- job_name: %s\n  static_configs: [{targets: ['%s'], labels: {node: gpu-117}}]\n", job.name, job.target)
	}
	file := filepath.Join(t.TempDir(), "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// fall makes an error of the driver fall on the first GPU.
func (e nodeExporters) fall(t *testing.T, code int) {
	t.Helper()
	done := false
	e.gpus.change(func(page string) string {
		lines := strings.Split(page, "\n")
		for i, line := range lines {
			if at := strings.LastIndexByte(line, ' '); !done && at > 0 && strings.HasPrefix(line, "DCGM_FI_DEV_XID_ERRORS{") {
				lines[i], done = line[:at+1]+strconv.Itoa(code), true
			}
		}
		return strings.Join(lines, "\n")
	})
	if !done {
		t.Fatal("the recorded page has no DCGM_FI_DEV_XID_ERRORS")
	}
}

// freePort returns an address at which nobody listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// startEngine starts a database at the address and ends it with the test.
func startEngine(t *testing.T, name, address string, args ...string) *server {
	t.Helper()
	s, err := launch(tool(t, name), args, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.end()
		if t.Failed() {
			t.Logf("the log of %s:\n%s", name, s.log)
		}
	})
	eventually(t, name+" answers", func() error { return answers("http://" + address + "/-/healthy") })
	return s
}

func answers(url string) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// startFleetRole starts the cluster role and returns its URL.
func startFleetRole(t *testing.T, args ...string) string {
	t.Helper()
	s, err := launch(binary, append([]string{"fleet", "--state.dir=" + t.TempDir(), "--web.listen-address=127.0.0.1:0"}, args...), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if code := s.end(); code != 0 {
			t.Errorf("the role ends with %d", code)
		}
		if t.Failed() {
			t.Logf("the role's log:\n%s", s.log)
		}
	})
	listens, err := s.address()
	if err != nil {
		t.Fatalf("start the role: %v\n%s", err, s.log)
	}
	return "http://" + listens
}

// asks reads JSON of the role's API.
func asks(url string, into any) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// shows is an error if a page of the role does not have the text.
func shows(url, want string) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && !strings.Contains(string(body), want) {
		err = fmt.Errorf("it does not say %s", want)
	}
	return err
}

// knows waits until the role knows the node and its GPUs.
func knows(t *testing.T, role string, gpus int) {
	t.Helper()
	eventually(t, "the role knows the node", func() error {
		var got struct {
			Nodes []struct {
				Node string
				GPUs int
			}
		}
		if err := asks(role+"/api/v1/nodes", &got); err != nil {
			return err
		}
		if len(got.Nodes) != 1 || got.Nodes[0].Node != "gpu-117" || got.Nodes[0].GPUs != gpus {
			return fmt.Errorf("it knows %+v, there is gpu-117 with %d GPUs", got.Nodes, gpus)
		}
		return nil
	})
}

// finds waits until the role has a finding of the rule and cause.
func finds(t *testing.T, role, rule, cause string) {
	t.Helper()
	eventually(t, "the role finds "+rule+" by "+cause, func() error {
		return shows(role+"/metrics", `vigil_fleet_finding{node="gpu-117",rule="`+rule+`",severity="page",`)
	})
	var got struct {
		Findings []struct{ Node, Rule, Cause, State string }
	}
	if err := asks(role+"/api/v1/findings", &got); err != nil {
		t.Fatal(err)
	}
	for _, f := range got.Findings {
		if f.Node == "gpu-117" && f.Rule == rule && f.Cause == cause {
			return
		}
	}
	t.Errorf("its findings are %+v, want %s by %s on gpu-117", got.Findings, rule, cause)
}

// A team with dcgm-exporter, node_exporter and vLLM in Prometheus gives one flag.
func TestFleetReadsPrometheusByOneFlag(t *testing.T) {
	t.Parallel()
	node, address := startNodeExporters(t), freePort(t)
	startEngine(t, "prometheus", address, "--config.file="+node.scrapes(t), "--storage.tsdb.path="+t.TempDir(), "--web.listen-address="+address)
	role := startFleetRole(t, "--prometheus.url=http://"+address)
	knows(t, role, recordedGPUs)
	for _, want := range []string{`vigil_promql_up 1`, `vigil_promql_names{source="inference"}`, `vigil_promql_names{source="gpu_exporter"}`, `vigil_promql_names{source="node_exporter"}`, `vigil_fleet_nodes{state="exporters"} 1`} {
		eventually(t, "the role says where its numbers come from", func() error { return shows(role+"/metrics", want) })
	}
	eventually(t, "the page says what is missing", func() error { return shows(role+"/", "Nothing tells of processes on GPUs") })
	node.fall(t, 79)
	finds(t, role, "xid", "xid_79")
}

const recordedGPUs = 8

func TestFleetSurvivesThatPrometheusStartsAnew(t *testing.T) {
	t.Parallel()
	node, address, data := startNodeExporters(t), freePort(t), t.TempDir()
	args := []string{"--config.file=" + node.scrapes(t), "--storage.tsdb.path=" + data, "--web.listen-address=" + address}
	engine := startEngine(t, "prometheus", address, args...)
	role := startFleetRole(t, "--config.file="+fleetFile(t, "fleet: {prometheus: {url: 'http://"+address+"', interval: 5s, timeout: 5s, match: ['node=~\"gpu-.*\"']}}\n"))
	knows(t, role, recordedGPUs)
	engine.kill()
	eventually(t, "the role says that Prometheus is gone", func() error { return shows(role+"/metrics", "vigil_promql_up 0\n") })
	startEngine(t, "prometheus", address, args...)
	eventually(t, "the role reads Prometheus again", func() error { return shows(role+"/metrics", "vigil_promql_up 1\n") })
	knows(t, role, recordedGPUs)
	node.fall(t, 79)
	finds(t, role, "xid", "xid_79")
}

func fleetFile(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "fleet.yml")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
