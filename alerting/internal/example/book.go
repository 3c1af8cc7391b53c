package example

import (
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect"
	"gpuvigil/rules"
)

// book has what was said of one fault of each rule, in the order of the rule book.
var book = []said{
	{
		rule: rules.IDXid, cause: "xid_79", severity: rules.Page, subject: detect.Subject{Kind: "gpu", ID: uuid}, gpu: 3, owner: training,
		evidence: detect.Evidence{
			Seen:       "Xid 79 at 03:12:04 UTC: the GPU has fallen off the bus; followed by Xid 154 (Node Reboot Required); 7 of 8 GPUs answer",
			Expected:   "no such error",
			Confidence: detect.Certain, Why: "reported by the driver",
			Title:  "The GPU has fallen off the bus (Xid 79)",
			Action: "Drain the node and power-cycle it; the second time in 30 days, have the GPU replaced.",
		},
		before: []collector.Event{
			{Time: Start.Add(-9 * time.Minute), Kind: collector.ClocksEvent, Text: "hw_thermal"},
			{Time: Start.Add(-6 * time.Second), Kind: collector.XidEvent, UUID: uuid, Code: 74},
		},
	},
	{
		rule: rules.IDSuspectMonitor, cause: "silent_together", severity: rules.Page, subject: detect.Subject{Kind: "node", ID: node}, gpu: -1,
		evidence: detect.Evidence{
			Seen:       "the driver has not answered for 4 of 8 GPUs since 03:12:04 UTC; it lists 4, and 4 answer",
			Expected:   "answers, as before",
			Confidence: detect.Certain, Why: "all in the same minute: rather the driver, who asks it, or what they share, than each of the GPUs",
			Title:  "4 of 8 GPUs stopped answering together",
			Action: "Run `nvidia-smi` and `gpuvigil doctor` on the node: if GPUs are missing there too, look in the kernel log for what happened to the driver and to what they share (power, a PCIe switch, the baseboard), drain the node and power-cycle it; if only gpuvigil misses them, restart it.",
		},
	},
	{
		rule: rules.IDGPULost, cause: "gone", severity: rules.Page, subject: detect.Subject{Kind: "gpu", ID: uuid}, gpu: 3, owner: training,
		evidence: detect.Evidence{
			Seen:       "the driver has not answered for it since 03:12:04 UTC; it lists 7 GPUs, and 7 of 8 answer",
			Expected:   "an answer, as before",
			Confidence: detect.Certain, Why: "the driver answers for the others",
		},
	},
	{
		rule: rules.IDSXid, cause: "fatal", severity: rules.Page, subject: detect.Subject{Kind: "node", ID: node}, gpu: -1,
		evidence: detect.Evidence{
			Seen:       "SXid 22013 (fatal) at 03:12:04 UTC on NVSwitch 0000:a9:00.0; 3 errors since 03:12:02 UTC with codes 20034, 22013",
			Expected:   "no such error",
			Confidence: detect.Certain, Why: "reported by the driver in the fabric manager's log and in the kernel log",
			Title: "NVSwitch error, fatal (SXid 22013)",
		},
	},
	{
		rule: rules.IDGPUMemory, cause: "uncorrected", severity: rules.Ticket, subject: detect.Subject{Kind: "gpu", ID: uuid}, gpu: 3, owner: training,
		evidence: detect.Evidence{
			Seen:       "1 uncorrected memory error since 03:12:04 UTC, 1 of them in on-chip memory",
			Expected:   "no such error",
			Confidence: detect.Certain, Why: "reported by the driver",
			Title:  "GPU memory errors that could not be corrected",
			Action: "Drain the GPU and reset it; on-chip memory has no spare rows, so have the board replaced if it happens again.",
		},
	},
	{
		rule: rules.IDPCIeLink, cause: "replays", severity: rules.Ticket, subject: detect.Subject{Kind: "gpu", ID: uuid}, gpu: 3, owner: training,
		evidence: detect.Evidence{
			Seen:       "127 PCIe packets sent again in an hour, most of them in 4 bad minutes",
			Expected:   "about 0 in an hour, as over 26 h 5 min before",
			Confidence: detect.VerySure, Why: "by the number of errors and of bad minutes, each by an exact test",
			Title:  "PCIe link of the GPU loses packets",
			Action: "Watch whether the GPU falls off the bus; when the node is next idle, seat the board anew, and look at riser and cables.",
		},
	},
	{
		rule: rules.IDNVLink, cause: "links_down", severity: rules.Page, subject: detect.Subject{Kind: "gpu", ID: uuid}, gpu: 3, owner: training,
		evidence: detect.Evidence{
			Seen:       "16 of 18 NVLinks are up since 03:12:04 UTC",
			Expected:   "all that were up",
			Confidence: detect.Certain, Why: "reported by the driver",
			Title:  "NVLinks of the GPU are down",
			Action: "Drain the node, reset the GPUs of the fabric together, and look at cables and the fabric manager's log; if it comes back, have the board repaired.",
		},
	},
	{
		rule: rules.IDNetworkPort, cause: "down", severity: rules.Ticket, subject: detect.Subject{Kind: "interface", ID: "mlx5_2/1"}, gpu: -1,
		evidence: detect.Evidence{
			Seen:       "port mlx5_2/1 (InfiniBand) has been DOWN, Polling, since 03:12:04 UTC; 3 of 4 ports of the node are up",
			Expected:   "active, as before",
			Confidence: detect.Certain, Why: "reported by the adapter",
			Title:  "Network port mlx5_2/1 is down",
			Action: "Look at the port of the switch and the cable; keep jobs that use several nodes off this one until it is up.",
		},
	},
	{
		rule: rules.IDUnresponsive, cause: "restarts", severity: rules.Ticket, subject: detect.Subject{Kind: "node", ID: node}, gpu: -1,
		evidence: detect.Evidence{
			Seen:       "the process that asks the driver was restarted 3 times since 02:52:00 UTC; the last time at 03:12:00 UTC because the driver's initialisation hung",
			Expected:   "no restart",
			Confidence: detect.Certain, Why: "counted by gpuvigil",
			Title:  "What asks the driver had to be restarted again and again",
			Action: "Run `nvidia-smi` on the node: if it is slow or fails too, look in the kernel log for the driver, drain the node and reboot it; else report this, with the agent's log.",
		},
		before: []collector.Event{{Time: Start.Add(-time.Minute), Kind: collector.ChildRestart, Text: "init_hung: the driver's initialisation hangs"}},
	},
	{
		rule: rules.IDJobHung, cause: "collective", severity: rules.Page, subject: detect.Subject{Kind: "job", ID: training.ID}, gpu: -1, owner: training,
		evidence: detect.Evidence{
			Seen:       "7 of 8 GPUs at 100 % utilization and 234 of 1000 W for 5 min, links at 701 MB/s (at work 197 GB/s); suspect: GPU 5, 0 % utilization, process 31977",
			Expected:   "above 300 W at full utilization",
			Confidence: detect.VerySure, Why: "utilization, power and links agree for 5 min",
			Title:  "job:slurm/4711 hangs: 7 of its 8 GPUs here spin",
			Action: "Take a stack of process 31977 on GPU 5, then restart the job from its last checkpoint.",
		},
	},
	{
		rule: rules.IDJobStalled, cause: "no_progress", severity: rules.Page, subject: detect.Subject{Kind: "job", ID: training.ID}, gpu: -1, owner: training,
		evidence: detect.Evidence{
			Seen:       "all 8 GPUs that worked are under a tenth of their usual activity for 10 min (now 0 %, usually 92 %), processes are there",
			Expected:   "above 9 %, or writing a checkpoint",
			Confidence: detect.VerySure, Why: "it writes no checkpoint and its longest pause before was 0 s",
			Title: "job:slurm/4711 stalls: it worked, and has done nothing for 10 min",
		},
	},
	{
		rule: rules.IDSaturatedGPU, cause: "vram_bound", severity: rules.Ticket, subject: detect.Subject{Kind: "gpu", ID: uuid}, gpu: 3, owner: serving,
		evidence: detect.Evidence{
			Seen:       "chat-70b: GPU 98 % busy for 10 min, CPU 11 %, 38 requests waiting, queue-time p95 4.1 s, KV cache 97 %",
			Expected:   "queue-time p95 below its SLO of 1 s",
			Confidence: detect.Certain, Why: "measured by the server against its SLO",
			Title:  "KV cache full while the CPU idles",
			Action: "The KV cache is the limit: give it more memory, shorten the context, or add replicas; scale on waiting requests instead of CPU usage.",
		},
	},
	{
		rule: rules.IDQueueing, cause: "above_slo", severity: rules.Ticket, subject: detect.Subject{Kind: "endpoint", ID: url}, gpu: -1, owner: serving,
		evidence: detect.Evidence{
			Seen:       "chat-70b: 38 requests waiting, queue-time p95 4.1 s for 5 min, 17/s arrive and 17/s are served, utilization 100 %, KV cache 80 %, 60 preemptions a minute, Little's law agrees, about 1 more replica is needed beside the 1 here",
			Expected:   "queue-time p95 below its SLO of 1 s",
			Confidence: detect.Certain, Why: "measured by the server against its SLO",
			Title:  "Requests wait longer than their objective allows",
			Action: "Give the KV cache room: fewer or shorter requests at once, or more replicas; a faster GPU alone does not help.",
		},
	},
	{
		rule: rules.IDUnusualModelUse, cause: "unlike_habit", severity: rules.Ticket, subject: detect.Subject{Kind: "endpoint", ID: url}, gpu: -1, owner: serving,
		evidence: detect.Evidence{
			Seen:       "chat-70b: 390 tokens a prompt on average, 1500 tokens an answer on average, 3.9 tokens out for each one in for 5 min; volume per client: not available, the server's metrics name no client",
			Expected:   "about 790 tokens a prompt, 200 tokens an answer, 0.25 out for each one in",
			Confidence: detect.Likely, Why: "unlike 5 d of its own history",
		},
	},
	{
		rule: rules.IDWaitingJobs, cause: "free_gpus", severity: rules.Ticket, subject: detect.Subject{Kind: "queue", ID: "slurm/batch"}, gpu: -1,
		evidence: detect.Evidence{
			Seen:       "3 jobs wait in queue batch for 8×H100, 44 free: 31 on 6 nodes with fewer than 8, 8 on 1 tainted node, 5 on 2 nodes without CPUs left; longest 3 h 25 min; not for them: 16 of another model",
			Expected:   "no job waits while enough GPUs that are right for it are free",
			Confidence: detect.Certain, Why: "told by the scheduler",
			Title:  "3 jobs wait for 8×H100 while 44 are free",
			Action: "Move small jobs together so that whole nodes become free, most of all on gpu-12.",
		},
	},
	{
		rule: rules.IDIdleGPU, cause: "idle_with_context", severity: rules.Ticket, subject: detect.Subject{Kind: "gpu", ID: uuid}, gpu: 3, owner: training,
		evidence: detect.Evidence{
			Seen:       "GPU under 5 % busy for 8 h 10 min, 116 W (at rest with a context open about 117 W), held by 1 process with 61.2 GiB; its holder left 9.4 GPU-hours idle in 24 h",
			Expected:   "at work within 30 min, or released; a ticket from 8 idle GPU-hours a day or 50.00 USD",
			Confidence: detect.Certain, Why: "measured by the driver all that time",
		},
	},
	{
		rule: rules.IDThrottledGPU, cause: "hw_thermal", severity: rules.Ticket, subject: detect.Subject{Kind: "gpu", ID: uuid}, gpu: 3, owner: training,
		evidence: detect.Evidence{
			Seen:       "its thermal protection held the clocks for 2.5 % of the last ten minutes, 560 W",
			Expected:   "at most 1 %",
			Confidence: detect.Certain, Why: "reported by the driver",
			Title:  "GPU held down by its thermal protection",
			Action: "Look at fans, air flow and coolant of the node; the GPU protects itself from damage.",
		},
	},
	{
		rule: rules.IDHotGPU, cause: "hotter_than_peers", severity: rules.Ticket, subject: detect.Subject{Kind: "gpu", ID: uuid}, gpu: 3, owner: training,
		evidence: detect.Evidence{
			Seen:       "GPU 3: memory at 84 °C at 87 % of its power limit, 12.5 K hotter than its load explains, for 18 min; 7 peers are 0.0 K hotter",
			Expected:   "about 72 °C, by its load and what its peers have in common now",
			Confidence: detect.VerySure, Why: "how its temperature follows from the load was learned of itself, so that a place in warmer air does not count",
			Title:  "GPU 3 runs hotter than its peers",
			Action: "Look for a blocked heat sink, a failed fan or a loose cold plate of this GPU; move work away before it slows down.",
		},
	},
	{
		rule: rules.IDMemoryLeak, cause: "gpu_memory", severity: rules.Ticket, subject: detect.Subject{Kind: "pod", ID: serving.ID}, gpu: 3, owner: serving,
		evidence: detect.Evidence{
			Seen:       "GPU memory of pod serving/chat-70b-0 on GPU 3 grows by 2.03 GiB an hour since 01:10 UTC (from 40.3 GiB to 44.1 GiB), full in 18 h (17 h to 18 h)",
			Expected:   "no steady growth of 8 % or more, from about 40.3 GiB",
			Confidence: detect.Likely, Why: "a trend over 2 h (Mann–Kendall z 6.8), for 30 min",
			Title: "GPU memory leaks",
		},
	},
	{
		rule: rules.IDStraggler, cause: "hardware", severity: rules.Ticket, subject: detect.Subject{Kind: "job", ID: training.ID}, gpu: 3, owner: training,
		evidence: detect.Evidence{
			Seen:       "a sample of job slurm/4711 takes 1.2 s, 19 % more than usual, for 20 min; of its 8 GPUs here GPU 3 is the odd one out: tensor activity 55 %, the others about 46 %",
			Expected:   "the same relation to its peers as before, and about 1 s for a sample",
			Confidence: detect.VerySure, Why: "its SM clock is 1650 MHz, its peers' 1980 MHz",
			Title:  "GPU 3 slows its job down, its hardware is suspected",
			Action: "Take the GPU out of the job, run the vendor's diagnostics on it, and see whether the next job on it is slow, too.",
		},
	},
	{
		rule: rules.IDSlowTraining, cause: "step_time", severity: rules.Ticket, subject: detect.Subject{Kind: "job", ID: training.ID}, gpu: -1, owner: training,
		evidence: detect.Evidence{
			Seen:       "a sample of job slurm/4711 takes 1.2 s, 20 % more than usual, since 02:48 UTC (for 24 min)",
			Expected:   "about 1 s, as in its own last hours",
			Confidence: detect.VerySure, Why: "told by the workload, means of a minute against its own past",
			Title: "Training of slurm/4711 has become slower",
		},
		before: []collector.Event{{Time: Start.Add(-2 * time.Minute), Kind: collector.InventoryEvent, Owner: training, Component: "torch", From: "2.6.0", To: "2.7.1"}},
	},
	{
		rule: rules.IDVersionChanged, cause: "driver", severity: rules.Info, subject: detect.Subject{Kind: "node", ID: node}, gpu: -1,
		evidence: detect.Evidence{
			Seen:       "driver 570.86 → 580.65 (with cuda 12.8 → 13.0, nvml 12.570.86 → 13.580.65, kernel_module 570.86 → 580.65, gsp 570.86 → 580.65)",
			Expected:   "570.86, as for the last 30 min",
			Confidence: detect.Certain, Why: "both versions were reported by the node",
			Title: "Driver version changed",
		},
	},
	{
		rule: rules.IDVersionMismatch, cause: "kernel_module_differs", severity: rules.Ticket, subject: detect.Subject{Kind: "node", ID: node}, gpu: -1,
		evidence: detect.Evidence{
			Seen:       "the kernel module is 580.65, the driver's library 580.82, for 1 h 19 min",
			Expected:   "the same version: programs that start now fail with a driver/library version mismatch",
			Confidence: detect.Certain, Why: "the kernel tells of the module, the library's name of itself",
			Title:  "Driver installed but not loaded",
			Action: "Drain the node and reload the driver's modules, or boot it; until then no new program can use its GPUs.",
		},
	},
	{
		rule: rules.IDHiddenSharing, cause: "two_owners", severity: rules.Ticket, subject: detect.Subject{Kind: "gpu", ID: uuid}, gpu: 3, owner: serving,
		evidence: detect.Evidence{
			Seen:       "a user of the node (600 MiB, 12 % of the SMs) on GPU 3 beside container notebook (38 GiB, 46 % of the SMs), which had 75 % before; the GPU is 50 % busy, for 5 min",
			Expected:   "one owner, or sharing that a scheduler declares",
			Confidence: detect.Certain, Why: "processes and their owners are listed by the driver and the kernel",
			Title: "GPU shared by two owners without anybody having said so",
		},
	},
	{
		rule: rules.IDIsolation, cause: "privileged", severity: rules.Ticket, subject: detect.Subject{Kind: "pod", ID: serving.ID}, gpu: 3, owner: serving,
		evidence: detect.Evidence{
			Seen:       "a process of pod serving/chat-70b-0 on GPU 3 has every capability on the node",
			Expected:   "a container that was given its GPU and no more",
			Confidence: detect.Certain, Why: "told by the kernel, the driver and the configuration",
			Title:  "Privileged container on a GPU",
			Action: "Take the privilege away; a GPU does not need it.",
		},
	},
	{
		rule: rules.IDDataMovement, cause: "egress", severity: rules.Ticket, subject: detect.Subject{Kind: "pod", ID: serving.ID}, gpu: -1, owner: serving,
		evidence: detect.Evidence{
			Seen:       "sent 50.1 GB within an hour; connected to 1 public network that it was never connected to before 2026-03-13 00:00 UTC",
			Expected:   "at most 50 GB, or known networks only",
			Confidence: detect.Young, Why: "against 2 d of this kind of workload; by chance less than once in a million weeks",
			Title: "Large upload to a new network",
		},
	},
	{
		rule: rules.IDSpend, cause: "runaway", severity: rules.Ticket, subject: detect.Subject{Kind: "team", ID: "nlp"}, gpu: -1,
		evidence: detect.Evidence{
			Seen:       "30.00 USD an hour for 2 h, more than 30 times what is usual at this time of day; at this rate the budget is used up in 3 d",
			Expected:   "1.00 USD an hour, and 3100 USD by the month's end at the most",
			Confidence: detect.VerySure, Why: "against the median of 11 days",
			Title: "Spending runs away",
		},
	},
	{
		rule: rules.IDUnallocated, cause: "unallocated", severity: rules.Ticket, subject: detect.Subject{Kind: "gpu", ID: uuid}, gpu: 3,
		evidence: detect.Evidence{
			Seen:       "given to nobody, and computes steadily for 30 min, at 35 % and 290 W, its memory busy 20 % of the time, by 1 process",
			Expected:   "no compute on a GPU that the scheduler has given to nobody",
			Confidence: detect.Certain, Why: "the scheduler's allocations are known, and measured by the driver all that time",
		},
	},
	{
		rule: rules.IDUnknownUse, cause: "process", severity: rules.Info, subject: detect.Subject{Kind: "job", ID: training.ID}, gpu: -1, owner: training,
		evidence: detect.Evidence{
			Seen:       "1 process by names such as \"hashcat\", never seen on a GPU of this node before 2026-03-14 03:12 UTC",
			Expected:   "names and users that were seen here before",
			Confidence: detect.Certain, Why: "of the 8 d that the node was watched",
			Title: "Program never seen on the node's GPUs",
		},
	},
	{
		rule: rules.IDDrainedOccupied, cause: "occupied", severity: rules.Ticket, subject: detect.Subject{Kind: "node", ID: node}, gpu: -1,
		evidence: detect.Evidence{
			Seen:       "the node is drained, and work runs on GPU 1: pod:serving/chat-70b-0",
			Expected:   "nothing runs on a drained node",
			Confidence: detect.Certain, Why: "the drain and the processes are facts",
		},
	},
	{
		rule: rules.IDUnusual, cause: "fused", severity: rules.Ticket, subject: detect.Subject{Kind: "gpu", ID: uuid}, gpu: 3, owner: serving,
		evidence: detect.Evidence{
			Seen:       "Power 523 W (usually 417 W), GPU memory 48.9 GiB (usually 42.9 GiB), host memory of its holder 33.6 GiB (usually 31.2 GiB), since 02:42:00 UTC",
			Expected:   "what is usual for this workload on this GPU",
			Confidence: detect.Likely, Why: "6.6 nats of readings that do not depend on each other, over 30 min; a healthy GPU comes to 3.5 in less than one week of nine",
		},
	},
}
