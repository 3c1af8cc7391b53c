package metric

const sampledHelp = ", of every sample that the driver kept or that was taken, as a native histogram: buckets grow by 2^(1/8), " +
	"classic ones there are none. It begins anew with the child process that talks to NVML, as the bands do."

// Rows of a GPU that only the configuration switches on.
var (
	UtilizationSampled = row(Def{Entity: Option, Kind: Histogram, Tier: Fast, Name: "vigil_gpu_utilization_sampled_ratio",
		Help: "The GPU's utilization" + sampledHelp})
	PowerSampled = row(Def{Entity: Option, Kind: Histogram, Tier: Fast, Name: "vigil_gpu_power_draw_sampled_watts",
		Help: "Power draw" + sampledHelp})
	SMActivitySampled = row(Def{Entity: Option, Kind: Histogram, Tier: Fast, Name: "vigil_gpu_sm_active_sampled_ratio",
		Help: "Activity of the SMs" + sampledHelp})
	DRAMSampled = row(Def{Entity: Option, Kind: Histogram, Tier: Fast, Name: "vigil_gpu_memory_bandwidth_sampled_ratio",
		Help: "Use of the device memory's bandwidth" + sampledHelp})

	ProcessesFolded = row(Def{Entity: Option, Tier: Processes, Max: 1e6, Name: "vigil_gpu_processes_folded",
		Help: "Processes of the GPU that have no series of their own and are summed as process=\"other\", because others hold more memory."})
)

// The native histograms' buckets. Bucket i has what is greater than 2^((i-1)/8) and
// at most 2^(i/8); what is at most HistogramZero is in none.
const (
	HistogramSchema = 3          // 2^3 buckets for each power of two
	HistogramZero   = 1.0 / 1024 // a tenth of a percent, a milliwatt
	HistogramFirst  = -10<<3 + 1 // the first bucket above HistogramZero
	HistogramLast   = 15 << 3    // 32,768: more watts than Max allows
)
