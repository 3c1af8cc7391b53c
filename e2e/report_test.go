package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"gpuvigil/internal/cost"
	"gpuvigil/internal/metric"
)

// history is samples of the past, as OpenMetrics writes them.
type history map[*metric.Def][]string

func (h history) add(d *metric.Def, labels string, value float64, at time.Time) {
	h[d] = append(h[d], fmt.Sprintf("%s{%s} %v %d", d.Name, labels, value, at.Unix()))
}

// load puts the samples into the database of a real Prometheus, and starts it.
func (h history) load(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var b strings.Builder
	for d, lines := range h {
		kind := map[bool]string{true: "counter", false: "gauge"}[strings.HasSuffix(d.Name, "_total")]
		fmt.Fprintf(&b, "# TYPE %s %s\n%s\n", strings.TrimSuffix(d.Name, "_total"), kind, strings.Join(lines, "\n"))
	}
	file, data := filepath.Join(dir, "samples"), filepath.Join(dir, "data")
	if err := os.WriteFile(file, []byte(b.String()+"# EOF\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, said := runs(t, nil, tool(t, "promtool"), "tsdb", "create-blocks-from", "openmetrics", "--max-block-duration=720h", file, data); code != 0 {
		t.Fatalf("promtool makes no blocks:\n%s", said)
	}
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, []byte("global: {scrape_interval: 1m}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := launch(tool(t, "prometheus"), []string{"--config.file=" + config, "--storage.tsdb.path=" + data,
		"--storage.tsdb.retention.time=1y", "--web.listen-address=127.0.0.1:0"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.end() })
	listens, err := s.address()
	if err != nil {
		t.Fatalf("start Prometheus: %v\n%s", err, s.log)
	}
	client, err := api.NewClient(api.Config{Address: "http://" + listens})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "Prometheus has the samples", func() error {
		_, err := v1.NewAPI(client).Buildinfo(t.Context())
		return err
	})
	return "http://" + listens
}

// fleet is what two nodes exported over three days, every minute: a job, scraped
// twice, whose agent moves to another address; a pod that appears after a day, rests
// for more than an hour and comes back; a GPU whose ledger is lost. The amounts are
// those of 3600 s, 3600 USD and 360 kJ for each hour of work.
func fleet(begin, end time.Time) history {
	h := history{}
	for at := begin; !at.After(end); at = at.Add(time.Minute) {
		since := at.Sub(begin)
		s := since.Seconds()
		node := func(instance, name, uuid, owner, state string, value float64, replicas ...string) {
			for _, r := range replicas {
				labels := fmt.Sprintf(`instance="%s",replica="%s"`, instance, r)
				gpu := fmt.Sprintf(`%s,gpu="0",uuid="%s"`, labels, uuid)
				h.add(metric.NodeInfo, fmt.Sprintf(`%s,node="%s",simulated="false"`, labels, name), 1, at)
				h.add(metric.GPUInfo, gpu+`,model="NVIDIA H100"`, 1, at)
				h.add(metric.PriceMissing, gpu, 0, at)
				h.add(metric.OwnerSeconds, fmt.Sprintf(`%s,%s,state="%s"`, gpu, owner, state), value, at)
				h.add(metric.OwnerCost, fmt.Sprintf(`%s,%s,state="%s",currency="USD"`, gpu, owner, state), value, at)
				h.add(metric.OwnerEnergy, fmt.Sprintf(`%s,%s,model="NVIDIA H100"`, labels, owner), 100*value, at)
			}
		}
		address := "a:1"
		if since > 40*time.Hour {
			address = "a:2"
		}
		node(address, "n1", "GPU-1", `owner_kind="job",owner="slurm/1",team="nlp"`, "busy", 5000+s, "x", "y")

		did := fmt.Sprintf(`instance="%s",owner_kind="job",owner="slurm/1",team="nlp"`, address)
		h.add(metric.OwnerWork, did+`,unit="step"`, math.Floor(s), at)
		h.add(metric.OwnerGoodput, did+`,outcome="kept"`, 0.75*s, at)
		h.add(metric.OwnerGoodput, did+`,outcome="lost"`, 0.25*s, at)
		h.add(metric.OwnerInterruptions, did, math.Floor(since.Hours()/10), at)

		if worked := since - 24*time.Hour; worked >= 0 && !(worked > 5*time.Hour && worked < 8*time.Hour) {
			value := min(worked, 4*time.Hour)
			if worked >= 8*time.Hour {
				value = worked - 4*time.Hour
			}
			node("b:1", "n2", "GPU-2", `owner_kind="pod",owner="b/\"p\\",team="vision"`, "idle_held", value.Seconds(), "x")
		}

		lost := s
		if since > 50*time.Hour+30*time.Minute {
			lost = s - (50*3600 + 1800)
		}
		node("c:1", "n3", "GPU-3", `owner_kind="unattributed",owner="unattributed",team=""`, "free", lost, "x")
	}
	return h
}

type reported struct {
	Node          string
	Lines, Totals []struct {
		Key    string
		Total  cost.Amounts
		Work   cost.Work
		States map[string]cost.Amounts
	}
	Gaps []cost.Gap
}

// TestCostsFromPrometheus reads known amounts from a real Prometheus: to the second,
// by hour and by day, through resets, gaps, a second scraper and a moved agent.
func TestCostsFromPrometheus(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Minute)
	begin := now.Add(-72 * time.Hour).Truncate(time.Hour)
	url := fleet(begin, now).load(t)
	ask := func(args ...string) (int, string) {
		return runs(t, nil, binary, append([]string{"report", "cost", "--prometheus.url=" + url, "--log.level=error"}, args...)...)
	}
	whole := now.Sub(begin).Seconds()
	for _, step := range []string{"hour", "day"} {
		code, said := ask("--since=all", "--by=job", "--format=json", "--step="+step)
		var r reported
		if err := json.Unmarshal([]byte(said), &r); err != nil || code != 0 {
			t.Fatalf("by %s it exits %d, %v:\n%s", step, code, err, said)
		}
		want := map[string]float64{
			"job:slurm/1":  whole,
			`pod:b/"p\`:    whole - (24+4)*3600,
			"unattributed": whole,
		}
		sum := cost.Amounts{}
		for _, l := range r.Lines {
			sum = sum.Plus(l.Total)
			if got := float64(l.Total.Time) / 1e9; got != want[l.Key] || float64(l.Total.Effective)/1e9 != got {
				t.Errorf("by %s, %s: %v s cost %v, want %v", step, l.Key, got, float64(l.Total.Effective)/1e9, want[l.Key])
			}
		}
		if len(r.Lines) != 3 || len(r.Totals) != 1 || r.Totals[0].Total != sum || r.Node != "3 nodes" {
			t.Errorf("by %s: %d lines of %s, total %+v, sum of the lines %+v", step, len(r.Lines), r.Node, r.Totals, sum)
		}
		if got := r.Totals[0].Total.Energy / 1e6; got != int64(100*(3*whole-28*3600-60)) {
			t.Errorf("by %s: %d J, want those of the time but for the minute in which an agent moved", step, got)
		}
		if len(r.Gaps) != 1 || r.Gaps[0].Node != "n2" || r.Gaps[0].GPUs != 1 || math.Abs(time.Duration(r.Gaps[0].Time).Hours()-4) > 0.1 {
			t.Errorf("by %s, gaps %+v; want the four hours that no account of the GPU of n2 has", step, r.Gaps)
		}
		if w := r.Lines[0].Work; math.Abs(float64(w.Units[cost.Steps])-whole) > 61 || math.Abs(w.Goodput()-0.75) > 1e-6 || w.Interruptions != int64(whole/36000) {
			t.Errorf("by %s, the job did %+v; want a step each second but for the minute in which its agent moved, three quarters kept, an interruption every ten hours", step, w)
		}
		if l := r.Lines[0]; l.Total.Unpriced != 0 || l.States["busy"].Time != l.Total.Time {
			t.Errorf("by %s, the job: %+v, want priced and busy", step, l)
		}
	}
	if code, said := ask("--since=12h", "--by=team"); code != 0 || !strings.Contains(said, "TOTAL") || !strings.Contains(said, "SM activity") {
		t.Errorf("a table of 12 hours exits %d:\n%s", code, said)
	}
	if code, said := ask("--since=all", "--format=focus"); code != 0 || strings.Count(said, "\n") < 1+3*4 || strings.Contains(said, "XXX") {
		t.Errorf("FOCUS by day exits %d:\n%s", code, said)
	}
	books := filepath.Join(t.TempDir(), "books")
	if code, said := ask("--freeze=" + books); code == 0 || !strings.Contains(said, "nothing before") && !strings.Contains(said, "no sample") {
		t.Errorf("a month of which most is missing is frozen, exit %d:\n%s", code, said)
	}
	if code, said := ask("--freeze="+books, "--month="+now.Format("2006-01")); code == 0 || !strings.Contains(said, "not over") {
		t.Errorf("this month is frozen, exit %d:\n%s", code, said)
	}
	code, said := runs(t, nil, binary, "report", "budget", "--prometheus.url="+url, "--log.level=error", "--format=json")
	var b struct {
		Days  int
		Teams []struct{ Team string }
	}
	if err := json.Unmarshal([]byte(said), &b); err != nil || code != 0 || len(b.Teams) == 0 || b.Days > 3 {
		t.Errorf("budgets exit %d, %v:\n%s", code, err, said)
	}
	if code, said := ask("--since=30d"); code == 0 || !strings.Contains(said, begin.Format("2006-01-02T15:04")) {
		t.Errorf("a time before the first sample exits %d, want it refused with %s:\n%s", code, begin, said)
	}
}

// TestTheFirstSampleIsSaid holds the beginning that reports say, within its hour, and
// that what a refusal advises is not refused.
func TestTheFirstSampleIsSaid(t *testing.T) {
	t.Parallel()
	end := time.Now().UTC().Truncate(time.Minute)
	begin := end.Add(-3 * time.Hour).Truncate(time.Hour).Add(38 * time.Minute)
	h := history{}
	for at := begin; !at.After(end); at = at.Add(time.Minute) {
		h.add(metric.OwnerSeconds, `instance="a:1",gpu="0",uuid="GPU-1",owner_kind="unattributed",owner="unattributed",team="",state="free"`, at.Sub(begin).Seconds(), at)
	}
	url := h.load(t)
	ask := func(args ...string) (int, string) {
		return runs(t, nil, binary, append(append([]string{"report"}, args...), "--prometheus.url="+url, "--log.level=error")...)
	}
	if code, said := ask("cost", "--since=all"); code != 0 || !strings.Contains(said, "from "+begin.Format("2006-01-02 15:04")+" UTC") {
		t.Errorf("it exits %d, want the first sample at %v said:\n%s", code, begin, said)
	}
	if code, said := ask("budget"); code != 0 || begin.Month() == end.Month() && begin.Day() > 1 && !strings.Contains(said, "before "+begin.Format("2006-01-02 15:04")+" UTC is not known") {
		t.Errorf("budgets exit %d, want what is before %v said to be unknown:\n%s", code, begin, said)
	}
	code, said := ask("cost", "--since=4h")
	_, advice, advised := strings.Cut(said, "ask with ")
	advice, _, _ = strings.Cut(advice, ",")
	if code == 0 || !advised {
		t.Fatalf("a time before the first sample exits %d:\n%s", code, said)
	}
	if code, said := ask("cost", advice); code != 0 {
		t.Errorf("it advises %s, which exits %d:\n%s", advice, code, said)
	}
}

// TestAMonthOfWhichTimeIsMissing has a node that left for good, one whose samples are
// lost for two days together with its ledger, and one that was not scraped for a day and
// lost nothing: what is missing is named, and not frozen until somebody says so.
func TestAMonthOfWhichTimeIsMissing(t *testing.T) {
	t.Parallel()
	y, m, _ := time.Now().UTC().Date()
	end := time.Date(y, m, 1, 0, 0, 0, 0, time.UTC)
	begin := end.AddDate(0, -1, 0)
	h := history{}
	sample := func(node string, seconds float64, at time.Time) {
		gpu := fmt.Sprintf(`instance="%s:1",gpu="0",uuid="GPU-%s"`, node, node)
		h.add(metric.NodeInfo, fmt.Sprintf(`instance="%s:1",node="%s",simulated="false"`, node, node), 1, at)
		h.add(metric.OwnerSeconds, gpu+`,owner_kind="unattributed",owner="unattributed",team="",state="free"`, seconds, at)
		h.add(metric.GPUInfo, gpu+`,model="NVIDIA X1"`, 1, at)
		h.add(metric.PriceMissing, gpu, 1, at)
	}
	leaves := begin.AddDate(0, 0, 17)
	from, to := begin.AddDate(0, 0, 5), begin.AddDate(0, 0, 7)
	within := func(at, from, to time.Time) bool { return at.After(from) && at.Before(to) }
	for at := begin.Add(-time.Hour); !at.After(end.Add(time.Hour)) && at.Before(time.Now()); at = at.Add(4 * time.Minute) {
		s := at.Sub(begin).Seconds() + 3600
		if !at.After(leaves) {
			sample("left", s, at)
		}
		if !within(at, from, to) {
			lost := s
			if at.After(from) {
				lost = at.Sub(to).Seconds()
			}
			sample("lost", lost, at)
		}
		if !within(at, from, from.AddDate(0, 0, 1)) {
			sample("kept", s, at)
		}
	}
	url, books := h.load(t), filepath.Join(t.TempDir(), "books")
	ask := func(args ...string) (int, string) {
		return runs(t, nil, binary, append([]string{"report", "cost", "--prometheus.url=" + url, "--log.level=warn"}, args...)...)
	}
	for _, format := range []string{"table", "csv", "json", "focus"} {
		code, said := ask("--since=all", "--format="+format)
		if code != 0 || !strings.Contains(said, "left") || !strings.Contains(said, "lost") {
			t.Errorf("as %s it exits %d, want the nodes named of which time is missing:\n%s", format, code, said)
		}
	}
	for _, accepted := range [][]string{nil, {"--accept-gap=left"}, {"--accept-gap=lost"}} {
		code, said := ask(append(accepted, "--freeze="+books)...)
		if code == 0 || !strings.Contains(said, "is missing") || strings.Contains(said, "kept") {
			t.Fatalf("with %v it exits %d, want the month refused, and not for the node that lost nothing:\n%s", accepted, code, said)
		}
		for node, says := range map[string]string{
			"left": fmt.Sprintf("%.2f GPU-hours of 1 GPU between %s", end.Sub(leaves).Hours(), leaves.Format("2006-01-02 15:04")),
			"lost": fmt.Sprintf("of 1 GPU between %s UTC and %s", from.Format("2006-01-02 15:04"), to.Format("2006-01-02 15:04")),
		} {
			flag := "--accept-gap=" + node
			if want := len(accepted) == 0 || accepted[0] != flag; strings.Contains(said, flag) != want || strings.Contains(said, says) != want {
				t.Errorf("with %v, that %q of %s: want it named with its flag: %v:\n%s", accepted, says, node, want, said)
			}
		}
	}
	if code, said := ask("--freeze="+books, "--accept-gap=left", "--accept-gap=lost"); code != 0 || !strings.Contains(said, "froze") {
		t.Fatalf("with both accepted it exits %d:\n%s", code, said)
	}
	if code, said := ask("--freeze=" + books); code != 0 || !strings.Contains(said, "nothing has changed") {
		t.Errorf("again, with what is missing accepted already, it exits %d:\n%s", code, said)
	}
	var closed struct{ Gaps []cost.Gap }
	content, err := os.ReadFile(filepath.Join(books, begin.Format("2006-01")+".json"))
	if err == nil {
		err = json.Unmarshal(content, &closed)
	}
	if err != nil || len(closed.Gaps) != 2 {
		t.Errorf("the frozen month has gaps %+v, %v, want both written down", closed.Gaps, err)
	}
}

// TestAMonthIsFrozen freezes the last month from a real Prometheus, to the second, and
// again, with the books unchanged.
func TestAMonthIsFrozen(t *testing.T) {
	t.Parallel()
	y, m, _ := time.Now().UTC().Date()
	end := time.Date(y, m, 1, 0, 0, 0, 0, time.UTC)
	begin := end.AddDate(0, -1, 0)
	h := history{}
	for at := begin.Add(-time.Hour); !at.After(end.Add(time.Hour)) && at.Before(time.Now()); at = at.Add(4 * time.Minute) {
		const gpu = `instance="a:1",gpu="0",uuid="GPU-1"`
		h.add(metric.OwnerSeconds, gpu+`,owner_kind="unattributed",owner="unattributed",team="",state="free"`, at.Sub(begin).Seconds()+3600, at)
		h.add(metric.GPUInfo, gpu+`,model="NVIDIA X1"`, 1, at)
		h.add(metric.PriceMissing, gpu, 1, at)
	}
	url, dir := h.load(t), t.TempDir()
	month := filepath.Join(dir, begin.Format("2006-01"))
	for _, want := range []string{"froze", "nothing has changed"} {
		if code, said := runs(t, nil, binary, "report", "cost", "--prometheus.url="+url, "--freeze="+dir); code != 0 || !strings.Contains(said, want) {
			t.Fatalf("it exits %d, want that it says %q:\n%s", code, want, said)
		}
	}
	var closed struct{ Entries []cost.Amounts }
	content, err := os.ReadFile(month + ".json")
	if err == nil {
		err = json.Unmarshal(content, &closed)
	}
	want := end.Sub(begin).Nanoseconds()
	if err != nil || len(closed.Entries) != 1 || closed.Entries[0].Time != want || closed.Entries[0].Unpriced != want {
		t.Errorf("the month has %d ns, all without price; frozen is %+v, %v", want, closed.Entries, err)
	}
	if _, err := os.Stat(month + ".corrections.jsonl"); err == nil {
		t.Error("a month that is the same gets corrections")
	}
}
