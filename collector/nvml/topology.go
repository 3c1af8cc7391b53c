//go:build linux && cgo

package nvml

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/collector"
)

const (
	maxCPUs  = 8192 // of the kernel's largest configuration
	maxNodes = 1024
)

// locate fills where a GPU is in the node, which does not change while it is there.
func (w *worker) locate(g *collector.GPU) {
	if g.ComputeCapability == "" {
		w.tell(&g.ComputeCapability, "nvmlDeviceGetCudaComputeCapability", func() (string, nvml.Return) {
			major, minor, ret := w.handle.GetCudaComputeCapability()
			return fmt.Sprintf("%d.%d", major, minor), ret
		})
	}
	if g.CPUs == "" {
		w.tell(&g.CPUs, "nvmlDeviceGetCpuAffinity", func() (string, nvml.Return) {
			set, ret := w.handle.GetCpuAffinity(maxCPUs)
			return setOf(set), ret
		})
	}
	if g.NUMANodes == "" {
		w.tell(&g.NUMANodes, "nvmlDeviceGetMemoryAffinity", func() (string, nvml.Return) {
			set, ret := w.handle.GetMemoryAffinity(maxNodes, nvml.AFFINITY_SCOPE_NODE)
			return setOf(set), ret
		})
	}
}

// pathsOf lists the paths that are known, by the uuid that they lead to.
func pathsOf(to map[string]string) []collector.Path {
	var paths []collector.Path
	for _, uuid := range slices.Sorted(maps.Keys(to)) {
		if to[uuid] != "" {
			paths = append(paths, collector.Path{UUID: uuid, Level: to[uuid]})
		}
	}
	return paths
}

// levelName names a level as nvml.h does; one that is newer has no name.
func levelName(l nvml.GpuTopologyLevel) string {
	switch l {
	case nvml.TOPOLOGY_INTERNAL:
		return "internal"
	case nvml.TOPOLOGY_SINGLE:
		return "single"
	case nvml.TOPOLOGY_MULTIPLE:
		return "multiple"
	case nvml.TOPOLOGY_HOSTBRIDGE:
		return "hostbridge"
	case nvml.TOPOLOGY_NODE:
		return "node"
	case nvml.TOPOLOGY_SYSTEM:
		return "system"
	}
	return ""
}

// setOf writes a set as the kernel writes a list of CPUs, 0-31,64-95; one that would
// be too long for a label is a mask instead, 0x5555…; an empty one is nothing.
func setOf(words []uint) string {
	var list []string
	for i := 0; i < len(words)*bits.UintSize; i++ {
		if !in(words, i) {
			continue
		}
		first := i
		for in(words, i+1) {
			i++
		}
		one := strconv.Itoa(first)
		if i > first {
			one += "-" + strconv.Itoa(i)
		}
		list = append(list, one)
	}
	if s := strings.Join(list, ","); len(s) <= maxText {
		return s
	}
	var mask strings.Builder
	for i := len(words) - 1; i >= 0; i-- {
		fmt.Fprintf(&mask, "%0*x", bits.UintSize/4, words[i])
	}
	return "0x" + strings.TrimLeft(mask.String(), "0")
}

func in(words []uint, i int) bool {
	return i/bits.UintSize < len(words) && words[i/bits.UintSize]>>(i%bits.UintSize)&1 == 1
}
