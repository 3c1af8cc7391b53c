package detect

import (
	"math"
	"strconv"
)

// words puts what a verdict stands on into words and numbers.
func (f *figures) words(of VerdictName, scratch []byte) string {
	w := phrase(scratch)
	switch of {
	case VerdictHung, VerdictStalled:
		if f.told != "" {
			return f.told
		}
	case VerdictFree:
		w.say("no process and no owner")
	case VerdictHeldWithoutProcess:
		w.say("given away, and no process has it open")
	case VerdictUnknown:
		w.say(f.blind())
		return string(w)
	}
	facts := len(w)
	w.ratio("GPU", f.util, "busy")
	w.ratio("SMs", f.sm, "")
	w.ratio("tensor cores", f.tensor, "")
	w.ratio("memory bandwidth", f.dram, "")
	if math.IsNaN(f.dram) {
		w.ratio("memory busy", f.memory, "")
	}
	w.watts(f)
	switch of {
	case VerdictThrottledPower, VerdictThrottledThermal, VerdictThrottledHardware:
		f.sayThrottled(&w)
	case VerdictEncoderBound:
		w.ratio("video encoder or decoder", f.codec, "")
	case VerdictPCIeBound:
		w.bytes("PCIe", f.pcie)
		w.ratio("that is", f.pcieShare, "of what the link can do")
	case VerdictCommunicationBound:
		w.bytes("NVLink", f.nvlink)
		w.ratio("that is", f.nvlinkShare, "of what the links can do")
		w.ratio("fullest InfiniBand port", f.port, "")
	case VerdictRequestStarved, VerdictVRAMBound:
		f.sayRequests(&w)
	case VerdictCPUStarved, VerdictDiskStarved, VerdictNetworkStarved, VerdictHostBound:
		f.sayHost(&w, of)
	case VerdictHealthy, VerdictComputeBound, VerdictMemoryBound:
		if f.served {
			f.sayRequests(&w)
		}
	}
	if len(w) > facts {
		w.say(f.span)
	}
	return string(w)
}

// blind says why there is no verdict.
func (f *figures) blind() string {
	switch {
	case !f.answers:
		return "the driver does not answer for it"
	case f.cut:
		return "it is cut into MIG instances, and what they do together is not told"
	case !f.known && f.tells && f.young && f.opened:
		return "a process has opened it, and there are less than two minutes of readings since"
	case !f.known && f.young:
		return "less than two minutes of readings yet"
	case !f.tells && math.IsNaN(f.util) && math.IsNaN(f.sm):
		return "neither its utilization nor its SM activity is told"
	case !f.known:
		return "less than two minutes of readings since it answers again"
	}
	return "it does nothing, and it is not told who has it"
}

func (f *figures) sayThrottled(w *phrase) {
	if f.slow < 0 {
		w.ratio("its limit is", f.lowered, "of the board's own")
		w.ratio("the software power cap held its clocks for", f.capped, "of the time")
		return
	}
	w.say(slowdownReasons[f.slow].cause)
	*w = append(*w, " held its clocks for "...)
	*w = strconv.AppendFloat(*w, 100*f.slowShare, 'f', 1, 64)
	*w = append(*w, " % of ten minutes"...)
}

func (f *figures) sayRequests(w *phrase) {
	w.number(f.inside, "requests inside")
	w.number(f.waiting, "waiting")
	w.ratio("KV cache", f.kv, "")
}

func (f *figures) sayHost(w *phrase, of VerdictName) {
	w.ratio("CPU", f.cpu, "")
	w.ratio("busiest core", f.core, "")
	w.some("held back by its CPU quota", f.held, "of the time")
	w.some("a task waits for a CPU", f.waitCPU, "of the time")
	w.some("waits for data", f.loader, "of the time")
	io := f.ioOwn
	if math.IsNaN(io) {
		io = f.io
	}
	w.some("something waits for I/O", io, "of the time")
	if math.IsNaN(f.workRead) {
		w.bytes("the host reads from block devices", f.read)
	} else {
		w.bytes("reads from block devices", f.workRead)
	}
	w.bytes("from network file systems", f.remote)
	if of == VerdictHostBound {
		w.say("the cause is not known")
		if math.IsNaN(f.remote) {
			w.say("block I/O does not see NFS, Lustre or FUSE")
		}
	}
}

// phrase is a list of clauses. What is not known is left out.
type phrase []byte

func (w *phrase) say(clause string) {
	if len(*w) > 0 {
		*w = append(*w, ", "...)
	}
	*w = append(*w, clause...)
}

func (w *phrase) ratio(what string, x float64, tail string) {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return
	}
	w.say(what)
	*w = append(*w, ' ')
	*w = strconv.AppendFloat(*w, 100*x, 'f', 0, 64)
	*w = append(*w, " %"...)
	w.tail(tail)
}

// some writes a ratio that is worth a word.
func (w *phrase) some(what string, x float64, tail string) {
	if x >= 0.005 {
		w.ratio(what, x, tail)
	}
}

func (w *phrase) number(x float64, tail string) {
	if math.IsNaN(x) {
		return
	}
	w.say("")
	*w = strconv.AppendFloat(*w, x, 'f', 1, 64)
	w.tail(tail)
}

func (w *phrase) bytes(what string, x float64) {
	if math.IsNaN(x) {
		return
	}
	w.say(what)
	*w = append(*w, ' ')
	scale, unit := 1e6, " MB/s"
	if x >= 1e9 {
		scale, unit = 1e9, " GB/s"
	}
	*w = strconv.AppendFloat(*w, x/scale, 'f', 1, 64)
	*w = append(*w, unit...)
}

func (w *phrase) watts(f *figures) {
	if math.IsNaN(f.watts) || !(f.power > 0) {
		return
	}
	w.say("")
	*w = strconv.AppendFloat(*w, f.watts, 'f', 0, 64)
	*w = append(*w, " of "...)
	*w = strconv.AppendFloat(*w, f.watts/f.power, 'f', 0, 64)
	*w = append(*w, " W"...)
}

func (w *phrase) tail(text string) {
	if text != "" {
		*w = append(*w, ' ')
		*w = append(*w, text...)
	}
}
