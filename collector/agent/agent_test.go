package agent

import (
	"context"
	"os"
	"os/exec"
	"testing"

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
	a, err := New(nil)
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
	alone, err := New(nil)
	if err != nil {
		t.Fatal(err)
	}
	both, err := New(func() []int { return []int{child.Process.Pid} })
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
