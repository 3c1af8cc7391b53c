package rules

import (
	"fmt"
	"strings"
	"time"

	"gpuvigil/internal/metric"
)

// agents selects the scrape targets that are agents.
const agents = `job=~".*gpuvigil.*"`

// promGroup is a group of rules of Prometheus with the cases that test them.
type promGroup struct {
	name  string
	cases []promCase
}

// promCase is a rule of Prometheus, and the input over which it must fire, or give
// samples, and over which it must stay silent.
type promCase struct {
	rule   promRule
	firing []series
	silent []series
	at     time.Duration     // when the rule is asked
	labels map[string]string // of the alert or sample that firing gives
	value  float64           // of that sample

	summary string // of that alert, if it has more than labels in it
	also    []example
}

// series is input of a test: so many values, one a minute, from first on by step.
type series struct {
	name        string // with labels, as the text format writes it
	first, step float64
	minutes     int
}

// catalogue returns everything that is given to Prometheus, in the order of the file.
func catalogue(o Options) []promGroup {
	return []promGroup{
		{"gpuvigil.recording", recordings()},
		{"gpuvigil.findings", findingAlerts(o)},
		{"gpuvigil.agent", agentAlerts(o)},
	}
}

// findingAlerts has one alert for each rule of the book. The agent has waited and
// judged already, so the alert waits for nothing; it outlives two minutes without a
// scrape, so that an agent that restarts does not resolve what goes on.
func findingAlerts(o Options) []promCase {
	var cases []promCase
	for i, r := range book {
		other := book[(i+1)%len(book)]
		finding := func(id ID, v float64) series {
			return series{scraped(metric.FindingActive.Series(string(id), r.Severity.String(), "gpu:GPU-1", "a_cause")), v, 0, 10}
		}
		cases = append(cases, promCase{
			rule: promRule{
				Alert: AlertName(r.ID), Expr: fmt.Sprintf("%s{rule=%q} == 1", metric.FindingActive, r.ID), KeepFiringFor: duration(2 * time.Minute),
				Annotations: o.annotations(summary(r.Title), r.Meaning, r.Action, r.Runbook),
			},
			firing: []series{finding(r.ID, 1)}, silent: []series{finding(r.ID, 0), finding(other.ID, 1)}, at: 5 * time.Minute,
			labels:  map[string]string{"rule": string(r.ID), "severity": r.Severity.String(), "subject": "gpu:GPU-1", "cause": "a_cause", "instance": "n1:9400"},
			summary: r.Title + ": gpu:GPU-1 (a_cause), told by n1:9400",
			also:    []example{r.fleet()},
		})
	}
	return cases
}

func (o Options) metaAlert(name, expr string, wait time.Duration, severity Severity, summary, description, action string) promRule {
	return promRule{
		Alert: name, Expr: expr, For: duration(wait), Labels: map[string]string{"severity": severity.String()},
		Annotations: o.annotations(summary, description, action, "agent"),
	}
}

// agentAlerts say what an agent cannot say of itself.
func agentAlerts(o Options) []promCase {
	up := func(job, instance string, v float64) series {
		return series{fmt.Sprintf("up{job=%q,instance=%q}", job, instance), v, 0, 20}
	}
	low := func(instance string) string {
		if instance == "" {
			return metric.TeamProjection.Name + `{bound="low"}`
		}
		return strings.Replace(scraped(metric.TeamProjection.Series("nlp", "USD", "low")), "n1:9400", instance, 1)
	}
	budget := series{scraped(metric.TeamBudget.Series("nlp", "USD")), 100, 0, 90}
	return []promCase{
		{
			rule: o.metaAlert("VigilAgentDown", fmt.Sprintf("up{%s} == 0", agents), 5*time.Minute, Ticket,
				"gpuvigil on {{ $labels.instance }} does not answer", "Nobody watches the node's GPUs while its agent is down.",
				"Look at the agent's log on the node: `journalctl -u gpuvigil`, or the pod's."),
			firing: []series{up("gpuvigil", "n1:9400", 0)}, silent: []series{up("gpuvigil", "n1:9400", 1), up("another", "n2:9100", 0)}, at: 10 * time.Minute,
			labels: map[string]string{"severity": "ticket", "job": "gpuvigil", "instance": "n1:9400"},
		},
		{
			rule: o.metaAlert("VigilDataDead", fmt.Sprintf("avg by (job) (up{%s}) < 0.5", agents), 10*time.Minute, Page,
				"More than half of the agents of {{ $labels.job }} do not answer", "Faults of most GPUs go unseen: silence means nothing now.",
				"Look for what the agents have in common: the network, a rollout, the scrape configuration."),
			firing: []series{up("gpuvigil", "n1:9400", 0), up("gpuvigil", "n2:9400", 0), up("gpuvigil", "n3:9400", 1)},
			silent: []series{up("gpuvigil", "n1:9400", 0), up("gpuvigil", "n2:9400", 1), up("gpuvigil", "n3:9400", 1)}, at: 15 * time.Minute,
			labels: map[string]string{"severity": "page", "job": "gpuvigil"},
		},
		{
			rule: o.metaAlert("VigilSourceStale", fmt.Sprintf("%s == 0", metric.SourceUp), 5*time.Minute, Ticket,
				"Source {{ $labels.source }} of gpuvigil on {{ $labels.instance }} gives nothing new",
				"What comes from this source is missing on the agent's page and detectors that need it do not judge.",
				"Run `gpuvigil doctor` on the node; the agent's log has the source's last error."),
			firing: []series{{scraped(metric.SourceUp.Series("nvml")), 0, 0, 20}}, silent: []series{{scraped(metric.SourceUp.Series("nvml")), 1, 0, 20}}, at: 10 * time.Minute,
			labels: map[string]string{"severity": "ticket", "source": "nvml", "instance": "n1:9400"},
		},
		{
			rule: o.metaAlert("VigilSchedulerSilent", fmt.Sprintf("%s == 0", metric.SchedulerUp), 15*time.Minute, Ticket,
				"{{ $labels.scheduler }} does not answer gpuvigil on {{ $labels.instance }}",
				"Who waits for GPUs and what is free is not known, or is what was last known.",
				"Look in the log of `gpuvigil fleet` for the last error; check its token or account, and the network to the scheduler."),
			firing: []series{{scraped(metric.SchedulerUp.Series("slurm")), 0, 0, 30}}, silent: []series{{scraped(metric.SchedulerUp.Series("slurm")), 1, 0, 30}}, at: 20 * time.Minute,
			labels: map[string]string{"severity": "ticket", "scheduler": "slurm", "instance": "n1:9400"},
		},
		{
			// A node knows its own part of a team's month only. That each node's low bound is
			// exceeded in nine of ten months makes their sum no less sure.
			rule: o.metaAlert("VigilBudgetWillNotLast", fmt.Sprintf("sum by (team, currency) (%s) > on (team, currency) max by (team, currency) (%s)", low(""), metric.TeamBudget), time.Hour, Ticket,
				"The GPU budget of {{ $labels.team }} will not last for the month",
				"What the team will have spent at the month's end, on all nodes together, is above its budget even at the low end of the projection.",
				"Run `gpuvigil report budget` for the interval; ask the team whether it is planned."),
			firing: []series{{low("n1:9400"), 60, 0, 90}, {low("n2:9400"), 60, 0, 90}, budget}, silent: []series{{low("n1:9400"), 60, 0, 90}, budget}, at: 80 * time.Minute,
			labels: map[string]string{"severity": "ticket", "team": "nlp", "currency": "USD"},
		},
		{
			rule: o.metaAlert("VigilConfigReloadFailed", fmt.Sprintf("%s == 0", metric.ConfigReloadSuccess), 5*time.Minute, Ticket,
				"gpuvigil on {{ $labels.instance }} runs with an old configuration", "The last reload of its configuration failed; the one before stays in force.",
				"Run `gpuvigil check` on the configuration file, mend it, and reload."),
			firing: []series{{scraped(metric.ConfigReloadSuccess.Series()), 0, 0, 20}}, silent: []series{{scraped(metric.ConfigReloadSuccess.Series()), 1, 0, 20}}, at: 10 * time.Minute,
			labels: map[string]string{"severity": "ticket", "instance": "n1:9400"},
		},
		{
			rule: o.metaAlert("VigilOutboxStuck", fmt.Sprintf("%s > 900", metric.OutboxAge), 5*time.Minute, Ticket,
				"Messages of gpuvigil to {{ $labels.receiver }} are not delivered", "The oldest message has waited for more than a quarter of an hour. They are kept and sent later.",
				"Look in the agent's log for why the receiver refuses them; check its token and the network."),
			firing: []series{{scraped(metric.OutboxAge.Series("oncall")), 600, 60, 20}}, silent: []series{{scraped(metric.OutboxAge.Series("oncall")), 30, 0, 20}}, at: 15 * time.Minute,
			labels: map[string]string{"severity": "ticket", "receiver": "oncall", "instance": "n1:9400"},
		},
		{
			rule: o.metaAlert("VigilCannotTell", fmt.Sprintf("min by (instance) (%s) > 900", metric.OutboxAge), 5*time.Minute, Page,
				"gpuvigil on {{ $labels.instance }} can tell nobody", "None of its receivers has taken what waits for more than a quarter of an hour: pages are not heard either.",
				"Look for what the receivers have in common: the network, a proxy, the tokens. The agent's page shows what is wrong meanwhile."),
			firing: []series{{scraped(metric.OutboxAge.Series("oncall")), 600, 60, 20}, {scraped(metric.OutboxAge.Series("am")), 800, 60, 20}},
			silent: []series{{scraped(metric.OutboxAge.Series("oncall")), 600, 60, 20}, {scraped(metric.OutboxAge.Series("am")), 0, 0, 20}}, at: 15 * time.Minute,
			labels: map[string]string{"severity": "page", "instance": "n1:9400"},
		},
		{
			rule: o.metaAlert("VigilMessagesRefused", fmt.Sprintf(`increase(%[1]s{result="refused"}[30m]) > 0 or %[1]s{result="refused"} > 0 unless %[1]s{result="refused"} offset 30m`, metric.NotificationsSent), 0, Ticket,
				"{{ $labels.receiver }} refuses what gpuvigil on {{ $labels.instance }} tells it", "A message was refused, and is not tried again at once.",
				"Look in the agent's log for the reason and what to mend: a token, a channel, a URL."),
			firing: []series{{scraped(metric.NotificationsSent.Series("oncall", "refused")), 0, 1, 40}},
			silent: []series{{scraped(metric.NotificationsSent.Series("oncall", "refused")), 3, 0, 40}, {scraped(metric.NotificationsSent.Series("oncall", "sent")), 0, 1, 40}}, at: 35 * time.Minute,
			labels: map[string]string{"severity": "ticket", "receiver": "oncall", "result": "refused", "instance": "n1:9400"},
		},
		{
			rule: o.metaAlert("VigilWatchesNothing", fmt.Sprintf("time() - %s > 300", metric.Heartbeat), 5*time.Minute, Page,
				"gpuvigil on {{ $labels.instance }} answers and judges nothing", "Its detectors have seen no new snapshot for five minutes, so that faults go unseen.",
				"Look at the agent's log, and restart it: `systemctl restart gpuvigil`, or delete the pod."),
			firing: []series{{scraped(metric.Heartbeat.Series()), 1, 0, 20}}, silent: []series{{scraped(metric.Heartbeat.Series()), 0, 60, 20}}, at: 15 * time.Minute,
			labels: map[string]string{"severity": "page", "instance": "n1:9400"},
		},
		{
			rule: o.metaAlert("VigilDetectorFailing", fmt.Sprintf("increase(%[1]s[15m]) > 0 or %[1]s unless %[1]s offset 15m", metric.DetectorPanics), 5*time.Minute, Ticket,
				"Detector {{ $labels.rule }} of gpuvigil on {{ $labels.instance }} fails", "The detector skips snapshots, so its findings may be missing.",
				"Report it as a bug, with the stack from the agent's log."),
			firing: []series{{scraped(metric.DetectorPanics.Series("xid")), 0, 1, 30}}, silent: []series{{scraped(metric.DetectorPanics.Series("xid")), 3, 0, 30}}, at: 20 * time.Minute,
			labels: map[string]string{"severity": "ticket", "rule": "xid", "instance": "n1:9400"},
		},
		{
			rule: o.metaAlert("VigilStateNotWritten", fmt.Sprintf("increase(%s[15m]) > 0", metric.StateWriteErrors), 5*time.Minute, Ticket,
				"gpuvigil on {{ $labels.instance }} cannot write its state", "Findings and messages that wait would be lost with a restart.",
				"Check space and permissions of the state directory."),
			firing: []series{{scraped(metric.StateWriteErrors.Series()), 0, 1, 30}}, silent: []series{{scraped(metric.StateWriteErrors.Series()), 3, 0, 30}}, at: 20 * time.Minute,
			labels: map[string]string{"severity": "ticket", "instance": "n1:9400"},
		},
	}
}

// recordings are what dashboards and capacity planning ask for over long ranges.
func recordings() []promCase {
	const gpu0, gpu1 = `{instance="n1:9400",gpu="0",uuid="GPU-0"}`, `{instance="n1:9400",gpu="1",uuid="GPU-1"}`
	of := func(d *metric.Def, labels string, first, step float64) series {
		return series{d.Name + labels, first, step, 70}
	}
	record := func(level string, d *metric.Def, operation, format string) promRule {
		return promRule{Record: fmt.Sprintf("%s:%s:%s", level, d, operation), Expr: fmt.Sprintf(format, d)}
	}
	node := map[string]string{"instance": "n1:9400"}
	// Two teams share GPU 0; one of them has GPU 1 alone. The shares of a GPU sum to 1.
	nlp, vision := map[string]string{"owner_kind": "job", "owner": "slurm/7", "team": "nlp"}, map[string]string{"owner_kind": "pod", "owner": "cv/a", "team": "vision"}
	user := func(gpu, kind, owner, team string, share float64) series {
		return series{scraped(metric.OwnerShare.Series(gpu, "GPU-"+gpu, "memory", kind, owner, team)), share, 0, 70}
	}
	shares := []series{user("0", "job", "slurm/7", "nlp", 0.75), user("0", "pod", "cv/a", "vision", 0.25), user("1", "pod", "cv/a", "vision", 1)}
	byOwner := func(d *metric.Def, operation, joined string) promRule {
		return promRule{Record: fmt.Sprintf("owner:%s:%s", d, operation), Expr: fmt.Sprintf(`%s by (owner_kind, owner, team) (%s{of="memory"} %s on (instance, uuid) group_left () %s)`, operation, metric.OwnerShare, joined, d)}
	}
	// The fleet role says more of a job than its node can: the join gives the job's shares
	// that, and its team too, which the role knows better.
	const details = "user, account, partition, team"
	joined := fmt.Sprintf(`%s{of="memory",owner_kind="job"} * on (owner_kind, owner) group_left (%s) max by (owner_kind, owner, %s) (%s)`, metric.OwnerShare, details, details, metric.JobInfo)
	job := func(account, partition string) series {
		return series{metric.JobInfo.Name + fmt.Sprintf(`{owner_kind="job",owner="slurm/7",array="5_7",user="1001",account=%q,partition=%q,qos="normal",name="",team="language",instance="fleet:9837"}`, account, partition), 1, 0, 70}
	}
	idle := metric.FindingActive.Series(string(IDIdleGPU), "info", "gpu:GPU-0", "idle_with_context")
	return []promCase{
		{
			rule:   record("uuid", metric.Utilization, "min5m", "min by (instance, uuid) (min_over_time(%s[5m]))"),
			firing: []series{of(metric.Utilization, gpu0, 0.25, 1.0/128)}, at: 10 * time.Minute,
			labels: map[string]string{"instance": "n1:9400", "uuid": "GPU-0"}, value: 0.296875, // minute 6: the window is open on the left
		},
		{
			rule:   record("instance", metric.Utilization, "avg", "avg by (instance) (%s)"),
			firing: []series{of(metric.Utilization, gpu0, 0.5, 0), of(metric.Utilization, gpu1, 1, 0)}, at: 10 * time.Minute, labels: node, value: 0.75,
		},
		{
			rule:   record("instance", metric.PowerDraw, "sum", "sum by (instance) (%s)"),
			firing: []series{of(metric.PowerDraw, gpu0, 700, 0), of(metric.PowerDraw, gpu1, 118, 0)}, at: 10 * time.Minute, labels: node, value: 818,
		},
		{
			rule:   record("instance", metric.Energy, "rate5m", "sum by (instance) (rate(%s[5m]))"),
			firing: []series{of(metric.Energy, gpu0, 0, 42000), of(metric.Energy, gpu1, 0, 6000)}, at: 10 * time.Minute, labels: node, value: 800,
		},
		{
			rule:   record("instance", metric.CPUBusy, "avg5m", "avg by (instance) (avg_over_time(%s[5m]))"),
			firing: []series{of(metric.CPUBusy, `{instance="n1:9400"}`, 0.25, 0)}, at: 10 * time.Minute, labels: node, value: 0.25,
		},
		{
			rule:   record("uuid_xid", metric.XidErrors, "increase1h", "sum by (instance, uuid, xid) (increase(%s[1h]))"),
			firing: []series{of(metric.XidErrors, `{instance="n1:9400",gpu="0",uuid="GPU-0",xid="31"}`, 0, 1)}, at: time.Hour,
			labels: map[string]string{"instance": "n1:9400", "uuid": "GPU-0", "xid": "31"}, value: 60,
		},
		{
			rule:   record("instance_rule", metric.FindingActive, "count", "count by (instance, rule) (%s == 1)"),
			firing: []series{{scraped(idle), 1, 0, 20}}, silent: []series{{scraped(idle), 0, 0, 20}}, at: 10 * time.Minute,
			labels: map[string]string{"instance": "n1:9400", "rule": string(IDIdleGPU)}, value: 1,
		},
		{
			// Each GPU that the owner uses counts once, however small its share.
			rule:   byOwner(metric.Utilization, "avg", "* 0 +"),
			firing: append([]series{of(metric.Utilization, gpu0, 0.5, 0)}, shares[0]), silent: shares, at: 10 * time.Minute, labels: nlp, value: 0.5,
		},
		{
			rule:   byOwner(metric.PowerDraw, "sum", "*"),
			firing: append([]series{of(metric.PowerDraw, gpu0, 400, 0), of(metric.PowerDraw, gpu1, 100, 0)}, shares[1:]...), silent: shares, at: 10 * time.Minute, labels: vision, value: 200,
		},
		{
			rule:   byOwner(metric.MemoryUsed, "sum", "*"),
			firing: append([]series{of(metric.MemoryUsed, gpu0, 1024, 0)}, shares[0]), silent: shares, at: 10 * time.Minute, labels: nlp, value: 768,
		},
		{
			rule:   promRule{Record: fmt.Sprintf("team:%s:sum", metric.OwnerShare), Expr: fmt.Sprintf(`sum by (team) (%s{of="memory"})`, metric.OwnerShare)},
			firing: shares[1:], at: 10 * time.Minute, labels: map[string]string{"team": "vision"}, value: 1.25,
		},
		{
			rule:   promRule{Record: fmt.Sprintf("job:%s:info", metric.OwnerShare), Expr: joined},
			firing: append([]series{job("proj1", "gpu")}, shares...), silent: shares, at: 10 * time.Minute, value: 0.75,
			labels: map[string]string{"instance": "n1:9400", "gpu": "0", "uuid": "GPU-0", "of": "memory", "owner_kind": "job", "owner": "slurm/7",
				"user": "1001", "account": "proj1", "partition": "gpu", "team": "language"},
		},
		{
			rule:   promRule{Record: fmt.Sprintf("account_partition:%s:sum", metric.OwnerShare), Expr: fmt.Sprintf("sum by (account, partition, team) (%s)", joined)},
			firing: append([]series{job("proj1", "gpu")}, shares...), silent: shares, at: 10 * time.Minute, value: 0.75,
			labels: map[string]string{"account": "proj1", "partition": "gpu", "team": "language"},
		},
	}
}

// scraped adds the label that a scrape adds.
func scraped(name string) string {
	const instance = `instance="n1:9400"}`
	if labelled, ok := strings.CutSuffix(name, "}"); ok {
		return labelled + "," + instance
	}
	return name + "{" + instance
}
