package backtest

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSameFileSeesThroughLinks(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(in(name), []byte("the same content"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(in("a"), in("hard")); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"soft": "a", "nowhere": "new", "dir": dir, "round": "round"} {
		if err := os.Symlink(to, in(name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"a", "a", true}, {"a", in("a"), true}, {"a", "./x/../a", true}, {"a", "hard", true}, {"soft", "hard", true}, {"dir/a", "soft", true},
		{"new", "new", true}, {"new", "nowhere", true}, {"dir/new", "nowhere", true}, {"round", "round", true},
		{"a", "b", false}, {"new", "newer", false}, {"nowhere", "a", false}, {"round", "a", false},
	} {
		if got := SameFile(c.a, c.b); got != c.same {
			t.Errorf("%s and %s are the same file: %v, want %v", c.a, c.b, got, c.same)
		}
	}
}
