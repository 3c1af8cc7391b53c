package metric

// The closed dimensions of power, heat and clocks.
var (
	Clocks   = &Dimension{Label: "clock", Values: []string{"graphics", "sm", "memory", "video"}}
	AppClock = &Dimension{Label: "clock", Values: []string{"graphics", "memory"}}

	// ClockReason lists NVML's clock event reasons in the order of their bits.
	ClockReason = &Dimension{Label: "reason", Values: []string{
		"idle", "application_clocks", "sw_power_cap", "hw_slowdown", "sync_boost",
		"sw_thermal", "hw_thermal", "hw_power_brake", "display_clocks", "board_limit", "reliability",
	}}

	// HeldReason lists the reasons of which NVML counts the time. thermal is any
	// thermal policy; drivers from R575 on tell the two kinds apart.
	HeldReason = &Dimension{Label: "reason", Values: []string{
		"sw_power_cap", "thermal", "sync_boost", "sw_thermal", "hw_thermal", "hw_power_brake",
	}}
	HeldPolicy = &Dimension{Label: "policy", Values: []string{
		"board_limit", "low_utilization", "reliability", "below_application_clocks", "below_base_clocks",
	}}
	ThermalLimit = &Dimension{Label: "limit", Values: []string{"shutdown", "slowdown", "memory_max", "gpu_max"}}
)

// Rows of power.
var (
	PowerDraw = row(Def{Entity: GPU, Tier: Fast, Max: maxWatts, Name: "vigil_gpu_power_draw_watts",
		NVML: "nvmlDeviceGetPowerUsage", Raw: "mW", Scale: milli,
		DCGM: renamed(Gauge, 0, 0, "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS"),
		Help: "Power draw of the board; an average over one second on most parts since Ampere."})
	PowerAverage = row(Def{Entity: GPU, Tier: Fast, Max: maxWatts, Detail: true, Name: "vigil_gpu_power_draw_average_watts",
		NVML: "field/185", Raw: "mW", Scale: milli,
		Help: "Power draw averaged over one second, where the GPU tells it apart."})
	PowerInstant = row(Def{Entity: GPU, Tier: Fast, Max: maxWatts, Detail: true, Name: "vigil_gpu_power_draw_instant_watts",
		NVML: "field/186", Raw: "mW", Scale: milli, DCGM: custom(Gauge, 0, 0, "DCGM_FI_DEV_POWER_USAGE_INSTANT"),
		Help: "Power draw at this instant. The sensor of A100 and H100 sees a quarter of the time: prefer energy for means."})
	EDPPMultiplier = row(Def{Entity: GPU, Tier: Inventory, Max: 10, Detail: true, Name: "vigil_gpu_edpp_multiplier_ratio",
		NVML: "field/274", Raw: "%", Scale: percent,
		Help: "Peak of power for a short time (EDPp) that the board is set to allow, as a multiple of its usual one."})
	Energy = row(Def{Entity: GPU, Kind: Counter, Tier: Fast, Name: "vigil_gpu_energy_joules_total",
		NVML: "nvmlDeviceGetTotalEnergyConsumption", Raw: "mJ", Scale: milli,
		DCGM: renamed(Counter, 0, 1e3, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL"),
		Help: "Energy used since the driver was loaded."})
	PowerLimit = row(Def{Entity: GPU, Tier: Inventory, Max: maxWatts, Name: "vigil_gpu_power_limit_watts",
		NVML: "nvmlDeviceGetEnforcedPowerLimit", Raw: "mW", Scale: milli, DCGM: custom(Gauge, 0, 0, "DCGM_FI_DEV_ENFORCED_POWER_LIMIT"),
		Help: "Power limit that the driver enforces."})
	PowerDefaultLimit = row(Def{Entity: GPU, Tier: Inventory, Max: maxWatts, Name: "vigil_gpu_power_default_limit_watts",
		NVML: "nvmlDeviceGetPowerManagementDefaultLimit", Raw: "mW", Scale: milli, DCGM: custom(Gauge, 0, 0, "DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF"),
		Help: "Power limit that the board ships with."})
	PowerRequestedLimit = row(Def{Entity: GPU, Tier: Inventory, Max: maxWatts, Detail: true, Name: "vigil_gpu_power_requested_limit_watts",
		NVML: "nvmlDeviceGetPowerManagementLimit", Raw: "mW", Scale: milli, DCGM: custom(Gauge, 0, 0, "DCGM_FI_DEV_POWER_MGMT_LIMIT"),
		Help: "Power limit that software asked for; the enforced one may be lower."})
	PowerMinLimit = row(Def{Entity: GPU, Tier: Inventory, Max: maxWatts, Detail: true, Name: "vigil_gpu_power_min_limit_watts",
		NVML: "nvmlDeviceGetPowerManagementLimitConstraints.min", Raw: "mW", Scale: milli, DCGM: custom(Gauge, 0, 0, "DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN"),
		Help: "Lowest power limit that can be set."})
	PowerMaxLimit = row(Def{Entity: GPU, Tier: Inventory, Max: maxWatts, Detail: true, Name: "vigil_gpu_power_max_limit_watts",
		NVML: "nvmlDeviceGetPowerManagementLimitConstraints.max", Raw: "mW", Scale: milli, DCGM: custom(Gauge, 0, 0, "DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX"),
		Help: "Highest power limit that can be set."})
)

// Rows of heat.
var (
	Temperature = row(Def{Entity: GPU, Tier: Fast, Min: -50, Max: maxCelsius, Name: "vigil_gpu_temperature_celsius",
		NVML: "nvmlDeviceGetTemperatureV/GPU", Raw: "°C",
		DCGM: renamed(Gauge, 0, 0, "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS"),
		Help: "Temperature of the GPU core."})
	MemoryTemperature = row(Def{Entity: GPU, Tier: Fast, Min: -50, Max: maxCelsius, Name: "vigil_gpu_memory_temperature_celsius",
		NVML: "field/82", Raw: "°C",
		DCGM: renamed(Gauge, 0, 0, "DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS"),
		Help: "Temperature of the device memory."})
	TemperatureMargin = row(Def{Entity: GPU, Tier: Fast, Min: 0, Max: maxCelsius, Name: "vigil_gpu_temperature_margin_celsius",
		NVML: "nvmlDeviceGetMarginTemperature", Raw: "°C",
		Help: "How much hotter the GPU may get before it is slowed down. Drivers are known to report negative ones on cool GPUs: these are dropped."})
	TemperatureLimit = row(Def{Entity: GPU, Tier: Inventory, Min: 1, Max: maxCelsius, Detail: true, Name: "vigil_gpu_temperature_limit_celsius", Dim: ThermalLimit,
		NVML: "nvmlDeviceGetTemperatureThreshold/{0,1,2,3}", Raw: "°C",
		DCGM: names(custom(Gauge, 0, 0, "DCGM_FI_DEV_SHUTDOWN_TEMP"), custom(Gauge, 1, 0, "DCGM_FI_DEV_SLOWDOWN_TEMP"),
			custom(Gauge, 2, 0, "DCGM_FI_DEV_MEM_MAX_OP_TEMP"), custom(Gauge, 3, 0, "DCGM_FI_DEV_GPU_MAX_OP_TEMP")),
		Help: "Temperatures at which the GPU shuts down, is slowed down by hardware, or by software."})
	TemperatureLimitMargin = row(Def{Entity: GPU, Tier: Inventory, Min: -100, Max: maxCelsius, Detail: true,
		Name: "vigil_gpu_temperature_limit_margin_celsius", Dim: ThermalLimit, NVML: "field/{193,194,195,196}", Raw: "°C",
		Help: "The same limits as margins (T.Limit), on Ada and later: the limit is reached when the margin has fallen to this."})
	FanSpeed = row(Def{Entity: GPU, Tier: Slow, Max: 2, Name: "vigil_gpu_fan_speed_ratio",
		NVML: "nvmlDeviceGetFanSpeed", Raw: "%", Scale: percent, DCGM: custom(Gauge, 0, 100, "DCGM_FI_DEV_FAN_SPEED"),
		Help: "Intended fan speed as a share of the maximum; may exceed 1."})
)

// Rows of clocks and of what holds them down.
var (
	Clock = row(Def{Entity: GPU, Tier: Fast, Max: maxHertz, Name: "vigil_gpu_clock_hertz", Dim: Clocks,
		NVML: "nvmlDeviceGetClockInfo/{GRAPHICS,SM,MEM,VIDEO}", Raw: "MHz", Scale: mega,
		DCGM: names(renamed(Gauge, 1, 1/mega, "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_SM_CLOCK_HERTZ"),
			renamed(Gauge, 2, 1/mega, "DCGM_FI_DEV_MEM_CLOCK", "DCGM_FI_DEV_MEMORY_CLOCK_HERTZ"),
			custom(Gauge, 3, 1/mega, "DCGM_FI_DEV_VIDEO_CLOCK")),
		Help: "Clock now."})
	MaxClock = row(Def{Entity: GPU, Tier: Inventory, Max: maxHertz, Name: "vigil_gpu_clock_max_hertz", Dim: Clocks,
		NVML: "nvmlDeviceGetMaxClockInfo/{GRAPHICS,SM,MEM,VIDEO}", Raw: "MHz", Scale: mega,
		DCGM: names(custom(Gauge, 1, 1/mega, "DCGM_FI_DEV_MAX_SM_CLOCK"), custom(Gauge, 2, 1/mega, "DCGM_FI_DEV_MAX_MEM_CLOCK"),
			custom(Gauge, 3, 1/mega, "DCGM_FI_DEV_MAX_VIDEO_CLOCK")),
		Help: "Highest clock that the board supports."})
	ApplicationClock = row(Def{Entity: GPU, Tier: Inventory, Max: maxHertz, Detail: true, Name: "vigil_gpu_clock_application_hertz", Dim: AppClock,
		NVML: "nvmlDeviceGetApplicationsClock/{GRAPHICS,MEM}", Raw: "MHz", Scale: mega,
		DCGM: names(custom(Gauge, 0, 1/mega, "DCGM_FI_DEV_APP_SM_CLOCK"), custom(Gauge, 1, 1/mega, "DCGM_FI_DEV_APP_MEM_CLOCK")),
		Help: "Clock that applications get unless something holds it down, where one was set."})
	ClockEvent = row(Def{Entity: GPU, Tier: Fast, Max: 1, Name: "vigil_gpu_clock_event_active", Dim: ClockReason,
		NVML: "nvmlDeviceGetCurrentClocksEventReasons", Raw: "bit",
		Help: "1 while the reason holds the clocks down. sw_power_cap at high power is normal."})
	ClockEventKnown = row(Def{Entity: GPU, Tier: Inventory, Max: 1, Detail: true, Name: "vigil_gpu_clock_event_supported", Dim: ClockReason,
		NVML: "nvmlDeviceGetSupportedClocksEventReasons", Raw: "bit",
		Help: "1 for each reason that the GPU tells of: one that it does not tell of is 0 for ever."})
	ClockHeld = row(Def{Entity: GPU, Kind: Counter, Tier: Fast, Name: "vigil_gpu_clock_held_seconds_total", Dim: HeldReason,
		NVML: "field/{74,75,76,251,252,253}", Raw: "ns", Scale: nano,
		DCGM: names(kept(Counter, 0, 1/nano, "DCGM_FI_DEV_POWER_VIOLATION"), kept(Counter, 1, 1/nano, "DCGM_FI_DEV_THERMAL_VIOLATION"),
			kept(Counter, 2, 1/nano, "DCGM_FI_DEV_SYNC_BOOST_VIOLATION")),
		Help: "Time for which the reason held the clocks down, however short. The driver gives the last three reasons other numbers from R590 on (269 to 271) and does not tell them before R575."})
	ClockPolicyHeld = row(Def{Entity: GPU, Kind: Counter, Tier: Slow, Detail: true, Name: "vigil_gpu_clock_policy_held_seconds_total", Dim: HeldPolicy,
		NVML: "field/{77,78,79,80,81}", Raw: "ns", Scale: nano,
		DCGM: names(kept(Counter, 0, 1/nano, "DCGM_FI_DEV_BOARD_LIMIT_VIOLATION"), kept(Counter, 1, 1/nano, "DCGM_FI_DEV_LOW_UTIL_VIOLATION"),
			kept(Counter, 2, 1/nano, "DCGM_FI_DEV_RELIABILITY_VIOLATION")),
		Help: "Time for which a policy held the clocks down, and the time that they were below the application or base clocks at all."})
	PerformanceState = row(Def{Entity: GPU, Tier: Fast, Max: 15, Name: "vigil_gpu_performance_state",
		NVML: "nvmlDeviceGetPerformanceState", Raw: "P-state", DCGM: custom(Gauge, 0, 0, "DCGM_FI_DEV_PSTATE"),
		Help: "Performance state: 0 is the fastest, 15 the slowest."})
)
