package metric

// UnreadReason is why not all of a process could be read: it had ended; it is
// another user's, or its files are, and the right to look was not given; its files
// did not answer; it has mapped more than is read; or something else, such as a
// kernel without openat2.
var UnreadReason = &Dimension{Label: "reason", Values: []string{"gone", "forbidden", "hung", "cut_off", "failed"}}

// RuntimeParts are the libraries and frameworks whose versions are looked for in processes
// on GPUs.
var RuntimeParts = []string{"cuda_runtime", "cudnn", "nccl", "cublas", "tensorrt", "libcuda", "torch", "onnxruntime", "ggml", "jaxlib", "jax", "tensorflow",
	"vllm", "sgl_kernel", "sglang", "triton", "megatron", "deepspeed", "transformer_engine", "tensorrt_llm", "xformers", "flashinfer", "cupy", "llama_cpp",
	"ctranslate2", "paddle", "tritonserver"}

// Rows of what runs on the node. The first four have a series for each thing, up to
// a limit.
var (
	RuntimeInfo = row(Def{Entity: Workload, Kind: Info, Tier: Inventory, Name: "vigil_runtime_info",
		Labels: []string{"component", "version"},
		Help:   "A library or framework that GPU processes of the owner have loaded; always 1. version is unknown if it does not tell."})
	ImageInfo = row(Def{Entity: Workload, Kind: Info, Tier: Inventory, Name: "vigil_image_info",
		Labels: []string{"container", "image", "digest"},
		Help:   "The image of a container of the owner that uses a GPU; always 1."})
	DatasetInfo = row(Def{Entity: Workload, Kind: Info, Tier: Inventory, Name: "vigil_dataset_info",
		Labels: []string{"kind", "source", "mount"},
		Help:   "Data that the owner has mounted; always 1. That of unattributed is mounted on the node for everybody."})
	InferenceAPIInfo = row(Def{Entity: Workload, Kind: Info, Tier: Inventory, Name: "vigil_inference_api_info",
		Labels: []string{"port", "scope", "tls", "engine", "model", "approved"},
		Help:   "A port at which the owner serves; always 1. scope: loopback, private, public, any. tls and approved (the model is on the list) are true, false, or empty if unknown."})

	InventoryUnread = row(Def{Entity: Node, Tier: Inventory, Max: 1e6, Name: "vigil_inventory_unread_processes", Dim: UnreadReason,
		Help: "Processes on GPUs of which the inventory does not have all, by reason."})
)
