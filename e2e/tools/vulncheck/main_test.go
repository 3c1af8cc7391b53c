package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// entry makes one symbol vulnerable in every version before fixed.
func entry(id, module, fixed, pkg, symbol string) string {
	return fmt.Sprintf(`{"schema_version": "1.3.1", "id": %q, "summary": "a test", "affected": [{
  "package": {"name": %q, "ecosystem": "Go"},
  "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}, {"fixed": %q}]}],
  "ecosystem_specific": {"imports": [{"path": %q, "symbols": [%q]}]}}]}`, id, module, fixed, pkg, symbol)
}

// TestRun scans this program itself.
func TestRun(t *testing.T) {
	db := t.TempDir()
	write := func(id, entry string) {
		if err := os.WriteFile(filepath.Join(db, id+".json"), []byte(entry), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(failed bool, want ...string) {
		t.Helper()
		var out strings.Builder
		got, err := run(&out, db, []string{"."})
		if err != nil {
			t.Fatal(err)
		}
		if got != failed {
			t.Errorf("the check failed: %v, want %v", got, failed)
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("the report lacks %q:\n%s", w, &out)
			}
		}
	}

	const module, pkg = "golang.org/x/vuln", "golang.org/x/vuln/scan"
	write("GO-2000-0001", entry("GO-2000-0001", module, "0.1.0", pkg, "Command"))
	write("GO-2000-0002", entry("GO-2000-0002", module, "999.0.0", pkg, "Absent"))
	write("GO-2000-0003", entry("GO-2000-0003", "stdlib", "999.0.0", "path/filepath", "Glob"))
	check(false, "note: GO-2000-0003 stdlib@", "in modules: 0 (", "not called: 1\n")

	write("GO-2000-0004", entry("GO-2000-0004", module, "999.0.0", pkg, "Command"))
	check(true, "FAIL: GO-2000-0004 "+module+"@", "go get "+module+"@v999.0.0", "in modules: 1 (")
}

func TestRunWithoutDatabase(t *testing.T) {
	if _, err := run(&strings.Builder{}, t.TempDir(), []string{"."}); err == nil || !strings.Contains(err.Error(), "no GO-*.json") {
		t.Errorf("an empty database gave error %v: it would let everything pass", err)
	}
}
