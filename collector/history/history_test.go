package history

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
	"gpuvigil/collector/series"
	"gpuvigil/internal/metric"
)

const powerName = "DCGM_FI_DEV_POWER_USAGE"

func powerOf(g *collector.GPU) float64 { return g.Value(metric.PowerDraw) }

// want are the looks at a past of nodes with a sample every so often.
func want(nodes int, from, to time.Time, every, step time.Duration) (out []look) {
	for now := from.Add(step); !now.After(to); now = now.Add(step) {
		for node := range nodes {
			newest := from
			for at := from; !at.After(now); at = at.Add(every) {
				newest = at
			}
			out = append(out, look{now, fmt.Sprintf("n%d", node), power(node, newest)})
		}
	}
	return out
}

func TestThePastIsReplayedStepByStep(t *testing.T) {
	to := noon.Add(3 * time.Hour)
	for name, most := range map[string]int{"at once": 0, "in pieces": 25} {
		t.Run(name, func(t *testing.T) {
			s, at := newServer(t, &server{names: []string{powerName, "DCGM_FI_DEV_GPU_TEMP"}, nodes: 2, every: 15 * time.Second, from: noon.Add(15 * time.Second), to: to, most: most})
			p, err := NewPrometheus(PrometheusConfig{Address: at, Metrics: assembler().Metrics(), Match: []string{`cluster="a"`}}, Span{From: noon, To: to})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			var got []look
			stats, err := Replay(t.Context(), p, assembler(), looks(&got))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want(2, noon, to, 15*time.Second, time.Minute), got); diff != "" {
				t.Errorf("the looks are not those of the samples, step by step (-want +got):\n%s", diff)
			}
			if stats.Rounds != 180 || stats.Samples != 2*2*720 || stats.Kept != 2*2*180 {
				t.Errorf("counted %+v: want 180 rounds, 2880 samples and the last of each minute", stats)
			}
			for _, q := range s.queries {
				if !strings.Contains(q, `,cluster="a"}`) {
					t.Fatalf("asked %s, which leaves the matcher out", q)
				}
			}
		})
	}
}

func TestOneTooLargeStepIsSaid(t *testing.T) {
	_, at := newServer(t, &server{names: []string{powerName}, nodes: 2, every: 15 * time.Second, from: noon, to: noon.Add(time.Hour), most: 2})
	p, err := NewPrometheus(PrometheusConfig{Address: at, Metrics: []string{powerName}}, Span{From: noon, To: noon.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Replay(t.Context(), p, assembler(), looks(new([]look)))
	if err == nil || !strings.Contains(err.Error(), "too many samples") || !strings.Contains(err.Error(), "matcher") {
		t.Errorf("%v: want what the server said and what to do", err)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	to := noon.Add(2 * time.Hour)
	_, at := newServer(t, &server{names: []string{powerName}, nodes: 3, every: 15 * time.Second, from: noon, to: to})
	p, err := NewPrometheus(PrometheusConfig{Address: at, Metrics: []string{powerName}, MaxSamples: 50}, Span{From: noon, To: to})
	if err != nil {
		t.Fatal(err)
	}
	windows := 0
	for {
		w, err := p.Next(t.Context())
		if err != nil {
			break
		}
		if windows++; w.kept > 50 {
			t.Errorf("a window of %d samples is in memory, 50 may be", w.kept)
		}
	}
	if !p.At().Equal(to) || windows < 7 {
		t.Errorf("%d windows up to %s, the past ends at %s", windows, p.At(), to)
	}
}

func TestFailuresThatPassAreWaitedFor(t *testing.T) {
	s := &server{names: []string{powerName}, nodes: 1, every: 15 * time.Second, from: noon, to: noon.Add(time.Hour)}
	failed := 0
	s.meets = func(w http.ResponseWriter, _ *http.Request) bool {
		if failed < 2 {
			failed++
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		return false
	}
	_, at := newServer(t, s)
	p, err := NewPrometheus(PrometheusConfig{Address: at, Metrics: []string{powerName}}, Span{From: noon, To: s.to})
	if err != nil {
		t.Fatal(err)
	}
	var got []look
	if _, err := Replay(t.Context(), p, assembler(), looks(&got)); err != nil || len(got) != 60 {
		t.Errorf("after two failures that passed: %d looks, error %v", len(got), err)
	}
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		meets func(w http.ResponseWriter, r *http.Request) bool
		says  string
	}{
		"password":   {func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(401); return true }, "401 Unauthorized"},
		"no metrics": {func(w http.ResponseWriter, _ *http.Request) bool { fmt.Fprint(w, `{"data":["up"]}`); return true }, "none of the metrics"},
		"a page": {func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "query") {
				fmt.Fprint(w, "<html>")
				return true
			}
			return false
		}, "not a matrix"},
		"a vector": {func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "query") {
				fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
				return true
			}
			return false
		}, `"vector"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, at := newServer(t, &server{names: []string{powerName}, nodes: 1, every: time.Minute, from: noon, to: noon.Add(time.Hour), meets: c.meets})
			p, err := NewPrometheus(PrometheusConfig{Address: at, Metrics: []string{powerName}}, Span{From: noon, To: noon.Add(time.Hour)})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Replay(t.Context(), p, assembler(), looks(new([]look))); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want %q in it", err, c.says)
			}
		})
	}
	if _, err := NewPrometheus(PrometheusConfig{}, Span{From: noon, To: noon}); err == nil {
		t.Error("a past that ends where it begins is accepted")
	}
}

// TestAFileIsThePastLikeAServer has a file with series after series, as promtool dumps
// it, in both formats, and out of order.
func TestAFileIsThePastLikeAServer(t *testing.T) {
	to := noon.Add(8 * time.Hour) // two windows
	for name, f := range map[string]struct {
		time  func(time.Time) string
		mixed bool
	}{
		"OpenMetrics": {func(at time.Time) string { return fmt.Sprintf("%.3f", float64(at.UnixMilli())/1000) }, false},
		"Prometheus":  {func(at time.Time) string { return fmt.Sprint(at.UnixMilli()) }, false},
		"mixed":       {func(at time.Time) string { return fmt.Sprint(at.Unix()) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			var lines []string
			for node := range 2 {
				for at := noon.Add(15 * time.Second); !at.After(to); at = at.Add(15 * time.Second) {
					lines = append(lines, fmt.Sprintf(`%s{gpu="0",UUID="GPU-%d",Hostname="n%d",instance="n%d:9400",job="dcgm"} %v %s`, powerName, node, node, node, power(node, at), f.time(at)))
				}
			}
			if f.mixed {
				for i := range len(lines) / 3 {
					lines[i], lines[len(lines)-1-i] = lines[len(lines)-1-i], lines[i]
				}
			}
			path := filepath.Join(t.TempDir(), "dump.om")
			content := "# TYPE x gauge\nunknown{a=\"b\"} 1 1\n" + strings.Join(lines, "\n") + "\n# EOF\n"
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			src, err := ReadFile(t.Context(), path, assembler().Metrics(), Span{})
			if err != nil {
				t.Fatal(err)
			}
			var got []look
			if _, err := Replay(t.Context(), src, assembler(), looks(&got)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want(2, noon, to, 15*time.Second, time.Minute), got); diff != "" {
				t.Errorf("the looks are not those of the file's samples (-want +got):\n%s", diff)
			}
			dir := src.spool.dir
			if err := src.Close(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("temporary files are left in %s", dir)
			}
		})
	}
}

func TestAFileWithoutTimesIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.prom")
	for content, says := range map[string]string{
		powerName + `{gpu="0"} 1` + "\n":       "line 1: there is no time",
		powerName + `{gpu="0"} one 1` + "\n":   "line 1:",
		"up 1 1\n":                             "no sample of the metrics",
		powerName + `{gpu="0"} 1 17960400`:     "not whole",
		powerName + `{gpu="0"} 1 1e300` + "\n": "no time",
		powerName + `{gpu="0"} 1 NaN` + "\n":   "no time",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if f, err := ReadFile(t.Context(), path, []string{powerName}, Span{}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: file %v, error %v, want %q", content, f, err, says)
		}
	}
}

func TestWarmStartTakesInThePast(t *testing.T) {
	now := noon.Add(6*time.Hour + 20*time.Second)
	_, at := newServer(t, &server{names: []string{powerName}, nodes: 2, every: 15 * time.Second, from: noon, to: now})
	a := assembler()
	var got []look
	stats, err := Warm(t.Context(), WarmConfig{PrometheusConfig: PrometheusConfig{Address: at, Metrics: a.Metrics()}, Length: 6 * time.Hour, Limit: time.Minute}, now, a,
		func(now time.Time, nodes []*collector.Snapshot) {
			if err := looks(&got)(now, nodes); err != nil {
				t.Error(err)
			}
		})
	if err != nil || stats.Rounds < 359 || len(got) < 2*359 {
		t.Fatalf("%d rounds with %d looks, error %v: want six hours", stats.Rounds, len(got), err)
	}
	if last := got[len(got)-1]; now.Sub(last.At) > 2*time.Minute || last.At.After(now) {
		t.Errorf("the past ends at %s, it is %s", last.At, now)
	}
}

// TestASlowPastEndsInTime has a server that does not answer any more after a while.
func TestASlowPastEndsInTime(t *testing.T) {
	now := noon.Add(12 * time.Hour)
	s := &server{names: []string{powerName}, nodes: 1, every: 15 * time.Second, from: noon, to: now}
	s.meets = func(_ http.ResponseWriter, r *http.Request) bool {
		if len(s.queries) < 2 {
			return false
		}
		if err := r.ParseForm(); err != nil { // a connection that ends is only seen once this is read
			return false
		}
		<-r.Context().Done()
		return true
	}
	_, at := newServer(t, s)
	a := assembler()
	rounds := 0
	_, err := Warm(t.Context(), WarmConfig{PrometheusConfig: PrometheusConfig{Address: at, Metrics: a.Metrics()}, Length: 12 * time.Hour, Limit: 2 * time.Second}, now, a,
		func(time.Time, []*collector.Snapshot) { rounds++ })
	if err == nil || !strings.Contains(err.Error(), "2s") || rounds == 0 {
		t.Errorf("after %d rounds, error %v: want what came in two seconds, and that it was not all", rounds, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Warm(ctx, WarmConfig{PrometheusConfig: PrometheusConfig{Address: at, Metrics: a.Metrics()}, Length: time.Hour}, now, a, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a start that was ended: %v", err)
	}
}

// TestAHastyStartLeavesOutTheOldest has a limit that most of the past does not fit in.
func TestAHastyStartLeavesOutTheOldest(t *testing.T) {
	_, at := newServer(t, &server{})
	p, err := NewPrometheus(PrometheusConfig{Address: at}, Span{From: noon, To: noon.Add(100 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	h := &hasty{p: p, cfg: &WarmConfig{Limit: time.Hour, PrometheusConfig: PrometheusConfig{Log: p.cfg.Log}}, began: time.Now().Add(-30 * time.Minute), windows: 5, asked: 10 * time.Hour}
	p.step += 10 * 60
	h.hurry() // ten hours took half an hour: another half an hour is good for eight
	if left := noon.Add(100 * time.Hour).Sub(p.At()); left < 7*time.Hour || left > 9*time.Hour {
		t.Errorf("%s of the past are still asked for, want about eight hours", left)
	}
}

func FuzzMatrix(f *testing.F) {
	f.Add(`{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"a":"b\n"},"values":[[1435781430.781,"1"],[1e9,"NaN"],[2,"+Inf"]]}]}}`)
	f.Add(`{"data":{"result":[{"values":[[1,"2"]]}]},"x":[[{}],-1e5,null]}`)
	f.Add(`{"a":"\ud800`)
	f.Fuzz(func(t *testing.T, s string) {
		begun := false
		d := decoder{r: bufio.NewReader(strings.NewReader(s))}
		err := d.matrix(func(labels []series.Label) { begun = true }, func(p point) {
			if !begun {
				t.Error("a sample of no series")
			}
		})
		if err != nil && err.Error() == "" {
			t.Error("an error without words")
		}
	})
}
