package metric

// The closed dimensions of a GPU's health.
var (
	ECCType = &Dimension{Label: "type", Values: []string{"corrected", "uncorrected"}}

	// ECCLocation is where an error was. Since Turing there are the first two only.
	ECCLocation = &Dimension{Label: "location", Values: []string{
		"dram", "sram", "l1", "l2", "registers", "texture", "texture_shared", "cbu",
	}}
	SRAMSource = &Dimension{Label: "source", Values: []string{"parity", "secded", "l2", "sm", "pcie", "microcontroller", "other"}}

	// RemapBanks counts the memory banks by the spare rows that they have left.
	RemapBanks = &Dimension{Label: "spares", Values: []string{"max", "high", "partial", "low", "none"}}
	RepairUnit = &Dimension{Label: "unit", Values: []string{"channel", "tpc"}}
)

const locations = "/{2,7,0,1,3,4,5,6}"

// Rows of a GPU's health.
var (
	ECCErrors = row(Def{Entity: GPU, Kind: Counter, Tier: Slow, Name: "vigil_gpu_ecc_errors_total", Dim: ECCType,
		NVML: "nvmlDeviceGetTotalEccErrors/{CORRECTED,UNCORRECTED}/VOLATILE", Raw: "count",
		DCGM: names(kept(Counter, 0, 0, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"), kept(Counter, 1, 0, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL")),
		Help: "Memory errors since the driver was loaded."})
	ECCLifetimeErrors = row(Def{Entity: GPU, Kind: Counter, Tier: Slow, Detail: true, Name: "vigil_gpu_ecc_lifetime_errors_total", Dim: ECCType,
		NVML: "nvmlDeviceGetTotalEccErrors/{CORRECTED,UNCORRECTED}/AGGREGATE", Raw: "count",
		DCGM: names(kept(Counter, 0, 0, "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL"), kept(Counter, 1, 0, "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL")),
		Help: "Memory errors in the life of the board."})
	ECCUncorrected = row(Def{Entity: GPU, Kind: Counter, Tier: Slow, Name: "vigil_gpu_ecc_uncorrected_errors_total", Dim: ECCLocation,
		NVML: "nvmlDeviceGetMemoryErrorCounter/UNCORRECTED/VOLATILE" + locations, Raw: "count",
		Help: "Uncorrected memory errors since the driver was loaded, by where they were. SRAM cannot be remapped: the first is for a reset, more for a replacement."})
	ECCLifetimeUncorrected = row(Def{Entity: GPU, Kind: Counter, Tier: Slow, Detail: true, Name: "vigil_gpu_ecc_lifetime_uncorrected_errors_total", Dim: ECCLocation,
		NVML: "nvmlDeviceGetMemoryErrorCounter/UNCORRECTED/AGGREGATE" + locations, Raw: "count",
		Help: "Uncorrected memory errors in the life of the board, by where they were."})
	ECCCorrected = row(Def{Entity: GPU, Kind: Counter, Tier: Slow, Detail: true, Name: "vigil_gpu_ecc_corrected_errors_total", Dim: ECCLocation,
		NVML: "nvmlDeviceGetMemoryErrorCounter/CORRECTED/VOLATILE" + locations, Raw: "count",
		Help: "Corrected memory errors since the driver was loaded, by where they were."})
	ECCLifetimeCorrected = row(Def{Entity: GPU, Kind: Counter, Tier: Slow, Detail: true, Name: "vigil_gpu_ecc_lifetime_corrected_errors_total", Dim: ECCLocation,
		NVML: "nvmlDeviceGetMemoryErrorCounter/CORRECTED/AGGREGATE" + locations, Raw: "count",
		Help: "Corrected memory errors in the life of the board, by where they were."})
	ECCMode = row(Def{Entity: GPU, Tier: Inventory, Max: 1, Name: "vigil_gpu_ecc_mode", Dim: ModeState,
		NVML: "nvmlDeviceGetEccMode.{current,pending}", Raw: "0/1",
		Help: "1 if memory errors are detected and corrected, now or after the next reset."})
	SRAMThreshold = row(Def{Entity: GPU, Tier: Slow, Max: 1, Name: "vigil_gpu_ecc_sram_threshold_exceeded",
		NVML: "nvmlDeviceGetSramEccErrorStatus.threshold", Raw: "0/1",
		Help: "1 if SRAM has had so many uncorrected errors that the board is to be replaced. The driver tells root only."})
	SRAMErrors = row(Def{Entity: GPU, Kind: Counter, Tier: Slow, Detail: true, Name: "vigil_gpu_ecc_sram_uncorrected_errors_total", Dim: SRAMSource,
		NVML: "nvmlDeviceGetSramEccErrorStatus.{parity,secded,l2,sm,pcie,mcu,other}", Raw: "count",
		Help: "Uncorrected SRAM errors in the life of the board: by how they were found (parity, secded), and again by the part that had them. The driver tells root only."})

	RetiredPages = row(Def{Entity: GPU, Kind: Counter, Tier: Slow, Name: "vigil_gpu_retired_pages_total", Dim: ECCType,
		NVML: "field/{29,30}", Raw: "pages",
		DCGM: names(renamed(Counter, 0, 0, "DCGM_FI_DEV_RETIRED_SBE", "DCGM_FI_DEV_PAGE_RETIRED_SBE_TOTAL"),
			renamed(Counter, 1, 0, "DCGM_FI_DEV_RETIRED_DBE", "DCGM_FI_DEV_PAGE_RETIRED_DBE_TOTAL")),
		Help: "Memory pages taken out of use after corrected or uncorrected errors, up to Turing; later GPUs remap rows."})
	RetiredPending = row(Def{Entity: GPU, Tier: Slow, Max: 1e6, Name: "vigil_gpu_retired_pages_pending",
		NVML: "field/31", Raw: "pages",
		DCGM: renamed(Counter, 0, 0, "DCGM_FI_DEV_RETIRED_PENDING", "DCGM_FI_DEV_PAGE_RETIRED_PENDING"),
		Help: "Pages that the next reset takes out of use."})
	RemappedRows = row(Def{Entity: GPU, Kind: Counter, Tier: Slow, Name: "vigil_gpu_remapped_rows_total", Dim: ECCType,
		NVML: "field/{142,143}", Raw: "rows",
		DCGM: names(renamed(Counter, 0, 0, "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL"),
			renamed(Counter, 1, 0, "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL")),
		Help: "Memory rows that were replaced by spare ones after corrected or uncorrected errors."})
	RemapPending = row(Def{Entity: GPU, Tier: Slow, Max: 1, Name: "vigil_gpu_row_remap_pending",
		NVML: "field/144", Raw: "0/1", DCGM: custom(Gauge, 0, 0, "DCGM_FI_DEV_ROW_REMAP_PENDING"),
		Help: "1 if the next reset replaces a row. Work that does not use the row goes on."})
	RemapFailed = row(Def{Entity: GPU, Tier: Slow, Max: 1, Name: "vigil_gpu_row_remap_failed",
		NVML: "field/145", Raw: "0/1",
		DCGM: renamed(Gauge, 0, 0, "DCGM_FI_DEV_ROW_REMAP_FAILURE", "DCGM_FI_DEV_ROW_REMAP_FAILED"),
		Help: "1 if a row could not be replaced: the board is to be replaced."})
	RemapHistogram = row(Def{Entity: GPU, Tier: Slow, Max: 1e6, Name: "vigil_gpu_row_remap_banks", Dim: RemapBanks,
		NVML: "nvmlDeviceGetRowRemapperHistogram.{max,high,partial,low,none}", Raw: "banks",
		Help: "Memory banks by how many spare rows they have left. One with none cannot lose another row."})
	RemapInactive = row(Def{Entity: GPU, Tier: Slow, Max: 1e6, Detail: true, Name: "vigil_gpu_row_remap_inactive", Dim: ECCType,
		NVML: "field/{301,302}", Raw: "rows",
		Help: "Rows that are to be replaced and are not yet."})
	BankRemapPending = row(Def{Entity: GPU, Tier: Slow, Max: 1, Detail: true, Name: "vigil_gpu_bank_remap_pending",
		NVML: "field/307", Raw: "0/1",
		Help: "1 if the next reset replaces a memory bank, on Blackwell and later."})
	RepairPending = row(Def{Entity: GPU, Tier: Slow, Max: 1, Detail: true, Name: "vigil_gpu_repair_pending", Dim: RepairUnit,
		NVML: "nvmlDeviceGetRepairStatus.{channel,tpc}", Raw: "0/1",
		Help: "1 if the next reset replaces a memory channel or a TPC, on Blackwell and later."})
	RecoveryAction = row(Def{Entity: GPU, Tier: Slow, Max: 15, Name: "vigil_gpu_recovery_action",
		NVML: "field/230", Raw: "action",
		Help: "What the driver wants done: 0 nothing, 1 reset the GPU, 2 reboot the node, 3 drain peer traffic, 4 drain and reset, 5 recover the IMEX domain, 6 reset the bus, 7 reboot the system. From R570 on."})
)
