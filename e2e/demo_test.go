package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gpuvigil/alerting"
	"gpuvigil/alerting/slack/slacktest"
	"gpuvigil/detect"
	"gpuvigil/internal/metric"
	"gpuvigil/rules"
)

// channel is where messages go.
const channel = "C0123456789"

// slackConfig is the part of a configuration that sends messages to the stand-in.
func slackConfig(s *slacktest.Server, tokenFile string) string {
	return fmt.Sprintf(`
alerting:
  shadow: 0s
  slack:
  - {name: oncall, channel: %s, token_file: %s, api_url: %s, min_severity: info}
`, channel, tokenFile, s.APIURL())
}

// demo is one `gpuvigil demo` that several tests look at.
type demo struct {
	once    sync.Once
	err     error
	dir     string
	slack   *slacktest.Server
	agent   *agent
	isReady time.Time
}

var demoNode demo

// running returns the demo, which is started by the first who asks.
func (d *demo) running(t *testing.T) *demo {
	t.Helper()
	d.once.Do(func() { d.err = d.start() })
	if d.err != nil {
		t.Fatal(d.err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the demo's log:\n%s", d.agent.log)
		}
	})
	d.agent.ready(t)
	return d
}

func (d *demo) start() error {
	var err error
	if d.dir, err = os.MkdirTemp("", "gv"); err != nil {
		return err
	}
	d.slack = slacktest.New()
	token, config := filepath.Join(d.dir, "token"), filepath.Join(d.dir, "gpuvigil.yml")
	if err := os.WriteFile(token, []byte(slacktest.Token), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(config, []byte(slackConfig(d.slack, token)), 0o600); err != nil {
		return err
	}
	if d.agent, err = launchAgent(options{command: "demo", file: config, state: filepath.Join(d.dir, "state")}); err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if _, err = d.agent.get("/-/ready"); err == nil {
			d.isReady = time.Now()
			return nil
		}
	}
	return fmt.Errorf("the demo is not ready after %v: %w\n%s", patience, err, d.agent.log)
}

func (d *demo) stop() {
	if d.agent != nil {
		d.agent.end()
	}
	if d.slack != nil {
		d.slack.Close()
	}
	if d.dir != "" {
		_ = os.RemoveAll(d.dir) // a temporary directory; the tests are over
	}
}

// TestDemo is what somebody sees who tries gpuvigil without a GPU.
func TestDemo(t *testing.T) {
	t.Parallel()
	d := demoNode.running(t)
	a := d.agent

	f, err := a.findings()
	if err != nil {
		t.Fatal(err)
	}
	firing := map[rules.ID]bool{}
	for _, f := range f.Findings {
		firing[f.Rule] = firing[f.Rule] || f.State == detect.Firing
		if !f.Simulated {
			t.Errorf("the finding %s on %s does not say that it is simulated", f.Rule, f.Subject)
		}
	}
	for _, id := range []rules.ID{rules.IDXid, rules.IDSaturatedGPU, rules.IDIdleGPU} {
		if !firing[id] {
			t.Errorf("the demo is ready and has no finding of rule %s", id)
		}
	}
	m := a.must(t)
	if err := errors.Join(m.expect(1, "vigil_node_info", "simulated", "true"), m.expect(8, "vigil_node_gpus_expected")); err != nil {
		t.Errorf("the demo's metrics: %v", err)
	}
	t.Run("page", d.page)
	t.Run("terminal", d.terminal)
	t.Run("costs", d.costs)
	t.Run("slack", d.messages)
	t.Run("dashboards", d.dashboards)
}

func (d *demo) page(t *testing.T) {
	page, err := d.agent.get("/")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<strong>Simulated</strong>", "while the CPU idles", rules.Get(rules.IDIdleGPU).Title,
		"NVIDIA H100", "slurm/4711", "meta-llama/Llama-3.1-70B-Instruct"} {
		if !strings.Contains(page, want) {
			t.Errorf("the demo's page does not show %q", want)
		}
	}
	for _, bad := range []string{"<b>python3</b>", "ZgotmplZ", "NaN", "%!"} {
		if strings.Contains(page, bad) {
			t.Errorf("the demo's page holds %q, which is not escaped or not formatted", bad)
		}
	}
}

func (d *demo) terminal(t *testing.T) {
	code, said := d.agent.ask(t, "status")
	if code != 2 || !containsAll(said, []string{"SIMULATED", "PAGE", "H100"}) {
		t.Errorf("gpuvigil status exits %d, want 2 as a page fires, and says:\n%s", code, said)
	}
	code, said = d.agent.ask(t, "why")
	if code != 2 || !containsAll(said, []string{"SIMULATED", "Xid 79", "seen", "since", "do", "while the CPU idles"}) {
		t.Errorf("gpuvigil why exits %d, want 2, and says:\n%s", code, said)
	}
	code, said = d.agent.ask(t, "why", "job:slurm/4711")
	if code != 2 || !strings.Contains(said, "Xid 79") {
		t.Errorf("gpuvigil why of the job that lost its GPU exits %d, want 2, and says:\n%s", code, said)
	}
	if code, said = d.agent.ask(t, "why", "job:slurm/1"); code != 3 || !strings.Contains(said, "slurm/4711") {
		t.Errorf("gpuvigil why of a job that nobody knows exits %d, want 3, and says, without naming those that are known:\n%s", code, said)
	}
}

// costs are there at once, of the two hours that the demo has behind it.
func (d *demo) costs(t *testing.T) {
	m := d.agent.must(t)
	for _, state := range []string{"busy", "idle_held", "held_without_process", "free", "unavailable"} {
		if got := m.sum(metric.OwnerCost.Name, "state", state, "currency", "USD"); !(got > 0) {
			t.Errorf("when the demo is ready, GPUs that were %s have cost %v", state, got)
		}
	}
	if err := errors.Join(m.expect(0, metric.PriceMissing.Name, "gpu", "0"), m.expect(3.85, metric.PricePerHour.Name, "gpu", "0", "currency", "USD")); err != nil {
		t.Error(err)
	}
	for _, by := range []string{"team", "job", "model", "gpu"} {
		code, said := d.agent.ask(t, "report", "cost", "--local", "--since=all", "--by="+by)
		if code != 0 || !containsAll(said, []string{"SIMULATED", "Busy: SM activity of 5 %", "Nebius", "as of 2026-09-25", "TOTAL"}) {
			t.Errorf("gpuvigil report cost by %s exits %d and says:\n%s", by, code, said)
		}
	}
	if code, said := d.agent.ask(t, "report", "cost", "--local", "--since=30d"); code == 0 || !strings.Contains(said, "--since=all") {
		t.Errorf("a report of 30 days, of which there are two hours, exits %d and says:\n%s", code, said)
	}
}

func (d *demo) messages(t *testing.T) {
	eventually(t, "a message for each open incident has arrived in Slack", func() error {
		f, err := d.agent.findings()
		if err != nil {
			return err
		}
		for _, i := range f.Incidents {
			if n := len(messagesOf(d.slack, i.ID)); i.State == detect.Firing && n != 1 {
				return fmt.Errorf("%d messages of incident %s %s", n, i.Rule, i.Cause)
			}
		}
		return nil
	})
	for _, m := range d.slack.Messages(channel) {
		if !strings.Contains(m.Text, alerting.SimulatedMark) && !strings.Contains(string(m.Blocks), "SIMULATED") {
			t.Errorf("a message does not say that it is simulated: %s\n%s", m.Text, m.Blocks)
		}
		if all := m.Text + string(m.Blocks); strings.Contains(all, "<!channel>") || strings.Contains(all, "<@U042>") {
			t.Errorf("a name in a message would call people: %s", all)
		}
	}
	t.Logf("full %v after it was ready", time.Since(d.isReady).Round(100*time.Millisecond))
}

// messagesOf returns the messages of an incident.
func messagesOf(s *slacktest.Server, id string) (found []slacktest.Message) {
	for _, m := range s.Messages(channel) {
		if m.Thread == "" && m.Metadata.EventPayload["id"] == id {
			found = append(found, m)
		}
	}
	return found
}

// dashboards evaluates every expression over data that a Prometheus has scraped
// from the demo.
func (d *demo) dashboards(t *testing.T) {
	p := startPrometheus(t, d.agent.address, "")
	eventually(t, "Prometheus has scraped the demo for as long as the dashboards look back", func() error {
		return p.has(t.Context(), "vigil_node_info and vigil_node_info offset 12s")
	})
	checkDashboards(t, p, excuses{"vigil_child_": "the demo has no child process: it uses no driver"})
}
