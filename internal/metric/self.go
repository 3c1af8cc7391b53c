package metric

// Rows that say how well the agent itself looks. Those of entity Source come from
// the snapshot, those of entity Agent from counters in the package that counts.
var (
	SourceUp = row(Def{Entity: Source, Max: 1, Name: "vigil_source_up",
		Help: "1 while the source's last sample is complete and not older than three of its intervals."})
	SourceAge = row(Def{Entity: Source, Name: "vigil_source_sample_age_seconds",
		Help: "Age of the source's last good sample."})
	SourceDuration = row(Def{Entity: Source, Name: "vigil_source_sample_duration_seconds",
		Help: "How long the source's last sample took."})
	SourceInterval = row(Def{Entity: Source, Name: "vigil_source_interval_seconds",
		Help: "How often the source is sampled."})
	SourceSamples = row(Def{Entity: Source, Kind: Counter, Name: "vigil_source_samples_total",
		Help: "Samples taken from the source."})
	SourceErrors = row(Def{Entity: Source, Kind: Counter, Name: "vigil_source_errors_total",
		Help: "Samples of the source that failed or came too late."})

	SourcePage = row(Def{Entity: Source, Kind: Info, Name: "vigil_source_page_info",
		Labels: []string{"endpoint", "exporter", "names", "utilization"},
		Help: "What the source reads is another exporter's page at endpoint, not the driver or the kernel; always 1. names is which generation of that exporter's names was recognised, " +
			"utilization in which unit it tells utilization: percent, ratio, or unclear, then values that could be either are left out."})
	PageFailures = row(Def{Entity: Agent, Kind: Counter, Name: "vigil_source_page_failures_total", Labels: []string{"source", "reason"},
		Help: "Looks at another exporter's page that failed, by reason: those of vigil_inference_target_failing that are not about engines, and unknown_page, other_page (not what the configuration names), " +
			"several_nodes, not_collected (the exporter says that it could not), frozen (nothing on it changes)."})

	NVMLCalls = row(Def{Entity: Node, Kind: Counter, Tier: Fast, Name: "vigil_nvml_calls_total",
		Help: "Calls into NVML by the present child process."})
	NVMLErrors = row(Def{Entity: Node, Kind: Counter, Tier: Fast, Name: "vigil_nvml_call_errors_total",
		Help: "Calls into NVML that returned neither success nor not supported."})
	NVMLSeconds = row(Def{Entity: Node, Kind: Counter, Tier: Fast, Name: "vigil_nvml_call_seconds_total",
		Help: "Time spent inside NVML calls."})
	NVMLHung = row(Def{Entity: Node, Tier: Fast, Max: 1024, Name: "vigil_nvml_hung_gpus",
		Help: "GPUs with a call in flight that has exceeded its limit."})
	NVMLHostPIDs = row(Def{Entity: Node, Tier: Fast, Max: 1, Name: "vigil_nvml_host_pids",
		Help: "1 if the driver's pids are those of the procfs in which processes are looked up; 0 in a pid namespace of its own without the host's procfs: processes then have neither name nor user."})
	NVMLEventSets = row(Def{Entity: Node, Kind: Counter, Tier: Fast, Name: "vigil_nvml_event_sets_replaced_total",
		Help: "Times that waiting for the driver's events began anew because it failed, as it does once a GPU in it is lost; by the present child process."})

	AgentInfo = row(Def{Entity: Agent, Kind: Info, Name: "vigil_agent_info",
		Labels: []string{"version", "revision", "goversion"}, Help: "Build of the agent; always 1."})
	AgentCPU = row(Def{Entity: Node, Kind: Counter, Tier: Fast, Name: "vigil_agent_cpu_seconds_total",
		Help: "CPU time that the agent and its child have used."})
	AgentRSS = row(Def{Entity: Node, Tier: Fast, Max: maxBytes, Name: "vigil_agent_resident_memory_bytes",
		Help: "Resident memory of the agent and its child."})
	AgentPSS = row(Def{Entity: Node, Tier: Slow, Max: maxBytes, Name: "vigil_agent_proportional_memory_bytes",
		Help: "Memory of the agent and its child in which a page that several processes share counts in parts (PSS). Absent where the kernel does not tell it."})
	AgentOpenFiles = row(Def{Entity: Node, Tier: Fast, Max: 1e7, Name: "vigil_agent_open_files",
		Help: "File descriptors that the agent holds open."})
	AgentGoroutines = row(Def{Entity: Node, Tier: Fast, Max: 1e7, Name: "vigil_agent_goroutines",
		Help: "Goroutines of the agent."})
	ChildRestarts = row(Def{Entity: Agent, Kind: Counter, Name: "vigil_child_restarts_total", Labels: []string{"reason"},
		Help: "Restarts of the child process that talks to NVML, by reason: exited, init_hung, all_gpus_hung, driver_changed, released, bad_frame."})
	ChildUp = row(Def{Entity: Agent, Name: "vigil_child_up",
		Help: "1 while the child process that talks to NVML runs and has sent a frame in time."})
	ChildStuck = row(Def{Entity: Agent, Name: "vigil_child_stuck",
		Help: "Child processes that were killed and could not be reaped because a driver call does not return."})
	FramesBad = row(Def{Entity: Agent, Kind: Counter, Name: "vigil_child_bad_frames_total",
		Help: "Frames of the child that could not be read."})

	Scrapes      = row(Def{Entity: Agent, Kind: Counter, Name: "vigil_scrapes_total", Help: "Scrapes answered."})
	SeriesCapped = row(Def{Entity: Agent, Kind: Counter, Sparse: true, Name: "vigil_series_capped_total", Labels: []string{"kind"},
		Help: "Series that a scrape left out because a label would have had too many values, by kind of thing: xid, sxid, owner, allocation, version, workload, interface, runtime, image, dataset, api, dcgm_holder (holders of a device under its dcgm-exporter names); and of the cluster role: job, queue, waiting, pool, autoscaler, finding."})
	SeriesRefused = row(Def{Entity: Agent, Kind: Counter, Name: "vigil_series_refused_total", Labels: []string{"reason"},
		Help: "Series that a scrape left out so that the rest of the page stays valid, by reason: duplicate, unknown."})
	ConfigReloadSuccess = row(Def{Entity: Agent, Name: "vigil_config_last_reload_successful",
		Help: "1 if the last reload of the configuration succeeded; 0 while an older one is in force."})
	ConfigReloadTime = row(Def{Entity: Agent, Name: "vigil_config_last_reload_success_timestamp_seconds",
		Help: "Unix time of the configuration in force."})
	StateWriteErrors = row(Def{Entity: Agent, Kind: Counter, Name: "vigil_state_write_errors_total",
		Help: "Writes of the state file that failed; what they held is kept in memory and written with the next one."})

	NotificationsSent = row(Def{Entity: Agent, Kind: Counter, Name: "vigil_notifications_total", Labels: []string{"receiver", "result"},
		Help: "Messages by result: sent, retried, refused (not tried again at once), shadowed (would have been sent), held (kept back by maintenance, a snooze or a time interval), merged (told in one message with others). Of an Alertmanager they are changes that it took, requests that failed, and requests that it refused."})
	IncidentsMarked = row(Def{Entity: Agent, Name: "vigil_incidents_marked", Labels: []string{"mark"},
		Help: "Incidents that have not ended and of which a person said something, by mark: acknowledged, snoozed."})
	MaintenanceWindows = row(Def{Entity: Agent, Name: "vigil_maintenance_windows", Labels: []string{"origin"},
		Help: "Maintenance windows that hold now, in which what they match is told nobody, by origin: configuration, command (gpuvigil maintenance start)."})
	OutboxLength = row(Def{Entity: Agent, Name: "vigil_outbox_messages", Labels: []string{"receiver"},
		Help: "Messages that wait to be sent, also those that wait for a receiver that refuses us to be mended."})
	OutboxAge = row(Def{Entity: Agent, Name: "vigil_outbox_oldest_age_seconds", Labels: []string{"receiver"},
		Help: "Age of the oldest message that waits to be sent. Of an Alertmanager: since when it lacks what is so now."})
	AlertsMuted = row(Def{Entity: Agent, Name: "vigil_alerts_muted", Labels: []string{"receiver", "by"},
		Help: "Incidents that fire and that Alertmanager keeps from people, by silence, inhibition or time_interval. Absent where that is not read back."})
	Heartbeat = row(Def{Entity: Agent, Name: "vigil_heartbeat_timestamp_seconds",
		Help: "Unix time of the newest snapshot that was judged. One that stands still means that nobody watches, though the page answers."})
)

// Rows of what the detectors say. The first five share their labels: they are a
// contract that other processes build on.
var (
	FindingActive = row(Def{Entity: Finding, Name: "vigil_finding",
		Help: "1 for each finding that fires. subject is kind:id."})
	FindingStart = row(Def{Entity: Finding, Name: "vigil_finding_start_timestamp_seconds",
		Help: "Unix time since when the finding's condition has held."})
	FindingObserved = row(Def{Entity: Finding, Name: "vigil_finding_observed",
		Help: "What the detector saw, in the unit that the rule names."})
	FindingExpected = row(Def{Entity: Finding, Name: "vigil_finding_expected",
		Help: "What it expected, in the same unit."})
	FindingScore = row(Def{Entity: Finding, Name: "vigil_finding_score_ratio",
		Help: "How far beyond its threshold the finding is; 1 is the threshold."})

	Condition = row(Def{Entity: Agent, Max: 1, Name: "vigil_condition", Labels: []string{"rule", "subject"},
		Help: "1 while the rule's state holds for the subject, whether or not anybody needs to be told."})
	DetectorSeconds = row(Def{Entity: Agent, Kind: Counter, Detail: true, Name: "vigil_detector_seconds_total", Labels: []string{"rule"},
		Help: "Time that the rule's detector has used."})
	DetectorPanics = row(Def{Entity: Agent, Kind: Counter, Sparse: true, Name: "vigil_detector_failures_total", Labels: []string{"rule"},
		Help: "Snapshots that the rule's detector failed on; they were skipped for that rule only."})
	FindingsCapped = row(Def{Entity: Agent, Kind: Counter, Sparse: true, Name: "vigil_findings_capped_total", Labels: []string{"rule"},
		Help: "Observations that could not become a finding or a condition because the rule had reached its limit of subjects."})
	FindingsSuppressed = row(Def{Entity: Agent, Kind: Counter, Sparse: true, Name: "vigil_findings_suppressed_total", Labels: []string{"rule", "reason"},
		Help: "Findings that nobody is told of, by reason: drained (it began on a drained node on which nothing ran)."})
	RuleNeed = row(Def{Entity: Agent, Detail: true, Name: "vigil_rule_needed_surprise_nats", Labels: []string{"rule", "severity"},
		Help: "How rare, in nats, what a statistical rule sees must be for a finding of the severity, so that the alert budget holds. It grows with the fleet."})
	RuleClean = row(Def{Entity: Agent, Detail: true, Name: "vigil_rule_clean_gpu_weeks", Labels: []string{"rule"},
		Help: "Clean history of a statistical rule on this node, in weeks of one GPU."})
	RuleProof = row(Def{Entity: Agent, Detail: true, Name: "vigil_rule_proof_gpu_weeks", Labels: []string{"rule"},
		Help: "Clean history that a page of a statistical rule takes."})
	ObservationsDropped = row(Def{Entity: Agent, Kind: Counter, Sparse: true, Name: "vigil_observations_dropped_total", Labels: []string{"rule"},
		Help: "Observations of the rule's detector that were not finite numbers or named no subject, and were dropped."})
)
