package detect

import (
	"strings"
	"time"

	"gpuvigil/collector"
)

// VerdictName says in one word what holds a GPU, or what it waits for: a closed set,
// label value.
type VerdictName string

// The verdicts. What limits work that goes on comes first, then what stopped it, then
// what nobody works with.
const (
	VerdictComputeBound       VerdictName = "compute_bound"        // the SMs are full: as fast as this GPU is
	VerdictMemoryBound        VerdictName = "memory_bound"         // the device memory's bandwidth is the limit
	VerdictCPUStarved         VerdictName = "cpu_starved"          // it waits for the host's CPUs
	VerdictDiskStarved        VerdictName = "disk_starved"         // it waits for block devices
	VerdictNetworkStarved     VerdictName = "network_starved"      // it waits for a network file system or the network
	VerdictRequestStarved     VerdictName = "request_starved"      // its endpoint has no requests
	VerdictThrottledPower     VerdictName = "throttled_power"      // a lowered power limit or a power brake holds its clocks down
	VerdictThrottledThermal   VerdictName = "throttled_thermal"    // heat holds its clocks down
	VerdictThrottledHardware  VerdictName = "throttled_hardware"   // the hardware slows it down and tells no better reason
	VerdictCommunicationBound VerdictName = "communication_bound"  // NVLink or InfiniBand is the limit
	VerdictEncoderBound       VerdictName = "encoder_bound"        // the video encoder or decoder is the limit
	VerdictVRAMBound          VerdictName = "vram_bound"           // device memory, or the KV cache in it, is full
	VerdictPCIeBound          VerdictName = "pcie_bound"           // the PCIe link is the limit
	VerdictHostBound          VerdictName = "host_bound"           // it waits for the host, for what is not known
	VerdictHung               VerdictName = "hung"                 // it spins in a collective that does not return
	VerdictStalled            VerdictName = "stalled"              // its job has stopped to work
	VerdictIdleHeld           VerdictName = "idle_held"            // a process has it open and does nothing
	VerdictHeldWithoutProcess VerdictName = "held_without_process" // it was given to somebody who has no process
	VerdictFree               VerdictName = "free"                 // nobody has it
	VerdictHealthy            VerdictName = "healthy"              // it works, and nothing stands out as its limit
	VerdictUnknown            VerdictName = "unknown"              // too little is told
)

// Words returns the verdict as people read it: "compute bound", "VRAM bound".
func (n VerdictName) Words() string {
	switch n {
	case VerdictCPUStarved, VerdictPCIeBound, VerdictVRAMBound:
		first, rest, _ := strings.Cut(string(n), "_")
		return strings.Replace(strings.ToUpper(first), "PCIE", "PCIe", 1) + " " + rest
	}
	return strings.ReplaceAll(string(n), "_", " ")
}

// VerdictNames lists the closed set.
var VerdictNames = []VerdictName{
	VerdictComputeBound, VerdictMemoryBound, VerdictCPUStarved, VerdictDiskStarved, VerdictNetworkStarved, VerdictRequestStarved,
	VerdictThrottledPower, VerdictThrottledThermal, VerdictThrottledHardware, VerdictCommunicationBound, VerdictEncoderBound,
	VerdictVRAMBound, VerdictPCIeBound, VerdictHostBound, VerdictHung, VerdictStalled, VerdictIdleHeld, VerdictHeldWithoutProcess,
	VerdictFree, VerdictHealthy, VerdictUnknown,
}

// Verdict is what one GPU does for its holder, and what it waits for if it waits.
type Verdict struct {
	GPU        string          `json:"uuid"`
	Index      int             `json:"gpu"`
	Owner      collector.Owner `json:"owner"` // the GPU's holder
	Name       VerdictName     `json:"verdict"`
	Since      time.Time       `json:"since"`
	Evidence   string          `json:"evidence"` // in words and numbers; as of when the verdict was last judged
	Confidence Confidence      `json:"confidence"`
}
