package synth

import (
	"math"
	"math/rand/v2"
	"time"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

const (
	hostCPUs     = nodeSize * cpusPerGPU
	hostMemory   = float64(nodeSize * memoryPerGPU)
	diskSpeed    = 1.2e10 // bytes per second that the node's disks do together
	networkSpeed = 1.25e10
	portSpeed    = 5e10
	portShare    = 0.05 // of the NVLink traffic that also goes to other nodes
	callsPerGPU  = 14   // of NVML, in a second
	callTime     = 180e-6
)

// host is the machine around the GPUs.
type host struct {
	rng             *rand.Rand
	cpuSeconds      [8]float64 // in the order of metric.CPUMode
	busy, busiest   float64
	load            [3]float64
	available       float64
	some, full      [4]float64
	read, write, io float64
	rx, tx          float64
	calls, failed   float64
	callSeconds     float64
	slowCalls       float64 // times as long as usual; 0: 1
	records, fabric float64
	ports           [nodeSize]float64 // bytes
	portDown        int               // one more than the index of the port
	confidential    bool              // confidential computing is on
	readings        collector.Readings
}

func newHost(r *rand.Rand, up float64) host {
	h := host{rng: r, readings: collector.NewReadings(metric.Node), read: 4.1e14, write: 1.7e14, io: 0.2 * up, rx: 1.9e13, tx: 6.2e12}
	h.some = [4]float64{0.001 * up, 0, 0.02 * up}
	h.full = [4]float64{0, 0, 0.006 * up, 1e-5 * up}
	h.addCPU(0.1*hostCPUs*up, 0.002*hostCPUs*up, up)
	return h
}

// addCPU adds time of all CPUs, so that the modes sum to what passed.
func (h *host) addCPU(busy, wait, seconds float64) {
	for i, share := range [8]float64{0.79, 0.005, 0.17, 0, 0, 0.005, 0.03, 0} {
		h.cpuSeconds[i] += share * busy
	}
	h.cpuSeconds[3] += hostCPUs*seconds - busy - wait
	h.cpuSeconds[4] += wait
}

func (h *host) step(a demandOnHost, n *Node, dt float64) {
	cores := math.Min(0.99*hostCPUs, a.cores+noise(h.rng, 0.006*hostCPUs, 0.2))
	read, write := a.read, a.write+noise(h.rng, 3e5, 1e5)
	disk := math.Min(1, (read+write)/diskSpeed)
	h.busy = cores / hostCPUs
	h.busiest = clamp(math.Max(a.busiest, noise(h.rng, 0.12, 0.03)), h.busy, 1)
	h.addCPU(cores*dt, math.Max(0.02*disk, 0.25*a.iowait)*(hostCPUs-cores)*dt, dt)
	for i, minutes := range [3]float64{1, 5, 15} {
		h.load[i] += (cores - h.load[i]) * (1 - math.Exp(-dt/(60*minutes)))
	}
	processes := 0.0
	for _, g := range n.gpus {
		processes += float64(len(g.procs))
		h.calls += callsPerGPU * dt
		h.callSeconds += callsPerGPU * dt * callTime * scale(h.slowCalls)
		if g.ills.lost || g.ills.hung {
			h.failed += callsPerGPU * dt
		}
		h.ports[g.index] += portShare * g.work.link * dt
	}
	leaked := 0.0
	for _, t := range n.tenants {
		leaked += t.leakedHost
	}
	h.available = math.Max(1<<30, hostMemory*0.93-processes*(60<<30)-noise(h.rng, 2<<30, 1<<28)-leaked)
	pressed := math.Max(0.6*disk, a.iowait)
	h.some[0] += dt * math.Min(1, 0.001+3*math.Max(0, h.busy-0.85)+a.quota*0.2)
	h.some[2] += dt * pressed
	h.full[2] += dt * pressed / 3
	h.full[3] += dt * 1e-5
	h.read += math.Round(read * dt)
	h.write += math.Round(write * dt)
	h.io += dt * math.Max(disk, a.iowait)
	h.rx += math.Round((a.rx + noise(h.rng, 2e5, 4e4)) * dt)
	h.tx += math.Round((a.tx + noise(h.rng, 1e5, 2e4)) * dt)
	h.records += math.Round(dt / 4)
}

// see writes what an agent reads of the machine.
func (h *host) see(n *Node) {
	r := h.readings
	setAll(r, metric.CPUSeconds, h.cpuSeconds[:]...)
	r.Set(metric.CPUBusy, h.busy)
	r.Set(metric.CPUBusiest, h.busiest)
	setAll(r, metric.Load, h.load[:]...)
	r.Set(metric.HostMemoryCapacity, hostMemory)
	r.Set(metric.HostMemoryAvailable, math.Round(h.available))
	r.Set(metric.HostSwapUsed, 0)
	setAll(r, metric.PressureSome, h.some[:3]...)
	setAll(r, metric.PressureFull, h.full[:]...)
	setAll(r, metric.DiskBytes, h.read, h.write)
	r.Set(metric.DiskIOTime, h.io)
	setAll(r, metric.NetworkBytes, h.rx, h.tx)
	r.Set(metric.KernelLogRecords, h.records)
	r.Set(metric.KernelLogLost, 0)
	r.Set(metric.FabricManagerErrors, h.fabric)
	hung, lost := 0.0, 0.0
	for _, g := range n.gpus {
		hung += bit(g.ills.hung)
		lost += bit(g.ills.lost)
	}
	r.Set(metric.GPUsSeen, nodeSize)
	r.Set(metric.GPUsExpected, nodeSize)
	r.Set(metric.NVMLCalls, h.calls)
	r.Set(metric.NVMLErrors, h.failed)
	r.Set(metric.NVMLSeconds, h.callSeconds)
	r.Set(metric.NVMLHung, hung)
	r.Set(metric.NVMLEventSets, 0)
	r.Set(metric.NVMLHostPIDs, 1)
	r.Set(metric.AllocationsKnown, 1)
	r.Set(metric.Drained, bit(n.cordoned))
	r.Set(metric.AllocationsUnresolved, 0)
	r.Set(metric.CPUCount, hostCPUs)
	r.Set(metric.ConfidentialComputing, bit(h.confidential))
	setAll(r, metric.PCIGPUs, nodeSize, 0, 0, 0)
	setAll(r, metric.TierSlowdown, 1, 1, 1, 1)
	zero(r, metric.InventoryUnread)
	for t := range metric.Tiers {
		h.readings.Stamp(t, n.now)
	}
}

// seePorts tells of an adapter beside each GPU.
func (h *host) seePorts(now time.Time) []collector.Interface {
	width := metric.VectorLen(metric.Interface)
	all := make([]float64, nodeSize*width)
	for i := range all {
		all[i] = math.NaN()
	}
	ports := make([]collector.Interface, nodeSize)
	for i := range ports {
		down := h.portDown == i+1
		r := collector.ReadingsFrom(all[i*width:(i+1)*width:(i+1)*width], [metric.Tiers]time.Time{})
		bytes := 4 * math.Round(h.ports[i]/4)
		r.Set(metric.InterfaceUp, bit(!down))
		r.Set(metric.InterfaceSpeed, portSpeed)
		setAll(r, metric.InterfaceBytes, bytes, bytes)
		r.Set(metric.InterfaceErrors, 0)
		r.Set(metric.InterfaceLinkDowned, bit(down))
		r.Set(metric.InterfaceWaits, 0)
		zero(r, metric.InterfaceFaults, metric.InterfaceRepeats, metric.InterfaceCongestion)
		r.Stamp(metric.Slow, now)
		ports[i] = collector.Interface{Device: portNames[i], Port: 1, LinkLayer: "InfiniBand", State: "ACTIVE", PhysicalState: "LinkUp", Readings: r}
		if down {
			ports[i].State, ports[i].PhysicalState = "DOWN", "Polling"
		}
	}
	return ports
}

var portNames = [nodeSize]string{"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7"}
