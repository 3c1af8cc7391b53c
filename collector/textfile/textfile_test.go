package textfile

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

const someUser = 20417

var (
	train    = collector.Owner{Kind: "job", ID: "slurm/4711", Team: "nlp"}
	pod      = collector.Owner{Kind: "pod", ID: "vision/sweep-0", Team: "vision"}
	notebook = collector.Owner{Kind: "pod", ID: "jupyter/lab"}
)

// bench is a source with a directory of its own.
type bench struct {
	*Source
	t    *testing.T
	dir  string
	snap *collector.Snapshot
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir(), snap: &collector.Snapshot{}}
	b.mode("", 0o755)
	for i, o := range []collector.Owner{train, pod, notebook} {
		b.snap.Workloads = append(b.snap.Workloads, collector.Workload{Owner: o})
		b.snap.Processes = append(b.snap.Processes, collector.Process{PID: i + 1, UID: someUser + i, Owner: o})
	}
	b.Source = New(Config{Directory: b.dir, MaxFiles: 8, MaxBytes: 4096, MaxAge: 5 * time.Minute,
		Snapshot: func() *collector.Snapshot { return b.snap }, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	return b
}

func (b *bench) mode(name string, mode fs.FileMode) {
	b.t.Helper()
	if err := os.Chmod(filepath.Join(b.dir, name), mode); err != nil {
		b.t.Fatal(err)
	}
}

// write writes a file that is so old, as the page in the documentation says: whole and
// then by its name.
func (b *bench) write(name, content string, age time.Duration) {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	at := time.Now().Add(-age)
	err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path+".tmp", []byte(content), 0o644), os.Chtimes(path+".tmp", at, at), os.Rename(path+".tmp", path))
	if err != nil {
		b.t.Fatal(err)
	}
}

// sample returns what is told, by owner, and how many files are read, stale, refused.
func (b *bench) sample() (map[collector.Owner]collector.Workload, [3]float64) {
	b.t.Helper()
	part, err := b.Sample(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	out := map[collector.Owner]collector.Workload{}
	for _, w := range part.Workloads {
		out[w.Owner] = w
	}
	var files [3]float64
	for i := range files {
		files[i] = part.Node.ValueAt(metric.TextfileFiles, i)
	}
	return out, files
}

func TestSignalsOfATraining(t *testing.T) {
	b := newBench(t)
	page := func(steps int) string {
		return fmt.Sprintf("# TYPE training_steps_total counter\ntraining_steps_total{rank=\"0\"} %d\ntraining_steps_total{rank=\"1\"} %d\n"+
			"training_loss 2.25\ntraining_step_seconds_sum %d\ntraining_step_seconds_count %d\n"+
			"workload_quality{name=\"accuracy\"} 0.5\nworkload_quality{name=\"f1\"} NaN\nsomebody_elses{a=\"b\"} 3\n", steps, steps-1, 2*steps, steps)
	}
	b.write("slurm-4711.prom", page(100), 2*time.Minute)
	got, files := b.sample()
	if files != [3]float64{1, 0, 0} || len(got) != 1 {
		t.Fatalf("files read, stale, refused %v; workloads that tell %d, want one of one file", files, len(got))
	}
	b.write("slurm-4711.prom", page(160), time.Minute)
	got, _ = b.sample()
	w := got[train]
	for d, want := range map[*metric.Def]float64{
		metric.WorkloadSteps: 60, metric.WorkloadStep: 160, metric.WorkloadStepRate: 1, metric.WorkloadStepTime: 2, metric.WorkloadLoss: 2.25,
		metric.WorkloadEpoch: math.NaN(), metric.WorkloadCheckpoint: math.NaN(),
	} {
		if v := w.Value(d); !(math.Abs(v-want) < 0.01) && !(math.IsNaN(v) && math.IsNaN(want)) {
			t.Errorf("%s = %v, want %v", d, v, want)
		}
	}
	if age := w.Value(metric.WorkloadSignalAge); age < 59 || age > 600 {
		t.Errorf("the file of a minute ago has an age of %v s", age)
	}
	if diff := cmp.Diff([]collector.Figure{{Name: "accuracy", Value: 0.5}}, w.Quality); diff != "" {
		t.Errorf("figures of quality (-want +got):\n%s", diff)
	}
}

func TestRanksAndFilesOfOneWorkloadAreOne(t *testing.T) {
	b := newBench(t)
	b.write("slurm-4711~0.prom", "training_steps_total 70\ntraining_loss 3\n", time.Second)
	b.write("slurm-4711~1.prom", "training_steps_total 72\ntraining_loss 5\n", 2*time.Second)
	b.write("slurm-4711~old.prom", "training_steps_total 999\n", time.Hour)
	got, files := b.sample()
	if w := got[train]; w.Value(metric.WorkloadStep) != 72 || w.Value(metric.WorkloadLoss) != 3 {
		t.Errorf("two ranks at steps 70 and 72, the first with the newest loss of 3: told are step %v and loss %v", w.Value(metric.WorkloadStep), w.Value(metric.WorkloadLoss))
	}
	if files != [3]float64{2, 1, 0} {
		t.Errorf("files read, stale, refused: %v", files)
	}
}

func TestStaleFileTellsItsAgeOnly(t *testing.T) {
	b := newBench(t)
	b.write("slurm-4711.prom", "training_steps_total 70\ntraining_loss 3\ntraining_checkpoint_timestamp_seconds 1.79e9\nworkload_quality{name=\"a\"} 1\n", time.Hour)
	got, files := b.sample()
	w := got[train]
	if files != [3]float64{0, 1, 0} || w.Has(metric.WorkloadLoss) || len(w.Quality) > 0 {
		t.Errorf("a file of an hour ago is told as if it were new: loss %v, quality %v, files %v", w.Value(metric.WorkloadLoss), w.Quality, files)
	}
	if !(w.Value(metric.WorkloadSignalAge) >= 3599) || w.Value(metric.WorkloadCheckpoint) != 1.79e9 || !w.Has(metric.WorkloadProgress) {
		t.Errorf("its age %v, its last progress %v and checkpoint %v should be told", w.Value(metric.WorkloadSignalAge), w.Value(metric.WorkloadProgress), w.Value(metric.WorkloadCheckpoint))
	}
}

// Each costs itself only: the good file beside it is read.
func TestBadFiles(t *testing.T) {
	const good = "training_steps_total 7\n"
	for reason, make := range map[string]func(b *bench, path string) error{
		"cut_off": func(_ *bench, path string) error { return os.WriteFile(path, []byte(good+"training_loss 3"), 0o644) },
		"syntax": func(_ *bench, path string) error {
			return os.WriteFile(path, []byte(good+"training_loss three\n"), 0o644)
		},
		"too_large": func(_ *bench, path string) error {
			return errors.Join(os.WriteFile(path, []byte(good), 0o644), os.Truncate(path, 1<<30))
		},
		"future": func(_ *bench, path string) error {
			at := time.Now().Add(time.Hour)
			return errors.Join(os.WriteFile(path, []byte(good), 0o644), os.Chtimes(path, at, at))
		},
		"not_regular": func(_ *bench, path string) error { return syscall.Mkfifo(path, 0o644) },
	} {
		t.Run(reason, func(t *testing.T) {
			b := newBench(t)
			b.write("slurm-4711.prom", good, 0)
			if err := make(b, filepath.Join(b.dir, "pod-vision_sweep-0.prom")); err != nil {
				t.Fatal(err)
			}
			before := counted(reason).Get()
			got, files := b.sample()
			if files != [3]float64{1, 0, 1} || got[train].Value(metric.WorkloadStep) != 7 || len(got) != 1 {
				t.Errorf("files read, stale, refused %v; told are %v", files, got)
			}
			if b.sample(); counted(reason).Get() != before+1 {
				t.Errorf("one version of a file that is looked at twice counts %d times as %s", counted(reason).Get()-before, reason)
			}
		})
	}
}

// Who wrote a file that does not count learns which and why, once, however often he
// writes it; and a flood of files does not flood the log.
func TestRefusedFilesAreNamed(t *testing.T) {
	b := newBench(t)
	var said strings.Builder
	b.cfg.Log, b.cfg.MaxFiles = slog.New(slog.NewTextHandler(&said, nil)), 1000
	for i := range 3 {
		b.write("slurm-4711.prom", fmt.Sprintf("training_loss %d", i), time.Duration(i)*time.Second)
		b.write("z\u202ebad.prom", "training_loss three\n", time.Duration(i)*time.Second)
		b.sample()
	}
	for _, want := range []string{"file=slurm-4711.prom reason=cut_off why=\"it does not end", "file=zbad.prom reason=syntax"} {
		if n := strings.Count(said.String(), want); n != 1 {
			t.Errorf("%q is said %d times, want once: %s", want, n, said.String())
		}
	}
	want := []Refused{{"slurm-4711.prom", words["cut_off"]}, {"zbad.prom", words["syntax"]}}
	if diff := cmp.Diff(want, b.Refused()); diff != "" {
		t.Errorf("refused files (-want +got):\n%s", diff)
	}
	for i := range 2 * maxComplaints {
		b.write(fmt.Sprintf("flood%d.prom", i), "x", 0)
	}
	b.sample()
	if n := strings.Count(said.String(), "\n"); n != maxComplaints+1 || !strings.Contains(said.String(), "than are named here") {
		t.Errorf("%d bad files give %d lines of log, want %d", 2*maxComplaints+2, n, maxComplaints+1)
	}
	b.forget(time.Now().Add(2 * againAfter))
	b.write("slurm-4711.prom", "training_loss 9", 0)
	b.sample()
	if strings.Count(said.String(), "file=slurm-4711.prom") != 2 {
		t.Error("a file that is still bad after hours is never named again")
	}
}

// A time behind a value, as exporters write it in milliseconds, costs nothing: the
// file's own counts.
func TestTimestampsAreIgnored(t *testing.T) {
	b := newBench(t)
	b.write("slurm-4711.prom", "training_steps_total 5 1796000000000\n", 0)
	if got, files := b.sample(); files != [3]float64{1, 0, 0} || got[train].Value(metric.WorkloadStep) != 5 {
		t.Errorf("a sample with a timestamp: step %v, files read, stale, refused %v", got[train].Value(metric.WorkloadStep), files)
	}
}

// Each reason that is counted can be said in words.
func TestReasonsHaveWords(t *testing.T) {
	for _, reason := range metric.TextfileReason {
		if words[reason] == "" && reason != "unreadable" {
			t.Errorf("%s has no words", reason)
		}
	}
}

func TestLinksAreNotFollowed(t *testing.T) {
	b := newBench(t)
	outside := filepath.Join(t.TempDir(), "secret.prom")
	if err := os.WriteFile(outside, []byte("training_steps_total 7\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.write("real", "training_steps_total 8\n", 0)
	err := errors.Join(os.Symlink(outside, filepath.Join(b.dir, "slurm-4711.prom")), os.Symlink("real", filepath.Join(b.dir, "pod-vision_sweep-0.prom")),
		os.Link(filepath.Join(b.dir, "real"), filepath.Join(b.dir, "pod-jupyter_lab.prom")), os.Mkdir(filepath.Join(b.dir, "dir.prom"), 0o755))
	if err != nil {
		t.Fatal(err)
	}
	if got, files := b.sample(); len(got) != 0 || files != [3]float64{0, 0, 3} {
		t.Errorf("links inside, outside and of a second name tell %v; files read, stale, refused %v", got, files)
	}
}

func TestFileThatGoesTakesItsReadingsAlong(t *testing.T) {
	b := newBench(t)
	b.write("slurm-4711.prom", "training_steps_total 7\n", 0)
	b.sample()
	if err := os.Remove(filepath.Join(b.dir, "slurm-4711.prom")); err != nil {
		t.Fatal(err)
	}
	if got, files := b.sample(); len(got) != 0 || files != [3]float64{} {
		t.Errorf("a file that is gone still tells %v, files %v", got, files)
	}
}

func TestNoMoreFilesAndFiguresThanAllowed(t *testing.T) {
	b := newBench(t)
	var figures strings.Builder
	for i := range 2 * maxFigures {
		fmt.Fprintf(&figures, "workload_quality{name=\"a%d\"} 1\n", i)
	}
	b.write("slurm-4711.prom", figures.String(), 0)
	for i := range 20 {
		b.write(fmt.Sprintf("z%d.prom", i), "training_steps_total 1\n", 0)
	}
	before := counted("too_many_files").Get()
	got, files := b.sample()
	if files[0] != 8 || counted("too_many_files").Get() != before+13 || len(got[train].Quality) != maxFigures {
		t.Errorf("of 21 files and 32 figures %v files and %d figures are read, %d are counted as too many", files, len(got[train].Quality), counted("too_many_files").Get()-before)
	}
}

// One user cannot crowd out the others.
func TestFilesOfOneUserAreBounded(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make files of other users")
	}
	b := newBench(t)
	b.cfg.MaxFiles = 100
	for i := range maxPerUser + 9 {
		name := fmt.Sprintf("a%02d.prom", i)
		b.write(name, "training_steps_total 1\n", 0)
		if err := os.Chown(filepath.Join(b.dir, name), someUser+2, -1); err != nil {
			t.Fatal(err)
		}
	}
	b.write("slurm-4711.prom", "training_steps_total 5\n", 0)
	if got, files := b.sample(); files[0] != maxPerUser+1 || got[train].Readings.Value(metric.WorkloadStep) != 5 {
		t.Errorf("of 41 files of one user and one of root's %v are read", files)
	}
}

func TestHostileLabels(t *testing.T) {
	b := newBench(t)
	b.write("slurm-4711.prom", "workload_quality{name=\"a\\nb\u202ec\xff\"} 1\nworkload_quality{name=\"\"} 1\nworkload_quality{name=\""+strings.Repeat("x", 500)+"\"} 1\nworkload_quality 4\n", 0)
	got, _ := b.sample()
	for _, f := range got[train].Quality {
		if len([]rune(f.Name)) > maxFigure || strings.ContainsAny(f.Name, "\n\u202e") || !utf8.ValidString(f.Name) {
			t.Errorf("a figure is called %q", f.Name)
		}
	}
	if len(got[train].Quality) != 2 {
		t.Errorf("figures %v, want the two that have a name", got[train].Quality)
	}
}
