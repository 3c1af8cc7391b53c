package metric

// The closed dimensions of what is pushed.
var (
	PushResult = &Dimension{Label: "result", Values: []string{"sent", "failed", "refused"}}
	PushLoss   = &Dimension{Label: "reason", Values: []string{"size", "age", "damaged", "disk", "format", "refused"}}
)

// Rows of what is pushed to a receiver that cannot scrape. They are there if something is.
var (
	PushRequests = row(Def{Entity: Agent, Kind: Counter, Name: "vigil_push_requests_total", Dim: PushResult,
		Help: "Requests to the receiver of pushed samples, by result: sent; failed, which are tried again; refused, for what is in them, which are not."})
	PushSamples = row(Def{Entity: Agent, Kind: Counter, Name: "vigil_push_samples_total",
		Help: "Samples that the receiver has taken."})
	PushBytes = row(Def{Entity: Agent, Max: maxBytes, Name: "vigil_push_buffer_bytes",
		Help: "Bytes on the disk and in memory that wait to be pushed."})
	PushAge = row(Def{Entity: Agent, Name: "vigil_push_buffer_oldest_age_seconds",
		Help: "Age of the oldest samples that wait to be pushed; 0 while none wait."})
	PushLost = row(Def{Entity: Agent, Kind: Counter, Sparse: true, Name: "vigil_push_lost_samples_total", Dim: PushLoss,
		Help: "Samples that nobody was sent, by reason: size and age (the buffer's limits), damaged (in the buffer; what cannot be counted is one), disk (it took nothing, and memory was full), format (the configuration changed it), refused (by the receiver)."})
)
