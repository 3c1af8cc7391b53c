package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect"
)

// What an agent knows of its findings is told with them; one that does not answer costs
// the words alone, and is not asked again and again.
func TestEvidenceOfAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, broken atomic.Int64
		agents := NewAgents(slog.New(slog.DiscardHandler), func(_ context.Context, instance string) (io.ReadCloser, error) {
			if instance != "gpu-000:9836" {
				broken.Add(1)
				return nil, errors.New("it answers 403")
			}
			asked.Add(1)
			answer, err := json.Marshal(map[string]any{"findings": []detect.Finding{{
				Rule: "gpu_lost", Subject: detect.Subject{Kind: "gpu", ID: "GPU-gpu-000-3"}, Cause: "gone", State: detect.Firing,
				Evidence: detect.Evidence{Seen: "the driver has not answered for it since 03:12", Confidence: detect.Certain, Why: "asked"},
				Before:   []collector.Event{{Kind: collector.XidEvent, Code: 79}},
			}}})
			return io.NopCloser(strings.NewReader(string(answer))), err
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			agents.Run(ctx)
		}()
		a := newAgents(t, 3)
		a.role = clusterRole(t, Config{Evidence: agents.Evidence, AgentCalls: agents.Calls})
		for _, name := range a.names[:2] {
			a.says(name, "gpu_lost", "page", "gpu:GPU-"+name+"-3", "gone")
		}
		for range 40 {
			a.run(30 * time.Second)
			synctest.Wait()
		}
		seen := map[string]string{}
		for _, f := range a.only().Members {
			seen[f.Node] = f.Evidence.Seen
		}
		if seen["gpu-000"] != "the driver has not answered for it since 03:12" || seen["gpu-001"] == "" {
			t.Errorf("with one agent that answers, the evidence is %v", seen)
		}
		if n := asked.Load(); n < 2 || n > 6 {
			t.Errorf("in 20 minutes the agent was asked %d times, want once every five minutes", n)
		}
		if n := broken.Load(); n < 2 || n > 7 {
			t.Errorf("in 20 minutes an agent that does not answer was asked %d times, want less and less often", n)
		}
		a.told["gpu-002"] = []collector.Told{{Rule: "gpu_lost", Severity: "page", Subject: "gpu:GPU-gpu-002-3", Cause: "gone", Since: a.now}}
		a.edit = func(node string, s *collector.Snapshot) { s.Agent.Instance = "evil.example/?x=" + node }
		before := asked.Load() + broken.Load()
		a.run(time.Minute)
		synctest.Wait()
		if asked.Load()+broken.Load() != before {
			t.Error("what is no host and port was asked")
		}
		stop()
		<-done
	})
}
