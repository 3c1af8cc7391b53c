package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/history"
	"gpuvigil/collector/scrape"
	"gpuvigil/collector/series"
	"gpuvigil/internal/backtest"
)

var pastBegins = time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)

// writePast writes what dcgm-exporter tells of nodes of eight GPUs that train, as
// promtool dumps it: series after series. On the first node's GPU 3 an Xid comes at a time.
func writePast(t testing.TB, out io.Writer, nodes int, length, every time.Duration, xid time.Duration, names []string) {
	t.Helper()
	w := bufio.NewWriterSize(out, 1<<20)
	random := rand.New(rand.NewPCG(1, 2))
	for n := range nodes {
		for g := range 8 {
			for _, name := range names {
				v := 40.0 + 20*random.Float64()
				for at := every; at <= length; at += every {
					v = max(0, min(100, v+random.NormFloat64()))
					said := v
					switch {
					case name == "DCGM_FI_DEV_XID_ERRORS":
						said = 0
						if n == 0 && g == 3 && xid > 0 && at >= xid {
							said = 79
						}
					case strings.HasSuffix(name, "_TOTAL") || strings.Contains(name, "ECC") || strings.Contains(name, "REMAP") || strings.Contains(name, "VIOLATION"):
						said = 0
					case strings.Contains(name, "FB_"):
						said = 300 * v
					case strings.Contains(name, "POWER"):
						said = 300 + 4*v
					}
					fmt.Fprintf(w, `%s{UUID="GPU-%08x-0000-4000-8000-%012d",gpu="%d",device="nvidia%d",modelName="NVIDIA H100 80GB HBM3",Hostname="gpu-%03d",instance="gpu-%03d:9400",job="dcgm"} %.6g %d`+"\n",
						name, n, g, g, g, n, n, said, pastBegins.Add(at).Unix())
				}
			}
		}
	}
	fmt.Fprintln(w, "# EOF")
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
}

func TestBacktestOfAFleetsPast(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	out, err := os.Create(path("dump.om"))
	if err != nil {
		t.Fatal(err)
	}
	writePast(t, out, 2, 2*time.Hour, time.Minute, time.Hour, []string{"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_XID_ERRORS"})
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path("labels.csv"), []byte("rule,kind,node,from,to\nxid gpu_lost,Xid 79,gpu-000,2026-01-05T08:59:00Z,2026-01-05T09:10:00Z\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var first string
	for _, workers := range []string{"1", "3"} {
		code, text, errs := gpuvigil(t, "backtest", "--openmetrics="+path("dump.om"), "--labels="+path("labels.csv"), "--json="+path("a.json"), "--charts="+path("a.html"), "--workers="+workers)
		if code != 0 || !strings.Contains(text, "1 of 1") || !strings.Contains(text, "ALERT BUDGET OF 16 GPUS") || !strings.Contains(text, "WEEK OF") || !strings.Contains(text, "2026-01-05") {
			t.Fatalf("exit %d, want the Xid found, the weeks and the budgets of 16 GPUs; printed\n%s%s", code, text, errs)
		}
		if first == "" {
			first = text
		} else if text != first {
			t.Errorf("with three workers it prints\n%s\nwith one\n%s", text, first)
		}
	}
	if b, err := os.ReadFile(path("a.json")); err != nil || !strings.Contains(string(b), `"false_tickets_a_week": 10`) {
		t.Errorf("the JSON has no budgets: %v, %.200s", err, b)
	}
	for _, mixed := range [][]string{
		{"--prometheus.url=http://a"}, {"--openmetrics=x", "--prometheus.url=http://a", "--from=1d"}, {"--openmetrics=x", "--recording=y"}, {"--from=1d"},
		{"--openmetrics=x", "--prometheus.tenant=a"}, {"--prometheus.url=http://a", "--from=yesterday"}, {"--prometheus.url=http://a", "--from=1d", "--to=2d"},
		{"--openmetrics=x", "--step=1ms"}, {"--prometheus.url=http://a", "--from=1d", "--prometheus.user=u"},
	} {
		if code, _, errs := gpuvigil(t, append([]string{"backtest"}, mixed...)...); code != int(exitUnknown) || !strings.Contains(errs, "--") {
			t.Errorf("backtest %v: exit %d and %q, want wrong usage", mixed, code, errs)
		}
	}
	if code, text, errs := gpuvigil(t, "backtest", "--openmetrics="+path("none.om")); code != 1 || text != "" || !strings.Contains(errs, "none.om") {
		t.Errorf("a file that there is not: exit %d, %q, %s", code, text, errs)
	}
}

// BenchmarkPast is how much faster than it passed the past of 104 GPUs with 60 series
// each, a sample every 15 s, is judged at steps of a minute: seconds of it for each second
// of one processor, from text to findings.
func BenchmarkPast(b *testing.B) {
	names := slices.DeleteFunc(scrape.NewNames().OfGPUs(), func(n string) bool { return !strings.HasPrefix(n, "DCGM_FI_") })
	names = names[:min(60, len(names))]
	const length = time.Hour
	path := filepath.Join(b.TempDir(), "dump.om")
	out, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	writePast(b, out, 13, length, 15*time.Second, 0, names)
	if err := out.Close(); err != nil {
		b.Fatal(err)
	}
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	b.ResetTimer()
	begun := used()
	var reading time.Duration
	for range b.N {
		a := series.New(series.Config{})
		before := used()
		src, err := history.ReadFile(b.Context(), path, a.Metrics(), history.Span{})
		if err != nil {
			b.Fatal(err)
		}
		reading += used() - before
		_, err = backtest.History(b.Context(), backtest.HistoryOptions{Name: "bench"}, func(ctx context.Context, observe func(time.Time, []*collector.Snapshot) error) error {
			_, err := history.Replay(ctx, src, a, observe)
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
		if err := src.Close(); err != nil {
			b.Fatal(err)
		}
	}
	all := used() - begun
	b.ReportMetric(length.Seconds()*float64(b.N)/all.Seconds(), "x-real-time/core")
	b.ReportMetric(length.Seconds()*float64(b.N)/(all-reading).Seconds(), "x-real-time/core-judged")
}
