package e2e

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait. A test that passes does not come near it.
const patience = 90 * time.Second

// eventually tries until there is no error, and fails with the last one.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if t.Context().Err() != nil {
			break
		}
		if err = try(); err == nil {
			return
		}
	}
	t.Fatalf("%s: still not so after %v: %v", what, patience, err)
}

// output is what a process says, readable while it says it.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// server is a process that listens on a port of its own choice.
type server struct {
	cmd    *exec.Cmd
	log    *output
	exited chan struct{}
}

// launch starts a process in a group of its own.
func launch(path string, args, env []string) (*server, error) {
	s := &server{cmd: exec.Command(path, args...), log: &output{}, exited: make(chan struct{})}
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.cmd.Env = append(s.cmd.Environ(), env...)
	s.cmd.WaitDelay = time.Second
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(s.exited)
		_ = s.cmd.Wait() // ProcessState says how it ended
	}()
	return s, nil
}

var listening = regexp.MustCompile(`msg="Listening on".* address=(127\.0\.0\.1:\d+)`)

// address waits for where the process listens.
func (s *server) address() (string, error) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if m := listening.FindStringSubmatch(s.log.String()); m != nil {
			return m[1], nil
		}
		if s.gone() {
			return "", errors.New("it ended instead of listening")
		}
	}
	return "", errors.New("it does not say where it listens")
}

func (s *server) gone() bool {
	select {
	case <-s.exited:
		return true
	default:
		return false
	}
}

// end asks the process to stop and returns its exit code. One that does not is
// killed; then the code is -1.
func (s *server) end() int {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may be gone
	select {
	case <-s.exited:
	case <-time.After(patience):
		s.kill()
	}
	return s.cmd.ProcessState.ExitCode()
}

// kill ends the process as a crash or the kernel would.
func (s *server) kill() {
	_ = s.cmd.Process.Kill() // it may be gone
	<-s.exited
}

// runs executes a command to its end and returns its exit code and what it said.
func runs(t *testing.T, env []string, path string, args ...string) (code int, said string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(cmd.Environ(), env...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s %q: %v\n%s", path, args, err, out)
	}
	if ctx.Err() != nil {
		t.Fatalf("%s %q does not end\n%s", path, args, out)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}
