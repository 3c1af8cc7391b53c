//go:build !linux || !cgo

package nvml

import (
	"context"
	"fmt"
	"io"
)

// Serve returns an error at once: this binary cannot load libnvidia-ml.
func Serve(context.Context, io.Writer, Config) error {
	return fmt.Errorf("%w, and this build of gpuvigil was made without cgo or not for Linux and cannot load NVML; "+
		"build it on Linux with a C compiler and CGO_ENABLED=1", ErrNoDriver)
}
