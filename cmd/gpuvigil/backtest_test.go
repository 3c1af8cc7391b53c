package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBacktest(t *testing.T) {
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "scores")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "a.csv"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"backtest", "--series=" + dir, "--scores-out=" + out, "--detector=leak"}
	write("timestamp,value\n0,1\n60,\n")
	if code, stdout, errs := gpuvigil(t, args...); code != 0 || stdout != "leak: 1 file, 2 rows, of which 1 without a value and 0 with an alarm\n" {
		t.Errorf("exit %d, printed %q %q", code, stdout, errs)
	}
	if scores, err := os.ReadFile(filepath.Join(out, "a.csv")); err != nil || string(scores) != "timestamp,value,anomaly_score\n0,1,0\n60,,\n" {
		t.Errorf("wrote %q, error %v", scores, err)
	}
	write("timestamp,value\n0,one\n")
	if code, _, errs := gpuvigil(t, args...); code != 1 || !strings.Contains(errs, "a.csv:2:") {
		t.Errorf("a value that is no number: exit %d, %q; want 1 and the line", code, errs)
	}
	write("timestamp,value\n0,1\n60,1\n30,1\n120,1\n180,1\n")
	if code, _, errs := gpuvigil(t, args...); code != 0 || !strings.Contains(errs, "a.csv:4: the time goes back here") {
		t.Errorf("a row that is earlier than the one before: exit %d, %q; want 0, and the file, the line and what it costs", code, errs)
	}
	write("timestamp,value\n180,1\n120,1\n60,1\n")
	if code, _, errs := gpuvigil(t, args...); code != 1 || !strings.Contains(errs, "a.csv:3: 2 of 3 rows") {
		t.Errorf("a file in no order: exit %d, %q; want 1 and the line", code, errs)
	}
	for _, scores := range []string{dir, filepath.Join(dir, "in"), filepath.Dir(dir)} {
		if code, stdout, errs := gpuvigil(t, "backtest", "--series="+dir, "--scores-out="+scores); code != int(exitUnknown) || stdout != "" || !strings.Contains(errs, "--scores-out "+scores) {
			t.Errorf("scores to %s, of series in %s: exit %d, %q %q; want wrong usage, and the flag named", scores, dir, code, stdout, errs)
		}
	}
	if code, _, _ := gpuvigil(t, "backtest", "--series="+dir, "--scores-out="+out, "--detector=magic"); code != int(exitUnknown) {
		t.Errorf("a detector that there is not: exit %d, want that of wrong usage", code)
	}
}

func TestBacktestOfRecordings(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	if code, _, errs := gpuvigil(t, "record", "--simulate=e2e", "--for=3m", "--output="+file("node.rec")); code != 0 {
		t.Fatalf("record: exit %d, %s", code, errs)
	}
	if err := os.WriteFile(file("labels.csv"), []byte("kind,from,to\nGPU off the bus,2026-01-05T08:00:00Z,2026-01-05T08:02:00Z\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := gpuvigil(t, "backtest", "--recording="+file("node.rec"), "--labels="+file("labels.csv"), "--json="+file("a.json"), "--charts="+file("a.html"))
	if code != 0 || !strings.Contains(out, "Xid 79") || !strings.Contains(out, "1 of 1") {
		t.Errorf("exit %d, want the lost GPU found as the label's kind of fault says; printed\n%s%s", code, out, errs)
	}
	for name, begins := range map[string]string{"a.json": "{", "a.html": "<!doctype html>"} {
		if b, err := os.ReadFile(file(name)); err != nil || !strings.HasPrefix(string(b), begins) {
			t.Errorf("%s: %v, begins with %.20q", name, err, b)
		}
	}
	if code, out, errs := gpuvigil(t, "backtest", "--recording="+file("none.rec")); code != 1 || out != "" || !strings.Contains(errs, "none.rec") {
		t.Errorf("a recording that there is not: exit %d, %s; printed %q, want nothing", code, errs, out)
	}
	for _, mixed := range [][]string{
		{}, {"--series=" + dir}, {"--series=" + dir, "--recording=x"}, {"--recording=x", "--scores-out=" + dir}, {"--recording=x", "--detector=leak"},
		{"--series=" + dir, "--scores-out=" + file("s"), "--json=x"},
	} {
		if code, _, errs := gpuvigil(t, append([]string{"backtest"}, mixed...)...); code != int(exitUnknown) || !strings.Contains(errs, "--") {
			t.Errorf("backtest %v: exit %d and %q, want wrong usage and which flags do not go together", mixed, code, errs)
		}
	}
}

// What is read is never written over, nor one result over the other.
func TestBacktestKeepsItsInput(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"keep.rec", "labels.csv"} {
		if err := os.WriteFile(file(name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(file("keep.rec"), file("hard")); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"soft": "keep.rec", "dangling": "both"} {
		if err := os.Symlink(to, file(name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ json, charts string }{
		{"keep.rec", ""}, {"", "keep.rec"}, {"soft", ""}, {"", "hard"}, {"labels.csv", ""}, {"", "labels.csv"}, {"both", "both"}, {"both", "dangling"}, {"dangling", "both"},
	} {
		args := []string{"backtest", "--recording=" + file("keep.rec"), "--labels=" + file("labels.csv")}
		if c.json != "" {
			args = append(args, "--json="+file(c.json))
		}
		if c.charts != "" {
			args = append(args, "--charts="+file(c.charts))
		}
		if code, out, errs := gpuvigil(t, args...); code != int(exitUnknown) || out != "" || !strings.Contains(errs, "would overwrite") {
			t.Errorf("%v: exit %d, %q %q, want it refused", args, code, out, errs)
		}
		for _, name := range []string{"keep.rec", "labels.csv"} {
			if b, err := os.ReadFile(file(name)); err != nil || string(b) != name {
				t.Fatalf("%v: %s now has %q, error %v", args, name, b, err)
			}
		}
	}
}

func TestBacktestNamesGroupsThatAreTooSmall(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "rank0.csv"), []byte("timestamp,value\n0,1\n1,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := gpuvigil(t, "backtest", "--series="+dir, "--scores-out="+filepath.Join(t.TempDir(), "s"), "--detector=straggler")
	if code != 1 || !strings.Contains(out, "not judged") || !strings.Contains(out, "directory .") || !strings.Contains(errs, "none could be judged") {
		t.Errorf("one file has no peers: exit %d, %q %q, want 1 and its group named", code, out, errs)
	}
}
