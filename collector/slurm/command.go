package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"gpuvigil/internal/text"
)

const (
	maxOutput = 64 << 20 // bytes of one answer: 100,000 jobs take about 30 MiB
	maxErrors = 1 << 10  // bytes of what a command says went wrong
	killGrace = 2 * time.Second
)

// commands asks through squeue and sinfo.
type commands struct{ cfg Config }

func (c commands) ask(ctx context.Context) (*Answer, int, error) {
	out, err := output(ctx, c.cfg.Squeue, "--noheader", "--all", "--Format="+format(jobColumns))
	if err != nil {
		return nil, 0, err
	}
	a := &Answer{}
	var bad int
	a.Jobs, bad = ParseQueue(out, Delimiter, jobColumns, true)
	if bad > 0 && len(a.Jobs) == 0 {
		return nil, 0, nothingRead(c.cfg.Squeue, bad)
	}
	if c.cfg.Sinfo == "" {
		return a, bad, nil
	}
	if out, err = output(ctx, c.cfg.Sinfo, "--noheader", "--all", "--Node", "--Format="+format(nodeColumns)); err != nil {
		return nil, 0, err
	}
	nodes, worse := ParseNodes(out, Delimiter, nodeColumns)
	if worse > 0 && len(nodes) == 0 {
		return nil, 0, nothingRead(c.cfg.Sinfo, worse)
	}
	a.Nodes = nodes
	return a, bad + worse, nil
}

// nothingRead is the error of output that cannot be what was asked for.
func nothingRead(path string, rows int) error {
	return fmt.Errorf("read the output of %s: none of its %d rows is as asked for: it must know suffixes of fields in --Format, or use slurmrestd", path, rows)
}

// format asks for each column in full: without the delimiter Slurm cuts it at 20
// characters.
func format(columns []string) string {
	return strings.Join(columns, ":"+Delimiter+",") + ":" + Delimiter
}

// output runs a command without a shell and returns what it prints.
func output(ctx context.Context, path string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = environment()
	cmd.WaitDelay = killGrace // what it may have started holds the pipe open
	out, errs := &bounded{max: maxOutput}, &bounded{max: maxErrors, drop: true}
	cmd.Stdout, cmd.Stderr = out, errs
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("run %s: %w", path, ctx.Err())
	case out.full:
		return "", fmt.Errorf("run %s: %w: it prints more than %d MiB", path, errTooMuch, maxOutput>>20)
	case err != nil:
		return "", fmt.Errorf("run %s: %w: %s", path, err, text.Clean(errs.buf.String(), 200))
	}
	return out.buf.String(), nil
}

// environment is what Slurm's commands need, and nothing that the role was given. Times
// are printed in UTC, and arrays in full.
func environment() []string {
	env := []string{"TZ=UTC", "LC_ALL=C", "SLURM_TIME_FORMAT=standard", "SLURM_BITSTR_LEN=0"}
	for _, name := range []string{"PATH", "HOME", "LD_LIBRARY_PATH", "SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

var errTooMuch = errors.New("too much output")

// bounded keeps so many bytes. What is more is dropped, or ends the command.
type bounded struct {
	buf  bytes.Buffer // not embedded: its ReadFrom would keep everything
	max  int
	drop bool
	full bool
}

// Write keeps what fits.
func (b *bounded) Write(p []byte) (int, error) {
	keep := min(len(p), b.max-b.buf.Len())
	b.buf.Write(p[:keep])
	if keep < len(p) {
		b.full = true
		if !b.drop {
			return keep, errTooMuch
		}
	}
	return len(p), nil
}
