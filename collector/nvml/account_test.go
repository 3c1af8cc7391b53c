//go:build linux && cgo

package nvml

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// untimed are functions that no caller calls: what begins and ends a session, what
// waits by design, and names in messages.
var untimed = map[string]bool{
	"nvmlInit": true, "nvmlInit_v2": true, "nvmlShutdown": true, "nvmlEventSetCreate": true, "nvmlEventSetFree": true,
	"nvmlEventSetWait": true, "nvmlDeviceGetCount": true, "nvmlDeviceGetHandleByIndex": true,
}

func TestEveryFunctionIsTimed(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`"(nvml[A-Z]\w+)"`).FindAllSubmatch(source, -1) {
			named[string(m[1])] = !untimed[string(m[1])]
		}
	}
	if len(named) < 50 {
		t.Fatalf("only %d functions were found in the sources", len(named))
	}
	for function, timed := range named {
		if timed && !slices.Contains(metric.NVMLFunction.Values, function) {
			t.Errorf("%s is called and not in metric.NVMLFunction: its time is told in the sum only", function)
		}
	}
	for _, function := range metric.NVMLFunction.Values {
		if !named[function] {
			t.Errorf("metric.NVMLFunction has %s, which nobody calls", function)
		}
	}
}

// told returns the functions of which the rows tell.
func told(t *testing.T, r collector.Readings) []string {
	t.Helper()
	var all []string
	for i, function := range metric.NVMLFunction.Values {
		has := !math.IsNaN(r.ValueAt(metric.FunctionSeconds, i))
		for _, d := range []*metric.Def{metric.FunctionCalls, metric.FunctionErrors} {
			if !math.IsNaN(r.ValueAt(d, i)) != has {
				t.Errorf("of %s there are seconds: %v, and %s is different", function, has, d)
			}
		}
		if has {
			all = append(all, function)
		}
	}
	return all
}

func TestFunctionsWithTheMostTimeAreTold(t *testing.T) {
	a := newAccount()
	shown := metric.NVMLFunction.Shown
	var longest []string
	for i := range 2 * shown {
		function := metric.NVMLFunction.Values[i]
		if i >= shown {
			longest = append(longest, function)
		}
		a.add(function, time.Duration(1+i)*time.Millisecond, nvml.SUCCESS)
		a.add(function, 0, nvml.ERROR_UNKNOWN)
	}
	few, all := collector.NewReadings(metric.Node), collector.NewReadings(metric.Node)
	a.fill(few, false)
	a.fill(all, true)
	if diff := cmp.Diff(longest, told(t, few)); diff != "" {
		t.Errorf("functions in the default profile (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(metric.NVMLFunction.Values[:2*shown], told(t, all)); diff != "" {
		t.Errorf("functions in the full profile (-want +got):\n%s", diff)
	}
	last := 2*shown - 1
	got := []float64{few.ValueAt(metric.FunctionSeconds, last), few.ValueAt(metric.FunctionCalls, last), few.ValueAt(metric.FunctionErrors, last),
		few.Value(metric.NVMLSeconds), few.Value(metric.NVMLCalls), few.Value(metric.NVMLErrors)}
	if diff := cmp.Diff([]float64{0.02, 2, 1, 0.21, 40, 20}, got); diff != "" {
		t.Errorf("seconds, calls and errors of the slowest function and of all (-want +got):\n%s", diff)
	}
}
