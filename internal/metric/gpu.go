package metric

const (
	percent    = 0.01
	milli      = 1e-3
	micro      = 1e-6
	nano       = 1e-9
	kibi       = 1 << 10
	mebi       = 1 << 20
	mega       = 1e6
	kilo       = 1e3
	maxBytes   = 1 << 50
	maxHertz   = 1e11
	maxCelsius = 200 // drivers have reported higher ones; none was a temperature
	maxWatts   = 20e3
)

// The closed dimensions of whole GPUs.
var (
	Direction = &Dimension{Label: "direction", Values: []string{"receive", "transmit"}}

	// ModeState tells a setting from what it will be after the next reset.
	ModeState = &Dimension{Label: "state", Values: []string{"current", "pending"}}

	// GSPState tells what is from what the board would do by itself.
	GSPState = &Dimension{Label: "state", Values: []string{"current", "default"}}

	// Engine is what a process uses of a GPU.
	Engine = &Dimension{Label: "engine", Values: []string{"sm", "memory", "encoder", "decoder"}}
)

// Rows that describe a whole GPU.
var (
	GPUInfo = row(Def{Entity: GPU, Kind: Info, Tier: Inventory, Name: "vigil_gpu_info",
		Labels: []string{"model", "pci_bus_id", "serial", "vbios", "architecture", "compute_capability", "cpus", "numa_nodes"},
		Help: "Identity of a GPU and its place in the node; always 1. Join on uuid. cpus are those that are nearest to it, as a list (0-31,64-95) " +
			"or, where that would be long, as a mask (0x5555); numa_nodes those of the nearest memory. Empty where the driver does not tell."})
	GPUTopology = row(Def{Entity: GPU, Kind: Info, Tier: Inventory, Detail: true, Name: "vigil_gpu_topology_info",
		Labels: []string{"peer", "level"},
		Help: "What a pair of GPUs has in common on the way between them; always 1, and once for each pair. peer is the other one's uuid, level one of internal " +
			"(one board), single (one PCIe switch, PIX in nvidia-smi topo), multiple (several, PXB), hostbridge (PHB), node (NODE), system (SYS)."})
	GPUPresent = row(Def{Entity: GPU, Tier: Fast, Max: 1, Name: "vigil_gpu_present",
		Help: "1 while the driver answers for the GPU, 0 for a GPU that was seen since the agent started and does not answer or is lost."})
	GPUHung = row(Def{Entity: GPU, Tier: Fast, Max: 1, Name: "vigil_gpu_hung",
		Help: "1 while a driver call on the GPU has not returned within its limit; the GPU's other values go stale and then absent."})
	GPUVerdict = row(Def{Entity: GPU, Kind: Info, Tier: Fast, Name: "vigil_gpu_verdict_info", Labels: []string{"verdict"},
		Help: "What holds the GPU, or what it waits for; always 1, and one verdict for each GPU. docs/verdicts.md says what each means and what it is made of."})
	GPUSampleAge = row(Def{Entity: GPU, Tier: Fast, Name: "vigil_gpu_sample_age_seconds",
		Help: "Age of the GPU's newest fast reading at the last snapshot."})

	MemoryCapacity = row(Def{Entity: GPU, Tier: Fast, Max: maxBytes, Name: "vigil_gpu_memory_capacity_bytes",
		NVML: "nvmlDeviceGetMemoryInfo_v2.total", Raw: "B",
		DCGM: renamed(Gauge, 0, 1.0/mebi, "DCGM_FI_DEV_FB_TOTAL", "DCGM_FI_DEV_FB_CAPACITY_BYTES"),
		Help: "Device memory of the GPU."})
	MemoryUsed = row(Def{Entity: GPU, Tier: Fast, Max: maxBytes, Name: "vigil_gpu_memory_used_bytes",
		NVML: "nvmlDeviceGetMemoryInfo_v2.used", Raw: "B",
		DCGM: renamed(Gauge, 0, 1.0/mebi, "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_USED_BYTES"),
		Help: "Device memory in use by processes, without what the driver reserves; before R510 with it."})
	MemoryFree = row(Def{Entity: GPU, Tier: Fast, Max: maxBytes, Name: "vigil_gpu_memory_free_bytes",
		NVML: "nvmlDeviceGetMemoryInfo_v2.free", Raw: "B",
		DCGM: renamed(Gauge, 0, 1.0/mebi, "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_FREE_BYTES"),
		Help: "Device memory that can still be allocated."})
	MemoryReserved = row(Def{Entity: GPU, Tier: Fast, Max: maxBytes, Name: "vigil_gpu_memory_reserved_bytes",
		NVML: "nvmlDeviceGetMemoryInfo_v2.reserved", Raw: "B",
		DCGM: renamed(Gauge, 0, 1.0/mebi, "DCGM_FI_DEV_FB_RESERVED", "DCGM_FI_DEV_FB_RESERVED_BYTES"),
		Help: "Device memory that the driver keeps for itself."})
	ProtectedCapacity = row(Def{Entity: GPU, Tier: Slow, Max: maxBytes, Detail: true, Name: "vigil_gpu_protected_memory_capacity_bytes",
		NVML: "nvmlDeviceGetConfComputeProtectedMemoryUsage.total", Raw: "B",
		Help: "Device memory that confidential computing protects."})
	ProtectedUsed = row(Def{Entity: GPU, Tier: Slow, Max: maxBytes, Detail: true, Name: "vigil_gpu_protected_memory_used_bytes",
		NVML: "nvmlDeviceGetConfComputeProtectedMemoryUsage.used", Raw: "B",
		Help: "Part of that memory that is in use."})
	BAR1Capacity = row(Def{Entity: GPU, Tier: Slow, Max: maxBytes, Detail: true, Name: "vigil_gpu_bar1_capacity_bytes",
		NVML: "nvmlDeviceGetBAR1MemoryInfo.total", Raw: "B", DCGM: custom(Gauge, 0, 1.0/mebi, "DCGM_FI_DEV_BAR1_TOTAL"),
		Help: "Size of the window through which CPU and peers reach device memory."})
	BAR1Used = row(Def{Entity: GPU, Tier: Slow, Max: maxBytes, Detail: true, Name: "vigil_gpu_bar1_used_bytes",
		NVML: "nvmlDeviceGetBAR1MemoryInfo.used", Raw: "B", DCGM: custom(Gauge, 0, 1.0/mebi, "DCGM_FI_DEV_BAR1_USED"),
		Help: "Part of that window that is mapped."})

	ProcessCount = row(Def{Entity: GPU, Tier: Processes, Max: 1e6, Name: "vigil_gpu_processes",
		NVML: "nvmlDeviceGetComputeRunningProcesses", Raw: "count",
		Help: "Processes with a context open on the GPU."})
	ProcessMemory = row(Def{Entity: GPU, Tier: Processes, Max: maxBytes, Name: "vigil_gpu_process_memory_bytes",
		NVML: "nvmlDeviceGetComputeRunningProcesses.usedGpuMemory", Raw: "B",
		Help: "Device memory of all processes that the driver lists."})
	MPSClients = row(Def{Entity: GPU, Tier: Processes, Max: 1e6, Detail: true, Name: "vigil_gpu_mps_clients",
		Help: "Processes that share the GPU through an MPS server."})
	UnattributedUtilization = row(Def{Entity: GPU, Tier: Processes, Max: 1, Name: "vigil_gpu_unattributed_utilization_ratio", Dim: Engine,
		Help: "Use of the GPU that no listed process accounts for: the mean of the GPU's own utilization since the last list less the sum over its processes, at least 0."})
	UnattributedMemory = row(Def{Entity: GPU, Tier: Processes, Max: maxBytes, Name: "vigil_gpu_unattributed_memory_bytes",
		Help: "Device memory in use that no listed process accounts for, at least 0: contexts of the driver, of ended processes, of other containers' hidden processes."})

	GPUUnsupported = row(Def{Entity: GPU, Tier: Inventory, Kind: Gauge, Name: "vigil_gpu_unsupported", Labels: []string{"metric"},
		Help: "1 for each metric that this GPU or driver does not support; the metric itself is absent. Asked again from time to time."})
	GPUDropped = row(Def{Entity: GPU, Kind: Counter, Tier: Fast, Name: "vigil_gpu_dropped_values_total", Labels: []string{"metric"},
		Help: "Values that the driver returned and that cannot be: sentinels, or outside of the metric's physical range."})
)

// Rows of how a GPU is set up.
var (
	PersistenceMode = row(Def{Entity: GPU, Tier: Inventory, Max: 1, Name: "vigil_gpu_persistence_mode",
		NVML: "nvmlDeviceGetPersistenceMode", Raw: "0/1",
		Help: "1 if the driver stays initialized while nobody uses the GPU."})
	ComputeMode = row(Def{Entity: GPU, Tier: Inventory, Max: 3, Detail: true, Name: "vigil_gpu_compute_mode",
		NVML: "nvmlDeviceGetComputeMode", Raw: "mode",
		Help: "Who may compute: 0 many contexts, 2 nobody, 3 one process."})
	AccountingMode = row(Def{Entity: GPU, Tier: Inventory, Max: 1, Detail: true, Name: "vigil_gpu_accounting_mode",
		NVML: "nvmlDeviceGetAccountingMode", Raw: "0/1",
		Help: "1 if the driver keeps statistics of processes that have ended."})
	AccountingBuffer = row(Def{Entity: GPU, Tier: Inventory, Max: 1e9, Detail: true, Name: "vigil_gpu_accounting_buffer_processes",
		NVML: "nvmlDeviceGetAccountingBufferSize", Raw: "count",
		Help: "How many processes that have ended the driver keeps statistics of."})
	GSPMode = row(Def{Entity: GPU, Tier: Inventory, Max: 1, Detail: true, Name: "vigil_gpu_gsp_mode", Dim: GSPState,
		NVML: "nvmlDeviceGetGspFirmwareMode.{current,default}", Raw: "0/1",
		Help: "1 if the driver runs on the GPU's own processor (GSP), now or by default."})
	DisplayActive = row(Def{Entity: GPU, Tier: Inventory, Max: 1, Detail: true, Name: "vigil_gpu_display_active",
		NVML: "nvmlDeviceGetDisplayActive", Raw: "0/1",
		Help: "1 if a display is set up on the GPU, which takes device memory; none need be attached."})
	DisplayAttached = row(Def{Entity: GPU, Tier: Inventory, Max: 1, Detail: true, Name: "vigil_gpu_display_attached",
		NVML: "nvmlDeviceGetDisplayMode", Raw: "0/1",
		Help: "1 if a display is attached to the GPU."})
	NUMANode = row(Def{Entity: GPU, Tier: Inventory, Max: 4096, Detail: true, Name: "vigil_gpu_numa_node",
		NVML: "nvmlDeviceGetNumaNodeId", Raw: "node",
		Help: "NUMA node that the GPU's memory is, where it is one."})
	MIGMode = row(Def{Entity: GPU, Tier: Inventory, Max: 1, Detail: true, Name: "vigil_gpu_mig_mode", Dim: ModeState,
		Help: "1 if the GPU is, or after its next reset will be, cut into MIG instances."})
	VGPULicensed = row(Def{Entity: GPU, Tier: Inventory, Max: 1, Name: "vigil_gpu_vgpu_licensed",
		NVML: "nvmlDeviceGetGridLicensableFeatures", Raw: "0/1", DCGM: kept(Gauge, 0, 0, "DCGM_FI_DEV_VGPU_LICENSE_STATUS"),
		Help: "1 if the vGPU feature is licensed; absent where it needs no licence."})
	VGPUs = row(Def{Entity: GPU, Tier: Inventory, Max: 1024, Detail: true, Name: "vigil_gpu_vgpus",
		NVML: "nvmlDeviceGetActiveVgpus", Raw: "count",
		Help: "Virtual GPUs that run on the GPU of a vGPU host."})
)

// Rows that describe one process on one GPU. Without the
// option metrics.processes they are no series, but the
// detectors and the page read them. The shares of one GPU's processes never sum
// to more than the GPU.
var (
	ProcessMemoryUsed = row(Def{Entity: Process, Tier: Processes, Max: maxBytes, Name: "vigil_process_memory_used_bytes",
		NVML: "nvmlDeviceGetComputeRunningProcesses.usedGpuMemory", Raw: "B", Help: "Device memory of the process."})
	ProcessUtilization = row(Def{Entity: Process, Tier: Processes, Max: 1, Name: "vigil_process_utilization_ratio",
		NVML: "nvmlDeviceGetProcessUtilization.smUtil", Raw: "%", Scale: percent, Help: "Share of time in which the process used the GPU's SMs."})
	ProcessMemoryUtilization = row(Def{Entity: Process, Tier: Processes, Max: 1, Name: "vigil_process_memory_utilization_ratio",
		NVML: "nvmlDeviceGetProcessUtilization.memUtil", Raw: "%", Scale: percent, Help: "Share of time in which the process read or wrote device memory."})
	ProcessEncoder = row(Def{Entity: Process, Tier: Processes, Max: 1, Name: "vigil_process_encoder_utilization_ratio",
		NVML: "nvmlDeviceGetProcessUtilization.encUtil", Raw: "%", Scale: percent, Help: "Share of time in which the process used the video encoder."})
	ProcessDecoder = row(Def{Entity: Process, Tier: Processes, Max: 1, Name: "vigil_process_decoder_utilization_ratio",
		NVML: "nvmlDeviceGetProcessUtilization.decUtil", Raw: "%", Scale: percent, Help: "Share of time in which the process used the video decoder."})
	ProcessMPS = row(Def{Entity: Process, Tier: Processes, Max: 1, Name: "vigil_process_mps_client",
		Help: "1 if the process uses the GPU through an MPS server, whose share of the SMs then counts for all its clients."})
)

// Rows of one Xid code on one GPU.
var (
	XidErrors = row(Def{Entity: Xid, Kind: Counter, Tier: Fast, Name: "vigil_gpu_xid_errors_total",
		NVML: "nvmlEventTypeXidCriticalError", Raw: "event",
		DCGM: renamed(Gauge, 0, 0, "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR"),
		Help: "Xid errors by code since the node booted, as far as an agent was told by the driver or the kernel log; one that both tell of counts once. The driver leaves lines out when there are many: the count is a floor."})
	XidLast = row(Def{Entity: Xid, Tier: Fast, Name: "vigil_gpu_xid_last_timestamp_seconds",
		Help: "Unix time of the last Xid error with this code."})
)
