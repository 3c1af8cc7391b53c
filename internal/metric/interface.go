package metric

// The closed dimensions of an adapter's port.
var (
	PortFault = &Dimension{Label: "kind", Values: []string{
		"symbol", "link_recovery", "receive", "receive_remote_physical", "receive_constraint", "receive_switch_relay",
		"transmit_discard", "transmit_constraint", "local_link_integrity", "buffer_overrun", "vl15_dropped",
	}}
	PortRepeat = &Dimension{Label: "kind", Values: []string{
		"out_of_sequence", "packet_sequence", "duplicate_request", "ack_timeout", "rnr_nak_retry", "implied_nak", "out_of_buffer", "adaptive",
	}}
	PortCongestion = &Dimension{Label: "kind", Values: []string{"ecn_marked", "notified", "slowed_down"}}
)

// Rows of a port of an InfiniBand or RoCE adapter.
var (
	InterfaceInfo = row(Def{Entity: Interface, Kind: Info, Tier: Slow, Name: "vigil_interface_info", Labels: []string{"link_layer", "state", "physical_state"},
		Help: "A port of an InfiniBand or RoCE adapter; always 1. link_layer is InfiniBand, or Ethernet for RoCE."})
	InterfaceUp = row(Def{Entity: Interface, Tier: Slow, Max: 1, Name: "vigil_interface_up",
		Help: "1 while the port is active, 0 while it is in another state."})
	InterfaceSpeed = row(Def{Entity: Interface, Tier: Slow, Max: 1e13, Name: "vigil_interface_speed_bytes_per_second",
		Help: "What the port can do in each direction at its present rate."})
	InterfaceBytes = row(Def{Entity: Interface, Kind: Counter, Tier: Slow, Name: "vigil_interface_bytes_total", Dim: Direction,
		Help: "Data that the port moved, RDMA among it. The adapter counts words of four bytes."})
	InterfaceErrors = row(Def{Entity: Interface, Kind: Counter, Tier: Slow, Name: "vigil_interface_errors_total",
		Help: "Errors and discarded packets of the port, all kinds that it counts together."})
	InterfaceLinkDowned = row(Def{Entity: Interface, Kind: Counter, Tier: Slow, Name: "vigil_interface_link_downed_total",
		Help: "How often the port's link failed to recover and went down."})

	InterfaceFaults = row(Def{Entity: Interface, Kind: Counter, Tier: Slow, Detail: true, Name: "vigil_interface_faults_total", Dim: PortFault,
		Help: "Errors and discarded packets of the port by kind."})
	InterfaceWaits = row(Def{Entity: Interface, Kind: Counter, Tier: Slow, Detail: true, Name: "vigil_interface_transmit_waits_total",
		Help: "Ticks of the port's clock in which there was data to send and no credit to send it: congestion."})
	InterfaceRepeats = row(Def{Entity: Interface, Kind: Counter, Tier: Slow, Detail: true, Name: "vigil_interface_retransmissions_total", Dim: PortRepeat,
		Help: "What made RDMA connections of the port repeat packets, by kind."})
	InterfaceCongestion = row(Def{Entity: Interface, Kind: Counter, Tier: Slow, Detail: true, Name: "vigil_interface_congestion_total", Dim: PortCongestion,
		Help: "RoCE congestion: packets that switches had marked, notifications sent for them, and notifications that slowed this port down."})
)
