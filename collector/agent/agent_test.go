package agent

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

func sample(t *testing.T, a *Agent) *collector.Part {
	t.Helper()
	part, err := a.Sample(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return part
}

func TestOwnCost(t *testing.T) {
	a, err := New(nil, 15*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	before := sample(t, a)
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	after := sample(t, a)
	if got := after.Node.Value(metric.AgentOpenFiles) - before.Node.Value(metric.AgentOpenFiles); got != 1 {
		t.Errorf("one file more is open, the agent counts %v", got)
	}
	if after.Node.Value(metric.AgentCPU) < before.Node.Value(metric.AgentCPU) {
		t.Error("CPU time fell")
	}
	if rss := after.Node.Value(metric.AgentRSS); rss < 1<<20 {
		t.Errorf("resident memory = %v bytes, a Go program has more", rss)
	}
}

func TestChildCountsAndMayVanish(t *testing.T) {
	child := exec.Command("cat")
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	// Once it answers it has memory; right after it was started it may have none.
	if _, err := stdin.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := stdout.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	alone, err := New(nil, 15*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	both, err := New(func() []int { return []int{child.Process.Pid} }, 15*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	_, rss, err := func() (float64, int, error) { r, c, err := both.child(child.Process.Pid); return c, r, err }()
	if err != nil || rss == 0 {
		t.Errorf("a running child has %d bytes resident, error %v", rss, err)
	}
	sample(t, alone)
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	if part := sample(t, both); !part.Node.Has(metric.AgentRSS) {
		t.Error("a child that has ended takes the agent's own numbers away")
	}
}

func TestProportionalMemoryIsOfAgentAndChild(t *testing.T) {
	if _, err := os.Stat("/proc/self/smaps_rollup"); err != nil {
		t.Skipf("this kernel does not tell PSS: %v", err)
	}
	a, err := New(nil, 15*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	part := sample(t, a)
	alone, rss := part.Node.Value(metric.AgentPSS), part.Node.Value(metric.AgentRSS)
	if !(alone > 1<<20) || alone > rss+(16<<20) {
		t.Errorf("PSS is %v of %v bytes that are resident", alone, rss)
	}
	if again := sample(t, a); again.Node.SampledAt(metric.Slow) != part.Node.SampledAt(metric.Slow) || again.Node.Value(metric.AgentPSS) != alone {
		t.Error("PSS is read anew right after it was read: the kernel walks all pages for that")
	}
	self := os.Getpid()
	both, err := a.proportional([]int{self, self})
	if err != nil || both < 1.5*alone {
		t.Errorf("two processes of %v bytes have %v together, error %v", alone, both, err)
	}
	const none = 1 << 30 // no pid is that large
	if with, err := a.proportional([]int{self, none}); err != nil || with < alone/2 {
		t.Errorf("a child that has ended takes the agent's memory away: %v, error %v", with, err)
	}
}
