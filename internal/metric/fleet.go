package metric

// QueueState is what becomes of jobs in a queue: running has its GPUs; starting has
// them and does not run yet; suspended has them and does not run; waiting waits for
// GPUs alone; the rest waits for what more GPUs would not give it: limited by a quota
// or throttle, dependent on another job, scheduled for later or held, unavailable
// because what it asks for beside GPUs is not there, other reasons.
var QueueState = &Dimension{Label: "state", Values: []string{"running", "starting", "suspended", "waiting", "limited", "dependent", "scheduled", "unavailable", "other"}}

// CapacityState is what the GPUs of a pool's nodes can be used for.
var CapacityState = &Dimension{Label: "state", Values: []string{"used", "free", "drained", "tainted", "reserved", "booting", "powered_down", "down", "unknown"}}

// NodeState is how a node is: cordoned takes no new work and still has some, drained has
// none left; tainted keeps away what does not tolerate it.
var NodeState = &Dimension{Label: "state", Values: []string{"usable", "cordoned", "drained", "tainted", "reserved", "booting", "powered_down", "down", "unknown"}}

// FreeCause is why a free GPU is not used: fits (nothing keeps those that wait from it:
// they are about to start, or others come first), no_demand (nobody waits), or what
// keeps the one that comes closest: fragmented (fewer are free on the node than one pod
// asks for), cpu, memory or pods of the node are used up, topology (affinity, spread,
// volumes), wrong_mig_profile, wrong_model, selector (another label of the node),
// tainted, cordoned, not_ready.
var FreeCause = &Dimension{Label: "cause", Values: []string{"fits", "no_demand", "fragmented", "cpu", "memory", "pods", "topology",
	"wrong_mig_profile", "wrong_model", "selector", "tainted", "cordoned", "not_ready"}}

// CallOutcome is how a question ended. absent is for what the cluster does not have and
// need not have.
var CallOutcome = &Dimension{Label: "outcome", Values: []string{"answered", "failed", "absent"}}

// AgentAnswer is how a question to an agent ended.
var AgentAnswer = &Dimension{Label: "outcome", Values: []string{"answered", "failed"}}

// The closed dimensions of queues with a scheduler of their own, and of autoscalers.
var (
	WorkloadState   = &Dimension{Label: "state", Values: []string{"pending", "inadmissible", "inqueue", "admitted"}}
	QuotaState      = &Dimension{Label: "state", Values: []string{"limit", "used"}}
	ReplicaState    = &Dimension{Label: "state", Values: []string{"current", "desired", "min", "max"}}
	ScalerCondition = &Dimension{Label: "condition", Values: []string{"blind", "at_maximum", "metric_unreadable", "paused"}}
	ReaderStates    = &Dimension{Label: "state", Values: []string{"waiting", "up", "missing", "forbidden", "failing"}}
)

// Rows of the one cluster role: what schedulers say.
var (
	JobInfo = row(Def{Entity: Job, Kind: Info, Name: "vigil_job_info", Labels: []string{"array", "user", "account", "partition", "qos", "name", "team"},
		Help: "A job that has GPUs, with what Slurm says of it and the team that the mapping gives it; always 1. Join on owner_kind and owner with the agents' series of owners. array is the id as squeue shows it; user is as owners.users says; name is there with fleet.slurm.job_names only."})
	JobGPUs = row(Def{Entity: Job, Name: "vigil_job_gpus",
		Help: "GPUs that Slurm gave the job, on all of its nodes; a MIG instance counts as one."})

	QueueJobs = row(Def{Entity: Queue, Name: "vigil_queue_jobs", Dim: QueueState,
		Help: "Jobs (of Slurm) or pods of the queue that have or ask for GPUs; a pending array is as many as its tasks, a job that may run in several partitions is in the first, a workload that Kueue has not admitted is one. Only waiting is waiting for GPUs."})
	QueueGPUs = row(Def{Entity: Queue, Name: "vigil_queue_gpus", Dim: QueueState,
		Help: "GPUs that those jobs or pods have or ask for; a MIG instance or a share counts as one."})
	QueueLongest = row(Def{Entity: Queue, Name: "vigil_queue_wait_longest_seconds",
		Help: "How long the job or pod has waited that of those waiting for GPUs has waited longest, since it could have run. Absent while none waits."})
	QueueTypical = row(Def{Entity: Queue, Name: "vigil_queue_wait_typical_seconds",
		Help: "The median of how long those have waited that wait for GPUs. Absent while none waits."})
	QueueWorkloads = row(Def{Entity: Queue, Name: "vigil_queue_workloads", Dim: WorkloadState,
		Help: "Workloads (Kueue) or pod groups (Volcano) of the queue as its own scheduler counts them, with or without GPUs. Of what is pending, inadmissible could not be admitted even alone; only Kueue's page of metrics tells it. inqueue is Volcano's."})
	QueueQuota = row(Def{Entity: Queue, Name: "vigil_queue_quota_gpus", Dim: QuotaState,
		Help: "GPUs that the queue's quota allows, and what of it is used, as Kueue (a ClusterQueue) or Volcano says. Absent where there is no quota of GPUs."})

	WaitingJobs = row(Def{Entity: Waiting, Name: "vigil_waiting_jobs",
		Help: "Jobs or pods that wait for GPUs, by queue, account (Slurm's account, Kubernetes' namespace), team and reason: Slurm's resources and priority; in Kubernetes no_free_gpu, what keeps it from free ones as in vigil_pool_free_gpus, or not_tried where too many want something else, or what waits has no pods yet."})
	WaitingGPUs = row(Def{Entity: Waiting, Name: "vigil_waiting_gpus",
		Help: "GPUs that those ask for."})

	PoolInfo = row(Def{Entity: Pool, Kind: Info, Name: "vigil_pool_info", Labels: []string{"model"},
		Help: "A pool that has GPUs, with their model as the nodes' labels name it; always 1. A pool is Slurm's partition, or the nodes of Kubernetes with one value of the pool's label."})
	PoolCapacity = row(Def{Entity: Pool, Name: "vigil_pool_capacity_gpus", Dim: CapacityState,
		Help: "GPUs of the pool's nodes as the scheduler counts them: a MIG instance or a share is one. A node of several of Slurm's partitions is in each, so do not sum over those."})
	PoolNodes = row(Def{Entity: Pool, Name: "vigil_pool_nodes", Dim: NodeState,
		Help: "Nodes of the pool that have or should have GPUs. cordoned takes no new work and still has GPUs in use, drained has none in use."})
	PoolFree = row(Def{Entity: Pool, Name: "vigil_pool_free_gpus", Dim: FreeCause,
		Help: "Free GPUs of the pool by why they are not used, found by trying what waits on each node; told for Kubernetes. The causes sum to all that is free."})

	ResourceAllocatable = row(Def{Entity: Resource, Name: "vigil_pool_allocatable_devices",
		Help: "Devices that the pool's nodes offer, by resource: nvidia.com/gpu, nvidia.com/gpu.shared, nvidia.com/mig-…, and gpu.nvidia.com for what is given by claims (DRA)."})
	ResourceRequested = row(Def{Entity: Resource, Name: "vigil_pool_requested_devices",
		Help: "Devices that pods on the pool's nodes have asked for and were given. What waits has no node and is not in it."})

	ScalerInfo = row(Def{Entity: Scaler, Kind: Info, Name: "vigil_autoscaler_info", Labels: []string{"target_kind", "target", "metrics"},
		Help: "An autoscaler whose target's pods have GPUs, with what it scales on; always 1. kind is HorizontalPodAutoscaler, ScaledObject (KEDA) or RayCluster."})
	ScalerReplicas = row(Def{Entity: Scaler, Name: "vigil_autoscaler_replicas", Dim: ReplicaState,
		Help: "Replicas of its target that there are, that it wants, and its bounds."})
	ScalerConditions = row(Def{Entity: Scaler, Max: 1, Name: "vigil_autoscaler_condition", Dim: ScalerCondition,
		Help: "1 while it is so. blind: it scales on CPU or memory of pods that have GPUs, and on nothing else: it does not see that the GPUs are at their limit. at_maximum: it wants more than it may. metric_unreadable: it cannot read what it scales on."})

	SchedulerUp = row(Def{Entity: Scheduler, Max: 1, Name: "vigil_scheduler_up",
		Help: "1 while the scheduler's last answer was a good one."})
	SchedulerAge = row(Def{Entity: Scheduler, Name: "vigil_scheduler_answer_age_seconds",
		Help: "Age of what the scheduler said last. Slurm's answer stands for three intervals, Kubernetes' for fleet.kubernetes.keep; then it is not shown any more."})
	SchedulerCalls = row(Def{Entity: Scheduler, Kind: Counter, Name: "vigil_scheduler_calls_total", Dim: CallOutcome,
		Help: "Times that the scheduler was asked since the role was started: Slurm for jobs and nodes together, Kubernetes for a list or a watch; absent is a kind that the cluster does not have, which is no fault."})
	SchedulerUnreadable = row(Def{Entity: Scheduler, Kind: Counter, Name: "vigil_scheduler_unreadable_rows_total",
		Help: "Jobs, nodes and objects in the scheduler's answers that could not be read, or were too large or too many, and are left out."})

	ReaderState = row(Def{Entity: Reader, Max: 1, Name: "vigil_kubernetes_reader", Dim: ReaderStates,
		Help: "1 for how reading a kind of objects goes: missing (the cluster does not have it) and forbidden (the account may not) cost only what it would tell."})
	ReaderObjects = row(Def{Entity: Reader, Name: "vigil_kubernetes_objects",
		Help: "Objects of the kind that are kept."})
	ReaderBytes = row(Def{Entity: Reader, Kind: Counter, Name: "vigil_kubernetes_list_bytes_total",
		Help: "Bytes of lists of the kind that were read, before compression."})

	FleetAgentCalls = row(Def{Entity: Role, Kind: Counter, Name: "vigil_fleet_agent_calls_total", Dim: AgentAnswer,
		Help: "Times that an agent was asked for the evidence of its findings; 0 without fleet.agents.url. What it does not answer, numbers and labels tell."})
	FleetFinding = row(Def{Entity: Role, Name: "vigil_fleet_finding", Labels: []string{"node", "rule", "severity", "subject", "cause"},
		Help: "1 for each finding that fires on any node, by its agent or by the cluster role, which alone has this series; node is cluster for what is about several. At most 5,000, the worst first."})
	FleetIncidents = row(Def{Entity: Role, Name: "vigil_fleet_incidents", Labels: []string{"severity"},
		Help: "Open incidents of the cluster: one for each cause, however many nodes it shows on."})
	FleetLeader = row(Def{Entity: Role, Max: 1, Sparse: true, Name: "vigil_fleet_leader",
		Help: "1 if this replica of the cluster role leads, which means that it notifies and shows findings; 0 while another one does. Missing without fleet.leader. Alert if the sum over all replicas is not 1 for some minutes."})
	FleetLooks = row(Def{Entity: Role, Kind: Counter, Name: "vigil_fleet_looks_total",
		Help: "Looks of the cluster role at all nodes since it was started."})
	FleetLookSeconds = row(Def{Entity: Role, Kind: Counter, Name: "vigil_fleet_look_seconds_total",
		Help: "Time that those took, of the clock and not of processors: as many nodes are judged at once as there are processors."})
	FleetRefused = row(Def{Entity: Role, Kind: Counter, Name: "vigil_fleet_refused_total",
		Help: "Snapshots of nodes without a name, or beyond the 20,000 nodes that the role knows, which were left out."})
)

// The closed dimensions of what the role makes of series.
var (
	FleetNodeState = &Dimension{Label: "state", Values: []string{"agent", "exporters", "silent", "other"}}
	SampleOutcome  = &Dimension{Label: "outcome", Values: []string{"taken", "duplicate", "out_of_order", "future"}}
	SeriesRefusal  = &Dimension{Label: "reason", Values: []string{"unwanted", "no_node", "series_limit", "node_limit", "other_shard", "no_shard_label"}}
)

// Rows of the one cluster role: the nodes that it sees through the series of a
// Prometheus.
var (
	FleetNodes = row(Def{Entity: Role, Name: "vigil_fleet_nodes", Dim: FleetNodeState,
		Help: "Nodes of which there are series: of those that an agent speaks for, and those that other exporters tell of, there are snapshots. From a silent one nothing has come for the lookback; other ones have neither GPUs nor inference servers."})
	FleetGPUs = row(Def{Entity: Role, Name: "vigil_fleet_gpus",
		Help: "GPUs of the nodes of which there are snapshots."})
	FleetSeries = row(Def{Entity: Role, Name: "vigil_fleet_series",
		Help: "Series that are kept."})
	FleetSamples = row(Def{Entity: Role, Kind: Counter, Name: "vigil_fleet_samples_total", Dim: SampleOutcome,
		Help: "Samples that came. duplicate and out_of_order are not newer than the series' last, future ones are more than a minute ahead: they are dropped."})
	FleetSeriesRefused = row(Def{Entity: Role, Kind: Counter, Sparse: true, Name: "vigil_fleet_series_refused_total", Dim: SeriesRefusal,
		Help: "Times that a series was not taken: unwanted (no reader knows its name), no_node (nothing names the node that it is of), series_limit, node_limit, other_shard (another process of fleet.shard has it), no_shard_label (it lacks the label by which shards are told apart)."})
	FleetStrangers = row(Def{Entity: Role, Kind: Counter, Name: "vigil_fleet_duplicate_gpus_total",
		Help: "Times that a GPU was left out of a node's snapshot because another node has it: one machine goes by two names."})
	FleetUnreadable = row(Def{Entity: Role, Kind: Counter, Sparse: true, Name: "vigil_fleet_unreadable_total", Labels: []string{"source", "reason"},
		Help: "Times that nothing could be made of a target's series, by source and reason: those of vigil_source_page_failures_total."})
)

// QueryOutcome is how a query of a PromQL API ended. A partial answer has what some of
// the API's parts know, or came with a warning.
var QueryOutcome = &Dimension{Label: "outcome", Values: []string{"answered", "partial", "failed"}}

// Rows of the one cluster role: what it costs to read a PromQL API.
var (
	PromQLUp = row(Def{Entity: Role, Max: 1, Name: "vigil_promql_up",
		Help: "1 while the last round of queries had an answer."})
	PromQLQueries = row(Def{Entity: Role, Kind: Counter, Name: "vigil_promql_queries_total", Dim: QueryOutcome,
		Help: "Queries of the PromQL API since the role was started."})
	PromQLFailures = row(Def{Entity: Role, Kind: Counter, Sparse: true, Name: "vigil_promql_failures_total", Labels: []string{"reason"},
		Help: "Queries that failed, by reason: too_large (more series or bytes than the limits, or the server says so: the question is halved), timeout, unreachable, tls, credentials, redirect, status (5xx, 429), rejected (the server does not want the query), syntax, html, forbidden_address."})
	PromQLSeconds = row(Def{Entity: Role, Kind: Counter, Name: "vigil_promql_query_seconds_total",
		Help: "Time that the queries took, with reading their answers. They are asked one after the other."})
	PromQLBytes = row(Def{Entity: Role, Kind: Counter, Name: "vigil_promql_answer_bytes_total",
		Help: "Bytes of the answers, after decompression."})
	PromQLSamples = row(Def{Entity: Role, Kind: Counter, Name: "vigil_promql_samples_total",
		Help: "Samples in the answers. Of each series the newest is taken; the rest tell how far apart they are."})
	PromQLWarnings = row(Def{Entity: Role, Kind: Counter, Name: "vigil_promql_warnings_total",
		Help: "Warnings that came with answers."})
	PromQLEnded = row(Def{Entity: Role, Kind: Counter, Name: "vigil_promql_series_ended_total",
		Help: "Series that were taken to have ended, since two scrapes of their target did not have them."})
	PromQLLast = row(Def{Entity: Role, Name: "vigil_promql_round_timestamp_seconds",
		Help: "Time, in seconds since 1970, that the last round of queries with an answer was of."})
	PromQLRound = row(Def{Entity: Role, Name: "vigil_promql_round_seconds",
		Help: "Time that this round took."})
	PromQLSeries = row(Def{Entity: Role, Name: "vigil_promql_series",
		Help: "Series in the answers of this round."})
	PromQLNames = row(Def{Entity: Role, Name: "vigil_promql_names", Labels: []string{"source"},
		Help: "Names of metrics that there are and that a reader understands, by what is taken to have made them."})
)
