package metric

// Rows of what the kernel log and the fabric manager's log tell.
var (
	SXidErrors = row(Def{Entity: Node, Kind: Counter, Tier: Fast, Name: "vigil_nvswitch_sxid_errors_total", Labels: []string{"switch", "sxid", "severity"},
		Help: "Errors of an NVSwitch by code since the node booted, as far as an agent was told; switch is its PCI address, severity is fatal or non_fatal. The driver leaves lines out when there are many: the count is a floor."})
	SXidLast = row(Def{Entity: Node, Tier: Fast, Name: "vigil_nvswitch_sxid_last_timestamp_seconds", Labels: []string{"switch", "sxid", "severity"},
		Help: "Unix time of the switch's last error with this code."})

	FabricManagerErrors = row(Def{Entity: Node, Kind: Counter, Tier: Fast, Name: "vigil_fabric_manager_errors_total",
		Help: "Errors that the fabric manager has written into its log since the agent started, those of switches among them."})
	KernelLogRecords = row(Def{Entity: Node, Kind: Counter, Tier: Fast, Name: "vigil_kernel_log_records_total",
		Help: "Records of the kernel log that were read since the agent started."})
	KernelLogLost = row(Def{Entity: Node, Kind: Counter, Tier: Fast, Name: "vigil_kernel_log_lost_records_total",
		Help: "Records of the kernel log that the kernel overwrote before the agent had read them: errors may be missing."})
)
