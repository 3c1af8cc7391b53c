package metric

// GPUState is what a GPU is to the one who pays for it, each from evidence of its
// own: busy does work; idle_held has a context open and does none;
// held_without_process was given to somebody and has no context; free was given to
// nobody and has none; unavailable is faulted or drained; unobserved is time of
// which the agent has no fresh reading.
var GPUState = &Dimension{Label: "state", Values: []string{"busy", "idle_held", "held_without_process", "free", "unavailable", "unobserved"}}

// Stages are the stages of work that a workload can be in.
var Stages = []string{"data_preparation", "training", "fine_tuning", "evaluation", "inference", "notebook"}

// Unattributed is the owner of what nobody is known to own, as labels spell it: an
// owner like any other, so that sums match.
const Unattributed = "unattributed"

// OtherOwners is the owner, and its kind, of what those have together who are too many
// to be told apart.
const OtherOwners = "other"

// ShareOf is what an owner's share of a GPU is measured by.
var ShareOf = &Dimension{Label: "of", Values: []string{"memory", "sm"}}

// Rows that say whose GPUs are.
var (
	OwnerShare = row(Def{Entity: GPU, Tier: Processes, Max: 1, Name: "vigil_owner_gpu_share_ratio", Dim: ShareOf, Labels: []string{"owner_kind", "owner", "team"},
		Help: "The owner's share of what is used of the GPU, of its memory and of its SMs' time; unattributed is what no known owner accounts for. The shares of a GPU sum to 1; there is none of what nobody uses. Several owners may share a GPU: join on uuid with this on the many side."})
	AllocationInfo = row(Def{Entity: GPU, Kind: Info, Tier: Slow, Name: "vigil_gpu_allocation_info",
		Labels: []string{"mig", "owner_kind", "owner", "team", "container", "resource", "source"},
		Help:   "Who was given the GPU, a MIG instance of it (mig is then GI/CI) or a share, as source (kubelet, slurm, dcgm-exporter) says; always 1. Who uses it is vigil_owner_gpu_share_ratio: the two may differ."})
	OwnerInfo = row(Def{Entity: Workload, Kind: Info, Tier: Slow, Name: "vigil_owner_info",
		Labels: []string{"cost_center", "sensitivity", "stage", "critical"},
		Help:   "An owner of what runs on the node's GPUs or was given one, with what the configuration says of it; always 1."})
	OwnerLabel = row(Def{Entity: Workload, Kind: Info, Tier: Slow, Name: "vigil_owner_label_info", Labels: []string{"label", "value"},
		Help: "A label of the owner's pod, of those that kubernetes.pod_labels names; always 1. Join on owner_kind and owner with one label chosen."})

	OwnerReadFailures = row(Def{Entity: Agent, Kind: Counter, Sparse: true, Name: "vigil_owner_process_read_failures_total", Labels: []string{"reason"},
		Help: "Looks at a process on a GPU that did not tell whose it is, by reason: vanished (it ended), reused (its pid is another's), denied, invalid. The process counts as unattributed."})
	KubeletAge = row(Def{Entity: Node, Tier: Fast, Name: "vigil_kubelet_answer_age_seconds",
		Help: "Age of the kubelet's last answer about which pod was given which GPU; it stands for kubernetes.keep while the kubelet does not answer."})
	AllocationsKnown = row(Def{Entity: Node, Tier: Fast, Max: 1, Name: "vigil_allocations_known",
		Help: "1 while it is known who was given the node's GPUs, also if nobody here gives them away; 0 while the kubelet has not answered for kubernetes.keep, or not yet, or Slurm's mapping folder cannot be read. While it is 0, a GPU without a process is unobserved and not free."})
	AllocationsUnresolved = row(Def{Entity: Node, Tier: Fast, Max: 1e6, Name: "vigil_allocations_unresolved",
		Help: "Allocations whose device is none that this node is known to have: claims (DRA), which name no uuid, and ids of a form that is not known here."})
	StaleJobs = row(Def{Entity: Node, Tier: Fast, Max: 1e6, Name: "vigil_slurm_stale_jobs",
		Help: "Jobs in Slurm's mapping folder that have no cgroup on the node any more: their epilog has not run. They are given nothing."})
)
