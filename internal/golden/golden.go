// Package golden compares what a test gets with a file under testdata. The file is
// the expectation and is read in review; `go test PACKAGE -update` rewrites it.
// Only tests import it.
package golden

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files with what the tests get now")

// Check fails the test if got is not what the file at path holds. says tells the
// reader of a failure what is wrong then, in a user's terms.
func Check(t *testing.T, path, got, says string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("read what is expected: %v; -update writes it", err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-%s +now); if that is meant, -update accepts it:\n%s", says, path, diff)
	}
}
