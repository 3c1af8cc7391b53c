package config

import (
	"fmt"
	"slices"
	"strings"

	"gpuvigil/internal/metric"
)

// Inference is the demand side: inference servers whose metrics are read.
type Inference struct {
	Interval Duration `yaml:"interval"`
	Timeout  Duration `yaml:"timeout"`
	Discover bool     `yaml:"discover"` // further targets are found by the sockets of the processes on the GPUs
	Targets  []Target `yaml:"targets"`
}

// Target is one inference server's metrics page.
type Target struct {
	Engine string   `yaml:"engine"` // auto, or one of metric.Engines
	Model  string   `yaml:"model"`  // of a server that does not tell
	GPUs   []string `yaml:"gpus"`   // uuids that it runs on; empty: any of this node
	Page
}

func (c *Config) checkInference(fail func(key, format string, args ...any)) {
	for i, t := range c.Inference.Targets {
		key := fmt.Sprintf("inference.targets[%d]", i)
		t.Page.check(key, true, fail)
		if t.Engine != "auto" && !slices.Contains(metric.Engines, t.Engine) {
			fail(key+".engine", "found %q, allowed: auto, %s", clean(t.Engine), strings.Join(metric.Engines, ", "))
		}
		if !plainName(t.Model) {
			fail(key+".model", "found control characters or more than %d letters, allowed: a plain name", maxName)
		}
	}
}
