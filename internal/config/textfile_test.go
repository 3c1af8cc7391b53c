package config

import (
	"strings"
	"testing"
)

func TestTextfileThatCannotWork(t *testing.T) {
	for text, want := range map[string]string{
		"textfile: {directory: run/gpuvigil}": "textfile.directory",
		"textfile: {max_files: 0}":            "textfile.max_files",
		"textfile: {max_bytes: 100000000}":    "textfile.max_bytes",
		"textfile: {max_age: 10s}":            "textfile.max_age",
		"textfile: {file: x}":                 "file",
	} {
		if _, err := Parse("gpuvigil.yml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: it says %v, want it to name %s", text, err, want)
		}
	}
	c, err := Parse("gpuvigil.yml", []byte("textfile: {directory: /run/gpuvigil/textfile, max_files: 9}"))
	if err != nil || c.Textfile.Directory != "/run/gpuvigil/textfile" || c.Textfile.MaxFiles != 9 || c.Textfile.MaxBytes != 65536 {
		t.Errorf("a good one is read as %+v, %v", c, err)
	}
}
