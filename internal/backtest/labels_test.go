package backtest

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/rules"
)

// oneKind knows a single kind of fault.
func oneKind(name string) (finds, also []rules.ID, known bool) {
	return []rules.ID{rules.IDIdleGPU}, []rules.ID{rules.IDXid}, name == "idle and held"
}

func TestLabels(t *testing.T) {
	from, to := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC), time.Date(2026, 3, 2, 11, 0, 0, 0, time.UTC)
	want := []Truth{
		{Kind: "GPU died", Node: "n1", Subjects: []string{"GPU-a", "slurm/7"}, Rules: []rules.ID{"xid", "gpu_lost"}, Also: []rules.ID{"idle_gpu"}, From: from, To: to},
		{Kind: "idle and held", Rules: []rules.ID{"idle_gpu"}, Also: []rules.ID{"xid"}, From: from, To: to},
		{Kind: "sxid", Rules: []rules.ID{"sxid"}, From: from, To: to},
	}
	for name, content := range map[string]string{
		"CSV": "node,subject,rule,also,kind,from,to\n" +
			"n1,GPU-a slurm/7,xid gpu_lost,idle_gpu,GPU died,2026-03-02T10:00:00Z,2026-03-02T12:00:00+01:00\n" +
			",,,,idle and held,1772445600,1772449200\n,,sxid,,,1772445600,1772449200\n",
		"JSON": `[{"kind":"GPU died","node":"n1","subjects":["GPU-a","slurm/7"],"rules":["xid","gpu_lost"],"also":["idle_gpu"],"from":"2026-03-02T10:00:00Z","to":"2026-03-02T11:00:00Z"},
			{"kind":"idle and held","from":"2026-03-02T10:00:00Z","to":"2026-03-02T11:00:00Z"},
			{"rules":["sxid"],"from":"2026-03-02T10:00:00Z","to":"2026-03-02T11:00:00Z"}]`,
	} {
		got, err := parseLabels([]byte(content), oneKind)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s is read as other labels (-want +got):\n%s", name, diff)
		}
	}
}

func TestLabelsThatCannotBeMeant(t *testing.T) {
	for content, want := range map[string]string{
		"":                             "head line",
		"when,rule\n":                  `no column "when"`,
		"rule,from,to\nxid,yesterday,": "line 2: from",
		"rule,from,to\nxid,1,soon":     "line 2: to",
		"rule,from,to\nxid,2,1":        "ends at",
		"rule,from,to\nmagic,1,2":      `no rule "magic"`,
		"kind,from,to\nbad luck,1,2":   "no kind of fault",
		"rule,from,to\nxid,1":          "wrong number of fields",
		`[{"rule":["xid"]}]`:           "label 1: unknown field",
		"[\n{\n":                       "line 3: it is no JSON",
		`[] more`:                      "line 1: it is no JSON",
		`[{"rules":["xid"],"from":"1","to":"2"},{"rules":"xid"}]`:       "label 2: rules is of type string and has to be an array of strings",
		`[{"rules":["xid"],"from":1,"to":2}]`:                           "label 1: from is of type number and has to be a string",
		`["xid"]`:                                                       "label 1: it is of type string and has to be an object",
		`[{"rules":["xid"],"from":"soon","to":"2026-03-02T11:00:00Z"}]`: `label 1: from: "soon" is neither`,
		`[{"rules":["xid"],"from":"1","to":"2","least":"warning"}]`:     "label 1: least",
		`[null]`: "label 1: from",
		`[{"rules":["xid"],"from":"1","to":"2","subjects":["GPU-a",""]}]`:        "label 1: one of its subjects is empty",
		`[{"rules":["xid"],"from":"1","to":"2"},{"rules":[7],"subjects":[" "]}]`: "label 2: rules",
	} {
		_, err := parseLabels([]byte(content), oneKind)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("labels %q: error %v, want one that says %q", content, err, want)
		} else if strings.Contains(err.Error(), "Go ") || strings.Contains(err.Error(), "backtest.") && !strings.Contains(err.Error(), "backtest.md") {
			t.Errorf("labels %q: the error is about Go and not about the labels: %v", content, err)
		}
	}
}

func FuzzLabels(f *testing.F) {
	f.Add([]byte("node,subject,rule,also,kind,from,to\nn1,GPU-a,xid,,x,1,2\n"))
	f.Add([]byte(`[{"rules":["xid"],"from":"2026-03-02T10:00:00Z","to":"2026-03-02T11:00:00Z"}]`))
	f.Fuzz(func(t *testing.T, content []byte) {
		truths, err := parseLabels(content, oneKind)
		if err != nil {
			return
		}
		for _, label := range truths {
			if len(label.Rules) == 0 || !label.To.After(label.From) {
				t.Errorf("accepted a label that can judge nothing: %+v", label)
			}
		}
	})
}
