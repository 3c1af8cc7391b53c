package dashboards

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"gpuvigil/internal/metric"
)

var (
	nameOf     = regexp.MustCompile(`\bvigil_\w+`)
	selectorOf = regexp.MustCompile(`\b(vigil_\w+)\{([^}]*)\}`)
	matcherOf  = regexp.MustCompile(`^(\w+)(=|!=|=~|!~)"[^"]*"$`)
	labelsOf   = regexp.MustCompile(`\b(?:by|on|ignoring|without|group_left|group_right) \(([^)]*)\)`)
	keptOf     = regexp.MustCompile(`^(?:sum|max|avg|count) by \(([^)]*)\) \(`)
	legendOf   = regexp.MustCompile(`\{\{(\w+)\}\}`)
	sumOf      = regexp.MustCompile(`sum(?: by \([^)]*\))? ?\((vigil_\w+)`)
)

// undrawn are the rows that no panel draws, with the reason.
var undrawn = map[*metric.Def]string{
	metric.FleetLeader: "of replicas alone; it is for an alert, which needs no picture",
	metric.FleetNodes:  "how much the role sees, for whoever asks why a node has no findings; a node that is missing is in its log", metric.FleetGPUs: "as above", metric.FleetSeries: "as above",
	metric.FleetSamples: "as above", metric.FleetSeriesRefused: "as above", metric.FleetStrangers: "as above", metric.FleetUnreadable: "as above",
	metric.PromQLUp: "what reading a Prometheus costs, for whoever runs that one; that it does not answer is on the page and in the log", metric.PromQLQueries: "as above", metric.PromQLFailures: "as above", metric.PromQLSeconds: "as above",
	metric.PromQLBytes: "as above", metric.PromQLSamples: "as above", metric.PromQLWarnings: "as above", metric.PromQLEnded: "as above", metric.PromQLLast: "as above", metric.PromQLRound: "as above", metric.PromQLSeries: "as above", metric.PromQLNames: "as above",
	metric.PushRequests: "whether a node is behind shows in the age of what its panels draw; for whoever looks into it, docs/push.md", metric.PushSamples: "as above", metric.PushBytes: "as above", metric.PushAge: "as above", metric.PushLost: "as above",
	metric.WriteRequests: "how much the role is sent, for whoever looks into it, docs/push.md", metric.WriteBytes: "as above", metric.WriteSamples: "as above", metric.WritePending: "as above", metric.WriteKnown: "as above", metric.WriteCut: "as above",
	metric.RuleNeed: "gpuvigil promote and status tell it; it changes with the fleet only", metric.RuleClean: "as above", metric.RuleProof: "as above",
	metric.Heartbeat:      "for an alert on what stands still, or for somebody outside to miss: drawn it is a straight line",
	metric.FleetLeader:    "for an alert where none of the replicas leads, or two do",
	metric.MIGMemoryFree:  "capacity less used, which are drawn",
	metric.SourcePage:     "where the numbers come from, not a number; that the page is not read is drawn",
	metric.FunctionCalls:  "to divide the time by, which is drawn; the calls of all functions together are drawn",
	metric.FunctionErrors: "drawn for all functions together",

	metric.EndpointNotAvailable:  "a fact that there is not: for whoever asks why a rule is silent",
	metric.EndpointApproximate:   "to join on when servers of different engines are compared",
	metric.OwnerReadFailures:     "for whoever asks why a process is unattributed; that it is, is drawn",
	metric.OwnerLabel:            "to join on",
	metric.KubeletAge:            "that the kubelet does not answer is drawn, as a source that is down",
	metric.AllocationsKnown:      "that the kubelet does not answer is drawn, and so is the time that is unobserved by it",
	metric.AllocationsUnresolved: "what is resolved is drawn",
	metric.StaleJobs:             "what is not stale is drawn",

	metric.WorkloadSteps:   "its rate is drawn, as the workload's step rate",
	metric.WorkloadSamples: "its rate is drawn",
	metric.WorkloadTokens:  "its rate is drawn",

	metric.PowerInstant:          "close to vigil_gpu_power_draw_watts, which is drawn",
	metric.PowerBands:            "for whoever asks how power was spent; the bands of utilization and SM activity are drawn",
	metric.PowerPeak:             "for sizing a supply; the draw is drawn",
	metric.PowerLow:              "for sizing a supply; the draw is drawn",
	metric.MIGGraphicsActivity:   "the activity of the SMs is drawn",
	metric.MIGSMOccupancy:        "the activity of the SMs is drawn",
	metric.TemperatureMargin:     "the temperature is drawn",
	metric.ECCUncorrected:        "errors by type are drawn; where they were is for who looks into one",
	metric.ECCMode:               "a setting",
	metric.SRAMThreshold:         "told to root only; a rule's matter",
	metric.PersistenceMode:       "a setting",
	metric.VGPULicensed:          "a setting",
	metric.FabricHealth:          "the state is drawn",
	metric.ConfidentialComputing: "a setting",
	metric.NVMLHostPIDs:          "a setting",
	metric.PCIGPUs:               "does not change while the node runs; gpuvigil health compares it with the GPUs of the driver, which are drawn",
}

func expressions(t *testing.T, d Dashboard) []Expression {
	t.Helper()
	found, err := d.Expressions()
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 10 {
		t.Fatalf("only %d expressions found: the tests on them would prove nothing", len(found))
	}
	return found
}

func TestExpressionsFollowTheCatalogue(t *testing.T) {
	forEach(t, func(t *testing.T, d Dashboard, built dashboard.Dashboard) {
		found := expressions(t, d)
		for _, v := range built.Templating.List {
			if v.Type == dashboard.VariableTypeQuery {
				found = append(found, Expression{Panel: "variable " + v.Name, Expr: *v.Query.String})
			}
		}
		for _, e := range found {
			for _, problem := range check(e.Expr) {
				t.Errorf("panel %q would stay empty: %s in %s", e.Panel, problem, e.Expr)
			}
		}
	})
}

// check returns what the catalogue does not know in an expression.
func check(expr string) (problems []string) {
	complain := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if strings.Contains(expr, "%!") {
		complain("a placeholder was not filled")
	}
	if strings.Count(expr, "(") != strings.Count(expr, ")") {
		complain("brackets do not match")
	}
	known := []string{"instance"}
	names := nameOf.FindAllString(expr, -1)
	if len(names) == 0 {
		complain("no metric of ours")
	}
	for _, name := range names {
		row, err := rowOf(name)
		if err != nil {
			complain("%v", err)
			continue
		}
		known = append(known, row.LabelNames()...)
		if row.Kind == metric.Histogram {
			known = append(known, "le")
		}
	}
	for _, s := range selectorOf.FindAllStringSubmatch(expr, -1) {
		row, err := rowOf(s[1])
		if err != nil {
			continue // said above
		}
		for _, m := range strings.Split(s[2], ",") {
			parts := matcherOf.FindStringSubmatch(m)
			if parts == nil {
				complain("matcher %s is not understood", m)
			} else if l := parts[1]; l != "instance" && !slices.Contains(row.LabelNames(), l) {
				complain("%s has no label %s", row, l)
			}
		}
	}
	for _, list := range labelsOf.FindAllStringSubmatch(expr, -1) {
		for l := range strings.SplitSeq(list[1], ",") {
			if l = strings.TrimSpace(l); l != "" && !slices.Contains(known, l) {
				complain("no series here has the label %s", l)
			}
		}
	}
	return problems
}

// rowOf returns the row of a series, which of a histogram is one of its buckets.
func rowOf(name string) (*metric.Def, error) {
	if family, ok := strings.CutSuffix(name, "_bucket"); ok {
		if row, err := metric.ByName(family); err == nil && row.Kind == metric.Histogram {
			return row, nil
		}
	}
	row, err := metric.ByName(name)
	if err == nil && row.Kind == metric.Histogram {
		return nil, fmt.Errorf("%s is a histogram: it has series for its buckets only", name)
	}
	return row, err
}

func TestCheckFindsMistakes(t *testing.T) {
	for expr, want := range map[string]string{
		`vigil_gpu_utilisation_ratio{instance=~"$instance"}`:                  `no metric "vigil_gpu_utilisation_ratio"`,
		`vigil_node_cpus{gpu=~"$gpu"}`:                                        "has no label gpu",
		`sum by (pod) (vigil_node_cpus{instance=~"$instance"})`:               "label pod",
		`sum(vigil_node_cpus{instance=~"$instance"}`:                          "brackets",
		`vigil_node_cpus{instance=~"$instance"} / %!s(MISSING)`:               "placeholder",
		`rate(vigil_inference_queue_time_seconds{instance=~"$instance"}[5m])`: "is a histogram",
		`up{instance=~"$instance"}`:                                           "no metric of ours",
		`vigil_node_cpus{instance=~$instance}`:                                "not understood",
		`vigil_node_load{instance=~"$instance",window="1m"}`:                  "",
		`max by (gpu) (vigil_gpu_info{gpu=~"$gpu",instance=~"$instance"})`:    "",
	} {
		got := strings.Join(check(expr), "; ")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("check(%s) says %q, want it to say %q", expr, got, want)
		}
	}
}

func TestEveryRowIsDrawn(t *testing.T) {
	drawn := map[string]bool{}
	for _, d := range All() {
		for _, e := range expressions(t, d) {
			for _, name := range nameOf.FindAllString(e.Expr, -1) {
				if row, err := rowOf(name); err == nil {
					drawn[row.Name] = true
				}
			}
		}
	}
	for _, row := range metric.All() {
		switch reason, excused := undrawn[row]; {
		case row.Entity == metric.Process || row.Entity == metric.Option || row.Detail: // no series by default
		case drawn[row.Name] && excused:
			t.Errorf("%s is drawn, though it is listed as not drawn because it is %s", row, reason)
		case !drawn[row.Name] && !excused:
			t.Errorf("no panel draws %s: draw it, or say in undrawn why not", row)
		}
	}
}

// A counter's value depends on when it was started, so only its growth is shown.
// grown's first half is the exception: a counter that was not there has grown by
// its value.
func TestCountersAreShownAsGrowth(t *testing.T) {
	forEach(t, func(t *testing.T, d Dashboard, _ dashboard.Dashboard) {
		for _, e := range expressions(t, d) {
			for _, at := range selectorOf.FindAllStringSubmatchIndex(e.Expr, -1) {
				row, err := rowOf(e.Expr[at[2]:at[3]])
				if err != nil {
					t.Fatal(err)
				}
				before, s, after := e.Expr[:at[0]], e.Expr[at[0]:at[1]], e.Expr[at[1]:]
				ranged := strings.HasPrefix(after, "[") && (strings.HasSuffix(before, "rate(") || strings.HasSuffix(before, "increase("))
				appeared := strings.HasPrefix(after, " unless "+s+" offset ") || strings.HasSuffix(before, s+" unless ")
				absent := strings.HasSuffix(before, ") unless on (instance, gpu) ") // only whether it is there
				grows := row.Kind == metric.Counter || row.Kind == metric.Histogram // each of its buckets does
				if grows && !ranged && !appeared && !absent {
					t.Errorf("panel %q shows the counter %s itself: %s", e.Panel, row, e.Expr)
				}
				if !grows && ranged {
					t.Errorf("panel %q shows the growth of the gauge %s: %s", e.Panel, row, e.Expr)
				}
			}
		}
	})
}

func TestNothingIsAddedUpThatMustNot(t *testing.T) {
	forEach(t, func(t *testing.T, d Dashboard, _ dashboard.Dashboard) {
		for _, e := range expressions(t, d) {
			for _, bad := range []string{"sum_over_time", "avg_over_time"} {
				if strings.Contains(e.Expr, bad) {
					t.Errorf("panel %q mixes instants of the time range: %s", e.Panel, e.Expr)
				}
			}
			for _, m := range sumOf.FindAllStringSubmatch(e.Expr, -1) {
				if strings.HasSuffix(m[1], "_ratio") || strings.HasSuffix(m[1], "_celsius") {
					t.Errorf("panel %q adds up %s, which means nothing: %s", e.Panel, m[1], e.Expr)
				}
			}
		}
	})
}
