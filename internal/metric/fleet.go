package metric

// QueueState is what becomes of jobs in a queue: running has its GPUs; suspended has
// them and does not run; waiting waits for GPUs alone; the rest waits for what more
// GPUs would not give it: limited by a quota or throttle, dependent on another job,
// scheduled for later or held, unavailable because what it asks for is not there,
// other reasons.
var QueueState = &Dimension{Label: "state", Values: []string{"running", "suspended", "waiting", "limited", "dependent", "scheduled", "unavailable", "other"}}

// CapacityState is what the GPUs of a queue's nodes can be used for.
var CapacityState = &Dimension{Label: "state", Values: []string{"used", "free", "drained", "reserved", "booting", "powered_down", "down", "unknown"}}

// CallOutcome is how a question ended.
var CallOutcome = &Dimension{Label: "outcome", Values: []string{"answered", "failed"}}

// Rows of the one cluster role: what Slurm says.
var (
	JobInfo = row(Def{Entity: Job, Kind: Info, Name: "vigil_job_info", Labels: []string{"array", "user", "account", "partition", "qos", "name", "team"},
		Help: "A job that has GPUs, with what Slurm says of it and the team that the mapping gives it; always 1. Join on owner_kind and owner with the agents' series of owners. array is the id as squeue shows it; user is as owners.users says; name is there with fleet.slurm.job_names only."})
	JobGPUs = row(Def{Entity: Job, Name: "vigil_job_gpus",
		Help: "GPUs that Slurm gave the job, on all of its nodes; a MIG instance counts as one."})

	QueueJobs = row(Def{Entity: Queue, Name: "vigil_queue_jobs", Dim: QueueState,
		Help: "Jobs of the queue that have or ask for GPUs; a pending array is as many as its tasks, a job that may run in several partitions is in the first. Only waiting, for Slurm's reasons Resources and Priority, is waiting for GPUs."})
	QueueGPUs = row(Def{Entity: Queue, Name: "vigil_queue_gpus", Dim: QueueState,
		Help: "GPUs that those jobs have or ask for."})
	QueueLongest = row(Def{Entity: Queue, Name: "vigil_queue_wait_longest_seconds",
		Help: "How long the job has waited that of those waiting for GPUs has waited longest, since it could have run. Absent while none waits."})
	QueueTypical = row(Def{Entity: Queue, Name: "vigil_queue_wait_typical_seconds",
		Help: "The median of how long those have waited that wait for GPUs. Absent while none waits."})
	QueueCapacity = row(Def{Entity: Queue, Name: "vigil_queue_capacity_gpus", Dim: CapacityState,
		Help: "GPUs of the queue's nodes as Slurm counts them. A node of several queues is in each, so do not sum over queues."})

	SlurmUp = row(Def{Entity: Fleet, Max: 1, Name: "vigil_slurm_up",
		Help: "1 while Slurm's last answer was a good one."})
	SlurmAge = row(Def{Entity: Fleet, Name: "vigil_slurm_answer_age_seconds",
		Help: "Age of Slurm's last good answer. After three intervals what it said is not shown any more."})
	SlurmCalls = row(Def{Entity: Fleet, Kind: Counter, Name: "vigil_slurm_calls_total", Dim: CallOutcome,
		Help: "Times that Slurm was asked, for jobs and nodes together, since the role was started."})
	SlurmUnreadable = row(Def{Entity: Fleet, Kind: Counter, Name: "vigil_slurm_unreadable_rows_total",
		Help: "Jobs and nodes in Slurm's answers that could not be read and are left out."})
)
