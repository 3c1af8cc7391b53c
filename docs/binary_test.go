package docs_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gpuvigil/internal/metric"
)

// startLimit is generous: the machine may have other things to do.
const startLimit = 90 * time.Second

var built struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		if err := os.RemoveAll(built.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// binary builds gpuvigil once and returns its path.
func binary(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "gpuvigil-docs-"); built.err != nil {
			return
		}
		build := exec.Command("go", "build", "-o", filepath.Join(built.dir, "gpuvigil"), "./cmd/gpuvigil")
		build.Dir = ".."
		if out, err := build.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	if built.err != nil {
		t.Fatalf("build gpuvigil: %v", built.err)
	}
	return filepath.Join(built.dir, "gpuvigil")
}

// help returns what gpuvigil says about itself or one of its commands.
func help(t *testing.T, command ...string) string {
	t.Helper()
	cmd := exec.Command(binary(t), append(command, "--help")...)
	cmd.Env = append(os.Environ(), "COLUMNS=80")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("gpuvigil %s --help: %v: %s", strings.Join(command, " "), err, out)
	}
	return string(out)
}

var commandLine = regexp.MustCompile(`(?m)^([a-z]+(?: [a-z]+)*)\*?( .*)?\n((?:    \S.*\n)+)`)

// inText are commands that running text names: `gpuvigil report cost`.
var inText = regexp.MustCompile("`(?:bin/)?gpuvigil ([a-z]+)( [a-z]+)?")

// TestTextPromisesNoCommandThatThereIsNot goes through what is not run as an example.
func TestTextPromisesNoCommandThatThereIsNot(t *testing.T) {
	there := map[string]bool{}
	for _, c := range commands(t) {
		there[c[0]] = true
	}
	named := 0
	for _, path := range pages(t) {
		for _, m := range inText.FindAllStringSubmatch(read(t, path), -1) {
			named++
			if !there[m[1]] && !there[m[1]+m[2]] {
				t.Errorf("%s names gpuvigil %s%s, which there is not", filepath.Base(path), m[1], m[2])
			}
		}
	}
	if named < 30 {
		t.Errorf("only %d commands were found in the text", named)
	}
}

// commands lists the commands that --help names, with what it says about them.
func commands(t *testing.T) [][]string {
	t.Helper()
	_, list, ok := strings.Cut(help(t), "Commands:\n")
	if !ok {
		t.Fatal("gpuvigil --help names no commands")
	}
	var all [][]string
	for _, m := range commandLine.FindAllStringSubmatch(list, -1) {
		all = append(all, []string{m[1], strings.Join(strings.Fields(m[3]), " ")})
	}
	if len(all) < 10 {
		t.Fatalf("only %d commands were understood in --help:\n%s", len(all), list)
	}
	return all
}

func commandTable(t *testing.T) string {
	var rows [][]string
	for _, c := range commands(t) {
		rows = append(rows, []string{"`gpuvigil " + c[0] + "`", c[1]})
	}
	return table([]string{"command", "what it does"}, rows)
}

// freePort returns a port that nobody listens on just now.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// agent is gpuvigil, running.
type agent struct {
	cmd   *exec.Cmd
	log   lockedBuffer
	base  string        // URL
	ended chan struct{} // closed: the process has been reaped
	err   error         // how it ended, then
}

// lockedBuffer is written by a process while a test reads it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs gpuvigil with the arguments, listening on the port, and waits until
// it is ready.
func start(t *testing.T, dir string, env []string, port string, args ...string) *agent {
	t.Helper()
	a := &agent{base: "http://127.0.0.1:" + port}
	a.cmd = exec.Command(binary(t), append(args, "--web.listen-address=127.0.0.1:"+port)...)
	a.cmd.Dir, a.cmd.Env, a.cmd.Stderr, a.cmd.Stdout = dir, env, &a.log, &a.log
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a.ended = make(chan struct{})
	go func() {
		a.err = a.cmd.Wait()
		close(a.ended)
	}()
	t.Cleanup(func() { a.stop(t) })
	for deadline := time.Now().Add(startLimit); ; time.Sleep(100 * time.Millisecond) {
		code, body, err := a.get("/-/ready")
		if err == nil && code == http.StatusOK {
			return a
		}
		select {
		case <-a.ended:
			t.Fatalf("gpuvigil %s ended: %v; its log:\n%s", strings.Join(args, " "), a.err, a.log.String())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("gpuvigil %s is not ready after %s: %d %s %v; its log:\n%s", strings.Join(args, " "), startLimit, code, body, err, a.log.String())
		}
	}
}

func (a *agent) get(path string) (int, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base+path, nil)
	if err != nil {
		return 0, "", err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body), err
}

// stop ends the agent as systemd and Kubernetes do, and wants a clean end.
func (a *agent) stop(t *testing.T) {
	t.Helper()
	select {
	case <-a.ended:
		return
	default:
	}
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("stop gpuvigil: %v", err)
	}
	select {
	case <-a.ended:
	case <-time.After(startLimit):
		t.Errorf("gpuvigil did not end within %s of SIGTERM; its log:\n%s", startLimit, a.log.String())
		if err := a.cmd.Process.Kill(); err != nil {
			t.Errorf("kill gpuvigil: %v", err)
		}
		<-a.ended
	}
	if a.err != nil {
		t.Errorf("gpuvigil did not end cleanly: %v; its log:\n%s", a.err, a.log.String())
	}
}

var (
	uuidLabel     = regexp.MustCompile(`[{,]uuid="([^"]+)"`)
	endpointLabel = regexp.MustCompile(`^vigil_inference_\w+{endpoint="([^"]+)"`)
)

// TestSeriesBudget counts the series of a running agent: of each GPU, of each
// inference server, of one model here, and of all that is neither's.
func TestSeriesBudget(t *testing.T) {
	dir := t.TempDir()
	a := start(t, dir, append(os.Environ(), "XDG_STATE_HOME="+dir), freePort(t), "demo", "--state.dir="+filepath.Join(dir, "s"))
	_, page, err := a.get("/metrics")
	if err != nil {
		t.Fatal(err)
	}
	gpus, servers, host := map[string]int{}, map[string]int{}, 0
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		if m := uuidLabel.FindStringSubmatch(line); m != nil {
			gpus[m[1]]++
		} else if m := endpointLabel.FindStringSubmatch(line); m != nil {
			servers[m[1]]++
		} else {
			host++
		}
	}
	if len(gpus) != 8 {
		t.Fatalf("the demo has %d GPUs on /metrics, want 8", len(gpus))
	}
	fixed, _ := seriesOf(metric.GPU)
	for uuid, n := range gpus {
		if n > budgetGPU || n > fixed+20 {
			t.Errorf("GPU %s has %d series; the README says %d and a few, and the budget is %d", uuid, n, fixed, budgetGPU)
		}
	}
	if len(servers) != 2 {
		t.Errorf("the demo has the inference servers %v on /metrics, want two", servers)
	}
	for server, n := range servers {
		if n > budgetModel+8 {
			t.Errorf("inference server %s has %d series, the budget is %d for its model and 8 for its page", server, n, budgetModel)
		}
	}
	if host > budgetHost {
		t.Errorf("the host has %d series, the budget is %d", host, budgetHost)
	}
	if fixed > budgetGPU {
		t.Errorf("a GPU that reports everything has %d series, the budget is %d", fixed, budgetGPU)
	}
	t.Logf("series: at most %d of %d for a GPU, %d for the host with the demo's findings, %v for inference servers", fixed, budgetGPU, host, servers)
}
