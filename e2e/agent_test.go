package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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
