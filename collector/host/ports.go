package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
	"gpuvigil/internal/text"
)

// PortsName is the name of the source of adapters' ports.
const PortsName = "interfaces"

const (
	maxPorts    = 256
	maxPortFile = 256 // bytes; all files of a port hold one line
	portWord    = 4   // port_rcv_data and port_xmit_data count words
)

// Ports reads the ports of InfiniBand and RoCE adapters. It is a source of its own
// because the adapter's firmware is asked for each counter: that takes long, and
// where it does not answer only this source waits. The class reader of
// prometheus/procfs gives up all ports for one that cannot be read.
type Ports struct {
	dir  string
	full bool
	read func(path string) ([]byte, error)
}

var _ collector.Source = (*Ports)(nil)

// NewPorts returns a source of the ports below the mount point of sysfs. Details
// are read in the full profile only.
func NewPorts(sysPath string, full bool) *Ports {
	return &Ports{dir: filepath.Join(sysPath, "class", "infiniband"), full: full, read: readSmall}
}

// Name is PortsName.
func (p *Ports) Name() string { return PortsName }

// Sample reads all ports. What a port does not tell is absent; a file that cannot
// be read for another reason is named in the error and costs that reading only.
func (p *Ports) Sample(ctx context.Context) (*collector.Part, error) {
	part := &collector.Part{}
	var errs []error
	paths, err := filepath.Glob(filepath.Join(p.dir, "*", "ports", "*"))
	if err != nil {
		return nil, fmt.Errorf("list the adapters' ports: %w", err)
	}
	if extra := len(paths) - maxPorts; extra > 0 {
		errs = append(errs, fmt.Errorf("list the adapters' ports: %d of %d are left out", extra, len(paths)))
		paths = paths[:maxPorts]
	}
	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			errs = append(errs, err)
			break
		}
		number, err := strconv.Atoi(filepath.Base(path))
		if err != nil {
			continue
		}
		r := portReader{dir: path, read: p.read}
		i := collector.Interface{Device: filepath.Base(filepath.Dir(filepath.Dir(path))), Port: number, Readings: collector.NewReadings(metric.Interface)}
		r.state(&i)
		r.counters(i.Readings)
		if p.full {
			r.details(i.Readings)
		}
		i.Stamp(metric.Slow, time.Now())
		part.Interfaces = append(part.Interfaces, i)
		errs = append(errs, r.errs...)
	}
	part.Time = time.Now()
	return part, errors.Join(errs...)
}

// portReader reads the files of one port.
type portReader struct {
	dir  string
	read func(path string) ([]byte, error)
	errs []error
}

func (p *portReader) state(i *collector.Interface) {
	i.LinkLayer = text.Clean(p.line("link_layer"), 32)
	i.State, i.PhysicalState = stateName(p.line("state")), stateName(p.line("phys_state"))
	if i.State != "" {
		up := 0.0
		if i.State == "ACTIVE" {
			up = 1
		}
		i.Set(metric.InterfaceUp, up)
	}
	if v, ok := speed(p.line("rate")); ok && metric.InterfaceSpeed.Plausible(v) {
		i.Set(metric.InterfaceSpeed, v)
	}
}

// stateName returns the name in "4: ACTIVE".
func stateName(s string) string {
	if _, name, ok := strings.Cut(s, ":"); ok {
		s = name
	}
	return text.Clean(s, 32)
}

// PortState names the state of a port that is told as a number (ibv_port_state); empty
// if there is no such state.
func PortState(id int) string {
	states := []string{1: "DOWN", 2: "INIT", 3: "ARMED", 4: "ACTIVE", 5: "ACTIVE_DEFER"}
	if id < 0 || id >= len(states) {
		return ""
	}
	return states[id]
}

// speed returns bytes per second of "400 Gb/sec (4X NDR)".
func speed(s string) (float64, bool) {
	number, unit, _ := strings.Cut(s, " ")
	v, err := strconv.ParseFloat(number, 64)
	return v * 1e9 / 8, err == nil && strings.HasPrefix(unit, "Gb/sec")
}

// portFaults and the lists below are files of a port in the order of the
// dimension's values.
var (
	portFaults = []string{
		"symbol_error", "link_error_recovery", "port_rcv_errors", "port_rcv_remote_physical_errors", "port_rcv_constraint_errors",
		"port_rcv_switch_relay_errors", "port_xmit_discards", "port_xmit_constraint_errors", "local_link_integrity_errors",
		"excessive_buffer_overrun_errors", "VL15_dropped",
	}
	portRepeats = []string{
		"out_of_sequence", "packet_seq_err", "duplicate_request", "local_ack_timeout_err", "rnr_nak_retry_err", "implied_nak_seq_err",
		"out_of_buffer", "roce_adp_retrans",
	}
	portCongestion = []string{"np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled"}
)

func (p *portReader) counters(r collector.Readings) {
	for i, name := range []string{"port_rcv_data", "port_xmit_data"} {
		if v, ok := p.counter("counters", name); ok {
			r.SetAt(metric.InterfaceBytes, i, v*portWord)
		}
	}
	if v, ok := p.counter("counters", "link_downed"); ok {
		r.Set(metric.InterfaceLinkDowned, v)
	}
	total, known := 0.0, false
	for i, name := range portFaults {
		if v, ok := p.counter("counters", name); ok {
			r.SetAt(metric.InterfaceFaults, i, v)
			total, known = total+v, true
		}
	}
	if known {
		r.Set(metric.InterfaceErrors, total)
	}
}

func (p *portReader) details(r collector.Readings) {
	if v, ok := p.counter("counters", "port_xmit_wait"); ok {
		r.Set(metric.InterfaceWaits, v)
	}
	for d, names := range map[*metric.Def][]string{metric.InterfaceRepeats: portRepeats, metric.InterfaceCongestion: portCongestion} {
		for i, name := range names {
			if v, ok := p.counter("hw_counters", name); ok {
				r.SetAt(d, i, v)
			}
		}
	}
}

// counter returns a counter, and false if the port does not have it: some write
// "N/A (no PMA)".
func (p *portReader) counter(dir, name string) (float64, bool) {
	line := p.line(filepath.Join(dir, name))
	if line == "" || strings.HasPrefix(line, "N/A") {
		return 0, false
	}
	v, err := strconv.ParseUint(line, 10, 64)
	if err != nil {
		p.errs = append(p.errs, fmt.Errorf("read counter %s of %s: found %q, want a number", name, p.dir, text.Clean(line, 40)))
		return 0, false
	}
	return float64(v), true
}

// untold are the errors with which a driver says that the port has no such value.
var untold = []error{fs.ErrNotExist, syscall.EINVAL, syscall.EOPNOTSUPP, syscall.ENODEV, syscall.ENODATA}

// line returns the one line of the file, empty if the port does not have it.
func (p *portReader) line(name string) string {
	b, err := p.read(filepath.Join(p.dir, name))
	if err != nil {
		if !slices.ContainsFunc(untold, func(e error) bool { return errors.Is(err, e) }) {
			p.errs = append(p.errs, fmt.Errorf("read an adapter's port: %w", err))
		}
		return ""
	}
	return string(bytes.TrimSpace(b))
}

func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxPortFile))
}
