package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect"
)

const (
	agentsAtOnce = 8                // that are asked
	agentsWait   = 1024             // that wait to be
	agentsEvery  = 30 * time.Second // one is asked at most
	agentsFresh  = 5 * time.Minute  // after which evidence is asked for anew, as long as the finding lasts
	agentsLater  = 15 * time.Minute // at most, after failures in a row
	maxEvidence  = 16 << 20         // bytes of an answer
	maxSaid      = 2000             // bytes of a text in it
)

// Agents asks agents for the evidence of their findings. Whoever does not answer costs
// only the words: numbers and labels are there.
type Agents struct {
	ask   func(ctx context.Context, instance string) (io.ReadCloser, error)
	log   *slog.Logger
	queue chan *agentSaid

	mu    sync.Mutex
	known map[string]*agentSaid // by instance

	answered, failed atomic.Uint64
}

// agentSaid is what one agent said last.
type agentSaid struct {
	instance string
	findings map[string]detect.Finding // by Key
	asked    time.Time
	next     time.Time // not before
	failures int
	waits    bool // in the queue, or being asked
}

// NewAgents returns what asks agents. ask returns the answer of the agent that was scraped
// as the instance, host and port, to GET /api/v1/findings; its errors hold no secret.
func NewAgents(log *slog.Logger, ask func(ctx context.Context, instance string) (io.ReadCloser, error)) *Agents {
	return &Agents{ask: ask, log: log, queue: make(chan *agentSaid, agentsWait), known: map[string]*agentSaid{}}
}

// Calls returns how often agents answered, and how often they did not.
func (a *Agents) Calls() (answered, failed uint64) { return a.answered.Load(), a.failed.Load() }

// Run asks until ctx ends.
func (a *Agents) Run(ctx context.Context) {
	var group sync.WaitGroup
	for range agentsAtOnce {
		group.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case of := <-a.queue:
					a.fetch(ctx, of)
				}
			}
		})
	}
	group.Wait()
}

// Evidence gives findings of the snapshot's agent what it said of them, and has it asked
// if that is not known or old. It waits for nobody.
func (a *Agents) Evidence(s *collector.Snapshot, findings []detect.Finding) {
	if len(findings) == 0 {
		return
	}
	instance := s.Agent.Instance
	if _, _, err := net.SplitHostPort(instance); err != nil || strings.ContainsAny(instance, "/@?#\\ ") {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	of := a.known[instance]
	if of == nil {
		if len(a.known) >= maxNodes {
			return
		}
		of = &agentSaid{instance: instance}
		a.known[instance] = of
	}
	old := s.Time.Sub(of.asked) > agentsFresh
	for i := range findings {
		f := &findings[i]
		if told, ok := of.findings[f.Key()]; ok {
			f.Evidence, f.Before, f.Critical, f.Count = told.Evidence, told.Before, told.Critical, told.Count
			if f.Owner.Kind == "" {
				f.Owner = told.Owner
			}
		} else {
			old = true
		}
	}
	if !old || of.waits || s.Time.Before(of.next) {
		return
	}
	select {
	case a.queue <- of:
		of.waits = true
		of.asked, of.next = s.Time, s.Time.Add(agentsEvery)
	default: // those that wait are asked first
	}
}

// fetch asks one agent.
func (a *Agents) fetch(ctx context.Context, of *agentSaid) {
	findings, err := a.read(ctx, of.instance)
	a.mu.Lock()
	defer a.mu.Unlock()
	of.waits = false
	if err != nil {
		a.failed.Add(1)
		of.failures++
		of.next = of.asked.Add(min(agentsEvery<<min(of.failures, 10), agentsLater))
		if of.failures == 1 && ctx.Err() == nil {
			a.log.Warn("An agent does not tell the evidence of its findings: they are told by their numbers.", "agent", of.instance, "err", err)
		}
		return
	}
	a.answered.Add(1)
	of.failures, of.findings = 0, findings
}

func (a *Agents) read(ctx context.Context, instance string) (map[string]detect.Finding, error) {
	body, err := a.ask(ctx, instance)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, maxEvidence+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxEvidence {
		return nil, errors.New("its answer is too large")
	}
	var answer struct {
		Findings []detect.Finding `json:"findings"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return nil, fmt.Errorf("its answer makes no sense: %w", err)
	}
	out := map[string]detect.Finding{}
	for _, f := range answer.Findings {
		if f.State != detect.Firing || len(out) >= maxFindings {
			continue
		}
		for _, text := range []*string{&f.Evidence.Seen, &f.Evidence.Expected, &f.Evidence.Why, &f.Evidence.Title, &f.Evidence.Action} {
			*text = strings.ToValidUTF8((*text)[:min(len(*text), maxSaid)], "")
		}
		f.Before = f.Before[max(len(f.Before)-16, 0):]
		out[f.Key()] = f
	}
	return out, nil
}
