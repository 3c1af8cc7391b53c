package pods

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuvigil/internal/backtest"
)

var (
	podsDir   = flag.String("pods", "", "directory of the pods' series (docs/backtest.md); without it a few easy ones are made up")
	podsWeeks = flag.Int("pods-weeks", 8, "weeks of one GPU to resample the clean pods to")
)

// given returns the directory to measure on, and whether its pods are made up, so that
// nothing may be found where nothing was put in.
func given(t *testing.T) (dir string, easy bool) {
	t.Helper()
	if *podsDir == "" {
		return busyPods(t, 2), true
	}
	return *podsDir, false
}

// TestFusedFindingsOnRealPods measures rule unusual on real pods and prints what it
// reaches; the figures are in docs/backtest.md. The series may not be published with
// this code.
func TestFusedFindingsOnRealPods(t *testing.T) {
	dir, easy := given(t)
	pods, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	var clean [][]Sight
	weeks := 0.0
	for i := range pods {
		clean = append(clean, pods[i].Watch())
		weeks += float64(pods[i].Times[len(pods[i].Times)-1]-pods[i].Times[0]-int64(warmUp.Seconds())) / (7 * 86400)
	}
	for _, score := range []float64{0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.5} {
		n := 0
		for i, seen := range clean {
			n += len(Findings(seen, score, 0, pods[i].Times[0]+int64(warmUp.Seconds()), math.MaxInt64))
		}
		if easy && score >= 1 && n > 0 {
			t.Errorf("score %.1f: %d findings on pods with nothing wrong", score, n)
		}
		line := fmt.Sprintf("score %.1f: %d in %.1f GPU-weeks, %.2f a week, at most %.2f;", score, n, weeks, float64(n)/weeks, backtest.UpperBound(n, weeks))
		for _, fault := range Faults {
			line += " " + recall(t, pods, fault, score)
		}
		t.Log(line)
	}
}

// recall is in how many of the faults a finding begins before the fault is over, over
// three places each.
func recall(t *testing.T, pods []Pod, fault string, score float64) string {
	found, all := 0, 0
	var delays []float64
	for i := range pods {
		for seed := range uint64(3) {
			p, from, to, err := pods[i].With(fault, seed+1)
			if err != nil {
				t.Fatal(err)
			}
			all++
			if f := Findings(watched(p, fault, seed), score, 0, from, to); len(f) > 0 {
				found++
				delays = append(delays, float64(f[0].At-from)/60)
			}
		}
	}
	return fmt.Sprintf("%s %.2f (%.0f min)", fault, float64(found)/float64(all), Median(delays))
}

var seenBefore = map[string][]Sight{}

// watched runs a pod once for all scores.
func watched(p *Pod, fault string, seed uint64) []Sight {
	key := fmt.Sprint(p.Name, fault, seed)
	if seenBefore[key] == nil {
		seenBefore[key] = p.Watch()
	}
	return seenBefore[key]
}

// TestFalseFindingsOfAFleet resamples the clean pods to weeks of a fleet and counts what
// the default budget lets through.
func TestFalseFindingsOfAFleet(t *testing.T) {
	dir, easy := given(t)
	pods, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(7, 11))
	var peaks []float64
	const rules = 10
	counts := map[float64]int{}
	scores := []float64{1, 1.1, 1.25, 1.5, 1.75, 2, 2.5, 3}
	for k := range *podsWeeks {
		p := pods[k%len(pods)].Resample(1, 6, r)
		seen := p.Watch()
		from := p.Times[0] + 86400 // in its first day it is young, and no ticket
		for _, s := range scores {
			counts[s] += len(Findings(seen, s, 0, from, math.MaxInt64))
		}
		for _, f := range Findings(seen, 1, 0, from, math.MaxInt64) {
			peaks = append(peaks, peak(seen, f.At))
		}
	}
	if easy && len(peaks) > 0 {
		t.Errorf("%d findings in resampled weeks of pods with nothing wrong", len(peaks))
	}
	exposure := float64(*podsWeeks) * 6 / 7
	for _, s := range scores {
		t.Logf("score %.2f: %d, %.4f a GPU-week", s, counts[s], float64(counts[s])/exposure)
	}
	t.Logf("%d findings in %.0f GPU-weeks: %.3f a GPU-week, at most %.3f", len(peaks), exposure, float64(len(peaks))/exposure, backtest.UpperBound(len(peaks), exposure))
	for _, gpus := range []int{8, 200, 2000, 10_000} {
		t.Logf("%d GPUs: tickets %s; pages %s", gpus, backtest.Budgeted(peaks, exposure, gpus, rules, 10), backtest.Budgeted(peaks, exposure, gpus, rules, 1))
	}
}

// peak is the surprise of a finding at its strongest.
func peak(seen []Sight, from int64) float64 {
	most := 0.0
	for _, s := range seen {
		if s.At >= from && s.At < from+2*3600 {
			most = max(most, s.Surprise)
		}
	}
	return most
}

// busyPods writes a directory of pods that serve in bursts.
func busyPods(t *testing.T, n int) string {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 9))
	var tables [4]strings.Builder
	for k := range tables {
		tables[k].WriteString("ts")
	}
	for p := range n {
		for k := range 3 {
			fmt.Fprintf(&tables[k], ",p%d", p)
		}
	}
	tables[3].WriteString(",none")
	for i := range 1440 {
		for k := range tables {
			fmt.Fprintf(&tables[k], "\n%d", 1_700_000_000+57*i)
		}
		for range n {
			duty := 0.0
			if r.IntN(5) == 0 {
				duty = 30 * r.Float64()
			}
			fmt.Fprintf(&tables[0], ",%.1f", duty)
			fmt.Fprintf(&tables[1], ",%.2f", 20+0.1*r.Float64())
			fmt.Fprintf(&tables[2], ",%.4f", 0.5+0.002*r.Float64())
		}
		tables[3].WriteString(",0")
	}
	files := map[string]string{}
	for k, name := range []string{dutyFile, memoryFile, hostFile, queueFile} {
		files[name] = tables[k].String() + "\n"
	}
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The harness itself: on pods that are easy, all that is put in is found, and nothing
// where there is nothing.
func TestFaultsOfEasyPodsAreFound(t *testing.T) {
	pods, err := Read(busyPods(t, 4))
	if err != nil {
		t.Fatal(err)
	}
	if len(pods) != 4 || pods[0].Duty[0] > 1 || pods[0].Memory[0] < 20*gib {
		t.Fatalf("%d pods were read, the first with duty %g and %g bytes", len(pods), pods[0].Duty[0], pods[0].Memory[0])
	}
	for i := range pods {
		if f := Findings(pods[i].Watch(), 1, 0, math.MinInt64, math.MaxInt64); len(f) > 0 {
			t.Errorf("pod %s has nothing wrong, and has %d findings: %+v", pods[i].Name, len(f), f)
		}
		for _, fault := range []string{"runaway", "stall"} {
			p, from, to, err := pods[i].With(fault, 1)
			if err != nil {
				t.Fatal(err)
			}
			f := Findings(p.Watch(), 1, 0, from, to)
			if len(f) == 0 {
				t.Errorf("%s of pod %s is not found", fault, p.Name)
				continue
			}
			for _, want := range map[string][]string{"runaway": {"GPU busy ", "GPU memory 28"}, "stall": {"GPU memory 12"}}[fault] {
				if !strings.Contains(f[0].Said, want) {
					t.Errorf("%s is told as %q, want it to say %q", fault, f[0].Said, want)
				}
			}
		}
	}
	if _, _, _, err := pods[0].With("fire", 1); err == nil {
		t.Error("a fault that nobody knows is put in")
	}
}
