package child

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/frame"
)

// modeVariable makes the test binary a child, or an agent with one.
const modeVariable = "CHILD_TEST_MODE"

func TestMain(m *testing.M) {
	mode := os.Getenv(modeVariable)
	if mode == "" {
		os.Exit(m.Run())
	}
	if path := os.Getenv("CHILD_TEST_STARTS"); path != "" {
		note(path)
	}
	f := &fake{frames: frame.NewWriter(os.Stdout)}
	f.run(mode)
}

// note appends a line to a file, so that a test can count the starts.
func note(path string) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(file, os.Getpid())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(99)
	}
	file.Close()
}

// fake is what a child process of these tests does.
type fake struct {
	frames *frame.Writer
	sent   int
}

func (f *fake) run(mode string) {
	switch mode {
	case "ok":
		go f.forever(time.Millisecond)
		waitForAgent()
	case "events":
		f.burst(1000)
		f.send(&collector.Part{Node: collector.Node{Name: "end"}})
		waitForAgent()
	case "late words":
		f.send(&collector.Part{Events: []collector.Event{{Text: "last"}}})
		fmt.Fprintln(os.Stderr, "level=error msg=\"lost the driver\"")
		os.Exit(1)
	case "silent":
		waitForAgent()
	case "stops":
		f.send(&collector.Part{})
		waitForAgent()
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		f.send(&collector.Part{})
		time.Sleep(time.Hour)
	case "pauses":
		f.send(&collector.Part{})
		time.Sleep(time.Second)
		go f.forever(time.Millisecond)
		waitForAgent()
	case "garbage":
		fmt.Println("NVRM: this is no frame")
		waitForAgent()
	case "damaged":
		f.send(&collector.Part{})
		os.Stdout.Write([]byte{9, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4})
		waitForAgent()
	case "closes":
		f.send(&collector.Part{})
		os.Stdout.Close()
		waitForAgent()
	case "all hung":
		gpu := collector.GPU{UUID: "GPU-a", Present: true, Hung: true}
		for {
			f.send(&collector.Part{GPUs: []collector.GPU{gpu, {UUID: "GPU-b"}}})
			time.Sleep(time.Millisecond)
		}
	case "symbol":
		fmt.Fprintln(os.Stderr, "/usr/bin/gpuvigil: symbol lookup error: undefined symbol: nvmlDeviceGetFoo")
		fmt.Fprintln(os.Stderr, "some last words")
		os.Exit(127)
	case "127":
		os.Exit(127)
	case "no driver":
		fmt.Fprintln(os.Stderr, "level=info msg=\"libnvidia-ml.so.1 not found\"")
		os.Exit(ExitNoDriver)
	case "crash":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		time.Sleep(time.Hour)
	case "environment":
		f.send(&collector.Part{Node: collector.Node{Name: strings.Join(os.Environ(), "\n")}})
		waitForAgent()
	case "network":
		links, err := net.Interfaces()
		f.send(&collector.Part{Node: collector.Node{Name: fmt.Sprint(len(links), err)}})
		waitForAgent()
	case "agent":
		c := New(Config{Command: []string{os.Args[0]}, Env: []string{modeVariable + "=stubborn"}, Watch: []string{}, Log: discard})
		go func() {
			for c.Status().State != Running {
				time.Sleep(time.Millisecond)
			}
			fmt.Println(c.Status().PID)
		}()
		c.Run(context.Background())
	default:
		fmt.Fprintln(os.Stderr, "unknown mode", mode)
		os.Exit(98)
	}
}

// waitForAgent returns, and with it the process ends, when the agent closes the
// standard input or goes.
func waitForAgent() { io.Copy(io.Discard, os.Stdin) }

func (f *fake) send(p *collector.Part) {
	p.Time = time.Now()
	if err := f.frames.Write(p); err != nil {
		os.Exit(97)
	}
	f.sent++
}

func (f *fake) forever(pause time.Duration) {
	for {
		f.send(&collector.Part{Node: collector.Node{Name: fmt.Sprint(f.sent)}})
		time.Sleep(pause)
	}
}

// burst sends n frames with none to two events each, numbered through.
func (f *fake) burst(n int) {
	id := 0
	for i := range n {
		p := new(collector.Part)
		for range i % 3 {
			p.Events = append(p.Events, collector.Event{Code: id})
			id++
		}
		f.send(p)
	}
}
