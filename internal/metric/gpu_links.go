package metric

// The closed dimensions of a GPU's links.
var (
	PCIeFault = &Dimension{Label: "kind", Values: []string{
		"correctable", "nak_received", "receiver", "bad_tlp", "nak_sent", "bad_dllp", "non_fatal", "fatal",
		"unsupported_request", "lcrc", "lane", "recovery", "replay_rollover",
	}}
	NVLinkFault  = &Dimension{Label: "kind", Values: []string{"crc_flit", "crc_data", "replay", "recovery", "ecc_data"}}
	NVLink5Fault = &Dimension{Label: "kind", Values: []string{"effective", "symbol", "link_recovery", "link_recovery_failed"}}
	NVLinkDrop   = &Dimension{Label: "kind", Values: []string{
		"malformed", "buffer_overrun", "receive", "remote", "general", "link_integrity", "transmit_discard",
	}}
	NVLinkBits = &Dimension{Label: "kind", Values: []string{"effective", "symbol"}}
	FECBin     = &Dimension{Label: "corrected", Values: []string{
		"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15",
	}}
	C2CFault = &Dimension{Label: "kind", Values: []string{"crc", "replay", "replay_back_to_back"}}
)

// Rows of PCIe.
var (
	PCIeReplays = row(Def{Entity: GPU, Kind: Counter, Tier: Slow, Name: "vigil_gpu_pcie_replays_total",
		NVML: "nvmlDeviceGetPcieReplayCounter", Raw: "count",
		DCGM: renamed(Counter, 0, 0, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "DCGM_FI_DEV_PCIE_REPLAY_TOTAL"),
		Help: "PCIe packets sent again."})
	PCIeThroughput = row(Def{Entity: GPU, Tier: Slow, Max: 1e12, Name: "vigil_gpu_pcie_throughput_bytes_per_second", Dim: Direction,
		NVML: "nvmlDeviceGetPcieThroughput/{RX,TX}", Raw: "KB/s", Scale: kilo,
		DCGM: names(kept(Gauge, 0, 0, "DCGM_FI_PROF_PCIE_RX_BYTES"), kept(Gauge, 1, 0, "DCGM_FI_PROF_PCIE_TX_BYTES"),
			custom(Gauge, 0, 1/kilo, "DCGM_FI_DEV_PCIE_RX_THROUGHPUT"), custom(Gauge, 1, 1/kilo, "DCGM_FI_DEV_PCIE_TX_THROUGHPUT")),
		Help: "PCIe traffic seen from the GPU. On Hopper and later the mean of the last second, from GPM; before, a sample of 20 ms, for each direction of which the driver is blocked."})
	PCIeBytes = row(Def{Entity: GPU, Kind: Counter, Tier: Slow, Name: "vigil_gpu_pcie_bytes_total", Dim: Direction,
		NVML: "field/{198,197}", Raw: "B",
		Help: "PCIe traffic seen from the GPU, from R555 on. Absent where the driver's counter is so narrow that it wraps between two looks."})
	PCIeErrors = row(Def{Entity: GPU, Kind: Counter, Tier: Slow, Detail: true, Name: "vigil_gpu_pcie_errors_total", Dim: PCIeFault,
		NVML: "field/{173,174,175,176,177,178,179,180,181,182,183,169,95}", Raw: "count",
		Help: "PCIe errors by kind."})
	PCIeGeneration = row(Def{Entity: GPU, Tier: Slow, Min: 1, Max: 10, Name: "vigil_gpu_pcie_link_generation",
		NVML: "nvmlDeviceGetCurrPcieLinkGeneration", Raw: "generation", DCGM: custom(Gauge, 0, 0, "DCGM_FI_DEV_PCIE_LINK_GEN"),
		Help: "PCIe generation of the link now; idle links step down."})
	PCIeWidth = row(Def{Entity: GPU, Tier: Slow, Min: 1, Max: 32, Name: "vigil_gpu_pcie_link_width_lanes",
		NVML: "nvmlDeviceGetCurrPcieLinkWidth", Raw: "lanes", DCGM: custom(Gauge, 0, 0, "DCGM_FI_DEV_PCIE_LINK_WIDTH"),
		Help: "PCIe lanes of the link now."})
	PCIeMaxGeneration = row(Def{Entity: GPU, Tier: Inventory, Min: 1, Max: 10, Name: "vigil_gpu_pcie_link_max_generation",
		NVML: "nvmlDeviceGetMaxPcieLinkGeneration", Raw: "generation", DCGM: custom(Gauge, 0, 0, "DCGM_FI_DEV_PCIE_MAX_LINK_GEN"),
		Help: "Highest PCIe generation that GPU and slot can do together."})
	PCIeGPUGeneration = row(Def{Entity: GPU, Tier: Inventory, Min: 1, Max: 10, Detail: true, Name: "vigil_gpu_pcie_gpu_max_generation",
		NVML: "nvmlDeviceGetGpuMaxPcieLinkGeneration", Raw: "generation",
		Help: "Highest PCIe generation that the GPU alone can do."})
	PCIeMaxWidth = row(Def{Entity: GPU, Tier: Inventory, Min: 1, Max: 32, Name: "vigil_gpu_pcie_link_max_width_lanes",
		NVML: "nvmlDeviceGetMaxPcieLinkWidth", Raw: "lanes", DCGM: custom(Gauge, 0, 0, "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH"),
		Help: "Most PCIe lanes that GPU and slot can do together."})
)

// Rows of all NVLinks of a GPU together.
var (
	NVLinks = row(Def{Entity: GPU, Tier: Slow, Max: 64, Name: "vigil_gpu_nvlinks",
		NVML: "field/91", Raw: "count", Help: "NVLinks that the GPU has."})
	NVLinksUp = row(Def{Entity: GPU, Tier: Slow, Max: 64, Name: "vigil_gpu_nvlinks_up",
		NVML: "field/165 of each link", Raw: "state", DCGM: custom(Gauge, 0, 0, "DCGM_FI_DEV_NVLINK_COUNT_UP"),
		Help: "NVLinks that are up."})
	NVLinkBytes = row(Def{Entity: GPU, Kind: Counter, Tier: Slow, Name: "vigil_gpu_nvlink_bytes_total", Dim: Direction,
		NVML: "field/{139,138}/all", Raw: "KiB", Scale: kibi,
		Help: "Data that went over all NVLinks of the GPU, without the links' own overhead."})
	NVLinkThroughput = row(Def{Entity: GPU, Tier: Slow, Max: 1e14, Detail: true, Name: "vigil_gpu_nvlink_throughput_bytes_per_second", Dim: Direction,
		DCGM: []DCGM{
			{Name: "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", Generation: Until48, Kind: Counter, Sum: true, Scale: 1.0 / kibi / kilo, Integer: true, Listed: true},
			{Name: "DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND", Generation: Since49, Kind: Gauge, Sum: true, Listed: true},
			{Name: "DCGM_FI_PROF_NVLINK_RX_BYTES", Generation: AnyDCGM, At: 0}, {Name: "DCGM_FI_PROF_NVLINK_TX_BYTES", Generation: AnyDCGM, At: 1},
		},
		Help: "Data per second over all NVLinks of the GPU, the mean since the sample before: what the counter grew by."})
	NVLinkErrors = row(Def{Entity: GPU, Kind: Counter, Tier: Slow, Name: "vigil_gpu_nvlink_errors_total", Dim: NVLinkFault,
		NVML: "field/{38,45,52,59,160}", Raw: "count",
		DCGM: names(renamed(Counter, 0, 0, "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL"),
			renamed(Counter, 1, 0, "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_TOTAL"),
			renamed(Counter, 2, 0, "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_TOTAL"),
			renamed(Counter, 3, 0, "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL")),
		Help: "Errors on all NVLinks of the GPU, up to NVLink 4."})
	NVLink5Errors = row(Def{Entity: GPU, Kind: Counter, Tier: Slow, Name: "vigil_gpu_nvlink5_errors_total", Dim: NVLink5Fault,
		NVML: "field/{219,221,215,214}/all", Raw: "count",
		Help: "Errors on all NVLinks of the GPU from NVLink 5 on, and how often a link went to recovery and did not come back."})
	NVLink5Drops = row(Def{Entity: GPU, Kind: Counter, Tier: Slow, Detail: true, Name: "vigil_gpu_nvlink5_packet_errors_total", Dim: NVLinkDrop,
		NVML: "field/{206,207,208,209,210,211,212}/all", Raw: "packets",
		Help: "Packets with errors on all NVLinks of the GPU from NVLink 5 on."})
	NVLinkBER = row(Def{Entity: GPU, Tier: Slow, Max: 1, Detail: true, Name: "vigil_gpu_nvlink5_bit_error_ratio", Dim: NVLinkBits,
		NVML: "field/{220,222}/all", Raw: "BER",
		Help: "Bit error rate of the NVLinks from NVLink 5 on, before and after errors in symbols are corrected."})
	NVLinkFEC = row(Def{Entity: GPU, Kind: Counter, Tier: Slow, Detail: true, Name: "vigil_gpu_nvlink5_fec_blocks_total", Dim: FECBin,
		NVML: "field/{235,236,237,238,239,240,241,242,243,244,245,246,247,248,249,250}/all", Raw: "blocks",
		Help: "Blocks on the NVLinks from NVLink 5 on, by how many of their symbols forward error correction had to correct."})
)

// Rows of the other ways between GPUs.
var (
	FabricState = row(Def{Entity: GPU, Tier: Slow, Max: 3, Name: "vigil_gpu_fabric_state",
		NVML: "nvmlDeviceGetGpuFabricInfoV.state", Raw: "state", DCGM: custom(Gauge, 0, 0, "DCGM_FI_DEV_FABRIC_MANAGER_STATUS"),
		Help: "How far the GPU is in joining the NVLink fabric: 0 it has none, 1 not started, 2 in progress, 3 done."})
	FabricHealth = row(Def{Entity: GPU, Tier: Slow, Max: 3, Name: "vigil_gpu_fabric_health",
		NVML: "nvmlDeviceGetGpuFabricInfoV.summary", Raw: "summary", DCGM: custom(Gauge, 0, 0, "DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY"),
		Help: "Health of the GPU's access to the NVLink fabric: 0 unknown, 1 healthy, 2 unhealthy, 3 limited."})
	FabricHealthMask = row(Def{Entity: GPU, Tier: Slow, Max: 1 << 32, Detail: true, Name: "vigil_gpu_fabric_health_mask",
		NVML: "nvmlDeviceGetGpuFabricInfoV.mask", Raw: "bits", DCGM: custom(Gauge, 0, 0, "DCGM_FI_DEV_FABRIC_HEALTH_MASK"),
		Help: "The bits behind the health: two each for degraded bandwidth, route recovery, unhealthy routes, access timeouts and configuration."})
	FabricClique = row(Def{Entity: GPU, Tier: Slow, Max: 1 << 32, Detail: true, Name: "vigil_gpu_fabric_clique",
		NVML: "nvmlDeviceGetGpuFabricInfoV.clique", Raw: "id", DCGM: custom(Gauge, 0, 0, "DCGM_FI_DEV_FABRIC_CLIQUE_ID"),
		Help: "Number of the clique: GPUs of one cluster and clique reach each other over NVLink."})
	C2CLinks = row(Def{Entity: GPU, Tier: Inventory, Max: 64, Detail: true, Name: "vigil_gpu_c2c_links",
		NVML: "field/170", Raw: "count", Help: "Chip-to-chip links between the GPU and its CPU, on Grace."})
	C2CMode = row(Def{Entity: GPU, Tier: Inventory, Max: 1, Detail: true, Name: "vigil_gpu_c2c_enabled",
		NVML: "nvmlDeviceGetC2cModeInfoV", Raw: "0/1", Help: "1 if GPU and CPU are joined chip to chip, on Grace."})
	C2CErrors = row(Def{Entity: GPU, Kind: Counter, Tier: Slow, Detail: true, Name: "vigil_gpu_c2c_errors_total", Dim: C2CFault,
		NVML: "field/{231,232,233}", Raw: "count", Help: "Errors on the chip-to-chip links."})
)
