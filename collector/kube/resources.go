package kube

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Resources are amounts of what a node has and a pod asks for.
type Resources struct {
	CPU    int64          // in thousandths
	Memory int64          // bytes
	Pods   int64          // of a node: how many it may run
	GPUs   map[string]int // devices by resource: nvidia.com/gpu, nvidia.com/mig-1g.10gb
}

// The resources that are GPUs, parts or shares of them.
const (
	WholeGPU  = "nvidia.com/gpu"
	SharedGPU = "nvidia.com/gpu.shared"
	MIGPrefix = "nvidia.com/mig-"
)

// IsGPU reports whether a resource is a GPU, a MIG instance or a share. What only counts
// with one, such as nvidia.com/gpumem, is none.
func IsGPU(resource string) bool {
	return resource == WholeGPU || resource == SharedGPU || strings.HasPrefix(resource, MIGPrefix)
}

// Devices is how many devices there are of all kinds: a MIG instance or a share is one.
func (r Resources) Devices() int {
	n := 0
	for _, d := range r.GPUs {
		n += d
	}
	return n
}

const maxDevices = 1 << 20 // more are no number of GPUs

func resourcesOf(amounts map[string]quantity) Resources {
	var r Resources
	for key, q := range amounts {
		switch {
		case key == "cpu":
			r.CPU = q.milli()
		case key == "memory":
			r.Memory = q.value()
		case key == "pods":
			r.Pods = q.value()
		case IsGPU(key):
			if n := q.value(); n > 0 && n <= maxDevices {
				if r.GPUs == nil {
					r.GPUs = map[string]int{}
				}
				r.GPUs[shown(key, maxName)] = int(n)
			}
		}
	}
	return r
}

func (r Resources) plus(o Resources) Resources {
	return r.each(o, func(a, b int64) int64 {
		if b > math.MaxInt64-a {
			return math.MaxInt64
		}
		return a + b
	})
}

func (r Resources) most(o Resources) Resources {
	return r.each(o, func(a, b int64) int64 { return max(a, b) })
}

func (r Resources) each(o Resources, f func(a, b int64) int64) Resources {
	out := Resources{CPU: f(r.CPU, o.CPU), Memory: f(r.Memory, o.Memory), Pods: f(r.Pods, o.Pods)}
	for _, gpus := range []map[string]int{r.GPUs, o.GPUs} {
		for resource := range gpus {
			if out.GPUs == nil {
				out.GPUs = map[string]int{}
			}
			out.GPUs[resource] = int(f(int64(r.GPUs[resource]), int64(o.GPUs[resource])))
		}
	}
	return out
}

// quantity is an amount as Kubernetes writes it: 500m, 64Gi, "8", 8.
type quantity struct{ amount resource.Quantity }

// UnmarshalJSON takes a text or a number.
func (q *quantity) UnmarshalJSON(raw []byte) error {
	s := string(raw)
	if len(raw) > 0 && raw[0] == '"' {
		if err := json.Unmarshal(raw, &s); err != nil {
			return err
		}
	}
	if len(s) > 64 || longExponent(s) {
		return fmt.Errorf("%q… is not an amount", shown(s, 20))
	}
	amount, err := resource.ParseQuantity(s)
	if err != nil {
		return fmt.Errorf("%q is not an amount", shown(s, 64))
	}
	q.amount = amount
	return nil
}

// longExponent reports whether s is a number that takes long to write out.
func longExponent(s string) bool {
	i := strings.IndexAny(s, "eE")
	return i >= 0 && len(strings.TrimLeft(s[i+1:], "+-0")) > 2
}

// milli is the amount in thousandths, value in whole ones; neither is negative.
func (q quantity) milli() int64 { return max(0, q.amount.MilliValue()) }
func (q quantity) value() int64 { return max(0, q.amount.Value()) }
