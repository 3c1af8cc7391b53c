package textfile

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

func TestWhomAFileIsNamedAfter(t *testing.T) {
	for name, want := range map[string]ref{
		"slurm-4711.prom":                    {"job", "slurm/4711"},
		"slurm-4711~rank3.prom":              {"job", "slurm/4711"},
		"pod-vision_sweep-7f9c4.prom":        {"pod", "vision/sweep-7f9c4"},
		"pod-vision_a.b-0":                   {"pod", "vision/a.b-0"},
		"pod-0b1c2d3e.prom":                  {"pod", "0b1c2d3e"},
		"container-chat_1.prom":              {"container", "chat_1"},
		"service-ollama@1.service.prom":      {"service", "ollama@1.service"},
		"user-1000~notebook.prom":            {"user", "1000"},
		"node-4.prom":                        {},
		"slurm-.prom":                        {},
		"slurm.prom":                         {},
		"train.prom":                         {},
		"pod-../../etc/passwd.prom":          {"pod", "../../etc/passwd"},
		"slurm-" + strings.Repeat("9", 3000): {"job", "slurm/" + strings.Repeat("9", 3000)},
	} {
		if got, ok := parseOwner(name); got != want || ok != (want != ref{}) {
			t.Errorf("%.60q is of %v (%v), want %v", name, got, ok, want)
		}
	}
}

// A user's file may speak for his own workloads, and for another's only if root made
// its name.
func TestWhoMaySpeakForWhom(t *testing.T) {
	const other = 40000
	b := newBench(t)
	b.snap.Processes = append(b.snap.Processes,
		collector.Process{PID: 9, UID: someUser + 9, Owner: train}, collector.Process{PID: 10, UID: someUser + 9, Owner: pod},
		collector.Process{PID: 11, UID: someUser, Owner: pod, Name: "nvidia-cuda-mps-server"}, collector.Process{PID: 12, UID: other})
	users := usersOf(b.snap)
	job, nobody := ref{"job", train.ID}, collector.Owner{}
	for name, c := range map[string]struct {
		uid     int
		about   ref
		vouched bool
		want    collector.Owner
		why     string
	}{
		"its own":                     {someUser, job, false, train, ""},
		"another user's":              {other, job, false, nobody, "foreign"},
		"another's, root made it":     {other, job, true, train, ""},
		"root's":                      {0, job, false, train, ""},
		"the agent's":                 {os.Geteuid(), job, false, train, ""},
		"nobody has such a job":       {someUser, ref{"job", "slurm/1"}, false, nobody, ""},
		"nameless, one workload":      {someUser, ref{}, false, train, ""},
		"nameless, two workloads":     {someUser + 9, ref{}, false, nobody, "ambiguous"},
		"nameless, nobody's process":  {other, ref{}, true, nobody, ""},
		"nameless, no process at all": {5, ref{}, true, nobody, ""},
	} {
		if got, why := whose(c.uid, c.about, c.vouched, b.snap, users); got != c.want || why != c.why {
			t.Errorf("%s: it speaks for %v, refused as %q; want %v, %q", name, got, why, c.want, c.why)
		}
	}
}

func TestLabelsNameAWorkload(t *testing.T) {
	b := newBench(t)
	b.write("all.prom", "training_steps_total{slurm_job_id=\"4711\"} 5\ntraining_steps_total{namespace=\"vision\",pod=\"sweep-0\"} 6\n", 0)
	b.write("pod-jupyter_lab.prom", "training_steps_total{slurm_job_id=\"4711\"} 900\n", 0)
	got, _ := b.sample() // the files are the agent's own, which may speak for everybody
	for o, want := range map[collector.Owner]float64{train: 5, pod: 6, notebook: 900} {
		w := got[o]
		if v := w.Value(metric.WorkloadStep); v != want {
			t.Errorf("%v is at step %v, want %v: a file's name goes before its labels", o, v, want)
		}
	}
}

func TestDirectoryOfAPod(t *testing.T) {
	b := newBench(t)
	b.write("pod-vision_sweep-0/anything.prom", "training_steps_total{slurm_job_id=\"4711\"} 5\n", 0)
	b.write("other/x.prom", "training_steps_total 5\n", 0)
	got, files := b.sample()
	if w := got[pod]; len(got) != 1 || w.Value(metric.WorkloadStep) != 5 || files != [3]float64{1, 0, 0} {
		t.Errorf("the pod's directory tells %v, files %v", got, files)
	}
	b.mode("", os.ModeSticky|0o777)
	if got, files := b.sample(); len(got) != 0 || files != [3]float64{} {
		t.Errorf("where everybody can make such a directory it tells %v, files %v", got, files)
	}
}

func TestDirectoryThatAnybodyCanChange(t *testing.T) {
	b := newBench(t)
	b.mode("", 0o777)
	if _, err := b.Sample(t.Context()); err == nil || !strings.Contains(err.Error(), "chmod +t") {
		t.Errorf("a directory in which everybody can replace everybody's files is read: %v", err)
	}
	b.cfg.Directory = filepath.Join(b.dir, "missing")
	if _, err := b.Sample(t.Context()); err == nil || !strings.Contains(err.Error(), "textfile.directory") {
		t.Errorf("a directory that is not there gives %v", err)
	}
}

// Whatever a file holds, what is made of it is plausible and bounded.
func FuzzFile(f *testing.F) {
	f.Add("slurm-1.prom", []byte("training_steps_total 3\nworkload_quality{name=\"a\"} 1e999\n"))
	f.Add("pod-a_b", []byte("training_loss{slurm_job_id=\"4\",namespace=\"x\",pod=\"y\"} -Inf\ntraining_finished 7\n# EOF"))
	f.Add("~", []byte("training_steps_total{a=\"b\\\"\\n\",} 0x1p4 5\n"))
	f.Fuzz(func(t *testing.T, name string, page []byte) {
		if r, ok := parseOwner(name); ok != (r != ref{}) {
			t.Errorf("%q names %v, %v", name, r, ok)
		}
		c, err := parse(bytes.NewReader(page))
		if err != nil {
			if len(c.about) > 0 {
				t.Errorf("a page that is refused (%v) tells of %v", err, c.about)
			}
			return
		}
		if len(c.about) > maxSpeaks || len(c.about) != len(c.says) {
			t.Errorf("it speaks for %d, says %d things", len(c.about), len(c.says))
		}
		s := New(Config{MaxAge: time.Hour})
		now := time.Unix(1790000000, 0)
		for i, say := range c.says {
			var cl claim
			cl.join(say, now, time.Hour)
			for _, w := range s.workloads(map[collector.Owner]*claim{{Kind: c.about[i].kind, ID: c.about[i].id}: &cl}, now) {
				for _, d := range metric.Of(metric.Workload) {
					for k := range d.Width() {
						if v := w.ValueAt(d, k); !math.IsNaN(v) && !d.Plausible(v) {
							t.Errorf("%s = %v", d, v)
						}
					}
				}
				for _, q := range w.Quality {
					if q.Name == "" || len([]rune(q.Name)) > maxFigure || math.IsNaN(q.Value) || math.IsInf(q.Value, 0) {
						t.Errorf("figure %q = %v", q.Name, q.Value)
					}
				}
				if len(w.Quality) > maxFigures {
					t.Errorf("%d figures", len(w.Quality))
				}
			}
		}
	})
}
