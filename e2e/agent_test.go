package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	apiserver "gpuvigil/internal/server"
)

// agent is a running `gpuvigil run` or `gpuvigil demo`.
type agent struct {
	*server
	address string
	state   string
}

// options say how an agent is started.
type options struct {
	command string   // run unless given
	config  string   // text of the configuration file; none if empty
	file    string   // the configuration file, if it exists already
	state   string   // state directory; a new one if empty
	address string   // to listen on; a free port if empty
	env     []string // further variables
	args    []string // further flags
}

// startAgent starts an agent and ends it with the test, whose log gets the agent's
// if it failed.
func startAgent(t *testing.T, o options) *agent {
	t.Helper()
	if o.state == "" {
		o.state = filepath.Join(shortDir(t), "state")
	}
	if o.config != "" {
		o.file = filepath.Join(t.TempDir(), "gpuvigil.yml")
		if err := os.WriteFile(o.file, []byte(o.config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a, err := launchAgent(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.end()
		if t.Failed() {
			t.Logf("the agent's log:\n%s", a.log)
		}
	})
	return a
}

func launchAgent(o options) (*agent, error) {
	if o.command == "" {
		o.command = "run"
	}
	if o.address == "" {
		o.address = "127.0.0.1:0"
	}
	args := []string{o.command, "--web.listen-address=" + o.address, "--state.dir=" + o.state}
	if o.file != "" {
		args = append(args, "--config.file="+o.file)
	}
	s, err := launch(binary, append(args, o.args...), o.env)
	if err != nil {
		return nil, err
	}
	a := &agent{server: s, state: o.state}
	if a.address, err = s.address(); err != nil {
		s.kill()
		return nil, fmt.Errorf("start gpuvigil %s: %w\n%s", o.command, err, s.log)
	}
	return a, nil
}

// shortDir is a temporary directory whose path leaves room for the name of a Unix
// socket, which may have some hundred characters only.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// get returns the body of a page of the agent.
func (a *agent) get(path string) (string, error) {
	client := http.Client{Timeout: 10 * time.Second}
	r, err := client.Get("http://" + a.address + path)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %s", path, r.Status, bytes.TrimSpace(body))
	}
	return string(body), err
}

// ready waits until every source sees.
func (a *agent) ready(t *testing.T) {
	t.Helper()
	eventually(t, "the agent is ready", func() error {
		if a.gone() {
			t.Fatalf("the agent has ended: %v\n%s", a.cmd.ProcessState, a.log)
		}
		_, err := a.get("/-/ready")
		return err
	})
}

// ask runs one of the commands that ask the running agent.
func (a *agent) ask(t *testing.T, args ...string) (code int, said string) {
	t.Helper()
	return runs(t, nil, binary, append(args, "--state.dir="+a.state)...)
}

func decode[T any](a *agent, path string) (*T, error) {
	body, err := a.get(path)
	if err != nil {
		return nil, err
	}
	v := new(T)
	return v, json.Unmarshal([]byte(body), v)
}

func (a *agent) findings() (*apiserver.Findings, error) {
	return decode[apiserver.Findings](a, "/api/v1/findings")
}

func (a *agent) snapshot() (*apiserver.Snapshot, error) {
	return decode[apiserver.Snapshot](a, "/api/v1/snapshot")
}

// metrics is one scrape.
type metrics map[string]*dto.MetricFamily

func (a *agent) scrape() (metrics, error) {
	body, err := a.get("/metrics")
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(strings.NewReader(body))
}

// must scrapes or fails.
func (a *agent) must(t *testing.T) metrics {
	t.Helper()
	m, err := a.scrape()
	if err != nil {
		t.Fatalf("scrape: %v", err)
	}
	return m
}

// find returns the series of a family with the labels, given as name and value in
// turn.
func (m metrics) find(name string, labels ...string) []*dto.Metric {
	var found []*dto.Metric
	for _, s := range m[name].GetMetric() {
		if matches(s.GetLabel(), labels) {
			found = append(found, s)
		}
	}
	return found
}

func matches(have []*dto.LabelPair, want []string) bool {
	for l := range slices.Chunk(want, 2) {
		if !slices.ContainsFunc(have, func(h *dto.LabelPair) bool { return h.GetName() == l[0] && h.GetValue() == l[1] }) {
			return false
		}
	}
	return true
}

// value returns the one series with the labels, NaN if there is none.
func (m metrics) value(name string, labels ...string) float64 {
	found := m.find(name, labels...)
	if len(found) != 1 {
		return math.NaN()
	}
	if c := found[0].GetCounter(); c != nil {
		return c.GetValue()
	}
	return found[0].GetGauge().GetValue()
}

// sum adds up the series with the labels; it is 0 without any.
func (m metrics) sum(name string, labels ...string) (sum float64) {
	for _, s := range m.find(name, labels...) {
		sum += s.GetCounter().GetValue() + s.GetGauge().GetValue()
	}
	return sum
}

// expect is an error if the series has another value.
func (m metrics) expect(want float64, name string, labels ...string) error {
	if got := m.value(name, labels...); got != want {
		return fmt.Errorf("%s%q is %v, want %v", name, labels, got, want)
	}
	return nil
}

// absent is an error if there is such a series.
func (m metrics) absent(name string, labels ...string) error {
	if found := m.find(name, labels...); len(found) > 0 {
		return fmt.Errorf("%s%q is there: %v", name, labels, found)
	}
	return nil
}

// awaits scrapes until all is as it should be.
func (a *agent) awaits(t *testing.T, what string, check func(metrics) error) metrics {
	t.Helper()
	var last metrics
	eventually(t, what, func() error {
		m, err := a.scrape()
		if err != nil {
			return err
		}
		last = m
		return check(m)
	})
	return last
}

// said waits for a line of the agent's log with all of the words.
func (a *agent) said(t *testing.T, words ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the agent's log has a line with %q", words), func() error {
		for line := range strings.Lines(a.log.String()) {
			if containsAll(line, words) {
				return nil
			}
		}
		return errors.New("it has none")
	})
}

func containsAll(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}

// children returns the processes that the agent has started and that still exist.
func (a *agent) children(t *testing.T) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue // it has ended
		}
		// After the name, which may hold anything, come the state and the parent.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) > 1 && fields[0] != "Z" && fields[1] == strconv.Itoa(a.cmd.Process.Pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}
