package rules

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"gpuvigil/internal/metric"
)

// The rules of the book.
const (
	IDXid            ID = "xid"
	IDSuspectMonitor ID = "suspect_monitor"
	IDGPULost        ID = "gpu_lost"
	IDSXid           ID = "sxid"
	IDGPUMemory      ID = "gpu_memory_errors"
	IDPCIeLink       ID = "pcie_link"
	IDNVLink         ID = "nvlink"
	IDNetworkPort    ID = "network_port"
	IDUnresponsive   ID = "driver_unresponsive"
	IDJobHung        ID = "job_hung"
	IDJobStalled     ID = "job_stalled"
	IDSaturatedGPU   ID = "saturated_gpu"
	IDIdleGPU        ID = "idle_gpu"
	IDThrottledGPU   ID = "throttled_gpu"
	IDHotGPU         ID = "hot_gpu"
	IDMemoryLeak     ID = "memory_leak"
	IDStraggler      ID = "straggler"
	IDSlowTraining   ID = "slow_training"
	IDVersionChanged ID = "version_changed"
	IDDataMovement   ID = "data_movement"
	IDSpend          ID = "spend"
	IDUnallocated    ID = "unallocated_compute"
	IDUnknownUse     ID = "unknown_use"

	IDVersionMismatch ID = "version_mismatch"
	IDHiddenSharing   ID = "hidden_sharing"
	IDIsolation       ID = "isolation"
	IDDrainedOccupied ID = "drained_occupied"
	IDUnusual         ID = "unusual"

	IDQueueing        ID = "queueing"
	IDWaitingJobs     ID = "waiting_jobs"
	IDUnusualModelUse ID = "unusual_model_use"
)

// book is in the order in which people should read findings: certain faults first.
var book = []*Rule{
	{
		ID:       IDXid,
		Title:    "GPU error reported by the driver",
		Severity: Page,
		Meaning: "The driver reported an Xid error. Errors of the hardware stop the work on the GPU and often on the whole job; " +
			"errors of an application concern only that application. The finding ends 15 minutes after the last error, " +
			"or, when the GPU was lost, once it answers again: that the error is over does not prove that the GPU is healthy.",
		Action:   "Drain the node and power-cycle it if the GPU is lost or needs a reset; restart the application if the error was its own.",
		Unit:     "errors",
		Hold:     15 * time.Minute,
		Pages:    true,
		Hardware: true,
		Watch:    []*metric.Def{metric.Temperature, metric.MemoryTemperature, metric.PowerDraw, metric.Utilization, metric.GPUsSeen},
		Runbook:  "xid",
	},
	{
		ID:       IDSuspectMonitor,
		Title:    "What looks at the GPUs is to be suspected",
		Severity: Page,
		Meaning: "Half of the node's GPUs or more stopped to answer in the same minute, nothing new comes of any of them, their readings stand still, or statistical findings of most of them begin or end together. " +
			"That they all break at once is less likely than that the driver is broken, whoever asks it, or what they share. " +
			"One finding of the node says so, and what follows from it on its GPUs stays silent meanwhile.",
		Action:   "Run `nvidia-smi` and `gpuvigil doctor` on the node: they tell whether the GPUs are gone or only unseen.",
		Unit:     "GPUs",
		For:      2 * time.Minute,
		Hold:     5 * time.Minute,
		Pages:    true,
		Hardware: true,
		Whole:    true,
		Watch:    []*metric.Def{metric.GPUsSeen, metric.PowerDraw},
		Runbook:  "suspect_monitor",
	},
	{
		ID:       IDGPULost,
		Title:    "GPU lost",
		Severity: Page,
		Meaning: "The driver no longer answers for a GPU, never did although it lists it, or hangs in a call on it, while it answers otherwise; " +
			"the work on a lost GPU has stopped, and often the whole job. Of GPUs that fall silent at once suspect_monitor tells. " +
			"An Xid error of the same GPU that is as urgent tells of it instead. " +
			"Where GPUs come from an exporter's page, one that the page no longer lists beside others is a ticket, as the driver was not asked.",
		Action:   "Drain the node and power-cycle it; the second time in 30 days, have the GPU replaced.",
		Unit:     "GPUs",
		For:      2 * time.Minute,
		Hold:     5 * time.Minute,
		Pages:    true,
		Hardware: true,
		HiddenBy: []ID{IDXid, IDSuspectMonitor},
		Watch:    []*metric.Def{metric.Temperature, metric.PowerDraw, metric.GPUsSeen},
		Runbook:  "gpu_lost",
	},
	{
		ID:       IDSXid,
		Title:    "NVSwitch error reported by the driver",
		Severity: Page,
		Meaning: "The driver or the fabric manager reported an error of an NVSwitch (SXid). A fatal one stops the jobs whose GPUs talk through the switch; " +
			"the driver recovers from the others by itself. The finding ends 15 minutes after the last error: that it is over does not prove that the switch is healthy.",
		Action:   "Drain the node, reset its GPUs and switches together, and look at the fabric manager's log; if the error comes back, have the board repaired.",
		Unit:     "errors",
		Hold:     15 * time.Minute,
		Pages:    true,
		Hardware: true,
		Watch:    []*metric.Def{metric.GPUsSeen},
		Runbook:  "sxid",
	},
	{
		ID:       IDGPUMemory,
		Title:    "GPU memory fails",
		Severity: Ticket,
		Meaning: "The driver tells that memory of the GPU failed, that a reset is needed to replace it, that it cannot be replaced any more, or that it corrects far more errors than usual. " +
			"Rows that were replaced are no finding: that is what spare rows are for.",
		Action:      "Reset the GPU when it is next idle; have the board replaced if the driver cannot replace what failed.",
		Unit:        "errors",
		Hold:        15 * time.Minute,
		Hardware:    true,
		HiddenBy:    []ID{IDSuspectMonitor},
		Statistical: true,
		Watch:       []*metric.Def{metric.MemoryTemperature},
		Runbook:     "gpu_memory_errors",
	},
	{
		ID:       IDPCIeLink,
		Title:    "PCIe link of the GPU is degraded",
		Severity: Ticket,
		Meaning: "Under load the link between GPU and host has fewer lanes or an older generation than both could do, or it sends far more packets again than usual. " +
			"Data comes slower to the GPU; a link that gets worse ends in a GPU that falls off the bus.",
		Action:      "When the node is next idle, power-cycle it, then seat the board anew; look at riser and cables.",
		Unit:        "lanes/generation/packets",
		Hold:        15 * time.Minute,
		Hardware:    true,
		HiddenBy:    []ID{IDSuspectMonitor},
		Statistical: true,
		Watch:       []*metric.Def{metric.PCIeWidth, metric.PCIeGeneration, metric.Utilization},
		Runbook:     "pcie_link",
	},
	{
		ID:       IDNVLink,
		Title:    "NVLinks of the GPU are degraded",
		Severity: Ticket,
		Meaning: "Links between GPUs are down that were up or that all other GPUs of the model have, one did not recover, they have far more errors than usual, or the driver calls the GPU's access to the fabric unhealthy. " +
			"Jobs that use several GPUs become slow or stop.",
		Action:      "Drain the node, reset the GPUs of the fabric together, and look at cables and the fabric manager's log.",
		Unit:        "links/errors",
		For:         2 * time.Minute,
		Hold:        15 * time.Minute,
		Hardware:    true,
		HiddenBy:    []ID{IDSuspectMonitor},
		Statistical: true,
		Watch:       []*metric.Def{metric.NVLinksUp},
		Runbook:     "nvlink",
	},
	{
		ID:       IDNetworkPort,
		Title:    "Network port between nodes is degraded",
		Severity: Ticket,
		Meaning: "A port of an InfiniBand or RoCE adapter is down that was up, loses its link again and again, or has far more errors than usual. " +
			"Jobs that use several nodes become slow or stop.",
		Action:      "Look at the cable, the transceivers and the port of the switch.",
		Unit:        "links/errors",
		For:         2 * time.Minute,
		Hold:        15 * time.Minute,
		Statistical: true,
		Watch:       []*metric.Def{metric.InterfaceUp},
		Runbook:     "network_port",
	},
	{
		ID:       IDUnresponsive,
		Title:    "The driver does not respond as it should",
		Severity: Ticket,
		Meaning: "The driver answers, but so slowly that GPUs are sampled less often, only after what asks it was restarted again and again, or its GPUs wait for the NVLink fabric. " +
			"Often a GPU that is about to be lost, or a fabric manager that does not run.",
		Action:   "Look in the kernel log for the driver, and at the fabric manager.",
		Unit:     "times/restarts/GPUs",
		Hold:     15 * time.Minute,
		HiddenBy: []ID{IDSuspectMonitor, IDGPULost},
		Watch:    []*metric.Def{metric.GPUsSeen, metric.NVMLHung},
		Runbook:  "driver_unresponsive",
	},
	{
		ID:       IDJobHung,
		Title:    "Job hangs in a collective",
		Severity: Page,
		Meaning: "The job's GPUs spin in an operation that all ranks must take part in and one does not: they are fully used, draw little more power than at rest, " +
			"and their links are silent. The job goes on to cost and will not go on by itself until its own timeout, if it has one. " +
			"Judged is the job's part on this node; the rank that is silent is the suspect.",
		Action: "Take a stack of the silent rank's process (py-spy dump, cuda-gdb), then restart the job from its last checkpoint.",
		Unit:   "watts",
		Hold:   5 * time.Minute,
		Pages:  true,
		// Ranks spin after one of them was lost: the loss is what somebody must hear of.
		HiddenBy: []ID{IDXid, IDGPULost, IDSuspectMonitor},
		Watch:    []*metric.Def{metric.Utilization, metric.PowerDraw, metric.SMActivity},
		Runbook:  "job_hung",
	},
	{
		ID:       IDJobStalled,
		Title:    "Job has stopped to work",
		Severity: Page,
		Meaning: "The job worked for half an hour and more, and now all its ranks on this node do next to nothing, while its processes are still there and it writes no checkpoint. " +
			"What is not known to be a training is a ticket.",
		Action:   "Look at what its processes wait for: the loader's workers, the file system, a rank on another node.",
		Unit:     "ratio",
		Hold:     5 * time.Minute,
		Pages:    true,
		HiddenBy: []ID{IDXid, IDGPULost, IDSuspectMonitor},
		Watch:    []*metric.Def{metric.Utilization, metric.PowerDraw, metric.SMActivity},
		Runbook:  "job_stalled",
	},
	{
		ID:       IDSaturatedGPU,
		Title:    "GPU saturated while the CPU idles",
		Severity: Ticket,
		Meaning: "Requests wait longer than they should for a GPU that is busy all the time, while the node's CPUs have little to do. " +
			"An autoscaler that follows CPU usage does not see it.",
		Action: "Add replicas, and scale on waiting requests instead of CPU usage.",
		Unit:   "seconds",
		For:    5 * time.Minute,
		Hold:   5 * time.Minute,
		// A lost or broken GPU explains the queue better than its load does.
		HiddenBy: []ID{IDXid, IDGPULost, IDSuspectMonitor},
		State:    true,
		Watch: []*metric.Def{metric.Utilization, metric.PowerDraw, metric.MemoryUsed, metric.CPUBusy, metric.CPUBusiest,
			metric.RequestsWaiting, metric.QueueTimeP95, metric.KVCacheUsage},
		Runbook: "saturated_gpu",
	},
	{
		ID:       IDQueueing,
		Title:    "Requests wait in front of a model",
		Severity: Ticket,
		Meaning: "Requests wait longer than they should for another reason than a GPU that is busy all the time: the queue grows without end, " +
			"requests wait again and again, longer than was promised, or beside a replica that has nothing to do. " +
			"A queue that the server shows and that does not exist any more is no finding.",
		Action:      "Add replicas, or find out why those that there are do not get the requests.",
		Unit:        "seconds of waiting; requests that wait for growing and idle_sibling; episodes in 24 h for episodes; replicas for all_replicas",
		For:         5 * time.Minute,
		Statistical: true,
		Hold:        5 * time.Minute,
		Watch:       []*metric.Def{metric.RequestsWaiting, metric.RequestsRunning, metric.QueueTimeP95, metric.ArrivalRate, metric.ServiceRate, metric.KVCacheUsage},
		Runbook:     "queueing",
	},
	{
		ID:       IDUnusualModelUse,
		Title:    "Model used unlike its habit",
		Severity: Ticket,
		Meaning: "What a model is asked, and what it answers, is not what is usual for it: longer prompts or answers, more errors, more requests. " +
			"Somebody may copy the model, misuse a leaked key or try how far it can be pushed; a new client looks the same. " +
			"How much each client asks is not available, as the servers' metrics name no client.",
		Action:      "Tell security, and look in the gateway's log for which client the requests come from.",
		Unit:        "times the usual",
		Statistical: true,
		Hold:        15 * time.Minute,
		Watch:       []*metric.Def{metric.ArrivalRate, metric.RequestsRunning, metric.RequestsWaiting},
		Runbook:     "unusual_model_use",
	},
	{
		ID:       IDWaitingJobs,
		Title:    "Jobs wait although GPUs are free",
		Severity: Ticket,
		Meaning: "Jobs or pods wait for GPUs while GPUs that are right for them are free, for a quarter of an hour, or longer than the queue's declared wait. " +
			"A full cluster and a quota are by design and no finding. Only the cluster role (gpuvigil fleet) sees it.",
		Action:  "Remove what keeps those that wait from the free GPUs.",
		Unit:    "seconds",
		For:     5 * time.Minute,
		Hold:    5 * time.Minute,
		Watch:   []*metric.Def{metric.QueueLongest, metric.QueueTypical},
		Runbook: "waiting_jobs",
	},
	{
		ID:       IDIdleGPU,
		Title:    "GPU held but idle",
		Severity: Ticket,
		Meaning: "Somebody holds the GPU and does next to nothing with it, so nobody else can use it and it costs as much as a busy one. " +
			"It becomes a ticket once its holder has left more than eight GPU-hours idle within a day, or GPU time for more than 50 units of the currency.",
		Action: "Ask the holder to release the GPU, or to find out what the job waits for.",
		Unit:   "seconds",
		Hold:   5 * time.Minute,
		// A job that hangs or has stalled explains why its GPUs are idle.
		HiddenBy: []ID{IDXid, IDGPULost, IDSuspectMonitor, IDJobHung, IDJobStalled},
		Work:     true,
		Watch:    []*metric.Def{metric.Utilization, metric.PowerDraw, metric.MemoryUsed},
		Runbook:  "idle_gpu",
	},
	{
		ID:       IDThrottledGPU,
		Title:    "GPU held below its speed",
		Severity: Ticket,
		Meaning: "Something that is no part of normal work holds the GPU's clocks down: heat, the power brake, the hardware itself; or it runs slower than its peers at the same load and power. " +
			"A job waits for its slowest rank. The software power cap at full power is normal and no finding. A power limit below the board's own is information.",
		Action:   "Look at temperature, air flow and power supply of the node, and at who lowered limits.",
		Unit:     "ratio",
		Hold:     5 * time.Minute,
		HiddenBy: []ID{IDXid, IDGPULost, IDSuspectMonitor},
		Watch:    []*metric.Def{metric.Temperature, metric.MemoryTemperature, metric.PowerDraw, metric.Utilization},
		Runbook:  "throttled_gpu",
	},
	{
		ID:          IDHotGPU,
		Title:       "GPU runs hot",
		Severity:    Ticket,
		Statistical: true,
		Meaning: "A GPU is hotter than its peers at the same load, or than it was at that load, or comes close to the temperature at which it is slowed down. That one has come to draw more or less power than its peers at the same work is information. " +
			"If all GPUs of the node are hotter at once, one finding about the node says so.",
		Action:   "Look at the GPU's heat sink, cold plate and fan; for the whole node at its fans and the air that comes in.",
		Unit:     "degrees Celsius or watts",
		For:      10 * time.Minute,
		Hold:     30 * time.Minute,
		HiddenBy: []ID{IDGPULost},
		Watch:    []*metric.Def{metric.Temperature, metric.MemoryTemperature, metric.PowerDraw, metric.FanSpeed},
		Runbook:  "hot_gpu",
	},
	{
		ID:          IDMemoryLeak,
		Title:       "Memory or open files leak",
		Severity:    Ticket,
		Statistical: true,
		Meaning: "Memory grows steadily and does not come back, on a GPU, in the host or in an inference server's KV cache, or the open files of a process do: what grows ends at its limit. " +
			"It is a ticket if that is within a day, else information.",
		Action:  "Find out what holds it, and restart the workload before it is full.",
		Unit:    "bytes or files",
		Hold:    time.Hour,
		Watch:   []*metric.Def{metric.MemoryUsed, metric.HostMemoryAvailable, metric.KVCacheUsage},
		Runbook: "memory_leak",
	},
	{
		ID:          IDStraggler,
		Title:       "GPU slows its job down",
		Severity:    Ticket,
		Statistical: true,
		Meaning: "A training makes less progress than usual, and one of its GPUs works longer than its peers, at a lower clock, or not at all, by as much as explains it. " +
			"In synchronous training all wait for the slowest. The hardware is suspected only with evidence of its own.",
		Action: "Look at what this GPU's rank does otherwise; with evidence against the hardware, take the GPU out and test it.",
		Unit:   "units of the signal that differs",
		For:    10 * time.Minute,
		Hold:   15 * time.Minute,
		// A job that stands still is not slow.
		HiddenBy: []ID{IDXid, IDGPULost, IDSuspectMonitor, IDJobHung, IDJobStalled},
		Work:     true,
		Watch:    []*metric.Def{metric.PowerDraw, metric.SMActivity, metric.TensorActivity, metric.Temperature},
		Runbook:  "straggler",
	},
	{
		ID:          IDSlowTraining,
		Title:       "Training has become slower",
		Severity:    Ticket,
		Statistical: true,
		Meaning: "A step, sample or token of a training takes longer than it took the same workload before, and goes on to. " +
			"If everything on the node whose pace is known slows down at once, one finding about the node says so instead.",
		Action:   "Look at what changed before it: versions, data, neighbours on the node, clocks and links.",
		Unit:     "seconds",
		HiddenBy: []ID{IDStraggler, IDXid, IDGPULost, IDSuspectMonitor, IDJobHung, IDJobStalled},
		Hold:     20 * time.Minute,
		Watch:    []*metric.Def{metric.Utilization, metric.PowerDraw, metric.CPUBusy},
		Runbook:  "slow_training",
	},
	{
		ID:       IDVersionChanged,
		Title:    "Version changed on the node",
		Severity: Ticket,
		Meaning: "A driver, a library, the kernel or a GPU's firmware is not what it was. One change is worth knowing when something breaks soon after; " +
			"a version that changes back and forth means that two parties install it.",
		Action:  "Check that the change was planned; if it repeats, find out what installs the other version.",
		Unit:    "changes",
		Hold:    time.Hour,
		Watch:   []*metric.Def{metric.GPUsSeen},
		Runbook: "version_changed",
	},
	{
		ID:       IDVersionMismatch,
		Title:    "Versions that do not fit together",
		Severity: Ticket,
		Meaning: "Versions that ought to be the same differ, as among the ranks of one job, or one is known to be bad, is not approved, or is too new for the driver below it. " +
			"Such a job fails or hangs later, in a place that does not show the reason.",
		Action:  "Bring the versions that are named to the same release, or to one that fits the driver, and restart what uses them.",
		Unit:    "versions",
		For:     10 * time.Minute,
		Hold:    10 * time.Minute,
		Watch:   []*metric.Def{metric.GPUsSeen},
		Runbook: "version_mismatch",
	},
	{
		ID:       IDHiddenSharing,
		Title:    "GPU shared without anybody having said so",
		Severity: Ticket,
		Meaning: "Somebody is on a GPU who was not given it, two owners are on one that nobody declared to be shared, or its memory is held by no process. " +
			"Whoever was given the GPU has less of it than they pay for, and one of them can end the other's work.",
		Action:   "Find out who started the second process, and stop it or give it a GPU; if the sharing is meant, declare it to the scheduler.",
		Unit:     "owners",
		Hold:     5 * time.Minute,
		HiddenBy: []ID{IDXid, IDGPULost},
		Watch:    []*metric.Def{metric.Utilization, metric.MemoryUsed, metric.ProcessCount, metric.ProcessMemory},
		Runbook:  "hidden_sharing",
	},
	{
		ID:       IDIsolation,
		Title:    "Work not kept apart from others'",
		Severity: Ticket,
		Meaning: "A workload may reach further than its own GPU and data, or what keeps workloads apart was changed. " +
			"It is a ticket on pools that the configuration calls controlled; elsewhere information, or nothing.",
		Action:  "Check that it is meant; else take the privilege away, or move one of the workloads.",
		Unit:    "workloads",
		For:     5 * time.Minute,
		Hold:    30 * time.Minute,
		Watch:   []*metric.Def{metric.ProcessCount, metric.ConfidentialComputing},
		Runbook: "isolation",
	},
	{
		ID:          IDDataMovement,
		Title:       "Unusual data movement",
		Severity:    Ticket,
		Statistical: true,
		Meaning: "An owner moved far more over its network than it ever does, and is connected to a public network that workloads of its kind were never connected to: " +
			"in one hour, or little by little over hours. Movement that is only unusual is information.",
		Action:  "Ask the owner where the data goes; if he cannot tell, cut off the workload's egress and keep it for the security team.",
		Unit:    "bytes",
		Hold:    15 * time.Minute,
		Watch:   []*metric.Def{metric.Utilization, metric.PowerDraw},
		Runbook: "data_movement",
	},
	{
		ID:          IDSpend,
		Title:       "Spending beyond plan or without output",
		Severity:    Ticket,
		Statistical: true,
		Meaning: "A team's budget of the month will not last, its spending has run away, a workload costs more than was declared for it, " +
			"or GPU time is paid for that yields much less work than it did, or none.",
		Action: "Ask the team whether it is planned; if not, stop what runs away, and restart what makes no progress from its checkpoint.",
		Unit:   "money or seconds",
		Hold:   15 * time.Minute,
		// A job that hangs or has stalled explains why nothing comes of it.
		HiddenBy: []ID{IDJobHung, IDJobStalled},
		Watch:    []*metric.Def{metric.Utilization, metric.PowerDraw},
		Runbook:  "spend",
	},
	{
		ID:       IDUnallocated,
		Title:    "Unallocated sustained compute",
		Severity: Ticket,
		Meaning: "A GPU that was given to nobody computes steadily for half an hour: somebody uses it outside of the scheduler. " +
			"The next workload that is given the GPU will share it without knowing.",
		Action:   "Find out whose the process is, and have it go through the scheduler; end it if nobody knows it.",
		Unit:     "seconds",
		Hold:     5 * time.Minute,
		HiddenBy: []ID{IDXid, IDGPULost},
		Watch:    []*metric.Def{metric.Utilization, metric.PowerDraw, metric.MemoryUtilization},
		Runbook:  "unallocated_compute",
	},
	{
		ID:          IDUnknownUse,
		Title:       "Unknown use of a GPU",
		Severity:    Ticket,
		Statistical: true,
		Meaning: "A process by a name, or a user, that was never seen on the node's GPUs in the weeks that it was watched. " +
			"It is information, and a ticket on a pool whose use is declared to be controlled.",
		Action:  "On a controlled pool: find out who started it and whether that was approved.",
		Unit:    "processes",
		Hold:    15 * time.Minute,
		Watch:   []*metric.Def{metric.Utilization, metric.MemoryUsed},
		Runbook: "unknown_use",
	},
	{
		ID:       IDDrainedOccupied,
		Title:    "Drained node still occupied",
		Severity: Ticket,
		Meaning: "The node was drained half an hour ago or longer, and work still runs on its GPUs. Whoever waits for it to become empty, " +
			"to upgrade or to repair it, waits for that work.",
		Action:  "Ask the holder to end or to move the work, or find out why it was not evicted; if it should go on, take the drain back.",
		Unit:    "GPUs",
		For:     30 * time.Minute,
		Hold:    5 * time.Minute,
		Watch:   []*metric.Def{metric.Utilization, metric.GPUsSeen},
		Runbook: "drained_occupied",
	},
	{
		ID:       IDUnusual,
		Title:    "GPU and its workload behave unlike their habit",
		Severity: Ticket,
		Meaning: "Several readings of the GPU, of its holder and of the servers on it have together left what is usual for this kind of workload. " +
			"Nobody knows whether that is a fault: a single unusual reading is not told, and what the readings say together is rare at this strength.",
		Action:      "Look at what changed at that time: a release, the traffic, a neighbour on the GPU.",
		Unit:        "nats",
		Hold:        30 * time.Minute,
		Statistical: true,
		HiddenBy: []ID{IDXid, IDSuspectMonitor, IDGPULost, IDSXid, IDGPUMemory, IDPCIeLink, IDNVLink, IDNetworkPort, IDUnresponsive,
			IDJobHung, IDJobStalled, IDSaturatedGPU, IDQueueing, IDUnusualModelUse, IDIdleGPU, IDThrottledGPU, IDHotGPU, IDMemoryLeak,
			IDStraggler, IDSlowTraining, IDHiddenSharing, IDDataMovement, IDUnallocated, IDUnknownUse},
		Work:    true,
		Anomaly: true,
		Watch:   []*metric.Def{metric.Utilization, metric.PowerDraw, metric.MemoryUsed, metric.RequestsWaiting, metric.QueueTimeP95},
		Runbook: "unusual",
	},
}

// All returns the rule book in its order. The slice and the rules must not be
// modified.
func All() []*Rule { return book }

// Get returns the rule with the id, or nil if the book has none.
func Get(id ID) *Rule {
	for _, r := range book {
		if r.ID == id {
			return r
		}
	}
	return nil
}

var idPattern = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// Validate reports everything that is missing or contradicts itself in the rule,
// seen as an entry of the given book.
func (r *Rule) Validate(book []*Rule) error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("rule %q: %s", r.ID, fmt.Sprintf(format, args...)))
		}
	}
	check(idPattern.MatchString(string(r.ID)), "the id must match %s", idPattern)
	for name, text := range map[string]string{"title": r.Title, "meaning": r.Meaning, "action": r.Action, "unit": r.Unit, "runbook": r.Runbook} {
		check(text != "", "no %s", name)
	}
	check(int(r.Severity) < len(severityNames), "severity %d is unknown", r.Severity)
	check(r.Severity != Page || r.Pages, "its severity is page but it is not on the list of rules that may page")
	check(r.For >= 0, "it cannot hold for %s before it fires", r.For)
	check(r.Hold > 0, "no hold time: it would resolve at the first good look")
	for _, id := range r.HiddenBy {
		check(id != r.ID, "it hides itself")
		check(has(book, id), "it is hidden by %q, which is no rule", id)
	}
	check(len(r.Watch) > 0, "it watches no reading")
	for _, d := range r.Watch {
		check(d.Kind == metric.Gauge && d.Dim == nil, "it watches %s, which is no plain gauge", d)
	}
	return errors.Join(errs...)
}

func has(book []*Rule, id ID) bool {
	for _, r := range book {
		if r.ID == id {
			return true
		}
	}
	return false
}
