package detect

import (
	"math"
	"time"

	"gpuvigil/collector"
	"gpuvigil/detect/stream"
	"gpuvigil/internal/metric"
)

// What of the host, of a workload or of an endpoint means are kept of.
const (
	hostCPU  = iota // share of all CPUs that is busy
	hostCore        // of the busiest one
	hostIO          // share of the time in which something waited for block devices
	hostRead        // bytes a second from block devices
	hostPort        // traffic of the fullest port as a share of what it can do
	hostMeans
)

const (
	workHeld   = iota // seconds a second for which the CPU quota held it back
	workQuota         // share of its CPU quota in use
	workRead          // bytes a second from block devices
	workRemote        // from network file systems
	workWrite         // to both
	workRx            // from its network
	workLoader        // share of the time for which it waits for data
	workCPU           // in which a task of it waited for a CPU
	workIO            // for block devices
	workMeans
)

const (
	serverInside  = iota // requests that run or wait
	serverWaiting        // those that wait
	serverKV             // share of the KV cache in use
	serverPushed         // preemptions a second
	serverMeans
)

var (
	modeWaiting  = metric.CPUMode.Index("iowait")
	pressureIO   = metric.PSIResource.Index("io")
	ofCgroupCPU  = metric.PSIOfCgroup.Index("cpu")
	ofCgroupIO   = metric.PSIOfCgroup.Index("io")
	reasonCapped = metric.ClockReason.Index("sw_power_cap")
	written      = metric.IODirection.Index("write")
	readFrom     = metric.IODirection.Index("read")
	receivedFrom = metric.Direction.Index("receive")
)

// checkpointSpeed, in bytes a second, is how fast who writes may be writing a checkpoint.
const checkpointSpeed = 1 << 20

// means are those of one thing's readings over the window of verdicts.
type means []*stream.Mean

func newMeans(n int) means {
	m := make(means, n)
	for i := range m {
		m[i] = stream.NewMean(jobWindow, 30, sampleGap)
	}
	return m
}

func (m means) shift(by time.Duration) {
	for _, v := range m {
		v.Shift(by)
	}
}

// of returns a mean over a window; NaN unless samples cover a third of it.
func (m means) of(i int, now time.Time, window time.Duration) float64 {
	return over(m[i], now, window, window/3)
}

// hostWindow is what is kept of the node.
type hostWindow struct {
	at, portsAt   time.Time
	mean          means
	waiting, read rate
	pressure      rate
	ports         []portFlow
}

type portFlow struct {
	device string
	port   int
	flow   flow
}

func newHostWindow() *hostWindow { return &hostWindow{mean: newMeans(hostMeans)} }

func (h *hostWindow) take(s *collector.Snapshot) {
	if at := s.Node.SampledAt(metric.Fast); !at.Equal(h.at) {
		h.at = at
		n := &s.Node
		h.mean[hostCPU].Add(at, n.Value(metric.CPUBusy))
		h.mean[hostCore].Add(at, n.Value(metric.CPUBusiest))
		pressure := h.pressure.next(at, n.ValueAt(metric.PressureSome, pressureIO))
		waiting := h.waiting.next(at, n.ValueAt(metric.CPUSeconds, modeWaiting))
		if math.IsNaN(pressure) { // kernels without PSI: one CPU that waits all the time is a task that does
			pressure = min(waiting, 1)
		}
		h.mean[hostIO].Add(at, pressure)
		h.mean[hostRead].Add(at, h.read.next(at, n.ValueAt(metric.DiskBytes, readFrom)))
	}
	h.takePorts(s)
}

// takePorts takes up the traffic of the node's InfiniBand and RoCE ports.
func (h *hostWindow) takePorts(s *collector.Snapshot) {
	if len(s.Interfaces) == 0 {
		return
	}
	at := s.Interfaces[0].SampledAt(metric.Slow)
	if at.Equal(h.portsAt) {
		return
	}
	h.portsAt = at
	if len(h.ports) != len(s.Interfaces) {
		h.ports = make([]portFlow, len(s.Interfaces))
	}
	fullest := math.NaN()
	for i := range s.Interfaces {
		p, kept := &s.Interfaces[i], &h.ports[i]
		if kept.device != p.Device || kept.port != p.Port {
			*kept = portFlow{device: p.Device, port: p.Port}
		}
		busier, _ := kept.flow.next(at, &p.Readings, metric.InterfaceBytes, nil)
		if speed := p.Value(metric.InterfaceSpeed); speed > 0 {
			fullest = largerKnown(fullest, busier/speed)
		}
	}
	h.mean[hostPort].Add(at, fullest)
}

func (h *hostWindow) shift(by time.Duration) {
	shift(by, &h.at, &h.portsAt)
	h.mean.shift(by)
	h.waiting.shift(by)
	h.read.shift(by)
	h.pressure.shift(by)
	for i := range h.ports {
		h.ports[i].flow.shift(by)
	}
}

// workWindow is what is kept of one owner's workload on the node.
type workWindow struct {
	at   time.Time
	mean means

	held, cpu, read, remote, write, remoteWrite, rx, waitCPU, waitIO rate

	wrote   time.Time // when it last wrote as one does who writes a checkpoint
	visible bool      // that can be seen
}

func (j *Judge) takeWork(w *collector.Workload) {
	at := w.SampledAt(metric.Slow)
	if at.IsZero() {
		return
	}
	k := j.work[w.Owner]
	if k == nil {
		if !room(j.work, maxJudged, forgotten, func(k *workWindow) time.Time { return k.at }, j.now) {
			return
		}
		k = &workWindow{mean: newMeans(workMeans)}
		j.work[w.Owner] = k
	}
	if at.Equal(k.at) {
		return
	}
	k.at = at
	k.mean[workHeld].Add(at, k.held.next(at, w.Value(metric.WorkloadCPUThrottled)))
	k.mean[workQuota].Add(at, k.cpu.next(at, w.Value(metric.WorkloadCPUSeconds))/w.Value(metric.WorkloadCPULimit))
	k.mean[workRead].Add(at, k.read.next(at, w.ValueAt(metric.WorkloadBlockBytes, readFrom)))
	k.mean[workRemote].Add(at, k.remote.next(at, w.ValueAt(metric.WorkloadNetworkFileBytes, readFrom)))
	k.mean[workRx].Add(at, k.rx.next(at, w.ValueAt(metric.WorkloadNetworkBytes, receivedFrom)))
	k.mean[workLoader].Add(at, w.Value(metric.WorkloadLoaderWait))
	k.mean[workCPU].Add(at, k.waitCPU.next(at, w.ValueAt(metric.WorkloadPressure, ofCgroupCPU)))
	k.mean[workIO].Add(at, k.waitIO.next(at, w.ValueAt(metric.WorkloadPressure, ofCgroupIO)))

	block, remote := w.ValueAt(metric.WorkloadBlockBytes, written), w.ValueAt(metric.WorkloadNetworkFileBytes, written)
	k.visible = !math.IsNaN(block) && (!math.IsNaN(remote) || !onNetworkFiles(w))
	write := sumKnown(k.write.next(at, block), k.remoteWrite.next(at, remote))
	k.mean[workWrite].Add(at, write)
	if write >= checkpointSpeed {
		k.wrote = at
	}
}

// onNetworkFiles reports whether the workload has file systems that block I/O does not
// see.
func onNetworkFiles(w *collector.Workload) bool {
	for _, c := range w.Caveats {
		if c.Reason == "network_file_systems" {
			return true
		}
	}
	return false
}

func (k *workWindow) shift(by time.Duration) {
	shift(by, &k.at, &k.wrote)
	k.mean.shift(by)
	for _, r := range []*rate{&k.held, &k.cpu, &k.read, &k.remote, &k.write, &k.remoteWrite, &k.rx, &k.waitCPU, &k.waitIO} {
		r.shift(by)
	}
}

// serverWindow is what is kept of one model of an inference server.
type serverWindow struct {
	at     time.Time
	mean   means
	pushed rate
}

func (j *Judge) takeServer(e *collector.Endpoint) {
	at := e.SampledAt(metric.Fast)
	if at.IsZero() {
		return
	}
	k := j.servers[e.Key()]
	if k == nil {
		if !room(j.servers, maxJudged, forgotten, func(k *serverWindow) time.Time { return k.at }, j.now) {
			return
		}
		k = &serverWindow{mean: newMeans(serverMeans)}
		j.servers[e.Key()] = k
	}
	if at.Equal(k.at) {
		return
	}
	k.at = at
	waiting := e.Value(metric.RequestsWaiting)
	k.mean[serverInside].Add(at, sumKnown(e.Value(metric.RequestsRunning), waiting))
	k.mean[serverWaiting].Add(at, waiting)
	k.mean[serverKV].Add(at, e.Value(metric.KVCacheUsage))
	k.mean[serverPushed].Add(at, k.pushed.next(at, e.Value(metric.Preemptions)))
}

func (k *serverWindow) shift(by time.Duration) {
	shift(by, &k.at)
	k.mean.shift(by)
	k.pushed.shift(by)
}
