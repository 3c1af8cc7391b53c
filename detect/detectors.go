package detect

import (
	"slices"
	"strings"
	"time"

	"gpuvigil/collector"
)

// DetectorConfig is what the detectors can be told. The zero value works
// untouched.
type DetectorConfig struct {
	Saturated   SaturatedConfig
	Idle        IdleConfig
	Throttled   ThrottledConfig
	Version     VersionConfig
	Mismatch    MismatchConfig
	Sharing     SharingConfig
	Isolation   IsolationConfig
	Xid         XidConfig
	SXid        SXidConfig
	Spend       SpendConfig
	Unallocated UnallocatedConfig
	UnknownUse  UnknownUseConfig
}

// Detectors returns all detectors, causes before what they hide.
func Detectors(cfg DetectorConfig) []Detector {
	judge := NewJudge()
	saturated := NewSaturated(cfg.Saturated, judge)
	return []Detector{
		NewXid(cfg.Xid),
		NewSuspect(),
		NewLost(),
		NewSXid(cfg.SXid),
		NewGPUMemory(),
		NewPCIe(),
		NewNVLink(),
		NewPort(),
		NewUnresponsive(),
		NewHung(judge),
		NewStalled(judge),
		saturated,
		NewQueueing(saturated),
		NewUnusualUse(),
		NewIdle(cfg.Idle),
		NewThrottled(cfg.Throttled, judge),
		NewHotGPU(),
		NewMemoryLeak(),
		NewStraggler(),
		NewSlowTraining(),
		NewVersion(cfg.Version),
		NewMismatch(cfg.Mismatch),
		NewSharing(cfg.Sharing),
		NewIsolation(cfg.Isolation),
		NewMovement(),
		NewSpend(cfg.Spend),
		NewUnallocated(cfg.Unallocated),
		NewUnknownUse(cfg.UnknownUse),
		NewDrainedOccupied(),
		NewUnusual(),
	}
}

// sampleGap is the longest time that one sample may stand for.
const sampleGap = 90 * time.Second

// covers reports whether an endpoint runs on the GPU, as far as is known: an
// endpoint without GPUs may run on any but those that a batch scheduler gave to a
// job.
func covers(e *collector.Endpoint, g *collector.GPU) bool {
	if len(e.GPUs) > 0 {
		return slices.Contains(e.GPUs, g.UUID)
	}
	return !ofJob(g)
}

func ofJob(g *collector.GPU) bool {
	for i := range g.Owners {
		if g.Owners[i].Kind == "job" {
			return true
		}
	}
	return false
}

// holder is who a GPU's use is put down to: the first of its owners.
func holder(g *collector.GPU) collector.Owner {
	if len(g.Owners) == 0 {
		return collector.Owner{}
	}
	return g.Owners[0]
}

func gpuSubject(uuid string) Subject { return Subject{Kind: "gpu", ID: uuid} }

// EndpointSubject is a model of an inference server as the subject of a finding or of
// a history.
func EndpointSubject(e *collector.Endpoint) Subject {
	return Subject{Kind: "endpoint", ID: e.Key().String()}
}

// kept returns what is kept of an endpoint, nil if nothing is. What is known of a URL
// alone, as releases kept it that told endpoints apart by nothing else, was that of
// the first model on the page, and goes to it.
func kept[T any](of map[collector.EndpointKey]*T, e *collector.Endpoint) *T {
	key := e.Key()
	if v := of[key]; v != nil {
		return v
	}
	bare := collector.EndpointKey{URL: e.URL}
	v := of[bare]
	if v != nil {
		delete(of, bare)
		of[key] = v
	}
	return v
}

// isNotebook reports whether a name, of a process or an owner, is that of a notebook.
func isNotebook(name string) bool {
	for _, word := range []string{"jupyter", "ipykernel", "notebook"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}
