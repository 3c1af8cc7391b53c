//go:build !linux || !cgo

package nvml

import (
	"context"
	"errors"
	"io"
)

// Serve returns an error at once: this binary cannot load libnvidia-ml.
func Serve(context.Context, io.Writer, Config) error {
	return errors.New("this build of gpuvigil has no NVML: it was built without cgo or not for Linux; " +
		"build it on Linux with a C compiler and CGO_ENABLED=1")
}
