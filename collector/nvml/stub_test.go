//go:build !linux || !cgo

package nvml

import (
	"io"
	"strings"
	"testing"
)

func TestServeSaysWhyItCannot(t *testing.T) {
	if err := Serve(t.Context(), io.Discard, Config{}); err == nil || !strings.Contains(err.Error(), "cgo") {
		t.Errorf("a build without cgo serves with error %v, want one that says why not", err)
	}
}
