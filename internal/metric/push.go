package metric

// The values of labels of what is pushed and received.
var (
	PushResults   = []string{"sent", "failed", "refused"}
	PushLosses    = []string{"size", "age", "damaged", "disk", "format", "refused"}
	WriteOutcomes = []string{"taken", "partly", "malformed", "unsupported", "too_large", "unreadable", "busy"}
	WriteFates    = []string{"taken", "late", "unwanted", "old", "ahead", "unplaced", "labels", "no_name", "label_limits", "histogram", "exemplar"}
)

// Rows of what is pushed to a receiver that cannot scrape. They are there if something is.
var (
	PushRequests = row(Def{Entity: Agent, Kind: Counter, Name: "vigil_push_requests_total", Labels: []string{"result"},
		Help: "Requests to the receiver of pushed samples, by result: sent; failed, which are tried again; refused, for what is in them, which are not."})
	PushSamples = row(Def{Entity: Agent, Kind: Counter, Name: "vigil_push_samples_total",
		Help: "Samples that the receiver has taken."})
	PushBytes = row(Def{Entity: Agent, Max: maxBytes, Name: "vigil_push_buffer_bytes",
		Help: "Bytes on the disk and in memory that wait to be pushed."})
	PushAge = row(Def{Entity: Agent, Name: "vigil_push_buffer_oldest_age_seconds",
		Help: "Age of the oldest samples that wait to be pushed; 0 while none wait."})
	PushLost = row(Def{Entity: Agent, Kind: Counter, Sparse: true, Name: "vigil_push_lost_samples_total", Labels: []string{"reason"},
		Help: "Samples that nobody was sent, by reason: size and age (the buffer's limits), damaged (in the buffer; what cannot be counted is one), disk (it took nothing, and memory was full), format (the configuration changed it), refused (by the receiver)."})
)

// Rows of what the one cluster role is sent by remote write.
var (
	WriteRequests = row(Def{Entity: Role, Kind: Counter, Name: "vigil_remote_write_requests_total", Labels: []string{"outcome"},
		Help: "Requests to write that were received, by outcome: taken; partly (some series will not do, the rest is taken); malformed, unsupported (compressed in another way), too_large and unreadable, which senders do not repeat; busy, which they do."})
	WriteBytes = row(Def{Entity: Role, Kind: Counter, Name: "vigil_remote_write_received_bytes_total",
		Help: "Bytes of those requests as they were sent."})
	WriteSamples = row(Def{Entity: Role, Kind: Counter, Name: "vigil_remote_write_samples_total", Labels: []string{"fate"},
		Help: "Samples that were received, by fate: taken; late (taken, but after the snapshot that they should have been in); unwanted (nothing is made of their metric); old and ahead (their time is too far from now); unplaced (of no node, or beyond a limit of series or nodes); " +
			"labels (not well formed), no_name, label_limits; histogram (native ones are not read); exemplar."})
	WritePending = row(Def{Entity: Role, Name: "vigil_remote_write_pending_samples",
		Help: "Samples that wait for the next snapshots."})
	WriteKnown = row(Def{Entity: Role, Name: "vigil_remote_write_known_series",
		Help: "Series whose labels need not be read again, the unwanted among them."})
	WriteCut = row(Def{Entity: Role, Name: "vigil_remote_write_cut_seconds",
		Help: "How long it took to make the last snapshots of what was received."})
)
