package metric

// Bands are the five bands of a fast signal: of a share of 1, or of power as a
// share of the enforced limit. They are below 0.05, 0.25, 0.5, 0.9, and the rest.
var Bands = &Dimension{Label: "band", Values: []string{"idle", "low", "medium", "high", "full"}}

const (
	bandHelp = " by band: idle below 0.05, low below 0.25, medium below 0.5, high below 0.9, full. " +
		"What happens between two scrapes is in it: rate(…{band=\"idle\"}[5m]) is the share of the time, at any scrape interval."
	peakHelp = " of the last 60 s, from every sample that the driver kept: a stall or a burst between two scrapes is in it. " +
		"min_over_time and max_over_time over it are exact at scrape intervals up to 60 s."
)

// Rows of what happened between two scrapes.
var (
	UtilizationBands = row(Def{Entity: GPU, Kind: Counter, Tier: Fast, Name: "vigil_gpu_utilization_band_seconds_total", Dim: Bands,
		Help: "Time that the GPU's utilization spent" + bandHelp})
	UtilizationPeak = row(Def{Entity: GPU, Tier: Fast, Max: 1, Name: "vigil_gpu_utilization_peak_ratio",
		Help: "Highest utilization" + peakHelp})
	UtilizationLow = row(Def{Entity: GPU, Tier: Fast, Max: 1, Name: "vigil_gpu_utilization_low_ratio",
		Help: "Lowest utilization" + peakHelp})

	PowerBands = row(Def{Entity: GPU, Kind: Counter, Tier: Fast, Name: "vigil_gpu_power_band_seconds_total", Dim: Bands,
		Help: "Time that the GPU's power draw, as a share of its limit, spent" + bandHelp})
	PowerPeak = row(Def{Entity: GPU, Tier: Fast, Max: maxWatts, Name: "vigil_gpu_power_draw_peak_watts",
		Help: "Highest power draw" + peakHelp})
	PowerLow = row(Def{Entity: GPU, Tier: Fast, Max: maxWatts, Name: "vigil_gpu_power_draw_low_watts",
		Help: "Lowest power draw" + peakHelp})

	SMActivityBands = row(Def{Entity: GPU, Kind: Counter, Tier: Fast, Name: "vigil_gpu_sm_active_band_seconds_total", Dim: Bands,
		Help: "Time that the activity of the SMs spent" + bandHelp})
	SMActivityPeak = row(Def{Entity: GPU, Tier: Fast, Max: 1, Detail: true, Name: "vigil_gpu_sm_active_peak_ratio",
		Help: "Highest activity of the SMs" + peakHelp})
	SMActivityLow = row(Def{Entity: GPU, Tier: Fast, Max: 1, Detail: true, Name: "vigil_gpu_sm_active_low_ratio",
		Help: "Lowest activity of the SMs" + peakHelp})

	DRAMBands = row(Def{Entity: GPU, Kind: Counter, Tier: Fast, Detail: true, Name: "vigil_gpu_memory_bandwidth_band_seconds_total", Dim: Bands,
		Help: "Time that the use of the device memory's bandwidth spent" + bandHelp})
	DRAMPeak = row(Def{Entity: GPU, Tier: Fast, Max: 1, Detail: true, Name: "vigil_gpu_memory_bandwidth_peak_ratio",
		Help: "Highest use of the device memory's bandwidth" + peakHelp})
	DRAMLow = row(Def{Entity: GPU, Tier: Fast, Max: 1, Detail: true, Name: "vigil_gpu_memory_bandwidth_low_ratio",
		Help: "Lowest use of the device memory's bandwidth" + peakHelp})
)
