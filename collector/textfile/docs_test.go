package textfile

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// The scripts of the documentation write files that are understood.
func TestScriptsOfTheDocumentation(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "training.md"))
	if err != nil {
		t.Fatal(err)
	}
	for language, check := range map[string]func(w collector.Workload) bool{
		"python": func(w collector.Workload) bool {
			return w.Value(metric.WorkloadStep) == 1200 && w.Value(metric.WorkloadLoss) == 2.31 && w.Has(metric.WorkloadCheckpoint)
		},
		"sh": func(w collector.Workload) bool { return len(w.Quality) == 1 && w.Quality[0].Value == 0.874 },
	} {
		t.Run(language, func(t *testing.T) {
			blocks := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindSubmatch(page)
			if blocks == nil {
				t.Fatalf("the page has no script in %s", language)
			}
			interpreter := map[string]string{"python": "python3", "sh": "sh"}[language]
			if _, err := exec.LookPath(interpreter); err != nil {
				t.Skipf("no %s here: %v", interpreter, err)
			}
			b := newBench(t)
			cmd := exec.CommandContext(t.Context(), interpreter)
			cmd.Stdin = bytes.NewReader(blocks[1])
			cmd.Env = append(os.Environ(), "TEXTFILE="+b.dir, "SLURM_JOB_ID=4711")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("it fails: %v\n%s", err, out)
			}
			got, files := b.sample()
			if files != [3]float64{1, 0, 0} || !check(got[train]) {
				t.Errorf("its file tells %+v; files read, stale, refused %v", got[train], files)
			}
			left, err := os.ReadDir(b.dir)
			if err != nil || len(left) != 1 {
				t.Errorf("it leaves %v, %v; want its file only", left, err)
			}
		})
	}
}
