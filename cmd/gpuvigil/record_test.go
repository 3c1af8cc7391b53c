package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// A recording that fails leaves no file, which would be in the way of the next try.
func TestRecordThatFailsLeavesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "recording")
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"--simulate=nosuch"}, int(exitUnknown)},
		{[]string{"--simulate=e2e", "--for=-1m"}, int(exitUnknown)},
		{[]string{"--simulate=e2e", "--for=0s"}, int(exitUnknown)},
		{[]string{"--for=-1m"}, int(exitUnknown)},
		{[]string{"--config.file=" + filepath.Join(t.TempDir(), "none.yml")}, 1},
	} {
		if code, out, errs := gpuvigil(t, append([]string{"record", "--output=" + path}, c.args...)...); code != c.code || out != "" || errs == "" {
			t.Errorf("record %v: exit %d, %q %q, want %d and what is wrong", c.args, code, out, errs, c.code)
		}
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("record %v leaves a file (error %v)", c.args, err)
		}
	}
	if code, out, errs := gpuvigil(t, "record", "--output="+path, "--simulate=e2e", "--for=1s"); code != 0 || out != path+": 1 frame\n" {
		t.Errorf("the next try: exit %d, %q %q", code, out, errs)
	}
}
