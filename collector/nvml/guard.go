//go:build linux && cgo

package nvml

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/dl"
)

const defaultLibrary = "libnvidia-ml.so.1"

// required are the functions without which nothing can be said about a GPU.
// Calling a function that the library lacks ends the process, so a library
// without one of these is refused and every other function is asked for first.
var required = []string{
	"nvmlInit_v2", "nvmlShutdown", "nvmlSystemGetDriverVersion",
	"nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID",
}

// checkLibrary opens the library on its own, because initialising a library that
// lacks the function for it would end the process, and because go-nvml keeps the
// dynamic linker's reason to itself.
func checkLibrary(path string) error {
	lib := dl.New(path, dl.RTLD_LAZY)
	if err := lib.Open(); err != nil {
		// Of a library that was named, its absence is a mistake; of the usual one, a fact.
		if path == defaultLibrary && strings.Contains(err.Error(), "No such file") {
			return ErrNoDriver
		}
		return fmt.Errorf("load %s: %w; install the NVIDIA driver or set the library's path", path, err)
	}
	var missing []error
	for _, symbol := range required {
		if lib.Lookup(symbol) != nil {
			missing = append(missing, fmt.Errorf("%s has no function %s", path, symbol))
		}
	}
	if err := errors.Join(append(missing, lib.Close())...); err != nil {
		return fmt.Errorf("%w; it is no NVML, or of a driver that is too old", err)
	}
	return nil
}

// guard knows which functions may be called. It is safe for use from several
// goroutines.
type guard struct {
	lookup func(symbol string) error
	mu     sync.Mutex
	known  map[string]bool
}

func newGuard(lookup func(string) error) *guard {
	return &guard{lookup: lookup, known: map[string]bool{}}
}

// has reports whether a function may be called. The name is go-nvml's: where
// go-nvml calls the newest version that the library has, any version will do.
func (g *guard) has(function string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	may, asked := g.known[function]
	if !asked {
		for _, symbol := range versions(function) {
			may = may || g.lookup(symbol) == nil
		}
		g.known[function] = may
	}
	return may
}

// deny forbids a function that the library has.
func (g *guard) deny(function string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.known[function] = false
}

// versions returns the symbols one of which go-nvml calls for a function.
func versions(function string) []string {
	switch function {
	case "nvmlDeviceGetGridLicensableFeatures":
		return []string{function + "_v4", function + "_v3", function + "_v2", function}
	case computeList, graphicsList, mpsList, "nvmlDeviceGetPciInfo":
		return []string{function + "_v3", function + "_v2", function}
	case "nvmlDeviceGetAttributes", "nvmlEventSetWait":
		return []string{function + "_v2", function}
	default:
		return []string{function}
	}
}

// badProcessStruct reports whether a driver writes process lists in a struct
// that is larger than their version says: what is read then is garbage. These are
// the first drivers of R535, up to the one that took the struct back.
func badProcessStruct(driver string) bool {
	major, rest, _ := strings.Cut(driver, ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(minor)
	return major == "535" && err == nil && n >= 43 && n < 98
}
