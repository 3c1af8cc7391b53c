package metric

// The closed dimensions of node rows.
var (
	CPUMode      = &Dimension{Label: "mode", Values: []string{"user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"}}
	PSIResource  = &Dimension{Label: "resource", Values: []string{"cpu", "memory", "io", "irq"}}
	IODirection  = &Dimension{Label: "direction", Values: []string{"read", "write"}}
	LoadWindow   = &Dimension{Label: "window", Values: []string{"1m", "5m", "15m"}}
	PCIDriver    = &Dimension{Label: "driver", Values: []string{"nvidia", "vfio", "other", "none"}}
	VersionParts = &Dimension{Label: "component", Values: []string{"driver", "cuda", "nvml", "kernel", "vbios", "gsp", "inforom", "kernel_module", "driver_library",
		"containerd", "docker", "crio", "kubelet", "container_toolkit", "fabric_manager", "ofed", "hca_firmware", "bios"}}
)

// Rows that describe the node.
var (
	NodeInfo = row(Def{Entity: Node, Kind: Info, Tier: Inventory, Name: "vigil_node_info",
		Labels: []string{"node", "simulated"},
		Help:   "The node that this agent speaks for; always 1. simulated is true when the numbers come from gpuvigil demo or a recording."})
	VersionInfo = row(Def{Entity: Node, Kind: Info, Tier: Inventory, Name: "vigil_node_version_info",
		Labels: []string{"component", "version"},
		Help:   "Version of a component on the node; always 1."})
	VersionChanges = row(Def{Entity: Node, Kind: Counter, Tier: Inventory, Name: "vigil_node_version_changes_total", Dim: VersionParts,
		Help: "How often the component's version has changed since the agent's state began."})

	GPUsExpected = row(Def{Entity: Node, Tier: Inventory, Max: 1024, Name: "vigil_node_gpus_expected",
		Help: "GPUs that the agent has seen since the node booted."})
	GPUsSeen = row(Def{Entity: Node, Tier: Fast, Max: 1024, Name: "vigil_node_gpus",
		NVML: "nvmlDeviceGetCount_v2", Raw: "count", Help: "GPUs that the driver lists now."})

	PCIGPUs = row(Def{Entity: Node, Tier: Inventory, Max: 1024, Name: "vigil_node_pci_gpus", Dim: PCIDriver,
		Help: "NVIDIA GPUs on the PCI bus as the kernel sees it, by the driver that has them: vfio passes them on to a virtual machine, none is no driver at all."})

	ConfidentialComputing = row(Def{Entity: Node, Tier: Inventory, Max: 1, Name: "vigil_node_confidential_computing",
		NVML: "nvmlSystemGetConfComputeState.ccFeature", Raw: "0/1", Help: "1 if the GPUs run in confidential-computing mode."})

	CPUSeconds = row(Def{Entity: Node, Kind: Counter, Tier: Fast, Name: "vigil_node_cpu_seconds_total", Dim: CPUMode,
		Help: "Time of all CPUs by mode."})
	CPUBusy = row(Def{Entity: Node, Tier: Fast, Max: 1, Name: "vigil_node_cpu_busy_ratio",
		Help: "Share of all CPUs' time since the last sample that was neither idle nor waiting for I/O."})
	CPUBusiest = row(Def{Entity: Node, Tier: Fast, Max: 1, Name: "vigil_node_cpu_busiest_core_ratio",
		Help: "The same share for the busiest single core: one pegged core is not an idle CPU."})
	CPUCount = row(Def{Entity: Node, Tier: Inventory, Max: 1e5, Name: "vigil_node_cpus",
		Help: "CPUs that are online."})
	Load = row(Def{Entity: Node, Tier: Fast, Max: 1e6, Name: "vigil_node_load", Dim: LoadWindow,
		Help: "Load average."})

	HostMemoryCapacity = row(Def{Entity: Node, Tier: Fast, Max: maxBytes, Name: "vigil_node_memory_capacity_bytes",
		Help: "Memory of the host."})
	HostMemoryAvailable = row(Def{Entity: Node, Tier: Fast, Max: maxBytes, Name: "vigil_node_memory_available_bytes",
		Help: "Memory of the host that could be given to new work without swapping, as the kernel estimates it."})
	HostSwapUsed = row(Def{Entity: Node, Tier: Fast, Max: maxBytes, Name: "vigil_node_swap_used_bytes",
		Help: "Swap in use."})

	PressureSome = row(Def{Entity: Node, Kind: Counter, Tier: Fast, Name: "vigil_node_pressure_waiting_seconds_total", Dim: PSIResource,
		Help: "Time in which at least one task waited for the resource (PSI some). The kernel does not tell it of irq."})
	PressureFull = row(Def{Entity: Node, Kind: Counter, Tier: Fast, Name: "vigil_node_pressure_stalled_seconds_total", Dim: PSIResource,
		Help: "Time in which all tasks waited for the resource at once (PSI full). irq is time that interrupts took from tasks, on newer kernels."})

	DiskBytes = row(Def{Entity: Node, Kind: Counter, Tier: Fast, Name: "vigil_node_disk_bytes_total", Dim: IODirection,
		Help: "Bytes that whole block devices moved; network file systems are not in it."})
	DiskIOTime = row(Def{Entity: Node, Kind: Counter, Tier: Fast, Name: "vigil_node_disk_io_seconds_total",
		Help: "Time in which whole block devices had requests in flight, summed over devices."})
	NetworkBytes = row(Def{Entity: Node, Kind: Counter, Tier: Fast, Name: "vigil_node_network_bytes_total", Dim: Direction,
		Help: "Bytes that the node's physical network interfaces moved."})
)
