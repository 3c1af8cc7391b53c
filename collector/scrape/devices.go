package scrape

import (
	"math"
	"slices"
	"strings"

	"gpuvigil/collector"
	"gpuvigil/collector/exposition"
	"gpuvigil/collector/host"
	"gpuvigil/collector/page"
	"gpuvigil/internal/metric"
)

// cpu takes in the time of one CPU in one mode. The same one twice is of two nodes.
func (p *nodePage) cpu(labels []exposition.Label, v float64) error {
	i, name := metric.CPUMode.Index(string(valueOf(labels, "mode"))), valueOf(labels, "cpu")
	if i < 0 || !(v >= 0) || math.IsInf(v, 0) {
		return nil
	}
	c, ok := p.cpus[string(name)]
	if !ok {
		if len(p.cpus) == maxCPUs {
			return page.Failing("too_large", "its page has more than %d CPUs", maxCPUs)
		}
		for m := range c {
			c[m] = math.NaN()
		}
	}
	if !math.IsNaN(c[i]) {
		return page.Failing("several_nodes", "its page has CPU %s twice, so it is of several nodes: point it at the exporter of this node", word(name))
	}
	c[i] = v
	p.cpus[string(name)] = c
	return nil
}

// virtualDisk and virtualLink are the names of devices that have no hardware of their
// own behind them: what goes through them goes through others, too, and would count
// twice. The kernel's own files tell that better than names do.
var (
	virtualDisk = []string{"dm-", "md", "loop", "ram", "zram", "sr", "fd", "nbd", "drbd", "zd"}
	virtualLink = []string{"veth", "docker", "br-", "br", "bond", "team", "cni", "cali", "cilium", "flannel", "lxc", "lxd", "virbr", "vnet", "tun", "tap", "tunl",
		"vxlan", "geneve", "gre", "sit", "ip6", "wg", "dummy", "ifb", "kube", "nodelocaldns", "ovs", "podman", "macvlan", "ipvlan", "weave", "antrea", "genev"}
)

// count takes in a counter of a device that has hardware behind it.
func count(devices map[string][3]float64, virtual []string, device []byte, at int, v float64) {
	if len(device) == 0 || string(device) == "lo" || !(v >= 0) || math.IsInf(v, 0) || slices.ContainsFunc(virtual, func(prefix string) bool { return strings.HasPrefix(string(device), prefix) }) ||
		strings.ContainsAny(string(device), ".@:") {
		return
	}
	d, ok := devices[string(device)]
	if !ok {
		if len(devices) == maxDevices {
			return
		}
		d = [3]float64{math.NaN(), math.NaN(), math.NaN()}
	}
	d[at] = v
	devices[string(device)] = d
}

// port takes in a fact of an adapter's port.
func (s *NodeReader) port(name string, labels []exposition.Label, v float64) {
	device, number := word(valueOf(labels, "device")), numberOf(valueOf(labels, "port"))
	f, known := s.names.nodePorts[name]
	if device == "" || number <= 0 || !known && name != "state_id" {
		return
	}
	p := &s.now
	at := slices.IndexFunc(p.interfaces, func(i collector.Interface) bool { return i.Device == device && i.Port == number })
	if at < 0 {
		if len(p.interfaces) == maxPorts {
			return
		}
		at = len(p.interfaces)
		p.interfaces = append(p.interfaces, collector.Interface{Device: device, Port: number, Readings: collector.NewReadings(metric.Interface)})
	}
	i := &p.interfaces[at]
	switch {
	case known && f.row.Plausible(v):
		i.SetAt(f.row, f.at, f.reading(v))
	case name == "state_id":
		i.State = host.PortState(int(v))
		i.Set(metric.InterfaceUp, number01(i.State == "ACTIVE"))
	}
}

func number01(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// settleCPUs sums the CPUs up, and says how busy they were since the page before.
func (s *NodeReader) settleCPUs() {
	p := &s.now
	if len(p.cpus) == 0 {
		return
	}
	var all [8]float64
	var busy, total, busiest float64
	for name, c := range p.cpus {
		for i, v := range c {
			all[i] += v // NaN: not of all, so not known
		}
		before, ok := s.cpus[name]
		if !ok {
			continue
		}
		b, t := c.busy()-before.busy(), c.all()-before.all()
		if !(b >= 0) || !(t > 0) {
			continue // idle and iowait may step back by a tick
		}
		busy, total, busiest = busy+b, total+t, max(busiest, b/t)
	}
	for i, v := range all {
		if !math.IsNaN(v) {
			p.readings.SetAt(metric.CPUSeconds, i, v)
		}
	}
	_, summed := p.cpus[""]
	switch {
	case !summed:
		p.readings.Set(metric.CPUCount, float64(len(p.cpus)))
	case p.cpuCount > 0:
		p.readings.Set(metric.CPUCount, p.cpuCount)
	}
	if total > 0 {
		p.readings.Set(metric.CPUBusy, min(busy/total, 1))
		if !summed { // a sum does not tell of one CPU
			p.readings.Set(metric.CPUBusiest, min(busiest, 1))
		}
	}
	s.cpus = p.cpus
}

// idle and iowait are positions in metric.CPUMode.
const (
	idle   = 3
	iowait = 4
)

func (c *cpu) all() (sum float64) {
	for _, v := range c {
		if !math.IsNaN(v) {
			sum += v
		}
	}
	return sum
}

func (c *cpu) busy() float64 {
	sum := c.all()
	for _, v := range []float64{c[idle], c[iowait]} {
		if !math.IsNaN(v) {
			sum -= v
		}
	}
	return sum
}

// settleDevices adds up the devices' counters, of which some may have come or gone.
func (s *NodeReader) settleDevices() {
	p := &s.now
	sum := func(devices map[string][3]float64, at int, total *host.Sum, row *metric.Def, column int) {
		total.Begin()
		for name, d := range devices {
			if !math.IsNaN(d[at]) {
				total.Add(name, d[at])
			}
		}
		if v, ok := total.End(); ok {
			p.readings.SetAt(row, column, v)
		}
	}
	sum(p.disks, 0, &s.read, metric.DiskBytes, 0)
	sum(p.disks, 1, &s.written, metric.DiskBytes, 1)
	sum(p.disks, 2, &s.busy, metric.DiskIOTime, 0)
	sum(p.links, 0, &s.received, metric.NetworkBytes, 0)
	sum(p.links, 1, &s.sent, metric.NetworkBytes, 1)
}
