package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"gpuvigil/alerting/slack/slacktest"
	"gpuvigil/detect"
	apiserver "gpuvigil/internal/server"
	"gpuvigil/rules"
)

// expected are the incidents of the scenario, by cause.
var expected = map[string]rules.ID{
	"vram_bound": rules.IDSaturatedGPU, "xid_31": rules.IDXid, "xid_79": rules.IDXid, "driver": rules.IDVersionChanged,
}

// TestWholeWay goes the way of gpuvigil once: driver, snapshot, finding, scrape,
// rule, dashboard, message. An endpoint runs into its limit, two Xids fall, the
// agent is killed while all that goes on, and the driver is upgraded.
func TestWholeWay(t *testing.T) {
	t.Parallel()
	node := newSimulated(t, "e2e")
	slack := slacktest.New()
	t.Cleanup(slack.Close)
	signals := t.TempDir()
	if err := os.Chmod(signals, 0o755); err != nil {
		t.Fatal(err)
	}
	trains(t, signals)
	o := options{
		config: wholeWayConfig(node, slack, write(t, "token", slacktest.Token)) + "textfile:\n  directory: " + signals + "\n",
		state:  filepath.Join(shortDir(t), "state"), env: node.environment(), args: node.flags(),
	}
	a := startAgent(t, o)
	a.ready(t)
	p := startPrometheus(t, a.address, filepath.Join(generate(t, "rules"), rules.RulesFile))
	node.live(t)

	appears := func(cause string) {
		t.Helper()
		eventually(t, "a finding "+cause+" fires", func() error { return a.finding(cause, detect.Firing) })
		eventually(t, "an alert of "+cause+" fires in Prometheus", func() error {
			return p.firing(t.Context(), alertOf(expected[cause]), model.LabelSet{"cause": model.LabelValue(cause)})
		})
		eventually(t, "a message of "+cause+" has arrived in Slack", func() error { return told(slack, a, cause, false) })
	}
	appears("xid_31")
	appears("xid_79")
	appears("vram_bound")
	eventually(t, "Prometheus has scraped for as long as the dashboards look back", func() error {
		return p.has(t.Context(), "vigil_node_info and vigil_node_info offset 12s")
	})
	checkDashboards(t, p, excuses{
		"vigil_workload_":              "the simulated node's control groups are not on this machine",
		"vigil_interface_":             "this machine has no such adapter",
		"vigil_kernel_log_":            "this machine's kernel log is not the simulated node's",
		"vigil_fabric_manager_":        "nor is its fabric manager",
		`state="idle_held"`:            "nobody has left a GPU idle yet",
		`state="held_without_process"`: "the simulated node's kubelet is not on this machine",
		"vigil_owner_carbon_":          "nobody has said what energy causes",
		"vigil_owner_energy_cost_":     "nor what it costs",
		"vigil_team_budget_":           "nor what a team may spend",
		"vigil_runtime_info":           "nobody may look into processes by default",
		"vigil_image_info":             "the simulated node's processes are in no container",
		"vigil_dataset_info":           "nor have they mounted anything",
		"vigil_owner_unit_":            "it takes five minutes of work",
	}, "workload: Cost of a unit of work", "workload: Energy of a unit of work", "workload: Disks", "workload: Network",
		"workload: CPUs in use", "workload: Memory that stays", "overview: NVSwitch errors", "overview: Kernel log",
		"movement: Owners now", "movement: Disks", "movement: Network", "movement: Addresses that it is connected to",
		"movement: NFS", "movement: CPUs in use", "movement: Throttled", "movement: Memory that stays",
		"movement: Traffic", "movement: Errors", "movement: Links that went down", "movement: Ports",
		"inventory: Libraries and frameworks by number of owners", "inventory: Libraries and frameworks of each owner",
		"inventory: Frameworks by version, owners", "inventory: Images", "inventory: Data sets",
		"costs: CO2 by owner", "costs: Cost of energy per hour by owner")

	before, err := a.findings()
	if err != nil {
		t.Fatal(err)
	}
	a.kill()
	o.address = a.address
	a = startAgent(t, o)
	a.ready(t)
	after, err := a.findings()
	if err != nil {
		t.Fatal(err)
	}
	survived(t, before, after)

	appears("driver")
	for cause := range expected {
		eventually(t, "the finding "+cause+" has resolved", func() error { return a.finding(cause, detect.Resolved) })
		eventually(t, "the message of "+cause+" has been edited to resolved", func() error { return told(slack, a, cause, true) })
	}
	if all := slack.Messages(channel); len(all) != len(expected) {
		t.Errorf("%d messages stand in Slack, want one for each of %d incidents:", len(all), len(expected))
		for _, m := range all {
			t.Errorf("  %s", m.Text)
		}
	}
	for cause, rule := range expected {
		series := fmt.Sprintf("max_over_time(vigil_finding{rule=%q,cause=%q}[5m]) == 1", rule, cause)
		if err := p.has(t.Context(), series); err != nil {
			t.Errorf("Prometheus has not seen the finding: %v", err)
		}
	}
}

// wholeWayConfig shortens what would last minutes.
func wholeWayConfig(node *simulated, slack *slacktest.Server, tokenFile string) string {
	return fmt.Sprintf(`
sampling: {fast: 1s, slow: 1s, inventory: 2s}
host: {sysfs: %s, kmsg: "", fabric_manager_log: ""}
owners: {pod_logs: %s, mapping: [{namespace: inference, team: assistants}]}
slurm: {job_mapping: %s}
inference:
  interval: 1s
  timeout: 1s
  targets:
  - {url: %s/metrics, gpus: [%s]}
detect: {queue_time_slo: 1s, saturated_window: 10s}
rules:
  saturated_gpu: {for: 1s, hold: 5s}
  xid: {hold: 20s}
  version_changed: {hold: 10s}
`, node.sys, node.PodLogs(), node.JobMapping(), node.inference.URL, strings.Join(node.first.Endpoints[0].GPUs, ", ")) + slackConfig(slack, tokenFile)
}

// finding is an error if no finding of the cause has the state.
func (a *agent) finding(cause string, want detect.State) error {
	f, err := a.findings()
	if err != nil {
		return err
	}
	var states []string
	for _, f := range f.Findings {
		if f.Cause == cause && f.State == want {
			return nil
		}
		states = append(states, fmt.Sprintf("%s of %s is %s", f.Cause, f.Subject, f.State))
	}
	return fmt.Errorf("the findings are %q", states)
}

// told is an error unless the incident has one message, which says how it is now.
func told(slack *slacktest.Server, a *agent, cause string, resolved bool) error {
	f, err := a.findings()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(f.Incidents, func(i detect.Incident) bool { return i.Cause == cause })
	if i < 0 {
		return errors.New("there is no incident")
	}
	messages := messagesOf(slack, f.Incidents[i].ID)
	if len(messages) != 1 {
		return fmt.Errorf("it has %d messages", len(messages))
	}
	if m := messages[0]; strings.Contains(m.Text, "RESOLVED") != resolved || resolved && m.Edits == 0 {
		return fmt.Errorf("after %d edits its message says %q", m.Edits, m.Text)
	}
	return nil
}

// survived compares the findings around a crash.
func survived(t *testing.T, before, after *apiserver.Findings) {
	t.Helper()
	for _, b := range before.Findings {
		if b.State == detect.Pending {
			continue
		}
		i := slices.IndexFunc(after.Findings, func(a apiserver.Finding) bool { return a.Key() == b.Key() && a.Since.Equal(b.Since) })
		if i < 0 {
			t.Errorf("the crash has lost the finding %s, which was %s since %v", b.Key(), b.State, b.Since)
		}
	}
	for _, b := range before.Incidents {
		if !slices.ContainsFunc(after.Incidents, func(a detect.Incident) bool { return a.ID == b.ID }) {
			t.Errorf("the crash has lost the incident %s %s", b.Rule, b.Cause)
		}
	}
}

// alertOf is the name of a rule's alert: VigilSaturatedGPU of saturated_gpu.
func alertOf(id rules.ID) string {
	name := "Vigil"
	for word := range strings.SplitSeq(string(id), "_") {
		if word == "gpu" {
			word = "GPU"
		}
		name += strings.ToUpper(word[:1]) + word[1:]
	}
	return name
}

// trains writes what the training on the node tells of itself, until the test ends.
func trains(t *testing.T, dir string) {
	t.Helper()
	var done sync.WaitGroup
	t.Cleanup(done.Wait)
	file := filepath.Join(dir, "slurm-4711.prom")
	done.Go(func() {
		for step := 100; t.Context().Err() == nil; step += 2 {
			page := fmt.Sprintf("training_steps_total %d\ntraining_samples_total %d\ntraining_tokens_total %d\ntraining_loss 2.5\ntraining_epoch 0.5\n"+
				"training_loader_wait_seconds_total %d\ntraining_checkpoint_timestamp_seconds %d\ntraining_finished 0\nworkload_quality{name=\"accuracy\"} 0.75\n",
				step, 512*step, 1000*step, step/20, time.Now().Unix())
			if err := errors.Join(os.WriteFile(file+".tmp", []byte(page), 0o644), os.Rename(file+".tmp", file)); err != nil {
				t.Errorf("write the training's signals: %v", err)
				return
			}
			select {
			case <-t.Context().Done():
			case <-time.After(2 * time.Second):
			}
		}
	})
}
