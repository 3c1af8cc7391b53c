//go:build linux && cgo

package nvml

import (
	"encoding/binary"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/internal/metric"
)

const (
	fieldValues = "nvmlDeviceGetFieldValues"
	allLinks    = math.MaxUint32     // as a scope; scope 0 is link 0
	eachLink    = math.MaxUint32 - 1 // stands for the number of the link that is asked about
)

// fieldQuery is one entry of the batch of field values that is asked for with
// one call for each tier.
type fieldQuery struct {
	id, scope uint32
	at        int // position in the row's dimension
	decode    decoder
}

// decoder makes a raw number of a field's answer. old is what the same decoder
// may remember of the device from one answer to the next.
type decoder func(v *nvml.FieldValue, old *fieldMemory) (raw float64, verdict nvml.Return)

// fieldMemory is what is known of one field of one device.
type fieldMemory struct {
	last  uint64
	high  uint64 // the highest
	falls int
}

func field(d *metric.Def, i int, id uint32) call { return fieldAs(d, i, id, 0, asTyped) }

func fieldAs(d *metric.Def, i int, id, scope uint32, decode decoder) call {
	return call{function: fieldValues, rows: []*metric.Def{d}, field: &fieldQuery{id, scope, i, decode}}
}

// fields makes a call for each position of the row's dimension.
func fields(d *metric.Def, scope uint32, decode decoder, ids ...uint32) []call {
	var calls []call
	for i, id := range ids {
		calls = append(calls, fieldAs(d, i, id, scope, decode))
	}
	return calls
}

// answer puts a field's answer into its place and returns how the entry ended.
func (q *fieldQuery) answer(d *metric.Def, v *nvml.FieldValue, old *fieldMemory, s *sample) nvml.Return {
	switch ret := nvml.Return(v.NvmlReturn); {
	case ret == nvml.ERROR_INVALID_ARGUMENT:
		return nvml.ERROR_NOT_SUPPORTED // a number that this driver does not know yet
	case ret != nvml.SUCCESS:
		return ret
	// With ECC off, a driver leaves an entry as it was and says that it has answered.
	case v.Timestamp == 0 && v.LatencyUsec == 0 && v.ValueType == uint32(nvml.VALUE_TYPE_DOUBLE) && v.Value == [8]byte{}:
		return nvml.ERROR_NOT_SUPPORTED
	}
	raw, ret := q.decode(v, old)
	switch {
	case ret != nvml.SUCCESS:
	case raw == math.MaxUint32 || raw == math.MaxUint64:
		s.drop(d)
	default:
		s.put(d, q.at, d.FromRaw(raw))
	}
	return ret
}

// asTyped reads a field as the type that the driver says.
func asTyped(v *nvml.FieldValue, _ *fieldMemory) (float64, nvml.Return) {
	bits := binary.NativeEndian.Uint64(v.Value[:])
	switch nvml.ValueType(v.ValueType) {
	case nvml.VALUE_TYPE_DOUBLE:
		return math.Float64frombits(bits), nvml.SUCCESS
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return float64(uint32(bits)), nvml.SUCCESS
	case nvml.VALUE_TYPE_SIGNED_INT:
		return float64(int32(bits)), nvml.SUCCESS
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return float64(bits), nvml.SUCCESS
	case nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		return float64(int64(bits)), nvml.SUCCESS
	case nvml.VALUE_TYPE_UNSIGNED_SHORT:
		return float64(uint16(bits)), nvml.SUCCESS
	default:
		return 0, nvml.ERROR_NOT_SUPPORTED
	}
}

// asCount reads a field as an unsigned integer of 64 bits, also where the driver
// has left the type at double.
func asCount(v *nvml.FieldValue, old *fieldMemory) (float64, nvml.Return) {
	if nvml.ValueType(v.ValueType) == nvml.VALUE_TYPE_DOUBLE {
		return float64(binary.NativeEndian.Uint64(v.Value[:])), nvml.SUCCESS
	}
	return asTyped(v, old)
}

func asUint32(v *nvml.FieldValue, _ *fieldMemory) (float64, nvml.Return) {
	return float64(binary.NativeEndian.Uint32(v.Value[:])), nvml.SUCCESS
}

func asInt32(v *nvml.FieldValue, _ *fieldMemory) (float64, nvml.Return) {
	return float64(int32(binary.NativeEndian.Uint32(v.Value[:]))), nvml.SUCCESS
}

// asGrowingTime believes a number only if it is what the field's meaning in this
// branch of the driver makes it: 64 bits of nanoseconds that never fall. In other
// branches the same field is a small setting.
func asGrowingTime(v *nvml.FieldValue, old *fieldMemory) (float64, nvml.Return) {
	if nvml.ValueType(v.ValueType) != nvml.VALUE_TYPE_UNSIGNED_LONG_LONG {
		return 0, nvml.ERROR_NOT_SUPPORTED
	}
	n := old.see(v)
	if old.falls > 0 {
		return 0, nvml.ERROR_NOT_SUPPORTED
	}
	return float64(n), nvml.SUCCESS
}

// asWideCount refuses a counter of 32 bits: at the speed of PCIe it wraps between
// two looks, and what it has lost nobody knows. One that is said to be wider, and
// that falls twice without ever having passed 32 bits, is none either; one fall
// alone is a reset, which every reader of counters knows.
func asWideCount(v *nvml.FieldValue, old *fieldMemory) (float64, nvml.Return) {
	switch nvml.ValueType(v.ValueType) {
	case nvml.VALUE_TYPE_UNSIGNED_LONG_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG:
	default:
		return 0, nvml.ERROR_NOT_SUPPORTED
	}
	n := old.see(v)
	if old.falls > 1 && old.high <= math.MaxUint32 {
		return 0, nvml.ERROR_NOT_SUPPORTED
	}
	return float64(n), nvml.SUCCESS
}

func (m *fieldMemory) see(v *nvml.FieldValue) uint64 {
	n := binary.NativeEndian.Uint64(v.Value[:])
	if n < m.last {
		m.falls++
	}
	m.last, m.high = n, max(m.high, n)
	return n
}

// asBitErrorRate unpacks a rate: mantissa × 10 to the minus exponent.
func asBitErrorRate(v *nvml.FieldValue, old *fieldMemory) (float64, nvml.Return) {
	raw, ret := asTyped(v, old)
	if ret != nvml.SUCCESS || raw < 0 || raw >= 1<<12 {
		return math.NaN(), ret
	}
	bits := uint64(raw)
	return float64(bits>>8&0xf) * math.Pow10(-int(bits&0xff)), ret
}
