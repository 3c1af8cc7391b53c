package scrape

import (
	"context"
	"io"
	"log/slog"
	"math"
	"slices"
	"time"

	"gpuvigil/collector"
	"gpuvigil/collector/exposition"
	"gpuvigil/collector/host"
	"gpuvigil/collector/page"
	"gpuvigil/internal/metric"
)

const (
	maxCPUs    = 4096
	maxDevices = 4096 // block devices, interfaces
	maxPorts   = 256
)

// nodeFacts are what node_exporter says of the node in one number.
func nodeFacts() map[string]fact {
	facts := map[string]fact{
		"node_load1": {row: metric.Load, at: 0}, "node_load5": {row: metric.Load, at: 1}, "node_load15": {row: metric.Load, at: 2},
		"node_memory_MemTotal_bytes": {row: metric.HostMemoryCapacity}, "node_memory_MemAvailable_bytes": {row: metric.HostMemoryAvailable},
	}
	for i, resource := range metric.PSIResource.Values {
		facts["node_pressure_"+resource+"_waiting_seconds_total"] = fact{row: metric.PressureSome, at: i}
		facts["node_pressure_"+resource+"_stalled_seconds_total"] = fact{row: metric.PressureFull, at: i}
	}
	return facts
}

// portFacts are what it says of one port of an InfiniBand or RoCE adapter.
func portFacts() map[string]fact {
	facts := map[string]fact{
		"rate_bytes_per_second": {row: metric.InterfaceSpeed}, "link_downed_total": {row: metric.InterfaceLinkDowned},
		"port_data_received_bytes_total":    {row: metric.InterfaceBytes, at: 0},
		"port_data_transmitted_bytes_total": {row: metric.InterfaceBytes, at: 1},
		"port_transmit_wait_total":          {row: metric.InterfaceWaits},
	}
	for i, name := range []string{
		"symbol_error_total", "link_error_recovery_total", "port_errors_received_total", "port_receive_remote_physical_errors_total",
		"port_constraint_errors_received_total", "port_receive_switch_relay_errors_total", "port_discards_transmitted_total",
		"port_constraint_errors_transmitted_total", "local_link_integrity_errors_total", "excessive_buffer_overrun_errors_total", "vl15_dropped_total",
	} {
		facts[name] = fact{row: metric.InterfaceFaults, at: i}
	}
	return facts
}

// NodeConfig is what the source of the host needs.
type NodeConfig struct {
	Page        *page.Page
	DrainedFile string // while it exists the node is drained; empty: nobody says
	Log         *slog.Logger
}

// Node reads the host from the page of node_exporter. It is used from one goroutine.
type Node struct {
	cfg    NodeConfig
	pages  pageReader
	reader *NodeReader
}

// NodeReader makes a part of the samples of node_exporter as GPUReader does of those
// of GPUs. It is used from one goroutine.
type NodeReader struct {
	names *Names
	url   string
	log   *slog.Logger

	cpus                                map[string]cpu // of the page before
	read, written, busy, received, sent host.Sum
	shown                               collector.Page

	now nodePage // that is read
}

// cpu is the time of one CPU by metric.CPUMode.
type cpu [8]float64

// nodePage is what one page of node_exporter says.
type nodePage struct {
	readings     collector.Readings
	cpus         map[string]cpu
	cpuCount     float64               // that those of "" are the sum of; 0: not told
	disks, links map[string][3]float64 // by device: read or received, written or sent, busy; NaN: not told
	swap         [2]float64            // in all, free
	boot         time.Time
	kernel       string
	interfaces   []collector.Interface
	samples      int
}

var _ collector.Source = (*Node)(nil)

// NewNode returns the source.
func NewNode(cfg NodeConfig) *Node {
	return &Node{cfg: cfg, pages: newPageReader(NodeSource, cfg.Page), reader: NewNodeReader(NewNames(), cfg.Page.URL(), cfg.Log)}
}

// NewNodeReader returns a reader that has read no page yet. The URL is the page's, as
// it is shown.
func NewNodeReader(names *Names, url string, log *slog.Logger) *NodeReader {
	return &NodeReader{names: names, url: url, log: log}
}

// Name is NodeSource.
func (s *Node) Name() string { return NodeSource }

// Sample reads the page. A page that cannot be had or is not understood says nothing of
// the host: the part before it grows old.
func (s *Node) Sample(ctx context.Context) (*collector.Part, error) {
	s.reader.Begin()
	found, err := s.pages.read(ctx, s.reader)
	return s.conclude(found, err, time.Now())
}

// take reads a page that is there already.
func (s *Node) take(body io.Reader, now time.Time) (*collector.Part, error) {
	s.reader.Begin()
	found, err := s.pages.take(body, s.reader)
	return s.conclude(found, err, now)
}

func (s *Node) conclude(found []string, err error, now time.Time) (*collector.Part, error) {
	var part *collector.Part
	if err == nil {
		part, err = s.reader.End(now, found)
	}
	if err != nil {
		return nil, s.pages.failed("the host", err)
	}
	return part, host.ReadDrained(s.cfg.DrainedFile, part.Node.Readings)
}

// Begin begins a page.
func (s *NodeReader) Begin() {
	s.now = nodePage{readings: collector.NewReadings(metric.Node), cpus: map[string]cpu{}, disks: map[string][3]float64{}, links: map[string][3]float64{},
		swap: [2]float64{math.NaN(), math.NaN()}}
}

// End makes the part of the page; found is as in GPUReader.End.
func (s *NodeReader) End(now time.Time, found []string) (*collector.Part, error) {
	if s.now.samples == 0 {
		return nil, strange(NodeExporter+" from 0.16 on", found)
	}
	return s.part(now), nil
}

// The names of the CPUs' series. Where somebody has added up those of all CPUs, they have
// no label cpu, and CPUCount, which is the name that the common recording rule gives it,
// says of how many they are.
const (
	CPUSeconds = "node_cpu_seconds_total"
	CPUCount   = "instance:node_num_cpu:sum"
)

const (
	diskPrefix = "node_disk_"
	portPrefix = "node_infiniband_"
)

// nodeWords are the names beside those of facts, ports and columns.
var nodeWords = []string{CPUSeconds, CPUCount, "node_boot_time_seconds", "node_uname_info", "node_memory_SwapTotal_bytes", "node_memory_SwapFree_bytes"}

// columns are the counters of devices by name, and which column of the device they are.
var columns = map[string]int{
	"node_disk_read_bytes_total": 0, "node_disk_written_bytes_total": 1, "node_disk_io_time_seconds_total": 2,
	"node_network_receive_bytes_total": 0, "node_network_transmit_bytes_total": 1,
}

// Wants reports whether samples of the name are of interest.
func (s *NodeReader) Wants(name []byte) bool {
	if _, ok := s.names.node[string(name)]; ok {
		return true
	}
	if _, ok := columns[string(name)]; ok {
		return true
	}
	if slices.Contains(nodeWords, string(name)) {
		return true
	}
	return len(name) > len(portPrefix) && string(name[:len(portPrefix)]) == portPrefix
}

// Sample takes a sample of the page in, as GPUReader.Sample does.
func (s *NodeReader) Sample(name []byte, labels []exposition.Label, v float64) error {
	p := &s.now
	p.samples++
	if f, ok := s.names.node[string(name)]; ok {
		if v = f.reading(v); f.row.Plausible(v) {
			p.readings.SetAt(f.row, f.at, v)
		}
		return nil
	}
	if at, ok := columns[string(name)]; ok {
		if string(name[:len(diskPrefix)]) == diskPrefix {
			count(p.disks, virtualDisk, valueOf(labels, "device"), at, v)
		} else {
			count(p.links, virtualLink, valueOf(labels, "device"), at, v)
		}
		return nil
	}
	switch string(name) {
	case CPUCount:
		if v >= 1 && v <= maxCPUs {
			p.cpuCount = v
		}
	case CPUSeconds:
		return p.cpu(labels, v)
	case "node_boot_time_seconds":
		if v > 0 && v < 1e11 {
			p.boot = time.Unix(int64(v), 0)
		}
	case "node_uname_info":
		release := word(valueOf(labels, "release"))
		if p.kernel != "" && p.kernel != release {
			return page.Failing("several_nodes", "its page is of several nodes: one agent watches one node, so point it at the exporter of this node")
		}
		p.kernel = release
	case "node_memory_SwapTotal_bytes":
		p.swap[0] = v
	case "node_memory_SwapFree_bytes":
		p.swap[1] = v
	default:
		s.port(string(name[len(portPrefix):]), labels, v)
	}
	return nil
}

// part makes the part of a page that was understood.
func (s *NodeReader) part(now time.Time) *collector.Part {
	p := &s.now
	part := &collector.Part{Time: now, Boot: p.boot, Interfaces: p.interfaces}
	s.settleCPUs()
	s.settleDevices()
	if used := p.swap[0] - p.swap[1]; metric.HostSwapUsed.Plausible(used) {
		p.readings.Set(metric.HostSwapUsed, used)
	}
	for n := range part.Interfaces {
		i := &part.Interfaces[n]
		total := 0.0
		for at := range metric.InterfaceFaults.Width() {
			if v := i.ValueAt(metric.InterfaceFaults, at); !math.IsNaN(v) {
				total += v
				i.Set(metric.InterfaceErrors, total)
			}
		}
		i.Stamp(metric.Slow, now)
	}
	if p.kernel != "" {
		part.Node.Versions = []collector.Version{{Component: "kernel", Value: p.kernel}}
	}
	for _, t := range []metric.Tier{metric.Fast, metric.Slow, metric.Inventory} {
		p.readings.Stamp(t, now)
	}
	part.Node.Readings = p.readings
	shown := collector.Page{Source: NodeSource, URL: s.url, Exporter: NodeExporter, Names: "since 0.16"}
	part.Pages = []collector.Page{shown}
	if shown != s.shown {
		s.shown = shown
		s.log.Info("The host is read from another exporter's page, not from the kernel.", "endpoint", shown.URL, "exporter", shown.Exporter, "names", shown.Names, "cpus", p.readings.Value(metric.CPUCount))
	}
	return part
}
