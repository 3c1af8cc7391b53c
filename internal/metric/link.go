package metric

// LinkFault is what NVLink counts on each link, up to NVLink 4.
var LinkFault = &Dimension{Label: "kind", Values: []string{"replay", "recovery", "crc"}}

// Rows of one NVLink of a GPU, in the full profile.
var (
	LinkUp = row(Def{Entity: Link, Tier: Slow, Max: 1, Detail: true, Name: "vigil_nvlink_up",
		NVML: "field/165 of each link", Raw: "0/1",
		Help: "1 while the link is up."})
	LinkSpeed = row(Def{Entity: Link, Tier: Slow, Max: 1e13, Detail: true, Name: "vigil_nvlink_speed_bytes_per_second",
		NVML: "field/164 of each link", Raw: "MB/s", Scale: mega,
		Help: "What the link can do in each direction now."})
	LinkBytes = row(Def{Entity: Link, Kind: Counter, Tier: Slow, Detail: true, Name: "vigil_nvlink_bytes_total", Dim: Direction,
		NVML: "field/{139,138} of each link", Raw: "KiB", Scale: kibi,
		DCGM: []DCGM{{Name: "DCGM_FI_DEV_NVLINK_BANDWIDTH_L0", Generation: AnyDCGM, Kind: Counter, Sum: true, Listed: true}},
		Help: "Data that went over the link. DCGM's name for it is of link 0 only."})
	LinkErrors = row(Def{Entity: Link, Kind: Counter, Tier: Slow, Detail: true, Name: "vigil_nvlink_errors_total", Dim: LinkFault,
		NVML: "field/{161,162,163} of each link", Raw: "count",
		Help: "Errors on the link, up to NVLink 4."})
	Link5Errors = row(Def{Entity: Link, Kind: Counter, Tier: Slow, Detail: true, Name: "vigil_nvlink5_errors_total", Dim: NVLink5Fault,
		NVML: "field/{219,221,215,214} of each link", Raw: "count",
		Help: "Errors on the link from NVLink 5 on, and how often it went to recovery and did not come back."})
	LinkBER = row(Def{Entity: Link, Tier: Slow, Max: 1, Detail: true, Name: "vigil_nvlink5_bit_error_ratio", Dim: NVLinkBits,
		NVML: "field/{220,222} of each link", Raw: "BER",
		Help: "Bit error rate of the link from NVLink 5 on, before and after errors in symbols are corrected."})
)
