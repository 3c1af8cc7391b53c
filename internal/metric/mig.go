package metric

// Rows that describe a MIG instance. Utilization is not told for one: its
// activity is, on Hopper and later.
var (
	MIGInfo = row(Def{Entity: Instance, Kind: Info, Tier: Inventory, Name: "vigil_mig_info",
		Labels: []string{"mig_uuid"},
		Help:   "Identity of a MIG instance; always 1. uuid is the whole GPU's."})
	MIGMemoryCapacity = row(Def{Entity: Instance, Tier: Fast, Max: maxBytes, Name: "vigil_mig_memory_capacity_bytes",
		NVML: "nvmlDeviceGetMemoryInfo_v2.total", Raw: "B", DCGM: MemoryCapacity.DCGM, Help: "Device memory of the instance."})
	MIGMemoryUsed = row(Def{Entity: Instance, Tier: Fast, Max: maxBytes, Name: "vigil_mig_memory_used_bytes",
		NVML: "nvmlDeviceGetMemoryInfo_v2.used", Raw: "B", DCGM: MemoryUsed.DCGM, Help: "Device memory in use on the instance."})
	MIGMemoryFree = row(Def{Entity: Instance, Tier: Fast, Max: maxBytes, Name: "vigil_mig_memory_free_bytes",
		NVML: "nvmlDeviceGetMemoryInfo_v2.free", Raw: "B", DCGM: MemoryFree.DCGM, Help: "Device memory of the instance that can still be allocated."})
	MIGMemoryReserved = row(Def{Entity: Instance, Tier: Fast, Max: maxBytes, Detail: true, Name: "vigil_mig_memory_reserved_bytes",
		NVML: "nvmlDeviceGetMemoryInfo_v2.reserved", Raw: "B", DCGM: MemoryReserved.DCGM, Help: "Device memory of the instance that the driver keeps for itself."})
	MIGProcesses = row(Def{Entity: Instance, Tier: Processes, Max: 1e6, Name: "vigil_mig_processes",
		NVML: "nvmlDeviceGetComputeRunningProcesses", Raw: "count", Help: "Processes with a context open on the instance."})

	MIGGraphicsActivity = row(Def{Entity: Instance, Tier: Fast, Max: 1, Name: "vigil_mig_engine_active_ratio",
		NVML: "gpm/1", Raw: "%", Scale: percent, DCGM: GraphicsActivity.DCGM,
		Help: "Share of time in which the instance's compute engine was active." + gpm})
	MIGSMActivity = row(Def{Entity: Instance, Tier: Fast, Max: 1, Name: "vigil_mig_sm_active_ratio",
		NVML: "gpm/2", Raw: "%", Scale: percent, DCGM: SMActivity.DCGM,
		Help: "Share of the instance's SMs that had at least one warp, averaged over time." + gpm})
	MIGSMOccupancy = row(Def{Entity: Instance, Tier: Fast, Max: 1, Name: "vigil_mig_sm_occupancy_ratio",
		NVML: "gpm/3", Raw: "%", Scale: percent, DCGM: SMOccupancy.DCGM,
		Help: "Resident warps as a share of the most that the instance's SMs can hold." + gpm})
	MIGTensorActivity = row(Def{Entity: Instance, Tier: Fast, Max: 1, Name: "vigil_mig_tensor_active_ratio",
		NVML: "gpm/5", Raw: "%", Scale: percent, DCGM: TensorActivity.DCGM,
		Help: "Share of cycles in which the instance's tensor cores were busy." + gpm})
	MIGDRAMActivity = row(Def{Entity: Instance, Tier: Fast, Max: 1, Name: "vigil_mig_memory_bandwidth_ratio",
		NVML: "gpm/10", Raw: "%", Scale: percent, DCGM: DRAMActivity.DCGM,
		Help: "Bandwidth of the instance's device memory in use as a share of what it can do." + gpm})
)
