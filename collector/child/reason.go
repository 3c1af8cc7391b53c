package child

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	vm "github.com/VictoriaMetrics/metrics"

	"gpuvigil/internal/metric"
)

// Reason is why a child was ended or ended; it is the label of
// vigil_child_restarts_total.
type Reason string

// The reasons.
const (
	Exited        Reason = "exited"         // by itself
	InitHung      Reason = "init_hung"      // no first frame in time
	AllGPUsHung   Reason = "all_gpus_hung"  // frames stopped, or no GPU answered
	DriverChanged Reason = "driver_changed" // the driver on disk or in the kernel is another one
	Released      Reason = "released"       // by request
	BadFrame      Reason = "bad_frame"      // what came was not a frame
)

var (
	errStopped  = errors.New("the child is not run")
	errStopping = errors.New("the agent stops")
)

// marked is an error that is of a kind which its text does not name.
type marked struct {
	error
	kind error
}

func (m marked) Is(target error) bool { return target == m.kind }

func marks(kind error, format string, args ...any) error {
	return marked{fmt.Errorf(format, args...), kind}
}

// ending is why a process ended or has to.
type ending struct {
	reason   Reason
	err      error // in words
	noDriver bool
	talks    bool // frames still come
}

type counters struct {
	restarts  map[Reason]*vm.Counter
	badFrames *vm.Counter
	up, stuck *vm.Gauge
}

func newCounters() *counters {
	c := &counters{
		restarts:  make(map[Reason]*vm.Counter),
		badFrames: vm.GetOrCreateCounter(metric.FramesBad.Series()),
		up:        vm.GetOrCreateGauge(metric.ChildUp.Series(), nil),
		stuck:     vm.GetOrCreateGauge(metric.ChildStuck.Series(), nil),
	}
	for _, r := range []Reason{Exited, InitHung, AllGPUsHung, DriverChanged, Released, BadFrame} {
		c.restarts[r] = vm.GetOrCreateCounter(metric.ChildRestarts.Series(string(r)))
	}
	return c
}

// exit says in words how a process ended. stderr is the last that it said.
func exit(state *os.ProcessState, stderr string) ending {
	e := ending{reason: Exited}
	status, _ := state.Sys().(syscall.WaitStatus)
	said := ""
	if stderr != "" {
		said = ": " + stderr
	}
	switch {
	case strings.Contains(stderr, symbolError):
		e.err = fmt.Errorf("the child called a function that the installed NVIDIA library does not have (%s): update the driver, and report this", stderr)
	case status.Signaled():
		e.err = fmt.Errorf("the child was ended by signal %d (%v)%s", status.Signal(), status.Signal(), said)
	case state.ExitCode() == ExitNoDriver:
		e.err, e.noDriver = fmt.Errorf("%w%s", ErrNoDriver, said), true
	case state.ExitCode() == 127:
		e.err = fmt.Errorf("the child ended with status 127: its program was not found, or it called a function that a library does not have%s", said)
	case state.ExitCode() == 0:
		e.err = errors.New("the child ended by itself" + said)
	default:
		e.err = fmt.Errorf("the child ended with status %d%s", state.ExitCode(), said)
	}
	return e
}
