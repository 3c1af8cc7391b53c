package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/frame"
)

// process is one run of the command.
type process struct {
	cmd      *exec.Cmd
	pid      int
	isolated bool
	stdin    *os.File // held open: the child ends when it closes
	stdout   *os.File
	stderr   *os.File
	relay    *relay

	results chan result   // what was read, until an error
	quit    chan struct{} // closed: nobody takes results any more
	heard   chan struct{} // closed: all that it said was relayed
	exited  chan struct{} // closed: it has been reaped
	readers sync.WaitGroup
}

type result struct {
	part *collector.Part
	err  error
}

type killFunc func(pid int, sig syscall.Signal) error

// killGroup signals a child and whatever it has started.
func killGroup(pid int, sig syscall.Signal) error { return syscall.Kill(-pid, sig) }

// isolation returns the clone flags that take the network away, if this process
// may ask for them.
func isolation() uintptr {
	if os.Geteuid() == 0 {
		return syscall.CLONE_NEWNET
	}
	return 0
}

// start starts the command, without network if the kernel lets it.
func (c *Child) start() (*process, error) {
	p, err := c.launch(c.isolate)
	if err == nil || c.isolate == 0 {
		return p, err
	}
	p, second := c.launch(0)
	if second != nil {
		return nil, second
	}
	if !c.refused {
		c.refused = true
		c.log.Info("the kernel refuses to take the child's network away: it runs with it", "err", err)
	}
	return p, nil
}

func (c *Child) launch(flags uintptr) (*process, error) {
	p := &process{
		isolated: flags != 0,
		relay:    &relay{log: c.log},
		results:  make(chan result),
		quit:     make(chan struct{}),
		heard:    make(chan struct{}),
		exited:   make(chan struct{}),
	}
	theirs, err := p.pipes()
	if err != nil {
		return nil, fmt.Errorf("start the child: %w", err)
	}
	p.cmd = exec.Command(c.cfg.Command[0], c.cfg.Command[1:]...)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1], theirs[2]
	p.cmd.Env = environment(os.Environ(), c.cfg.Env)
	p.cmd.Dir = "/"
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Cloneflags: flags}

	started := make(chan error, 1)
	go c.reap(p, started)
	err = <-started
	for _, f := range theirs {
		f.Close()
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("start the child: %w", err)
	}
	p.readers.Go(p.readFrames)
	p.readers.Go(func() {
		p.relay.copy(p.stderr, p.pid)
		close(p.heard)
	})
	return p, nil
}

// reap starts the process and waits for its end, which may never come. It keeps
// its thread: the parent-death signal is sent when the thread that started the
// child ends, not when the agent does.
func (c *Child) reap(p *process, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	p.pid = p.cmd.Process.Pid
	started <- nil
	_ = p.cmd.Wait() // its error says what ProcessState says
	close(p.exited)
	c.reaped(p)
}

// pipes opens the process's three pipes and returns its ends of them.
func (p *process) pipes() (theirs [3]*os.File, err error) {
	var all []*os.File
	for i, ours := range []**os.File{&p.stdin, &p.stdout, &p.stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			for _, f := range all {
				f.Close()
			}
			return theirs, err
		}
		all = append(all, r, w)
		if i == 0 {
			theirs[i], *ours = r, w
		} else {
			theirs[i], *ours = w, r
		}
	}
	return theirs, nil
}

func (p *process) readFrames() {
	r := frame.NewReader(p.stdout)
	for {
		part, err := r.Read()
		select {
		case p.results <- result{part, err}:
		case <-p.quit:
			return
		}
		if err != nil {
			return
		}
	}
}

// end ends a process: it asks, waits, kills, waits, and reports whether it is
// gone. Its pipes are closed in any case.
func (c *Child) end(p *process) bool {
	close(p.quit)
	p.stdin.Close()
	gone := p.hasExited()
	for _, step := range []struct {
		signal syscall.Signal
		limit  time.Duration
	}{{syscall.SIGTERM, c.cfg.Grace}, {syscall.SIGKILL, c.cfg.ReapLimit}} {
		if gone {
			break
		}
		if err := c.kill(p.pid, step.signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			c.log.Warn("cannot signal the child", "pid", p.pid, "signal", step.signal, "err", err)
		}
		gone = p.await(step.limit)
	}
	p.close()
	p.readers.Wait()
	return gone
}

func (p *process) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// await waits for the end of the process, but not longer than the limit.
func (p *process) await(limit time.Duration) bool {
	within(p.exited, limit)
	return p.hasExited()
}

func within(done <-chan struct{}, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

func (p *process) close() {
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		f.Close()
	}
}
