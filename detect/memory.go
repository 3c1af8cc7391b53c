package detect

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"
)

// room reports whether there is room for one more of so many things. Before it says no it
// forgets those that have not been seen for longer than they are kept.
func room[K comparable, V any](of map[K]V, most int, kept time.Duration, seen func(V) time.Time, now time.Time) bool {
	if len(of) >= most {
		maps.DeleteFunc(of, func(_ K, v V) bool { return now.Sub(seen(v)) > kept })
	}
	return len(of) < most
}

// gpusState is what a detector remembers of each GPU, by uuid, in the state file.
type gpusState[T any] struct {
	Version int           `json:"version"`
	GPUs    map[string]*T `json:"gpus"`
}

// named is a memory whose parts are called something again once it was read.
type named[T any] interface {
	*T
	name()
}

// restoreGPUs reads what was written as a gpusState of version 1.
func restoreGPUs[T any, P named[T]](data []byte) (map[string]*T, error) {
	var s gpusState[T]
	if err := decodeState(data, &s, 1); err != nil {
		return nil, err
	}
	gpus := map[string]*T{}
	for uuid, v := range s.GPUs {
		if v != nil {
			P(v).name()
			gpus[uuid] = v
		}
	}
	return gpus, nil
}

// decodeState reads a detector's memory, whose JSON has a field version.
func decodeState(data []byte, into any, newest int) error {
	var v struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return fmt.Errorf("its memory is damaged: %w", err)
	}
	if v.Version < 1 || v.Version > newest {
		return fmt.Errorf("its memory has version %d, this release knows 1 to %d: run the newer release again to keep it", v.Version, newest)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("its memory is damaged: %w", err)
	}
	return nil
}
