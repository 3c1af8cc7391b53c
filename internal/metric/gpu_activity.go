package metric

const gpm = " From NVML's GPM, on Hopper and later."

// The closed dimensions of what a GPU does.
var (
	Pipe   = &Dimension{Label: "pipe", Values: []string{"fp64", "fp32", "fp16", "integer"}}
	Tensor = &Dimension{Label: "kind", Values: []string{"dfma", "hmma", "imma"}}
)

// Rows of how busy the parts of a GPU are.
var (
	Utilization = row(Def{Entity: GPU, Tier: Fast, Max: 1, Name: "vigil_gpu_utilization_ratio",
		NVML: "nvmlDeviceGetUtilizationRates.gpu", Raw: "%", Scale: percent,
		DCGM: renamed(Gauge, 0, 100, "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO"),
		Help: "Share of the last sample period in which at least one kernel ran. Says nothing of how full the GPU was."})
	MemoryUtilization = row(Def{Entity: GPU, Tier: Fast, Max: 1, Name: "vigil_gpu_memory_utilization_ratio",
		NVML: "nvmlDeviceGetUtilizationRates.memory", Raw: "%", Scale: percent,
		DCGM: renamed(Gauge, 0, 100, "DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_DEV_MEMORY_UTIL_RATIO"),
		Help: "Share of the last sample period in which device memory was read or written: controller busy time, not memory in use."})
	EncoderUtilization = row(Def{Entity: GPU, Tier: Fast, Max: 1, Name: "vigil_gpu_encoder_utilization_ratio",
		NVML: "nvmlDeviceGetEncoderUtilization", Raw: "%", Scale: percent,
		DCGM: renamed(Gauge, 0, 100, "DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_ENC_UTIL_RATIO"),
		Help: "Share of time in which the video encoder was busy."})
	DecoderUtilization = row(Def{Entity: GPU, Tier: Fast, Max: 1, Name: "vigil_gpu_decoder_utilization_ratio",
		NVML: "nvmlDeviceGetDecoderUtilization", Raw: "%", Scale: percent,
		DCGM: renamed(Gauge, 0, 100, "DCGM_FI_DEV_DEC_UTIL", "DCGM_FI_DEV_DEC_UTIL_RATIO"),
		Help: "Share of time in which the video decoder was busy."})
	JPEGUtilization = row(Def{Entity: GPU, Tier: Fast, Max: 1, Detail: true, Name: "vigil_gpu_jpeg_utilization_ratio",
		NVML: "nvmlDeviceGetJpgUtilization", Raw: "%", Scale: percent,
		Help: "Share of time in which the JPEG decoder was busy."})
	OFAUtilization = row(Def{Entity: GPU, Tier: Fast, Max: 1, Detail: true, Name: "vigil_gpu_ofa_utilization_ratio",
		NVML: "nvmlDeviceGetOfaUtilization", Raw: "%", Scale: percent,
		Help: "Share of time in which the optical flow accelerator was busy."})
	EncoderSessions = row(Def{Entity: GPU, Tier: Slow, Max: 1e5, Detail: true, Name: "vigil_gpu_encoder_sessions",
		NVML: "nvmlDeviceGetEncoderStats.sessionCount", Raw: "count",
		Help: "Video encoder sessions that are open."})
	EncoderFrames = row(Def{Entity: GPU, Tier: Slow, Max: 1e6, Detail: true, Name: "vigil_gpu_encoder_frames_per_second",
		NVML: "nvmlDeviceGetEncoderStats.averageFps", Raw: "1/s",
		Help: "Frames per second of the open encoder sessions, on average."})
	EncoderLatency = row(Def{Entity: GPU, Tier: Slow, Max: 1e3, Detail: true, Name: "vigil_gpu_encoder_latency_seconds",
		NVML: "nvmlDeviceGetEncoderStats.averageLatency", Raw: "µs", Scale: micro,
		Help: "Time that the encoder takes for a frame, on average."})
	CaptureSessions = row(Def{Entity: GPU, Tier: Slow, Max: 1e5, Detail: true, Name: "vigil_gpu_capture_sessions",
		NVML: "nvmlDeviceGetFBCStats.sessionsCount", Raw: "count",
		Help: "Sessions that capture what is drawn (FBC)."})
	CaptureFrames = row(Def{Entity: GPU, Tier: Slow, Max: 1e6, Detail: true, Name: "vigil_gpu_capture_frames_per_second",
		NVML: "nvmlDeviceGetFBCStats.averageFPS", Raw: "1/s",
		Help: "Frames per second of those sessions, on average."})
	CaptureLatency = row(Def{Entity: GPU, Tier: Slow, Max: 1e3, Detail: true, Name: "vigil_gpu_capture_latency_seconds",
		NVML: "nvmlDeviceGetFBCStats.averageLatency", Raw: "µs", Scale: micro,
		Help: "Time that it takes to capture a frame, on average."})

	GraphicsActivity = row(Def{Entity: GPU, Tier: Fast, Max: 1, Detail: true, Name: "vigil_gpu_engine_active_ratio",
		NVML: "gpm/1", Raw: "%", Scale: percent,
		DCGM: renamed(Gauge, 0, 0, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO"),
		Help: "Share of time in which the compute or graphics engine was active." + gpm})
	SMActivity = row(Def{Entity: GPU, Tier: Fast, Max: 1, Name: "vigil_gpu_sm_active_ratio",
		NVML: "gpm/2", Raw: "%", Scale: percent,
		DCGM: renamed(Gauge, 0, 0, "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_SM_UTIL_RATIO"),
		Help: "Share of the SMs that had at least one warp, averaged over time: how full the GPU was." + gpm})
	SMOccupancy = row(Def{Entity: GPU, Tier: Fast, Max: 1, Name: "vigil_gpu_sm_occupancy_ratio",
		NVML: "gpm/3", Raw: "%", Scale: percent,
		DCGM: renamed(Gauge, 0, 0, "DCGM_FI_PROF_SM_OCCUPANCY", "DCGM_FI_PROF_SM_OCCUPANCY_RATIO"),
		Help: "Resident warps as a share of the most that the SMs can hold." + gpm})
	TensorActivity = row(Def{Entity: GPU, Tier: Fast, Max: 1, Name: "vigil_gpu_tensor_active_ratio",
		NVML: "gpm/5", Raw: "%", Scale: percent,
		DCGM: renamed(Gauge, 0, 0, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_TENSOR_UTIL_RATIO"),
		Help: "Share of cycles in which the tensor cores were busy." + gpm})
	TensorKindActivity = row(Def{Entity: GPU, Tier: Fast, Max: 1, Detail: true, Name: "vigil_gpu_tensor_kind_active_ratio", Dim: Tensor,
		NVML: "gpm/{6,7,9}", Raw: "%", Scale: percent,
		DCGM: names(custom(Gauge, 0, 0, "DCGM_FI_PROF_PIPE_TENSOR_DFMA_ACTIVE"), custom(Gauge, 1, 0, "DCGM_FI_PROF_PIPE_TENSOR_HMMA_ACTIVE"),
			custom(Gauge, 2, 0, "DCGM_FI_PROF_PIPE_TENSOR_IMMA_ACTIVE")),
		Help: "Share of cycles in which the tensor cores were busy with one kind of number: double, half or integer." + gpm})
	DRAMActivity = row(Def{Entity: GPU, Tier: Fast, Max: 1, Name: "vigil_gpu_memory_bandwidth_ratio",
		NVML: "gpm/10", Raw: "%", Scale: percent,
		DCGM: renamed(Gauge, 0, 0, "DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_DRAM_UTIL_RATIO"),
		Help: "Bandwidth of the device memory in use as a share of what it can do." + gpm})
	PipeActivity = row(Def{Entity: GPU, Tier: Fast, Max: 1, Detail: true, Name: "vigil_gpu_pipe_active_ratio", Dim: Pipe,
		NVML: "gpm/{11,12,13,4}", Raw: "%", Scale: percent,
		DCGM: names(renamed(Gauge, 0, 0, "DCGM_FI_PROF_PIPE_FP64_ACTIVE", "DCGM_FI_PROF_FP64_UTIL_RATIO"),
			renamed(Gauge, 1, 0, "DCGM_FI_PROF_PIPE_FP32_ACTIVE", "DCGM_FI_PROF_FP32_UTIL_RATIO"),
			renamed(Gauge, 2, 0, "DCGM_FI_PROF_PIPE_FP16_ACTIVE", "DCGM_FI_PROF_FP16_UTIL_RATIO"),
			custom(Gauge, 3, 0, "DCGM_FI_PROF_PIPE_INT_ACTIVE")),
		Help: "Share of cycles in which the SMs' other arithmetic pipes were busy." + gpm})
)
