package metric

// The closed dimensions of a workload's own signals and of what follows from them.
var (
	FileState = &Dimension{Label: "state", Values: []string{"read", "stale", "refused"}}

	// WorkUnit is what work is counted in.
	WorkUnit = &Dimension{Label: "unit", Values: []string{"step", "sample", "token", "request"}}

	// Outcome is what became of GPU time: a checkpoint, or progress, confirmed it, or an
	// interruption made it void.
	Outcome = &Dimension{Label: "outcome", Values: []string{"kept", "lost"}}
)

// TextfileReason is why a file of the directory, or a part of it, does not count.
var TextfileReason = []string{
	"unreadable", "not_regular", "too_large", "cut_off", "syntax", "future", "too_many_files", "too_many_figures", "foreign", "ambiguous",
}

// FigureUnit is what a unit cost is of: WorkUnit with tokens by the million.
var FigureUnit = []string{"step", "sample", "million_tokens", "request"}

const (
	ownSignal = " As the workload itself tells it, see docs/training.md."
	window5m  = " Over five minutes."
	maxUnix   = 1e10 // seconds: the year 2286
	largest   = 1e30 // of a number whose meaning only the workload knows
)

// Rows of what a workload tells of its own work.
var (
	WorkloadSteps = row(Def{Entity: Workload, Kind: Counter, Tier: Slow, Name: "vigil_workload_steps_total",
		Help: "Training steps that the agent has seen the workload do, those among them that it did again after a restart. From 0 when the agent first sees it."})
	WorkloadSamples = row(Def{Entity: Workload, Kind: Counter, Tier: Slow, Name: "vigil_workload_samples_total",
		Help: "Samples that the agent has seen the workload train on. From 0 when the agent first sees it."})
	WorkloadTokens = row(Def{Entity: Workload, Kind: Counter, Tier: Slow, Name: "vigil_workload_tokens_total",
		Help: "Tokens that the agent has seen the workload train on. From 0 when the agent first sees it."})

	WorkloadStep = row(Def{Entity: Workload, Tier: Slow, Max: largest, Name: "vigil_workload_step",
		Help: "Training step that the workload is at. It falls when the workload goes back to a checkpoint." + ownSignal})
	WorkloadEpoch = row(Def{Entity: Workload, Tier: Slow, Max: largest, Name: "vigil_workload_epoch",
		Help: "Epoch that the workload is at, in fractions too." + ownSignal})
	WorkloadLoss = row(Def{Entity: Workload, Tier: Slow, Min: -largest, Max: largest, Name: "vigil_workload_loss",
		Help: "Loss of the last step." + ownSignal})
	WorkloadStepTime = row(Def{Entity: Workload, Tier: Slow, Max: 1e7, Name: "vigil_workload_step_time_seconds",
		Help: "Mean duration of a training step: by the workload's own clock if it tells it, else the time for each step that was done." + window5m})
	WorkloadStepRate = row(Def{Entity: Workload, Tier: Slow, Max: maxRate, Name: "vigil_workload_steps_per_second",
		Help: "Training steps each second." + window5m})
	WorkloadSampleRate = row(Def{Entity: Workload, Tier: Slow, Max: maxRate, Name: "vigil_workload_samples_per_second",
		Help: "Samples each second." + window5m})
	WorkloadTokenRate = row(Def{Entity: Workload, Tier: Slow, Max: 1e12, Name: "vigil_workload_tokens_per_second",
		Help: "Tokens that are trained on each second." + window5m})
	WorkloadLoaderWait = row(Def{Entity: Workload, Tier: Slow, Max: 1, Name: "vigil_workload_loader_wait_ratio",
		Help: "Share of the time for which training waited for data." + window5m})
	WorkloadProgress = row(Def{Entity: Workload, Tier: Slow, Max: maxUnix, Name: "vigil_workload_progress_timestamp_seconds",
		Help: "When the workload was last seen to have done more steps, samples or tokens: time of the file that said so."})
	WorkloadCheckpoint = row(Def{Entity: Workload, Tier: Slow, Max: maxUnix, Name: "vigil_workload_checkpoint_timestamp_seconds",
		Help: "When the last checkpoint was complete." + ownSignal})
	WorkloadFinished = row(Def{Entity: Workload, Tier: Slow, Max: 1, Name: "vigil_workload_finished",
		Help: "1 once the workload says that it has done its work: that it ends then is no interruption." + ownSignal})
	WorkloadSignalAge = row(Def{Entity: Workload, Tier: Slow, Max: maxUnix, Name: "vigil_workload_signal_age_seconds",
		Help: "Age of the newest file in which the workload tells of its work. What is older than textfile.max_age is left out."})
	WorkloadQuality = row(Def{Entity: Workload, Tier: Slow, Min: -largest, Max: largest, Name: "vigil_workload_quality", Labels: []string{"name"},
		Help: "A figure of the workload's quality, an accuracy or a score of an evaluation, by the name that the workload gives it; its unit and range are its own."})

	TextfileFiles = row(Def{Entity: Node, Tier: Slow, Max: 1e6, Name: "vigil_textfile_files", Dim: FileState,
		Help: "Files in textfile.directory at the last look. A refused one is in no reading; vigil_textfile_errors_total has the reason."})
	TextfileErrors = row(Def{Entity: Agent, Kind: Counter, Name: "vigil_textfile_errors_total", Labels: []string{"reason"},
		Help: "Files in textfile.directory, each version once, that do not count or not as a whole, by reason (too_many_files at each look); docs/training.md has them."})

	EndpointOwnerInfo = row(Def{Entity: Workload, Kind: Info, Tier: Fast, Name: "vigil_endpoint_owner_info", Labels: []string{"endpoint"},
		Help: "Whose an inference server is: the one owner with a process on each of its GPUs; always 1. Absent if those are not known or there are several such owners. Join on instance and endpoint."})
)

var perOwner = []string{"owner_kind", "owner", "team"}

// Rows of what work came to. The ledger makes them; they survive a restart.
var (
	OwnerWork = row(Def{Entity: Node, Kind: Counter, Tier: Fast, Name: "vigil_owner_work_total", Labels: append(perOwner[:3:3], "unit"),
		Help: "Work that the owner was seen to do while its GPU time was booked: steps, samples and tokens of training, tokens generated and requests answered with success of inference. Unit: step, sample, token, request."})
	OwnerGoodput = row(Def{Entity: Node, Kind: Counter, Tier: Fast, Name: "vigil_owner_goodput_gpu_seconds_total", Labels: append(perOwner[:3:3], "outcome"),
		Help: "GPU time that the owner held, by what became of it: kept, which a checkpoint confirmed, or progress of a workload that tells of no checkpoint; lost, from there to an interruption and on to the next progress. With vigil_owner_goodput_open_gpu_seconds it sums to what was held. Only of owners that tell of their progress."})
	OwnerGoodputOpen = row(Def{Entity: Node, Tier: Fast, Name: "vigil_owner_goodput_open_gpu_seconds", Labels: perOwner,
		Help: "GPU time that the owner held since its last checkpoint, or progress: an interruption now would lose it."})
	OwnerInterruptions = row(Def{Entity: Node, Kind: Counter, Tier: Fast, Name: "vigil_owner_interruptions_total", Labels: perOwner,
		Help: "How often the owner's work was interrupted: it went back to an earlier step, all its processes were replaced, or they ended and it had not said that it has finished. What comes within a minute is one."})
	OwnerLostCost = row(Def{Entity: Node, Kind: Counter, Tier: Fast, Name: "vigil_owner_lost_cost_total", Labels: append(perOwner[:3:3], "currency"),
		Help: "Cost of the GPU time that was lost, in units of the currency. Absent without a price."})
	OwnerUnitCost = row(Def{Entity: Node, Tier: Fast, Name: "vigil_owner_unit_cost", Labels: append(perOwner[:3:3], "unit", "currency"),
		Help: "Cost of the owner's GPU time over its work, both of the last hour, in units of the currency for a step, sample, request or million_tokens. Absent without work or price, and for the first five minutes."})
	OwnerUnitEnergy = row(Def{Entity: Node, Tier: Fast, Name: "vigil_owner_unit_energy_joules", Labels: append(perOwner[:3:3], "unit"),
		Help: "Energy of the owner's GPU time over its work, both of the last hour, for a step, sample, request or million_tokens."})

	TeamSpent = row(Def{Entity: Node, Tier: Fast, Name: "vigil_team_spent_this_month", Labels: []string{"team", "currency"},
		Help: "What the team's GPU time on this node has cost since the calendar month began (UTC), as far as it was booked, in units of the currency. Teams sum to what was paid: what is nobody's is under unattributed, that of owners without a team under no team."})
	TeamProjection = row(Def{Entity: Node, Tier: Fast, Name: "vigil_team_month_end_cost", Labels: []string{"team", "currency", "bound"},
		Help: "What the month will have cost the team on this node at its end: expected, and the low and high bound that hold it in nine of ten months, in units of the currency. Absent until three whole days are known. Over nodes expected adds up; the sums of the bounds are no narrower than the interval of the whole."})
)
