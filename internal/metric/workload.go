package metric

// The closed dimensions of what a workload moves and uses.
var (
	RemoteRange = &Dimension{Label: "range", Values: []string{"private", "public"}}
	MemoryKind  = &Dimension{Label: "kind", Values: []string{"anon", "shmem"}}
	PSIOfCgroup = &Dimension{Label: "resource", Values: []string{"cpu", "memory", "io"}}
)

// WorkloadFact are the facts that a caveat can be about.
var WorkloadFact = []string{"block", "network", "remotes", "network_file", "gpu", "cpu", "memory", "open_files"}

// CaveatReason is why a fact of a workload is absent or not the whole of it.
var CaveatReason = []string{
	"no_cgroup", "shared_cgroup", "no_controller", "processes_only", "network_file_systems",
	"host_network", "shared_network", "not_enabled", "host_mounts", "shared_mounts", "shared_gpu", "denied", "malformed", "too_large", "unreadable",
}

// floor is what all counters of a workload have in common; docs/movement.md says more.
const floor = " A floor, from 0 when the agent first sees the owner."

// Rows of what an owner's processes on the node move and use.
var (
	WorkloadBlockBytes = row(Def{Entity: Workload, Kind: Counter, Tier: Slow, Name: "vigil_workload_block_bytes_total", Dim: IODirection,
		Help: "Bytes that the owner's own control group moved to and from block devices, its processes without a GPU among them. Network file systems are not in it." + floor})
	WorkloadNetworkBytes = row(Def{Entity: Workload, Kind: Counter, Tier: Slow, Name: "vigil_workload_network_bytes_total", Dim: Direction,
		Help: "Bytes over the interfaces of the owner's own network namespaces, without loopback. RDMA passes it by. Absent for an owner in the host's namespace." + floor})
	WorkloadNetworkFileBytes = row(Def{Entity: Workload, Kind: Counter, Tier: Slow, Name: "vigil_workload_network_file_bytes_total", Dim: IODirection,
		Help: "Bytes that the owner's NFS mounts moved to and from their servers, where this user may read it." + floor})
	WorkloadRemotes = row(Def{Entity: Workload, Tier: Slow, Max: 1e6, Name: "vigil_workload_remote_addresses", Dim: RemoteRange,
		Help: "Distinct remote addresses that the owner's own network namespaces hold TCP connections to. private is RFC 1918, unique local, shared (100.64.0.0/10) and link-local; loopback and the namespace's own addresses do not count."})
	WorkloadPCIeBytes = row(Def{Entity: Workload, Kind: Counter, Tier: Slow, Name: "vigil_workload_pcie_bytes_total", Dim: Direction,
		Help: "PCIe traffic of the GPUs that nobody but the owner used, as the GPUs see it." + floor})
	WorkloadNVLinkBytes = row(Def{Entity: Workload, Kind: Counter, Tier: Slow, Name: "vigil_workload_nvlink_bytes_total", Dim: Direction,
		Help: "NVLink traffic of the GPUs that nobody but the owner used." + floor})

	WorkloadCPUSeconds = row(Def{Entity: Workload, Kind: Counter, Tier: Slow, Name: "vigil_workload_cpu_seconds_total",
		Help: "CPU time of the owner's control group." + floor})
	WorkloadCPUThrottled = row(Def{Entity: Workload, Kind: Counter, Tier: Slow, Name: "vigil_workload_cpu_throttled_seconds_total",
		Help: "Time for which the owner's GPU processes, or groups around them up to the owner's, were kept off the CPU by their quota." + floor})
	WorkloadMemory = row(Def{Entity: Workload, Tier: Slow, Max: maxBytes, Name: "vigil_workload_memory_bytes", Dim: MemoryKind,
		Help: "Memory of the owner's control group that cannot be taken back without swap: anon and shmem. The page cache is not in it, so that growth is a leak and not a file that was read."})
	WorkloadCPULimit = row(Def{Entity: Workload, Tier: Slow, Max: 1e5, Detail: true, Name: "vigil_workload_cpu_limit_cpus",
		Help: "CPUs that the tightest quota lets the owner's GPU processes use; absent without one."})
	WorkloadMemoryLimit = row(Def{Entity: Workload, Tier: Slow, Max: maxBytes, Detail: true, Name: "vigil_workload_memory_limit_bytes",
		Help: "Memory that the tightest limit lets the owner's GPU processes use; absent without one."})
	WorkloadOpenFiles = row(Def{Entity: Workload, Tier: Slow, Max: 1e9, Detail: true, Name: "vigil_workload_open_files",
		Help: "Open files of that GPU process of the owner which has come nearest to its limit: files, sockets, pipes, devices."})
	WorkloadOpenFilesLimit = row(Def{Entity: Workload, Tier: Slow, Max: maxBytes, Detail: true, Name: "vigil_workload_open_files_limit",
		Help: "Files that the same process may have open (its soft limit); absent without one."})
	WorkloadOOMKills = row(Def{Entity: Workload, Kind: Counter, Tier: Slow, Detail: true, Name: "vigil_workload_oom_kills_total",
		Help: "Processes of the owner that the kernel killed because a limit of memory was reached." + floor})
	WorkloadPressure = row(Def{Entity: Workload, Kind: Counter, Tier: Slow, Detail: true, Name: "vigil_workload_pressure_waiting_seconds_total", Dim: PSIOfCgroup,
		Help: "Time in which at least one task of the owner waited for the resource (PSI some)." + floor})

	WorkloadCaveat = row(Def{Entity: Workload, Kind: Info, Tier: Slow, Name: "vigil_workload_caveat_info", Labels: []string{"fact", "reason"},
		Help: "A fact of the owner that is absent or not the whole of it, and why; always 1. docs/movement.md has the reasons."})

	MovementErrors = row(Def{Entity: Agent, Kind: Counter, Name: "vigil_movement_errors_total", Labels: []string{"file", "reason"},
		Help: "Files of processes and control groups that could not be read, by reason: denied, malformed, too_large, unreadable. A process that has gone is no error."})
)
