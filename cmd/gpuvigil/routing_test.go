package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/internal/config"
	"gpuvigil/internal/cost"
	"gpuvigil/rules"
)

const routedConfig = `
alerting:
  slack:
  - {name: oncall, webhook_url_env: GPUVIGIL_TEST_HOOK}
  - {name: nlp, webhook_url_env: GPUVIGIL_TEST_HOOK}
  time_intervals:
  - name: nights
    time_intervals: [{times: [{start_time: 00:00, end_time: 06:00}]}]
  route:
    receiver: oncall
    repeat_interval: 4h
    mentions: [S0123456789]
    routes:
    - matchers: [severity="page"]
      continue: true
    - matchers: [team=~"nlp|vision"]
      receiver: nlp
      mute_time_intervals: [nights]
      repeat_interval: 0s
      mentions: []
    - matchers: [rule="idle_gpu"]
      receiver: none
`

func TestRoutesCanBeTried(t *testing.T) {
	t.Setenv("GPUVIGIL_TEST_HOOK", "https://hooks.slack.com/services/T0/B0/x")
	path := file(t, routedConfig)
	f := func(want string, labels ...string) {
		t.Helper()
		code, out, errs := gpuvigil(t, append([]string{"routes", "test", "--config.file=" + path}, labels...)...)
		if diff := cmp.Diff(want, out); diff != "" || code != 0 {
			t.Errorf("routes test %v: exit code %d, %s (-want +got):\n%s", labels, code, errs, diff)
		}
	}
	f("oncall, again every 4h, pages call S0123456789\n", "severity=ticket")
	f("oncall, again every 4h, pages call S0123456789\nnlp, muted in nights\n", "severity=page", "team=nlp")
	f("nobody\n", "severity=ticket", "rule=idle_gpu")
	f("oncall is not told: its min_severity is ticket\n", "severity=info")
	for _, wrong := range [][]string{{"severity=urgent"}, {"rule=nope"}, {"team=a", "team=b"}} {
		if code, out, errs := gpuvigil(t, append([]string{"routes", "test", "--config.file=" + path}, wrong...)...); code != int(exitUnknown) || !strings.Contains(errs, "allowed") {
			t.Errorf("routes test %v: exit code %d, %s%s", wrong, code, out, errs)
		}
	}
	if code, _, errs := gpuvigil(t, "routes", "test", "--config.file="+path, "sev=page"); code != int(exitUnknown) || !strings.Contains(errs, "severity, rule") {
		t.Errorf("a label that does not exist gives exit code %d and says: %s", code, errs)
	}
	code, out, errs := gpuvigil(t, "check", path)
	for _, want := range []string{"-> oncall, again", "  {severity=\"page\"} -> oncall", "continue", "  {rule=\"idle_gpu\"} -> nobody"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("check, exit code %d, does not say %q:\n%s%s", code, want, out, errs)
		}
	}
}

func TestARehearsalIsWhatTheRuleWouldSay(t *testing.T) {
	now := time.Date(2026, 3, 14, 3, 0, 0, 0, time.UTC)
	s := &collector.Snapshot{GPUs: []collector.GPU{{Index: 3, UUID: "GPU-a", Model: "H100", Owners: []collector.Owner{{Kind: "job", ID: "slurm/1", Team: "nlp"}}}}}
	i, err := rehearsal("gpu_lost", "3", s, "gpu-117", now)
	if err != nil {
		t.Fatal(err)
	}
	f := i.Members[0]
	if !i.Drill || i.Severity != rules.Page || f.Subject.ID != "GPU-a" || f.GPUIndex != 3 || f.Owner.Team != "nlp" || !strings.Contains(f.Evidence.Seen, "rehearses") {
		t.Errorf("the rehearsal is %+v", i)
	}
	if i, err := rehearsal("gpu_lost", "", nil, "gpu-117", now); err != nil || i.Members[0].Subject.String() != "node:gpu-117" {
		t.Errorf("without a GPU it is about %+v, %v", i, err)
	}
	for _, bad := range [][2]string{{"gpu_lots", ""}, {"gpu_lost", "4"}} {
		if _, err := rehearsal(bad[0], bad[1], s, "gpu-117", now); err == nil {
			t.Errorf("drill %s --gpu=%s is possible", bad[0], bad[1])
		}
	}
}

func TestIncidentsAreFoundByTheirFirstLetters(t *testing.T) {
	all := []detect.Incident{
		{ID: "abcdef01", State: detect.Firing, Rule: "xid"}, {ID: "abce", State: detect.Firing, Rule: "xid"}, {ID: "0123", State: detect.Resolved, Rule: "xid"},
	}
	f := func(id, found, wrong string) {
		t.Helper()
		i, err := incidentOf(all, id)
		switch {
		case found != "" && (err != nil || i.ID != found):
			t.Errorf("%q finds %v, %v, want %s", id, i, err, found)
		case found == "" && (err == nil || !strings.Contains(err.Error(), wrong)):
			t.Errorf("%q finds %v, %v, want an error with %q", id, i, err, wrong)
		}
	}
	f("abcd", "abcdef01", "")
	f("abce", "abce", "")
	f("abc", "", "2 incidents begin with")
	f("0123", "", "abcdef01 (xid)")
	f("", "", "there are")
}

func TestADigestSaysWhereTheMoneyWent(t *testing.T) {
	at := time.Date(2026, 3, 13, 8, 0, 0, 0, time.UTC)
	row := func(team string, state cost.State, hours, usd int64) cost.Row {
		r := cost.Row{Hour: at, Model: "H100", Currency: "USD"}
		r.State, r.Amounts = state, cost.Amounts{Time: hours * int64(time.Hour), Effective: usd * 1e9}
		if team != "" {
			r.Owner = collector.Owner{Kind: "job", ID: team, Team: team}
		}
		return r
	}
	a := &cost.Answer{Node: "gpu-117", Since: at, Until: at.Add(24 * time.Hour), Rows: []cost.Row{
		row("nlp", cost.Busy, 100, 250), row("nlp", cost.IdleHeld, 96, 240), row("vision", cost.HeldWithoutProcess, 70, 175), row("", cost.Free, 20, 50), row("", cost.Unavailable, 18, 45),
	}}
	f := func(label, want string) {
		t.Helper()
		for _, l := range moneyLines(a) {
			if l.Label == label {
				if l.Text != want {
					t.Errorf("%s: %q, want %q", label, l.Text, want)
				}
				return
			}
		}
		t.Errorf("the digest has no line %s", label)
	}
	f("Cost", "304.0 GPU-h, 760.00 USD; busy 33 % of the time")
	f("Idle and held", "166.0 GPU-h, 415.00 USD: nlp 96.0 GPU-h, 240.00 USD; vision 70.0 GPU-h, 175.00 USD")
	f("Not in that", "free 20.0 GPU-h; unavailable 18.0 GPU-h; not observed 0.0 GPU-h")
}

func TestADigestSaysWhatFiredAndChanged(t *testing.T) {
	from := time.Date(2026, 3, 13, 8, 0, 0, 0, time.UTC)
	to := from.Add(24 * time.Hour)
	fired := func(rule rules.ID, at time.Time) detect.Finding { return detect.Finding{Rule: rule, Fired: at} }
	v := &detect.View{
		Findings:  []detect.Finding{fired("idle_gpu", from), fired("idle_gpu", to.Add(-1)), fired("idle_gpu", to), fired("xid", from.Add(-1)), fired("spend", from.Add(time.Hour))},
		Incidents: []detect.Incident{{State: detect.Firing, Severity: rules.Page, Opened: from, Members: []detect.Finding{{Rule: rules.IDXid}}}, {State: detect.Resolved, Members: []detect.Finding{{}}}},
		Standings: []detect.Standing{{Rule: "xid", Fired: 4}, {Rule: "spend"}},
	}
	changes := []collector.Event{{Kind: collector.VersionEvent, Time: from, Component: "driver", From: "570", To: "580"}, {Kind: collector.VersionEvent, Time: to, Component: "nccl"}}
	var said []string
	for _, l := range eventLines(v, changes, from, to) {
		said = append(said, l.Label+": "+l.Text)
	}
	want := []string{"Still fires: page " + rules.Get(rules.IDXid).Title + " since 13 Mar 08:00 UTC", "Findings: idle_gpu 2 ×; spend 1 ×", "Versions changed: driver 570 → 580"}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("of a day (-want +got):\n%s", diff)
	}
	for _, l := range eventLines(v, nil, from, from.AddDate(0, 0, 7)) {
		if l.Label == "Findings" && l.Text != "xid 4 ×" {
			t.Errorf("of a week: %s", l.Text)
		}
	}
}

func TestRoutesInheritAsAlertmanagersDo(t *testing.T) {
	t.Setenv("GPUVIGIL_TEST_HOOK", "x")
	cfg, err := config.Parse("gpuvigil.yml", []byte(routedConfig))
	if err != nil {
		t.Fatal(err)
	}
	root := gate(cfg).Route
	page, team := root.Routes[0], root.Routes[1]
	if page.Receiver != "oncall" || page.Repeat != 4*time.Hour || len(page.Mentions) != 1 {
		t.Errorf("a route that says nothing has %+v", page)
	}
	if team.Repeat != 0 || len(team.Mentions) != 0 || len(root.Mute) != 0 {
		t.Errorf("a route that says 0s and nobody has %+v", team)
	}
}
