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
	if code, stdout, errs := gpuvigil(t, args...); code != 0 || stdout != "leak: 1 files, 2 rows, of which 1 without a value and 0 with an alarm\n" {
		t.Errorf("exit %d, printed %q %q", code, stdout, errs)
	}
	if scores, err := os.ReadFile(filepath.Join(out, "a.csv")); err != nil || string(scores) != "timestamp,value,anomaly_score\n0,1,0\n60,,\n" {
		t.Errorf("wrote %q, error %v", scores, err)
	}
	write("timestamp,value\n0,one\n")
	if code, _, errs := gpuvigil(t, args...); code != 1 || !strings.Contains(errs, "a.csv:2:") {
		t.Errorf("a value that is no number: exit %d, %q; want 1 and the line", code, errs)
	}
	if code, _, _ := gpuvigil(t, "backtest", "--series="+dir, "--scores-out="+out, "--detector=magic"); code != int(exitUnknown) {
		t.Errorf("a detector that there is not: exit %d, want that of wrong usage", code)
	}
}
