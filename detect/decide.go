package detect

import (
	"math"
	"slices"
)

// starved are the verdicts of a GPU that waits for its host.
var starved = []VerdictName{VerdictCPUStarved, VerdictDiskStarved, VerdictNetworkStarved, VerdictHostBound}

// decide returns the verdict and how sure it is.
func (f *figures) decide() (VerdictName, Confidence) {
	switch {
	case !f.answers:
		return VerdictUnknown, Certain
	case f.hung:
		return VerdictHung, VerySure
	case f.stalled:
		return VerdictStalled, VerySure
	case !f.known && f.young && f.now != "":
		return f.now, Young
	case !f.known && f.young:
		return VerdictUnknown, Young
	case !f.known:
		return VerdictUnknown, Likely // it has not told anything for a while
	case math.IsNaN(f.util) && math.IsNaN(f.sm):
		return VerdictUnknown, Certain
	case f.served && f.inside < noRequests && !(f.power > lowPower):
		return VerdictRequestStarved, Certain // however busy ranks that wait for each other look
	case f.works() && !f.left():
		return f.working()
	}
	return f.idle()
}

// refutes reports whether a verdict says of processes and owners what is not so any more.
func (f *figures) refutes(v VerdictName) bool {
	switch v {
	case VerdictFree:
		return f.open || f.given
	case VerdictHeldWithoutProcess:
		return f.open || !f.given
	case VerdictIdleHeld:
		return !f.open && f.listed
	}
	return false
}

// reaches reports whether a reading is at a limit. Who has one of the verdicts is there
// until the reading is clear of it, so that noise around a limit changes nothing.
func (f *figures) reaches(x, limit float64, names ...VerdictName) bool {
	if slices.Contains(names, f.now) {
		limit *= clearOf
	}
	return x >= limit
}

// works is the definition of busy that the reports of costs have, too.
func (f *figures) works() bool {
	switch {
	case f.codec >= busyActivity:
		return true
	case !math.IsNaN(f.sm):
		return f.sm >= busyActivity
	case !math.IsNaN(f.rest) && !math.IsNaN(f.power):
		return f.power > f.rest+workingMargin
	}
	return f.util >= idleUtilization
}

// left reports whether nobody has the GPU open and it has been at rest for a minute,
// whatever the means of the minutes before say.
func (f *figures) left() bool { return !f.open && f.listed && !(f.recent >= busyActivity) }

// working is the verdict on a GPU that works. What holds its clocks down comes before
// what it is full of, and links before SMs, which are busy while they wait for them.
func (f *figures) working() (VerdictName, Confidence) {
	switch {
	case f.slow == byHeat || f.slow == bySoftHeat:
		return VerdictThrottledThermal, Certain
	case f.slow == byBrake || f.lowered < 0.98 && f.capped >= 0.5 && f.power >= 0.9:
		return VerdictThrottledPower, Certain
	case f.slow == byHardware:
		return VerdictThrottledHardware, Certain
	case f.reaches(f.codec, fullCodec, VerdictEncoderBound) && !(f.sm >= fullSM):
		return VerdictEncoderBound, VerySure
	case f.served && f.reaches(f.kv, fullKV, VerdictVRAMBound) && (f.waiting >= 0.5 || f.pushed > 0):
		return VerdictVRAMBound, VerySure
	case f.reaches(f.pcieShare, fullPCIe, VerdictPCIeBound):
		return VerdictPCIeBound, VerySure
	case f.fullLinks():
		return VerdictCommunicationBound, VerySure
	case f.waitsForRanks():
		return VerdictCommunicationBound, Likely
	case f.reaches(f.dram, fullDRAM, VerdictMemoryBound) && !(f.tensor/fullTensor > f.dram/fullDRAM):
		return VerdictMemoryBound, VerySure
	case f.reaches(f.sm, fullSM, VerdictComputeBound) || f.reaches(f.tensor, fullTensor, VerdictComputeBound):
		return VerdictComputeBound, VerySure
	case math.IsNaN(f.dram) && f.reaches(f.memory, fullMemory, VerdictMemoryBound) && f.reaches(f.util, 0.9, VerdictMemoryBound):
		return VerdictMemoryBound, Likely
	case math.IsNaN(f.sm) && f.reaches(f.util, 0.9, VerdictComputeBound) && f.reaches(f.power, goodPower, VerdictComputeBound):
		return VerdictComputeBound, Likely
	case f.served && f.waiting >= 1 && f.scarceCPU():
		return VerdictCPUStarved, Likely
	case !f.served && !f.notebook && f.gaps():
		return f.starved()
	}
	return VerdictHealthy, Likely
}

// fullLinks reports whether links carry what they can while the SMs have time to wait.
func (f *figures) fullLinks() bool {
	full := f.reaches(f.nvlinkShare, fullNVLink, VerdictCommunicationBound) || f.reaches(f.port, fullPort, VerdictCommunicationBound)
	if math.IsNaN(f.sm) {
		return full && f.power < goodPower
	}
	return full && f.sm < partSM
}

// waitsForRanks reports whether a rank among several looks as one does that waits for
// others: its kernels run all the time, next to nothing is computed, and the links are
// not silent.
func (f *figures) waitsForRanks() bool {
	return f.several && f.util >= 0.95 && f.power < 0.4 && !(f.sm >= partSM) && !(f.dram >= lowPower) && f.nvlinkShare >= 0.01
}

// gaps reports whether there are times without a kernel that are worth a look.
func (f *figures) gaps() bool {
	duty := f.util
	if math.IsNaN(duty) {
		duty = f.sm
	}
	limit := fullDuty
	if slices.Contains(starved, f.now) {
		limit /= clearOf
	}
	return duty < limit
}

// scarceCPU reports whether the workload gets less of the CPUs than it asks for.
func (f *figures) scarceCPU() bool {
	return f.reaches(f.held, heldByQuota, VerdictCPUStarved) || f.reaches(f.quota, fullQuota, VerdictCPUStarved) ||
		f.reaches(f.cpu, fullCPU, VerdictCPUStarved) || f.reaches(f.waitCPU, waitsForCPU, VerdictCPUStarved)
}

// starved is the verdict on a GPU that waits for its host. Block I/O does not see
// network file systems, so without a sign the cause is not known, and that is said.
func (f *figures) starved() (VerdictName, Confidence) {
	io, read := f.ioOwn, f.workRead
	if math.IsNaN(io) {
		io = f.io
	}
	if math.IsNaN(read) {
		read = f.read
	}
	waits := f.reaches(io, waitsForIO, VerdictDiskStarved, VerdictNetworkStarved) || f.reaches(f.loader, waitsForData, VerdictDiskStarved, VerdictNetworkStarved)
	much := sumKnown(read, f.remote) >= readsMuch
	switch {
	case f.scarceCPU():
		return VerdictCPUStarved, VerySure
	case waits && much && f.remote > read || waits && much && math.IsNaN(read):
		return VerdictNetworkStarved, VerySure
	case waits && much:
		return VerdictDiskStarved, VerySure
	case f.rx >= rxMuch && f.reaches(f.loader, waitsForData, VerdictNetworkStarved):
		return VerdictNetworkStarved, Likely
	case f.reaches(f.core, peggedCore, VerdictCPUStarved):
		return VerdictCPUStarved, Likely
	}
	return VerdictHostBound, Likely
}

// idle is the verdict on a GPU that does not work.
func (f *figures) idle() (VerdictName, Confidence) {
	switch {
	case !f.open && !f.given && f.listed && f.allocations:
		return VerdictFree, Certain
	case !f.open && !f.given:
		return VerdictUnknown, Likely
	case !f.open && f.listed:
		return VerdictHeldWithoutProcess, Certain
	case !f.listed:
		return VerdictIdleHeld, Likely
	case f.loader >= 0.5 || f.held >= heldByQuota:
		return f.starved() // at work, though the GPU gets none of it
	}
	return VerdictIdleHeld, Certain
}
