// Package frame is the one binary form of what a source saw: the child process
// speaks it over its pipe, `gpuvigil record` writes it into a file, and a backtest
// reads it back.
//
// A stream is a header and then frames, one for each collector.Part. The header
// names the catalogue's rows in the order of the columns, so a reader of another
// release maps them by name and ignores those that it does not know. Each frame
// stands alone: its length, the CRC-32C of its payload, the payload. All integers
// outside of a payload are little-endian.
//
//	header   "GPUVIGIL" | version uint16 | length uint32 | CRC-32C uint32 | schema
//	frame    length uint32 | CRC-32C uint32 | payload
//	payload  strings | head | section…   strings and head sized
//	section  id | count | record…         sized after the id; each record sized
//
// What is sized begins with its length, so within one version a release may append
// fields to a record and add sections: older readers skip them, and the release
// itself takes a record that ends before them. Any other change needs a new version.
//
// A string longer than MaxString is cut; its bytes are not judged otherwise. Times
// come back in UTC.
package frame

import (
	"fmt"
	"hash/crc32"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

// Version is the version of the format that Writer writes and Reader reads.
const Version = 1

// Bounds on what a stream may ask of its reader.
const (
	MaxFrame  = 16 << 20 // bytes of one frame's payload
	MaxHeader = 1 << 20  // bytes of the schema
	MaxString = 4 << 10  // bytes of one string

	maxGPUs      = 1 << 10
	maxInstances = 1 << 14
	maxLinks     = 1 << 14
	maxProcesses = 1 << 16
	maxEndpoints = 1 << 12
	maxTargets   = 1 << 12
	maxPages     = 1 << 6
	maxWorkloads = 1 << 14
	maxEvents    = 1 << 16
	maxPerEntity = 1 << 12 // owners, Xids, rows … of one entity
	maxElements  = 1 << 18 // of all lists of one frame together
)

const (
	magic     = "GPUVIGIL"
	headerLen = len(magic) + 2 + 4 + 4
	frameLen  = 4 + 4
)

// The sections of a payload. An id is never used again for something else.
const (
	nodeSection uint64 = iota + 1
	gpuSection
	instanceSection
	processSection
	endpointSection
	eventSection
	linkSection
	workloadSection
	attributionSection
	allocationSection
	inventorySection
	interfaceSection
	targetSection
	pageSection
)

// The bits of the flags of a GPU, a part and an event.
const (
	flagPresent = 1 << iota
	flagHung
	flagMIG

	flagSimulated = 1
	flagFatal     = 1
	flagCritical  = 1
	flagFound     = 1
	flagGPUs      = 1

	flagPrivileged = 1
)

// The forms of what is yes, no or unknown.
const (
	answerUnknown = iota
	answerNo
	answerYes
)

// The forms of a time.
const (
	timeZero  = iota // the zero time
	timeSame         // the part's own time
	timeDelta        // seconds from the part's second, then nanoseconds
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// vectors are the entities of a part that have readings.
var vectors = [...]metric.Entity{metric.Node, metric.GPU, metric.Instance, metric.Process, metric.Endpoint, metric.Target, metric.Link, metric.Workload, metric.Interface}

// CorruptError is what Reader returns for bytes that cannot be a frame.
type CorruptError struct {
	Offset int64  // of the frame or header, from the beginning of the stream
	Reason string // a clause
}

// Error names the place and the reason.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("frame at byte %d of the stream: %s", e.Offset, e.Reason)
}

// vectorOf returns the readings' vector, nil if there is none. One that is not of
// the entity's length would be read as something else.
func vectorOf(r collector.Readings, e metric.Entity) ([]float64, error) {
	v := r.Vector()
	if n := metric.VectorLen(e); v != nil && len(v) != n {
		return nil, fmt.Errorf("a vector of entity %s has %d columns, the catalogue has %d", e, len(v), n)
	}
	return v, nil
}
