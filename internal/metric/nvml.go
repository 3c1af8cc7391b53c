package metric

// The closed dimensions of what is told of the calls into NVML.
var (
	// NVMLFunction is every function of NVML that is timed: a test in collector/nvml
	// fails for one that is called and not listed.
	NVMLFunction = &Dimension{Label: "function", Shown: 10, Values: []string{
		"nvmlDeviceGetAccountingBufferSize", "nvmlDeviceGetAccountingMode", "nvmlDeviceGetActiveVgpus",
		"nvmlDeviceGetApplicationsClock", "nvmlDeviceGetArchitecture", "nvmlDeviceGetAttributes", "nvmlDeviceGetBAR1MemoryInfo",
		"nvmlDeviceGetBoardPartNumber", "nvmlDeviceGetC2cModeInfoV", "nvmlDeviceGetClockInfo", "nvmlDeviceGetComputeInstanceId", "nvmlDeviceGetComputeMode",
		"nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetConfComputeProtectedMemoryUsage", "nvmlDeviceGetCount_v2",
		"nvmlDeviceGetCpuAffinity", "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetCurrPcieLinkGeneration",
		"nvmlDeviceGetCurrPcieLinkWidth", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons",
		"nvmlDeviceGetDecoderUtilization", "nvmlDeviceGetDisplayActive", "nvmlDeviceGetDisplayMode", "nvmlDeviceGetEccMode",
		"nvmlDeviceGetEncoderStats", "nvmlDeviceGetEncoderUtilization", "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetFBCStats",
		"nvmlDeviceGetFanSpeed", "nvmlDeviceGetFieldValues", "nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetGpuInstanceId",
		"nvmlDeviceGetGpuMaxPcieLinkGeneration", "nvmlDeviceGetGraphicsRunningProcesses", "nvmlDeviceGetGridLicensableFeatures",
		"nvmlDeviceGetGspFirmwareMode", "nvmlDeviceGetGspFirmwareVersion", "nvmlDeviceGetHandleByIndex_v2",
		"nvmlDeviceGetInforomImageVersion", "nvmlDeviceGetJpgUtilization", "nvmlDeviceGetMPSComputeRunningProcesses",
		"nvmlDeviceGetMarginTemperature", "nvmlDeviceGetMaxClockInfo", "nvmlDeviceGetMaxMigDeviceCount",
		"nvmlDeviceGetMaxPcieLinkGeneration", "nvmlDeviceGetMaxPcieLinkWidth", "nvmlDeviceGetMemoryAffinity",
		"nvmlDeviceGetMemoryErrorCounter", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2",
		"nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetMigMode", "nvmlDeviceGetName", "nvmlDeviceGetNumaNodeId",
		"nvmlDeviceGetOfaUtilization", "nvmlDeviceGetPciInfo", "nvmlDeviceGetPcieReplayCounter", "nvmlDeviceGetPcieThroughput",
		"nvmlDeviceGetPerformanceState", "nvmlDeviceGetPersistenceMode", "nvmlDeviceGetPowerManagementDefaultLimit",
		"nvmlDeviceGetPowerManagementLimit", "nvmlDeviceGetPowerManagementLimitConstraints", "nvmlDeviceGetPowerUsage",
		"nvmlDeviceGetProcessUtilization", "nvmlDeviceGetRepairStatus", "nvmlDeviceGetRowRemapperHistogram", "nvmlDeviceGetSamples",
		"nvmlDeviceGetSerial", "nvmlDeviceGetSramEccErrorStatus", "nvmlDeviceGetSupportedClocksEventReasons",
		"nvmlDeviceGetSupportedEventTypes", "nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureThreshold",
		"nvmlDeviceGetTemperatureV", "nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceGetTotalEccErrors",
		"nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetUUID", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetVbiosVersion",
		"nvmlDeviceGetViolationStatus", "nvmlDeviceRegisterEvents", "nvmlGpmMetricsGet", "nvmlGpmMigSampleGet",
		"nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleFree", "nvmlGpmSampleGet", "nvmlSystemGetConfComputeState",
		"nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion",
	}}
	TierName = &Dimension{Label: "tier", Values: tierNames[:]}
)

// MaxSlowdown is how many times longer than configured a tier's interval gets at
// most when the driver is slow.
const MaxSlowdown = 8

// Rows of what the calls into NVML cost. Those by function are of the ten functions
// that took the most time, and of all only in the full profile.
var (
	FunctionSeconds = row(Def{Entity: Node, Kind: Counter, Tier: Fast, Name: "vigil_nvml_function_seconds_total", Dim: NVMLFunction,
		Help: "Time spent inside the NVML function by the present child process; in the default profile only of the ten functions with the most."})
	FunctionCalls = row(Def{Entity: Node, Kind: Counter, Tier: Fast, Name: "vigil_nvml_function_calls_total", Dim: NVMLFunction,
		Help: "Calls of the NVML function, of the same functions."})
	FunctionErrors = row(Def{Entity: Node, Kind: Counter, Tier: Fast, Sparse: true, Name: "vigil_nvml_function_errors_total", Dim: NVMLFunction,
		Help: "Calls of the NVML function that returned neither success nor not supported, of the same functions."})

	TierSlowdown = row(Def{Entity: Node, Tier: Fast, Min: 1, Max: MaxSlowdown, Name: "vigil_nvml_tier_slowdown_ratio", Dim: TierName,
		Help: "How many times longer than configured the tier's interval is because NVML is slow, on the GPU where it is longest: 1, 2, 4 or 8."})
	GPUSlowdown = row(Def{Entity: GPU, Tier: Fast, Min: 1, Max: MaxSlowdown, Detail: true, Name: "vigil_gpu_sampling_slowdown_ratio", Dim: TierName,
		Help: "How many times longer than configured the tier's interval is because NVML is slow on this GPU: 1, 2, 4 or 8."})
)
