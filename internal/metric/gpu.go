package metric

const (
	percent    = 0.01
	milli      = 1e-3
	mebi       = 1 << 20
	mega       = 1e6
	kilo       = 1e3
	maxBytes   = 1 << 50
	maxHertz   = 1e11
	maxCelsius = 200 // drivers have reported higher ones; none was a temperature
	maxWatts   = 20e3
)

// The closed dimensions of GPU rows.
var (
	Clocks    = &Dimension{Label: "clock", Values: []string{"graphics", "sm", "memory", "video"}}
	Direction = &Dimension{Label: "direction", Values: []string{"receive", "transmit"}}
	ECCType   = &Dimension{Label: "type", Values: []string{"corrected", "uncorrected"}}

	// ClockReason lists NVML's clock event reasons in the order of their bits.
	ClockReason = &Dimension{Label: "reason", Values: []string{
		"idle", "application_clocks", "sw_power_cap", "hw_slowdown", "sync_boost",
		"sw_thermal", "hw_thermal", "hw_power_brake", "display_clocks",
	}}
)

// Rows that describe a whole GPU.
var (
	GPUInfo = row(Def{Entity: GPU, Kind: Info, Tier: Inventory, Name: "vigil_gpu_info",
		Labels: []string{"model", "pci_bus_id", "serial", "vbios", "architecture"},
		Help:   "Identity of a GPU; always 1. Join on uuid."})
	GPUPresent = row(Def{Entity: GPU, Tier: Fast, Max: 1, Name: "vigil_gpu_present",
		Help: "1 while the driver answers for the GPU, 0 for a GPU that was seen since the agent started and does not answer or is lost."})
	GPUHung = row(Def{Entity: GPU, Tier: Fast, Max: 1, Name: "vigil_gpu_hung",
		Help: "1 while a driver call on the GPU has not returned within its limit; the GPU's other values go stale and then absent."})
	GPUSampleAge = row(Def{Entity: GPU, Tier: Fast, Name: "vigil_gpu_sample_age_seconds",
		Help: "Age of the GPU's newest fast reading at the last snapshot."})

	Utilization = row(Def{Entity: GPU, Tier: Fast, Max: 1, Name: "vigil_gpu_utilization_ratio",
		NVML: "nvmlDeviceGetUtilizationRates.gpu", Raw: "%", Scale: percent, DCGM: []string{"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO"},
		Help: "Share of the last sample period in which at least one kernel ran. Says nothing of how full the GPU was."})
	MemoryUtilization = row(Def{Entity: GPU, Tier: Fast, Max: 1, Name: "vigil_gpu_memory_utilization_ratio",
		NVML: "nvmlDeviceGetUtilizationRates.memory", Raw: "%", Scale: percent, DCGM: []string{"DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_DEV_MEMORY_UTIL_RATIO"},
		Help: "Share of the last sample period in which device memory was read or written: controller busy time, not memory in use."})
	EncoderUtilization = row(Def{Entity: GPU, Tier: Fast, Max: 1, Name: "vigil_gpu_encoder_utilization_ratio",
		NVML: "nvmlDeviceGetEncoderUtilization", Raw: "%", Scale: percent, DCGM: []string{"DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_ENC_UTIL_RATIO"},
		Help: "Share of time in which the video encoder was busy."})
	DecoderUtilization = row(Def{Entity: GPU, Tier: Fast, Max: 1, Name: "vigil_gpu_decoder_utilization_ratio",
		NVML: "nvmlDeviceGetDecoderUtilization", Raw: "%", Scale: percent, DCGM: []string{"DCGM_FI_DEV_DEC_UTIL", "DCGM_FI_DEV_DEC_UTIL_RATIO"},
		Help: "Share of time in which the video decoder was busy."})

	MemoryCapacity = row(Def{Entity: GPU, Tier: Fast, Max: maxBytes, Name: "vigil_gpu_memory_capacity_bytes",
		NVML: "nvmlDeviceGetMemoryInfo_v2.total", Raw: "B",
		Help: "Device memory of the GPU."})
	MemoryUsed = row(Def{Entity: GPU, Tier: Fast, Max: maxBytes, Name: "vigil_gpu_memory_used_bytes",
		NVML: "nvmlDeviceGetMemoryInfo_v2.used", Raw: "B", DCGM: []string{"DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_USED_BYTES"},
		Help: "Device memory in use by processes, without what the driver reserves."})
	MemoryFree = row(Def{Entity: GPU, Tier: Fast, Max: maxBytes, Name: "vigil_gpu_memory_free_bytes",
		NVML: "nvmlDeviceGetMemoryInfo_v2.free", Raw: "B", DCGM: []string{"DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_FREE_BYTES"},
		Help: "Device memory that can still be allocated."})
	MemoryReserved = row(Def{Entity: GPU, Tier: Fast, Max: maxBytes, Name: "vigil_gpu_memory_reserved_bytes",
		NVML: "nvmlDeviceGetMemoryInfo_v2.reserved", Raw: "B", DCGM: []string{"DCGM_FI_DEV_FB_RESERVED", "DCGM_FI_DEV_FB_RESERVED_BYTES"},
		Help: "Device memory that the driver keeps for itself."})

	PowerDraw = row(Def{Entity: GPU, Tier: Fast, Max: maxWatts, Name: "vigil_gpu_power_draw_watts",
		NVML: "nvmlDeviceGetPowerUsage", Raw: "mW", Scale: milli, DCGM: []string{"DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS"},
		Help: "Power draw of the board; an average over one second on most parts since Ampere."})
	Energy = row(Def{Entity: GPU, Kind: Counter, Tier: Fast, Name: "vigil_gpu_energy_joules_total",
		NVML: "nvmlDeviceGetTotalEnergyConsumption", Raw: "mJ", Scale: milli, DCGM: []string{"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL"},
		Help: "Energy used since the driver was loaded."})
	PowerLimit = row(Def{Entity: GPU, Tier: Inventory, Max: maxWatts, Name: "vigil_gpu_power_limit_watts",
		NVML: "nvmlDeviceGetEnforcedPowerLimit", Raw: "mW", Scale: milli, DCGM: []string{"DCGM_FI_DEV_ENFORCED_POWER_LIMIT"},
		Help: "Power limit that the driver enforces."})
	PowerDefaultLimit = row(Def{Entity: GPU, Tier: Inventory, Max: maxWatts, Name: "vigil_gpu_power_default_limit_watts",
		NVML: "nvmlDeviceGetPowerManagementDefaultLimit", Raw: "mW", Scale: milli,
		Help: "Power limit that the board ships with."})

	Temperature = row(Def{Entity: GPU, Tier: Fast, Min: -50, Max: maxCelsius, Name: "vigil_gpu_temperature_celsius",
		NVML: "nvmlDeviceGetTemperature/GPU", Raw: "°C", DCGM: []string{"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS"},
		Help: "Temperature of the GPU core."})
	MemoryTemperature = row(Def{Entity: GPU, Tier: Fast, Min: -50, Max: maxCelsius, Name: "vigil_gpu_memory_temperature_celsius",
		NVML: "field/82", Raw: "°C", DCGM: []string{"DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS"},
		Help: "Temperature of the device memory."})
	FanSpeed = row(Def{Entity: GPU, Tier: Slow, Max: 2, Name: "vigil_gpu_fan_speed_ratio",
		NVML: "nvmlDeviceGetFanSpeed", Raw: "%", Scale: percent,
		Help: "Intended fan speed as a share of the maximum; may exceed 1."})

	Clock = row(Def{Entity: GPU, Tier: Fast, Max: maxHertz, Name: "vigil_gpu_clock_hertz", Dim: Clocks,
		NVML: "nvmlDeviceGetClockInfo/{GRAPHICS,SM,MEM,VIDEO}", Raw: "MHz", Scale: mega,
		DCGM: []string{"DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_SM_CLOCK_HERTZ", "DCGM_FI_DEV_MEM_CLOCK", "DCGM_FI_DEV_MEMORY_CLOCK_HERTZ"},
		Help: "Clock now."})
	MaxClock = row(Def{Entity: GPU, Tier: Inventory, Max: maxHertz, Name: "vigil_gpu_clock_max_hertz", Dim: Clocks,
		NVML: "nvmlDeviceGetMaxClockInfo/{GRAPHICS,SM,MEM,VIDEO}", Raw: "MHz", Scale: mega,
		Help: "Highest clock that the board supports."})
	ClockEvent = row(Def{Entity: GPU, Tier: Fast, Max: 1, Name: "vigil_gpu_clock_event_active", Dim: ClockReason,
		NVML: "nvmlDeviceGetCurrentClocksEventReasons", Raw: "bit",
		Help: "1 while the reason holds the clocks down. sw_power_cap at high power is normal."})
	PerformanceState = row(Def{Entity: GPU, Tier: Fast, Max: 15, Name: "vigil_gpu_performance_state",
		NVML: "nvmlDeviceGetPerformanceState", Raw: "P-state", DCGM: []string{"DCGM_FI_DEV_PSTATE"},
		Help: "Performance state: 0 is the fastest, 15 the slowest."})

	PCIeReplays = row(Def{Entity: GPU, Kind: Counter, Tier: Slow, Name: "vigil_gpu_pcie_replays_total",
		NVML: "nvmlDeviceGetPcieReplayCounter", Raw: "count", DCGM: []string{"DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "DCGM_FI_DEV_PCIE_REPLAY_TOTAL"},
		Help: "PCIe packets sent again."})
	PCIeThroughput = row(Def{Entity: GPU, Tier: Slow, Max: 1e12, Name: "vigil_gpu_pcie_throughput_bytes_per_second", Dim: Direction,
		NVML: "nvmlDeviceGetPcieThroughput/{RX,TX}", Raw: "KB/s", Scale: kilo,
		Help: "PCIe traffic over a window of 20 ms, seen from the GPU: a sample, not a mean. Each direction blocks the driver for 20 ms."})
	PCIeGeneration = row(Def{Entity: GPU, Tier: Slow, Min: 1, Max: 10, Name: "vigil_gpu_pcie_link_generation",
		NVML: "nvmlDeviceGetCurrPcieLinkGeneration", Raw: "generation",
		Help: "PCIe generation of the link now; idle links step down."})
	PCIeWidth = row(Def{Entity: GPU, Tier: Slow, Min: 1, Max: 32, Name: "vigil_gpu_pcie_link_width_lanes",
		NVML: "nvmlDeviceGetCurrPcieLinkWidth", Raw: "lanes",
		Help: "PCIe lanes of the link now."})
	PCIeMaxGeneration = row(Def{Entity: GPU, Tier: Inventory, Min: 1, Max: 10, Name: "vigil_gpu_pcie_link_max_generation",
		NVML: "nvmlDeviceGetMaxPcieLinkGeneration", Raw: "generation",
		Help: "Highest PCIe generation that GPU and slot can do together."})
	PCIeMaxWidth = row(Def{Entity: GPU, Tier: Inventory, Min: 1, Max: 32, Name: "vigil_gpu_pcie_link_max_width_lanes",
		NVML: "nvmlDeviceGetMaxPcieLinkWidth", Raw: "lanes",
		Help: "Most PCIe lanes that GPU and slot can do together."})

	ECCErrors = row(Def{Entity: GPU, Kind: Counter, Tier: Slow, Name: "vigil_gpu_ecc_errors_total", Dim: ECCType,
		NVML: "nvmlDeviceGetTotalEccErrors/{CORRECTED,UNCORRECTED}/VOLATILE", Raw: "count", DCGM: []string{"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"},
		Help: "Memory errors since the driver was loaded."})
	ECCLifetimeErrors = row(Def{Entity: GPU, Kind: Counter, Tier: Slow, Name: "vigil_gpu_ecc_lifetime_errors_total", Dim: ECCType,
		NVML: "nvmlDeviceGetTotalEccErrors/{CORRECTED,UNCORRECTED}/AGGREGATE", Raw: "count", DCGM: []string{"DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL"},
		Help: "Memory errors in the life of the board."})

	ProcessCount = row(Def{Entity: GPU, Tier: Processes, Max: 1e6, Name: "vigil_gpu_processes",
		NVML: "nvmlDeviceGetComputeRunningProcesses", Raw: "count",
		Help: "Processes with a context open on the GPU."})
	ProcessMemory = row(Def{Entity: GPU, Tier: Processes, Max: maxBytes, Name: "vigil_gpu_process_memory_bytes",
		NVML: "nvmlDeviceGetComputeRunningProcesses.usedGpuMemory", Raw: "B",
		Help: "Device memory of all processes that the driver lists."})

	GPUUnsupported = row(Def{Entity: GPU, Tier: Inventory, Kind: Gauge, Name: "vigil_gpu_unsupported", Labels: []string{"metric"},
		Help: "1 for each metric that this GPU or driver does not support; the metric itself is absent. Asked again from time to time."})
	GPUDropped = row(Def{Entity: GPU, Kind: Counter, Tier: Fast, Name: "vigil_gpu_dropped_values_total", Labels: []string{"metric"},
		Help: "Values that the driver returned and that cannot be: sentinels, or outside of the metric's physical range."})

	OwnerShare = row(Def{Entity: GPU, Tier: Processes, Max: 1, Name: "vigil_owner_gpu_share_ratio", Labels: []string{"owner_kind", "owner", "team"},
		Help: "The owner's share of the device memory that processes hold on the GPU; equal shares while no process holds any. Several owners may share a GPU: join on uuid with this on the many side."})
)

// Rows that describe a MIG instance.
var (
	MIGInfo = row(Def{Entity: Instance, Kind: Info, Tier: Inventory, Name: "vigil_mig_info",
		Labels: []string{"mig_uuid"},
		Help:   "Identity of a MIG instance; always 1. uuid is the whole GPU's."})
	MIGMemoryCapacity = row(Def{Entity: Instance, Tier: Fast, Max: maxBytes, Name: "vigil_mig_memory_capacity_bytes",
		NVML: "nvmlDeviceGetMemoryInfo_v2.total", Raw: "B", Help: "Device memory of the instance."})
	MIGMemoryUsed = row(Def{Entity: Instance, Tier: Fast, Max: maxBytes, Name: "vigil_mig_memory_used_bytes",
		NVML: "nvmlDeviceGetMemoryInfo_v2.used", Raw: "B", Help: "Device memory in use on the instance."})
	MIGMemoryFree = row(Def{Entity: Instance, Tier: Fast, Max: maxBytes, Name: "vigil_mig_memory_free_bytes",
		NVML: "nvmlDeviceGetMemoryInfo_v2.free", Raw: "B", Help: "Device memory of the instance that can still be allocated."})
	MIGProcesses = row(Def{Entity: Instance, Tier: Processes, Max: 1e6, Name: "vigil_mig_processes",
		NVML: "nvmlDeviceGetComputeRunningProcesses", Raw: "count", Help: "Processes with a context open on the instance."})
)

// Rows that describe one process on one GPU. They are no series by default; the
// detectors and the page read them.
var (
	ProcessMemoryUsed = row(Def{Entity: Process, Tier: Processes, Max: maxBytes, Name: "vigil_process_memory_used_bytes",
		NVML: "nvmlDeviceGetComputeRunningProcesses.usedGpuMemory", Raw: "B", Help: "Device memory of the process."})
	ProcessUtilization = row(Def{Entity: Process, Tier: Processes, Max: 1, Name: "vigil_process_utilization_ratio",
		NVML: "nvmlDeviceGetProcessUtilization.smUtil", Raw: "%", Scale: percent, Help: "Share of time in which the process used the GPU's SMs."})
)

// Rows of one Xid code on one GPU.
var (
	XidErrors = row(Def{Entity: Xid, Kind: Counter, Tier: Fast, Name: "vigil_gpu_xid_errors_total",
		NVML: "nvmlEventTypeXidCriticalError", Raw: "event", Help: "Xid errors by code since the node booted, as far as an agent was told by the driver or the kernel log; one that both tell of counts once. The driver leaves lines out when there are many: the count is a floor."})
	XidLast = row(Def{Entity: Xid, Tier: Fast, Name: "vigil_gpu_xid_last_timestamp_seconds",
		Help: "Unix time of the last Xid error with this code."})
)
