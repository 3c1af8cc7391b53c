package backtest

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// write makes a directory with the files.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// contents reads all files below a directory.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, path))
		files[path] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// run runs a backtest over the files and returns what it wrote.
func run(t *testing.T, detector string, workers int, files map[string]string) (Summary, map[string]string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "scores")
	sum, err := Run(t.Context(), Options{Series: write(t, files), Scores: out, Detector: detector, Workers: workers})
	if err != nil {
		t.Fatalf("%s: %v", detector, err)
	}
	return sum, contents(t, out)
}

// leak is a series that is flat for eight hours and then grows, a row each minute.
func leak(seed uint64) string {
	r := rand.New(rand.NewPCG(seed, 1))
	var b strings.Builder
	b.WriteString("timestamp,value\n")
	for k := range 13 * 60 {
		fmt.Fprintf(&b, "%d,%.3f\n", 1772006400+60*k, 40+float64(max(k-480, 0))/15+r.Float64())
	}
	return b.String()
}

// worker is a member of a job, which gets slower at a step, a row each ten seconds.
func worker(seed uint64, slowFrom int) string {
	r := rand.New(rand.NewPCG(seed, 2))
	var b strings.Builder
	b.WriteString("timestamp,value\n")
	for k := range 150 {
		x := 1 + float64(seed)/10 + r.Float64()/20
		if k >= slowFrom {
			x *= 1.25
		}
		fmt.Fprintf(&b, "%d,%.4f\n", 10*k, x)
	}
	return b.String()
}

func ranks(slow int) map[string]string {
	files := map[string]string{}
	for w := range 8 {
		from := 1000
		if w == slow {
			from = 100
		}
		files[fmt.Sprintf("job/rank%d.csv", w)] = worker(uint64(w), from)
	}
	return files
}

// alarmsOf lists the numbers of the rows with an alarm.
func alarmsOf(t *testing.T, scores string) (rows []int) {
	t.Helper()
	for i, line := range strings.Split(strings.TrimSpace(scores), "\n")[1:] {
		if strings.HasSuffix(line, ",") {
			continue // it has no score
		}
		var score float64
		if _, err := fmt.Sscan(line[strings.LastIndex(line, ",")+1:], &score); err != nil {
			t.Fatalf("row %d, %q: %v", i, line, err)
		}
		if score >= 1 {
			rows = append(rows, i)
		}
	}
	return rows
}

func TestLeakIsScored(t *testing.T) {
	sum, got := run(t, "leak", 2, map[string]string{"a/leak.csv": leak(1), "README": "not a series"})
	if len(got) != 1 || sum.Files != 1 || sum.Rows != 780 || sum.Absent != 0 {
		t.Fatalf("wrote %d files, %+v; want one of 780 rows", len(got), sum)
	}
	rows := alarmsOf(t, got["a/leak.csv"])
	if len(rows) == 0 || rows[0] < 490 || rows[0] > 600 {
		t.Errorf("a leak from row 480 on has its alarms in the rows %v", rows)
	}
	if len(rows) != sum.Alarms {
		t.Errorf("the summary counts %d alarms, the file %d", sum.Alarms, len(rows))
	}
	for i, line := range strings.Split(got["a/leak.csv"], "\n") {
		if want := strings.Split(leak(1), "\n")[i]; i > 0 && !strings.HasPrefix(line, want) {
			t.Fatalf("line %d is %q, want it to begin with that of the series, %q", i+1, line, want)
		}
	}
}

func TestStragglersAreScoredAmongPeers(t *testing.T) {
	files := ranks(3)
	files["other/rank0.csv"] = worker(1, 50)
	_, got := run(t, "straggler", 2, files)
	for name, scores := range got {
		rows := alarmsOf(t, scores)
		if slow := name == "job/rank3.csv"; slow != (len(rows) > 0) || slow && (rows[0] < 100 || rows[0] > 106) {
			t.Errorf("%s has its alarms in the rows %v, want some from 100 on in job/rank3.csv alone", name, rows)
		}
	}
	// A map moves the straggler into another group, which is too small to compare.
	files["series.json"] = `{"job/": {"peers": "one"}, "job/rank3": {"peers": "two"}, "other/": {"peers": "two"}}`
	sum, got := run(t, "straggler", 2, files)
	if diff := cmp.Diff([]string{"group two"}, sum.Unjudged); diff != "" {
		t.Errorf("groups too small to judge (-want +got):\n%s", diff)
	}
	for line := range strings.Lines(got["job/rank3.csv"]) {
		if !strings.HasPrefix(line, "timestamp") && !strings.HasSuffix(line, ",\n") {
			t.Fatalf("a row of a group that is too small to judge has a score: %q", line)
		}
	}
}

func TestNoGroupIsLargeEnough(t *testing.T) {
	apart := map[string]string{} // four members that never have a value at one time
	for i := range 4 {
		apart[fmt.Sprintf("job/%d.csv", i)] = fmt.Sprintf("timestamp,value\n%d,1\n%d,1\n", i, 10+i)
	}
	for name, files := range map[string]map[string]string{"one file": {"job/a.csv": worker(1, 50)}, "never together": apart} {
		sum, err := Run(t.Context(), Options{Series: write(t, files), Scores: filepath.Join(t.TempDir(), "s"), Detector: "straggler"})
		if err == nil || !strings.Contains(err.Error(), "no group has 4 members") || !slices.Equal(sum.Unjudged, []string{"directory job"}) {
			t.Errorf("%s: error %v and %q as not judged, want it said that no group could be", name, err, sum.Unjudged)
		}
	}
}

// TestNoLookAhead: what is cut off at the end changes no earlier score.
func TestNoLookAhead(t *testing.T) {
	whole := ranks(2)
	whole["leak.csv"] = leak(3)
	cut := map[string]string{}
	for name, content := range whole {
		lines := strings.SplitAfter(content, "\n")
		cut[name] = strings.Join(lines[:len(lines)*3/4], "")
	}
	for _, detector := range Detectors() {
		_, long := run(t, detector, 2, whole)
		_, short := run(t, detector, 2, cut)
		for name, scores := range short {
			if !strings.HasPrefix(long[name], scores) {
				t.Errorf("%s: the scores of %s depend on rows that come later", detector, name)
			}
		}
	}
}

func TestWorkersChangeNothing(t *testing.T) {
	files := ranks(2)
	for i := range uint64(12) {
		files[fmt.Sprintf("dir%d/leak%d.csv", i%3, i)] = leak(i)
	}
	for _, detector := range Detectors() {
		sumOne, one := run(t, detector, 1, files)
		sumMany, many := run(t, detector, 7, files)
		if diff := cmp.Diff(one, many) + cmp.Diff(sumOne, sumMany); diff != "" {
			t.Errorf("%s: seven workers write something else than one: %s", detector, diff)
		}
	}
}

// TestRowsAsTheyCome: times of both kinds, holes, repetitions, steps back, other columns.
func TestRowsAsTheyCome(t *testing.T) {
	const in = "TimeStamp,Label,Value\n" +
		"2026-01-01 00:00:00,0,1\n" +
		"2026-01-01 00:00:00,0,1\n" +
		"2026-01-01 00:01:00,1,\n" +
		"2026-01-01 09:00:00,0,NaN\n" +
		"1767258000.5,0,2\n" +
		"2025-12-31T00:00:00Z,0,+Inf\n" +
		"\"2026-01-01 09:05:00\",0, 1e400\n" +
		"2026-01-01 09:06:00,0, 3.50 \n"
	const want = "timestamp,value,anomaly_score\n" +
		"2026-01-01 00:00:00,1,0\n" +
		"2026-01-01 00:00:00,1,0\n" +
		"2026-01-01 00:01:00,,\n" +
		"2026-01-01 09:00:00,NaN,\n" +
		"1767258000.5,2,0\n" +
		"2025-12-31T00:00:00Z,+Inf,\n" +
		"2026-01-01 09:05:00,\" 1e400\",\n" +
		"2026-01-01 09:06:00,\" 3.50 \",0\n"
	for _, detector := range Detectors() {
		files := map[string]string{"x.csv": in}
		if detector == straggler {
			for _, peer := range []string{"p.csv", "q.csv", "r.csv"} {
				files[peer] = in
			}
		}
		sum, got := run(t, detector, 1, files)
		if diff := cmp.Diff(want, got["x.csv"]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", detector, diff)
		}
		if sum.Rows != 8*len(files) || sum.Absent != 4*len(files) {
			t.Errorf("%s counts %+v, want 8 rows of which 4 without a value in each of %d files", detector, sum, len(files))
		}
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	f := func(content, says string) {
		t.Helper()
		for _, detector := range Detectors() {
			out := write(t, map[string]string{"a/bad.csv": "scores of an earlier run"})
			dir := write(t, map[string]string{"a/bad.csv": content, "b/good.csv": leak(1)})
			sum, err := Run(t.Context(), Options{Series: dir, Scores: out, Detector: detector})
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: error %v, want one that says %q", detector, err, says)
			}
			got := contents(t, out)
			if _, ok := got["b/good.csv"]; len(got) != 1 || !ok || sum.Files != 1 {
				t.Errorf("%s: beside a bad file there are scores of %d files, want those of the good one", detector, len(got))
			}
		}
	}
	f("", "a/bad.csv:1: the file is empty")
	f("time,value\n1,2\n", "a/bad.csv:1: found the columns")
	f("timestamp,value\n1,2\n2,three\n", `a/bad.csv:3: value "three"`)
	f("timestamp,value\n1,2\nyesterday,3\n", `a/bad.csv:3: timestamp "yesterday"`)
	f("timestamp,value\n1e300,3\n", `a/bad.csv:2: timestamp "1e300"`)
	f("timestamp,value\n1,2\n2\n", "a/bad.csv: record on line 3: wrong number of fields")
	f("timestamp,value\n1,\"2\n", "a/bad.csv: parse error on line 2")
}

func TestWhatStopsAll(t *testing.T) {
	series := write(t, map[string]string{"a.csv": leak(1)})
	f := func(o Options, says string) {
		t.Helper()
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: error %v, want one that says %q", o, err, says)
		}
	}
	out := filepath.Join(t.TempDir(), "scores")
	f(Options{Series: series, Scores: series, Detector: "leak"}, "would be written over them")
	f(Options{Series: series, Scores: filepath.Join(series, "new", "scores"), Detector: "leak"}, "be read as series")
	f(Options{Series: filepath.Join(series, "x"), Scores: series, Detector: "leak"}, "which is in that of the scores")
	link := filepath.Join(linked(t, "link", series), "link")
	f(Options{Series: series, Scores: link, Detector: "leak"}, "would be written over them")
	f(Options{Series: link, Scores: filepath.Join(series, "new"), Detector: "leak"}, "be read as series")
	nested := write(t, map[string]string{"sub/a.csv": leak(1)})
	f(Options{Series: nested, Scores: linked(t, "sub", filepath.Join(nested, "sub")), Detector: "leak"}, "among the series")
	f(Options{Series: nested, Scores: linked(t, "sub", nested), Detector: "leak"}, "among the series")
	f(Options{Series: filepath.Join(out, "absent"), Scores: t.TempDir(), Detector: "leak"}, filepath.Join(out, "absent")+": no such file")
	f(Options{Series: filepath.Join(series, "a.csv"), Scores: t.TempDir(), Detector: "leak"}, "a.csv is no directory")
	f(Options{Series: t.TempDir(), Scores: out, Detector: "leak"}, "ends in .csv")
	f(Options{Series: series, Scores: out, Detector: "magic"}, "allowed: leak, level, straggler")
	f(Options{Series: write(t, map[string]string{"a.csv": leak(1), "series.json": `{"a": {"reading": "vigil_absent"}}`}), Scores: out, Detector: "leak"}, "vigil_absent")
	f(Options{Series: write(t, map[string]string{"a.csv": leak(1), "series.json": `{"a": {"peer": "x"}}`}), Scores: out, Detector: "leak"}, "peer")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, Options{Series: series, Scores: out, Detector: "leak"}); err == nil {
		t.Error("a run that was called off says that it is done")
	}
}

// linked is a directory in which the name leads elsewhere.
func linked(t *testing.T, name, to string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestReadings: of a counter the detector sees the rate, and no value that the reading
// cannot have.
func TestReadings(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	var counter strings.Builder
	counter.WriteString("timestamp,value\n")
	sum := 0.0
	for k := range 24 * 60 {
		if sum += 100 + r.Float64(); k == 700 {
			sum = 0 // its program was started again
		}
		fmt.Fprintf(&counter, "%d,%.3f\n", 1772006400+60*k, sum)
	}
	as := func(reading string) Summary {
		t.Helper()
		s, _ := run(t, "leak", 1, map[string]string{"x/c.csv": counter.String(), "series.json": `{"x/": {"reading": "` + reading + `"}}`})
		return s
	}
	if got := as(""); got.Alarms == 0 {
		t.Error("a counter that is taken for a gauge raises no alarm: this test proves nothing")
	}
	if got := as("vigil_gpu_energy_joules_total"); got.Alarms != 0 || got.Absent != 0 {
		t.Errorf("a counter at a steady rate: %+v, want no alarm", got)
	}
	if got := as("vigil_gpu_utilization_ratio"); got.Absent != got.Rows-1 {
		t.Errorf("values far above 1 of a ratio, and one 0: %+v, want all but that taken for absent", got)
	}
}

func FuzzReader(f *testing.F) {
	f.Add("timestamp,value\n1,2\n2,\n")
	f.Add("value,timestamp\n1e5,2026-01-01 00:00:00\n")
	f.Add("timestamp,value\n\"1\",\"2\n")
	f.Fuzz(func(t *testing.T, content string) {
		dir := write(t, map[string]string{"x.csv": content})
		r, err := open(dir, "x.csv")
		if err != nil {
			return
		}
		defer r.Close()
		for range 1000 {
			got, err := r.next()
			if err != nil {
				return
			}
			if s := got.at.Unix(); s < -furthest-1 || s > furthest+1 {
				t.Fatalf("%q is taken for the second %d", got.stamp, s)
			}
		}
	})
}
