// Command steptime says what the agent costs the work on a GPU: from the times of many small steps, in turns with the
// agent and without it, it tells by how much the median and the 99th percentile differ, with an interval.
package main

import (
	"fmt"
	"os"
)

// The goals, as a part of a step without the agent.
const (
	medianGoal = 0.001
	tailGoal   = 0.01
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: steptime FILE, as scripts/gpu-step-time.py writes it")
		os.Exit(2)
	}
	missed, err := run(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "steptime:", err)
		os.Exit(2)
	}
	if missed {
		os.Exit(1)
	}
}

// run reports whether a goal is missed for certain.
func run(path string) (missed bool, err error) {
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	pairs, err := parse(file)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	for _, g := range []struct {
		name string
		q    float64
		goal float64
	}{{"p50", 0.5, medianGoal}, {"p99", 0.99, tailGoal}} {
		c := compare(pairs, g.q)
		fmt.Println(c.line(g.name, g.goal))
		missed = missed || c.judge(g.goal) == notMet
	}
	return missed, nil
}
