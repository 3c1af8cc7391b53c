package scrape

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
	"gpuvigil/collector/page"
	"gpuvigil/internal/metric"
)

const (
	gpuA = `{gpu="0",UUID="GPU-a",Hostname="n1"} `
	gpuB = `{gpu="1",UUID="GPU-b",Hostname="n1"} `
)

// TestPagesThatAreRefused holds that a page which is not what it should be costs no more
// than itself, and that the error says what was found.
func TestPagesThatAreRefused(t *testing.T) {
	smi := string(recorded(t, "nvidia_gpu_exporter.prom"))
	for name, c := range map[string]struct{ exporter, page, reason, says string }{
		"empty":                      {"", "", "empty", "empty"},
		"a login page":               {"", "<html>", "html", "login"},
		"JSON":                       {"", `{"status":"ok"}`, "json", "JSON"},
		"half a page":                {"", "DCGM_FI_DEV_GPU_UTIL" + gpuA + "9", "cut_off", "not whole"},
		"no number":                  {"", "DCGM_FI_DEV_GPU_UTIL" + gpuA + "N/A\n", "syntax", "text format"},
		"another program's":          {"", "go_goroutines 8\nprocess_cpu_seconds_total 3\nvllm:num_requests_running 3\n", "unknown_page", "go_goroutines, process_cpu_seconds_total, vllm:num_requests_running"},
		"hostile names":              {"", "a\x1b[2J 1\n", "unknown_page", "a [2J"},
		"comments only":              {"", "# nothing\n", "unknown_page", "no sample"},
		"no uuid":                    {"", `DCGM_FI_DEV_GPU_UTIL{gpu="0"} 9` + "\n", "unknown_page", "label UUID"},
		"not the one that it is":     {SMI, "DCGM_FI_DEV_GPU_UTIL" + gpuA + "9\n", "other_page", "nothing of nvidia_gpu_exporter"},
		"nor the other way round":    {DCGM, smi, "other_page", "nothing of dcgm-exporter"},
		"both at once":               {"", "DCGM_FI_DEV_GPU_UTIL" + gpuA + "9\n" + smi, "unknown_page", "name the one"},
		"of several nodes":           {"", "DCGM_FI_DEV_GPU_UTIL" + gpuA + "9\nDCGM_FI_DEV_GPU_UTIL" + strings.ReplaceAll(gpuB, "n1", "n2") + "9\n", "several_nodes", "n1 and n2"},
		"of several nodes, federate": {"", `DCGM_FI_DEV_GPU_UTIL{UUID="a",instance="n1:9400"} 9` + "\n" + `DCGM_FI_DEV_GPU_UTIL{UUID="b",instance="n2:9400"} 9` + "\n", "several_nodes", "n1:9400 and n2:9400"},
		"too many GPUs":              {"", many(maxGPUs + 1), "too_large", "more than 64 GPUs"},
		"the exporter failed":        {"", strings.Replace(smi, "last_collect_success 1", "last_collect_success 0", 1), "not_collected", "failed"},
		"nvidia-smi failed":          {"", strings.Replace(smi, "command_exit_code 0", "command_exit_code 9", 1), "not_collected", "ask the driver"},
		"it looked an hour ago":      {"", smi + fmt.Sprintf("nvidia_smi_last_collect_success_timestamp_seconds %d\n", noon.Unix()-3600), "not_collected", "1 h ago"},
		"it has no GPU":              {"", "nvidia_smi_failed_scrapes_total 0\n", "not_collected", "no GPU"},
	} {
		t.Run(name, func(t *testing.T) {
			part, err := gpus(t, c.exporter).take(strings.NewReader(c.page), noon)
			if part != nil || err == nil || page.Reason(err) != c.reason || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\x1b") {
				t.Errorf("part %v, reason %s, want %s and %q:\n%v", part != nil, page.Reason(err), c.reason, c.says, err)
			}
		})
	}
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "DCGM_FI_DEV_GPU_UTIL{gpu=\"%d\",UUID=\"GPU-%d\"} 1\n", i, i)
	}
	return b.String()
}

// TestOverHTTP goes the whole way once; collector/page holds the rest of it.
func TestOverHTTP(t *testing.T) {
	answer := func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(recorded(t, "dcgm-4.8.prom")) }
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, r) }))
	defer srv.Close()
	at, err := page.New(page.Address{URL: "http://reader:hunter2@" + strings.TrimPrefix(srv.URL, "http://") + "/metrics?token=hunter2"}, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s := NewGPUs(GPUConfig{Page: at, Interval: time.Second, Log: slog.New(slog.NewTextHandler(&log, nil))})
	part, err := s.Sample(t.Context())
	if err != nil || len(part.GPUs) != 8 || part.GPUs[0].SampledAt(metric.Fast).IsZero() || !part.GPUs[0].SampledAt(metric.Processes).IsZero() {
		t.Fatalf("a good page gives %+v and %v; its GPUs must be stamped, and their processes not: nobody told", part, err)
	}
	if _, err := s.Sample(t.Context()); err != nil || strings.Count(log.String(), "names=\"until 4.8\"") != 1 {
		t.Errorf("what was guessed is to be logged once: %v\n%s", err, log.String())
	}
	answer = func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusFound)
	}
	part, err = s.Sample(t.Context())
	if part != nil || page.Reason(err) != "redirect" || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a redirect to another host: %v, %v", part, err)
	}
	answer = func(w http.ResponseWriter, _ *http.Request) {
		filler := bytes.Repeat([]byte("# a line that nobody wants to read and that is of some length\n"), 1<<14)
		for range 100 {
			if _, err := w.Write(filler); err != nil {
				return
			}
		}
	}
	if part, err = s.Sample(t.Context()); part != nil || page.Reason(err) != "too_large" {
		t.Errorf("a page of 100 MB: %v, %v", part, err)
	}
	if strings.Contains(log.String(), "hunter2") {
		t.Errorf("the log shows a secret:\n%s", log.String())
	}
}

// xidPages reads one page after the other, 15 s apart, and returns the errors that were
// told of with each.
func xidPages(t *testing.T, pages ...string) (told [][]int, last *collector.Part) {
	t.Helper()
	s := gpus(t, "")
	for i, p := range pages {
		var err error
		last, err = s.take(strings.NewReader("DCGM_FI_DEV_GPU_TEMP"+gpuA+"40\n"+p), noon.Add(time.Duration(i)*15*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		var codes []int
		for _, e := range last.Events {
			codes = append(codes, e.Code)
		}
		told = append(told, codes)
	}
	return told, last
}

func TestXidsOnPages(t *testing.T) {
	last := func(code int) string { return fmt.Sprintf("DCGM_FI_DEV_XID_ERRORS%s%d\n", gpuA, code) }
	byCode := func(name string, code, n int) string {
		return fmt.Sprintf("DCGM_EXP_XID_ERRORS_%s{UUID=\"GPU-a\",xid=\"%d\"} %d\n", name, code, n)
	}
	onInstances := func(codes ...int) (page string) {
		for gi, code := range codes {
			page += fmt.Sprintf("DCGM_FI_DEV_XID_ERRORS{UUID=\"GPU-a\",GPU_I_ID=\"%d\"} %d\n", gi, code)
		}
		return page
	}
	for name, c := range map[string]struct {
		pages  []string
		want   [][]int
		counts []collector.XidCount
	}{
		"one falls":                      {[]string{last(0), last(0), last(79), last(79)}, [][]int{nil, nil, {79}, nil}, []collector.XidCount{{Code: 79, Count: 1, Last: noon.Add(30 * time.Second)}}},
		"one fell before anybody looked": {[]string{last(43), last(43)}, [][]int{nil, nil}, nil},
		"then another":                   {[]string{last(43), last(31), last(43)}, [][]int{nil, {31}, {43}}, []collector.XidCount{{Code: 31, Count: 1, Last: noon.Add(15 * time.Second)}, {Code: 43, Count: 1, Last: noon.Add(30 * time.Second)}}},
		"the exporter began anew":        {[]string{last(43), last(0), last(43)}, [][]int{nil, nil, {43}}, []collector.XidCount{{Code: 43, Count: 1, Last: noon.Add(30 * time.Second)}}},
		"blank":                          {[]string{last(0), last(math.MaxInt32), last(0)}, [][]int{nil, nil, nil}, nil},
		"a counter":                      {[]string{byCode("TOTAL", 31, 2), byCode("TOTAL", 31, 2), byCode("TOTAL", 31, 5)}, [][]int{nil, nil, {31}}, []collector.XidCount{{Code: 31, Count: 3, Last: noon.Add(30 * time.Second)}}},
		"a counter that appears":         {[]string{"", byCode("TOTAL", 79, 1)}, [][]int{nil, {79}}, []collector.XidCount{{Code: 79, Count: 1, Last: noon.Add(15 * time.Second)}}},
		"a counter that begins anew":     {[]string{byCode("TOTAL", 31, 5), byCode("TOTAL", 31, 1)}, [][]int{nil, {31}}, []collector.XidCount{{Code: 31, Count: 1, Last: noon.Add(15 * time.Second)}}},
		"a window that moves on":         {[]string{byCode("COUNT", 31, 2), byCode("COUNT", 31, 1), "", byCode("COUNT", 31, 1)}, [][]int{nil, nil, nil, {31}}, []collector.XidCount{{Code: 31, Count: 1, Last: noon.Add(45 * time.Second)}}},
		"each instance for itself":       {[]string{onInstances(0, 43), onInstances(0, 43), onInstances(31, 43), onInstances(31, 43)}, [][]int{nil, nil, {31}, nil}, []collector.XidCount{{Code: 31, Count: 1, Last: noon.Add(30 * time.Second)}}},
		"told in three ways":             {[]string{last(0), last(31) + byCode("COUNT", 31, 4) + byCode("TOTAL", 31, 4)}, [][]int{nil, {31}}, []collector.XidCount{{Code: 31, Count: 4, Last: noon.Add(15 * time.Second)}}},
	} {
		t.Run(name, func(t *testing.T) {
			told, part := xidPages(t, c.pages...)
			if diff := cmp.Diff(c.want, told); diff != "" {
				t.Errorf("errors told with each page (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.counts, part.GPUs[0].Xids); diff != "" {
				t.Errorf("errors counted (-want +got):\n%s", diff)
			}
			for _, e := range part.Events {
				if e.Within < 15*time.Second {
					t.Errorf("the error is told as if its time were known: %+v", e)
				}
			}
		})
	}
	t.Run("with its time", func(t *testing.T) {
		s, content := gpus(t, ""), string(recorded(t, "nvidia_gpu_exporter.prom"))
		if _, err := s.take(strings.NewReader(content), noon); err != nil {
			t.Fatal(err)
		}
		content = strings.Replace(content, `xid="31"} 2`, `xid="31"} 3`, 1)
		content = strings.Replace(content, `xid="31"} 1.7959e+09`, fmt.Sprintf(`xid="31"} %d`, noon.Unix()+4), 1)
		part, err := s.take(strings.NewReader(content), noon.Add(15*time.Second))
		if err != nil || len(part.Events) != 1 || !part.Events[0].Time.Equal(noon.Add(4*time.Second)) || part.Events[0].Within != 0 {
			t.Errorf("the exporter told when it was, want that: %v, %v", part.Events, err)
		}
	})
}

func TestUtilizationOfUnclearUnit(t *testing.T) {
	util := func(a, b string) string {
		return "DCGM_FI_DEV_GPU_UTIL_RATIO" + gpuA + a + "\nDCGM_FI_DEV_GPU_UTIL_RATIO" + gpuB + b + "\n"
	}
	nan := math.NaN()
	for name, c := range map[string]struct {
		pages      []string
		unit       string
		want, rest float64
	}{
		"above one":                           {[]string{util("97", "1")}, unitPercent, 0.97, 0.01},
		"a fraction":                          {[]string{util("0.5", "1")}, unitRatio, 0.5, 1},
		"zero and one":                        {[]string{util("1", "0")}, unitUnclear, nan, 0},
		"one, after it was proved":            {[]string{util("97", "0"), util("1", "0")}, unitPercent, 0.01, 0},
		"beside names of the same time":       {[]string{util("1", "0") + "DCGM_FI_DEV_FB_USED_BYTES" + gpuA + "1\n"}, unitRatio, 1, 0},
		"beside old names":                    {[]string{util("1", "0") + "DCGM_FI_DEV_FB_USED" + gpuA + "1\n"}, unitPercent, 0.01, 0},
		"proved otherwise by a later release": {[]string{util("97", "0"), util("0.25", "1")}, unitRatio, 0.25, 1},
		"above all":                           {[]string{util("250", "0")}, unitUnclear, nan, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := gpus(t, "")
			var part *collector.Part
			for i, p := range c.pages {
				var err error
				if part, err = s.take(strings.NewReader(p), noon.Add(time.Duration(i)*time.Minute)); err != nil {
					t.Fatal(err)
				}
			}
			same := func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }
			a, b := part.GPUs[0].Value(metric.Utilization), part.GPUs[1].Value(metric.Utilization)
			if part.Pages[0].Utilization != c.unit || !same(a, c.want) || !same(b, c.rest) {
				t.Errorf("unit %s, utilization %v and %v; want %s, %v and %v", part.Pages[0].Utilization, a, b, c.unit, c.want, c.rest)
			}
		})
	}
}

func TestWhatDCGMCannotTellIsAbsent(t *testing.T) {
	s := gpus(t, "")
	for i, v := range []string{"2147483632", "2147483634", "9223372036854775794", "9.223372036854776e+18", "140737488355328", "140737488355330", "NaN", "+Inf", "4294967295", "18446744073709551615", "-3"} {
		part, err := s.take(strings.NewReader("DCGM_FI_DEV_GPU_TEMP"+gpuA+"40\nDCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"+gpuA+v+"\nDCGM_FI_DEV_POWER_USAGE"+gpuA+v+"\n"), noon)
		if err != nil {
			t.Fatal(err)
		}
		g := part.GPUs[0]
		if g.Has(metric.Energy) || g.Has(metric.PowerDraw) || !g.Has(metric.Temperature) {
			t.Errorf("%s is shown: energy %v, power %v", v, g.Value(metric.Energy), g.Value(metric.PowerDraw))
		}
		if g.Dropped[metric.Energy] != uint64(i+1) {
			t.Errorf("%s: %d values of energy are counted as dropped so far, want %d", v, g.Dropped[metric.Energy], i+1)
		}
	}
}

// Of a fact that has two names on the page the newer one counts, in whatever order.
func TestNamesOfTwoGenerations(t *testing.T) {
	before, since := "DCGM_FI_DEV_FB_USED"+gpuA+"10\n", "DCGM_FI_DEV_FB_USED_BYTES"+gpuA+"10485761\n"
	for _, p := range []string{before + since, since + before} {
		part, err := gpus(t, "").take(strings.NewReader(p), noon)
		if err != nil || part.GPUs[0].Value(metric.MemoryUsed) != 10485761 || part.Pages[0].Names != "until 4.8 and since 4.9" {
			t.Errorf("memory %v, page %+v, %v", part.GPUs[0].Value(metric.MemoryUsed), part.Pages, err)
		}
	}
}

func TestFrozenPage(t *testing.T) {
	s := gpus(t, "")
	energy := func(mj int) string { return fmt.Sprintf("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION%s%d\n", gpuA, mj) }
	at := noon
	take := func(p string, after time.Duration) error {
		at = at.Add(after)
		_, err := s.take(strings.NewReader(p), at)
		return err
	}
	if err := errors.Join(take(energy(1000), 0), take(energy(2000), time.Minute), take(energy(2000), 4*time.Minute)); err != nil {
		t.Fatalf("a page that changes now and then: %v", err)
	}
	if err := take(energy(2000), 2*time.Minute); page.Reason(err) != "frozen" {
		t.Errorf("a page that has been the same for 6 min: %v", err)
	}
	if err := take(energy(2001), time.Minute); err != nil {
		t.Errorf("a page that changes again: %v", err)
	}
	for range 10 {
		if err := take("DCGM_FI_DEV_GPU_UTIL"+gpuA+"0\n", time.Minute); err != nil {
			t.Fatalf("a page without energy cannot be known to be frozen: %v", err)
		}
	}
}

func TestHoldersOnPages(t *testing.T) {
	label := func(more string) string { return `DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",` + more + "} 50\n" }
	pod, job := collector.Owner{Kind: "pod", ID: "ns/p"}, collector.Owner{Kind: "job", ID: "slurm/7"}
	for name, c := range map[string]struct {
		page string
		want []collector.Owner
	}{
		"nobody":                      {label(`pod="",namespace="",container=""`), nil},
		"a pod":                       {label(`pod="p",namespace="ns",container="c"`), []collector.Owner{pod}},
		"a job, repeated":             {label(`hpc_job="7"`) + label(`hpc_job="7"`), []collector.Owner{job}},
		"two of a shared GPU":         {label(`hpc_job="7"`) + label(`pod="p",namespace="ns"`), []collector.Owner{job, pod}},
		"as Prometheus has read it":   {label(`container="exporter",exported_container="c",exported_namespace="ns",exported_pod="p",namespace="gpu-operator",pod="dcgm-x7"`), []collector.Owner{pod}},
		"a pod without its namespace": {label(`pod="p"`), nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := gpus(t, "")
			s.reader.cfg.Describe = func(o collector.Owner, _ string) collector.Workload {
				o.Team = "team"
				return collector.Workload{Owner: o}
			}
			part, err := s.take(strings.NewReader(c.page), noon)
			if err != nil {
				t.Fatal(err)
			}
			var got, described []collector.Owner
			for _, a := range part.Allocations {
				if a.Source != DCGM || a.UUID != "GPU-a" || a.Owner.Team != "team" {
					t.Errorf("allocation %+v", a)
				}
				a.Owner.Team = ""
				got = append(got, a.Owner)
			}
			for _, w := range part.Workloads {
				w.Team = ""
				described = append(described, w.Owner)
			}
			if diff := cmp.Diff(c.want, got) + cmp.Diff(c.want, described); diff != "" {
				t.Errorf("holders, and what is said of them (-want +got):\n%s", diff)
			}
			if part.GPUs[0].Value(metric.Utilization) != 0.5 {
				t.Errorf("the GPU of several holders is busy for %v", part.GPUs[0].Value(metric.Utilization))
			}
		})
	}
}

// An error that falls while the configuration is read anew is told of.
func TestInherit(t *testing.T) {
	page := func(code int) *strings.Reader {
		return strings.NewReader(fmt.Sprintf("DCGM_FI_DEV_XID_ERRORS%s%d\n", gpuA, code))
	}
	before, after := gpus(t, ""), gpus(t, "")
	if _, err := before.take(page(0), noon); err != nil {
		t.Fatal(err)
	}
	after.Inherit(before)
	if part, err := after.take(page(79), noon.Add(15*time.Second)); err != nil || len(part.Events) != 1 {
		t.Errorf("the error is lost with the reload: %+v, %v", part, err)
	}
}

// A page does not tell when a process began; without that it could be taken for another.
func TestProcessesOfAPageAreThoseOfTheHost(t *testing.T) {
	s := gpus(t, "")
	s.reader.cfg.ProcFS = t.TempDir()
	for path, content := range map[string]string{
		"2/stat":     "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0\n", // as only the host's procfs has it
		"12249/stat": "12249 (python3 (a) b) S 1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 7777 0 0\n",
	} {
		path = filepath.Join(s.reader.cfg.ProcFS, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	part, err := s.take(bytes.NewReader(recorded(t, "nvidia_gpu_exporter-mig.prom")), noon)
	if err != nil || len(part.Processes) != 2 || part.Processes[0].Start != 7777 || part.Processes[1].Start != 0 {
		t.Errorf("processes %+v, %v: the first began at 7777, the second is not seen here", part.Processes, err)
	}
}
