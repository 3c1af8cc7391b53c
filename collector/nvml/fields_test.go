//go:build linux && cgo

package nvml

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gpuvigil/collector"
	"gpuvigil/internal/metric"
)

func fieldValue(kind nvml.ValueType, bits uint64) *nvml.FieldValue {
	v := &nvml.FieldValue{ValueType: uint32(kind), LatencyUsec: 1}
	binary.NativeEndian.PutUint64(v.Value[:], bits)
	return v
}

func TestFieldsAreReadAsTheirType(t *testing.T) {
	minus8 := int64(-8)
	for name, c := range map[string]struct {
		decode decoder
		value  *nvml.FieldValue
		want   float64
		ret    nvml.Return
	}{
		"double":                          {asTyped, fieldValue(nvml.VALUE_TYPE_DOUBLE, math.Float64bits(1.5)), 1.5, nvml.SUCCESS},
		"32 bits with rubbish above":      {asTyped, fieldValue(nvml.VALUE_TYPE_UNSIGNED_INT, 7|1<<40), 7, nvml.SUCCESS},
		"64 bits":                         {asTyped, fieldValue(nvml.VALUE_TYPE_UNSIGNED_LONG_LONG, 1<<40), 1 << 40, nvml.SUCCESS},
		"signed":                          {asTyped, fieldValue(nvml.VALUE_TYPE_SIGNED_INT, uint64(minus8)), -8, nvml.SUCCESS},
		"signed 64 bits":                  {asTyped, fieldValue(nvml.VALUE_TYPE_SIGNED_LONG_LONG, uint64(minus8)), -8, nvml.SUCCESS},
		"16 bits":                         {asTyped, fieldValue(nvml.VALUE_TYPE_UNSIGNED_SHORT, 3|1<<20), 3, nvml.SUCCESS},
		"a type of the future":            {asTyped, fieldValue(99, 7), 0, nvml.ERROR_NOT_SUPPORTED},
		"R545's memory temperature":       {asUint32, fieldValue(nvml.VALUE_TYPE_DOUBLE, 66), 66, nvml.SUCCESS},
		"a margin that is said unsigned":  {asInt32, fieldValue(nvml.VALUE_TYPE_UNSIGNED_INT, uint64(uint32(minus8))), -8, nvml.SUCCESS},
		"a count whose type is left over": {asCount, fieldValue(nvml.VALUE_TYPE_DOUBLE, 5), 5, nvml.SUCCESS},
		"power smoothing, not a time":     {asGrowingTime, fieldValue(nvml.VALUE_TYPE_UNSIGNED_INT, 1), 0, nvml.ERROR_NOT_SUPPORTED},
		"a bit error rate":                {asBitErrorRate, fieldValue(nvml.VALUE_TYPE_UNSIGNED_LONG_LONG, 3<<8|12), 3e-12, nvml.SUCCESS},
		"KiB of bytes":                    {asKibi, fieldValue(nvml.VALUE_TYPE_UNSIGNED_LONG_LONG, 4096), 4, nvml.SUCCESS},
	} {
		got, ret := c.decode(c.value, &fieldMemory{})
		if got != c.want || ret != c.ret {
			t.Errorf("%s: %v (%s), want %v (%s)", name, got, text(ret), c.want, text(c.ret))
		}
	}
}

// see reads values one after the other and returns the verdict of the last.
func see(decode decoder, kind nvml.ValueType, values ...uint64) (ret nvml.Return) {
	var m fieldMemory
	for _, v := range values {
		_, ret = decode(fieldValue(kind, v), &m)
	}
	return ret
}

func TestNarrowByteCounterIsNotBelieved(t *testing.T) {
	const wide = nvml.VALUE_TYPE_UNSIGNED_LONG_LONG
	for name, c := range map[string]struct {
		kind   nvml.ValueType
		values []uint64
		want   nvml.Return
	}{
		"32 bits":                       {nvml.VALUE_TYPE_UNSIGNED_INT, []uint64{1}, nvml.ERROR_NOT_SUPPORTED},
		"grows":                         {wide, []uint64{1, 2, 3}, nvml.SUCCESS},
		"was reset once":                {wide, []uint64{5, 6, 1}, nvml.SUCCESS},
		"wraps at 32 bits all the time": {wide, []uint64{5, 1, 9, 2}, nvml.ERROR_NOT_SUPPORTED},
		"is wide, and was reset twice":  {wide, []uint64{1 << 40, 1, 9, 2}, nvml.SUCCESS},
	} {
		if got := see(asWideCount, c.kind, c.values...); got != c.want {
			t.Errorf("a counter that %s: %s, want %s", name, text(got), text(c.want))
		}
	}
	if got := see(asGrowingTime, wide, 5, 9, 3); got != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("a time that falls is believed: %s", text(got))
	}
}

func TestFieldWithECCOffIsNotSupported(t *testing.T) {
	c := fieldAs(metric.RetiredPages, 0, nvml.FI_DEV_RETIRED_SBE, 0, asCount)
	s := sample{readings: collector.NewReadings(metric.GPU)}
	if ret := c.field.answer(c.rows[0], &nvml.FieldValue{}, &fieldMemory{}, &s); ret != nvml.ERROR_NOT_SUPPORTED || s.readings.Has(metric.RetiredPages) {
		t.Errorf("an entry that the driver left as it was is %s", text(ret))
	}
	unknown := &nvml.FieldValue{NvmlReturn: uint32(nvml.ERROR_INVALID_ARGUMENT)}
	if ret := c.field.answer(c.rows[0], unknown, &fieldMemory{}, &s); ret != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("a field that the driver does not know yet is %s: the handle would be looked for again", text(ret))
	}
}

func TestNumbersOfSlowdownFollowTheBranch(t *testing.T) {
	for driver, want := range map[string]uint32{
		"535.98": 0, "570.133.20": 0, "575.51.03": 251, "580.65.06": 251, "590.10": 269, "610.1": 269, "": 0, "garbage": 0,
	} {
		if got := firstSlowdown(driver); got != want {
			t.Errorf("driver %q counts slowdowns from field %d on, want %d", driver, got, want)
		}
	}
}

// FuzzFieldAnswer lets a driver answer with anything: what comes out is a value
// that can be, or none.
func FuzzFieldAnswer(f *testing.F) {
	f.Add(uint32(0), uint32(0), uint64(0), int64(0), uint8(0))
	f.Add(uint32(1), uint32(0), uint64(math.MaxUint32), int64(1), uint8(1))
	f.Add(uint32(3), uint32(0), uint64(math.MaxUint64), int64(1), uint8(2))
	f.Add(uint32(0), uint32(0), math.Float64bits(math.NaN()), int64(1), uint8(3))
	var calls []call
	for _, c := range append(gpuCalls("580"), linkCalls()...) {
		if c.field != nil {
			calls = append(calls, c)
		}
	}
	f.Fuzz(func(t *testing.T, kind, ret uint32, bits uint64, latency int64, which uint8) {
		c := calls[int(which)%len(calls)]
		d := c.rows[0]
		s := sample{readings: collector.NewReadings(d.Entity)}
		v := fieldValue(nvml.ValueType(kind), bits)
		v.NvmlReturn, v.LatencyUsec = ret, latency
		c.field.answer(d, v, &fieldMemory{}, &s)
		if got := s.readings.ValueAt(d, c.field.at); !math.IsNaN(got) && !d.Plausible(got) {
			t.Errorf("%s is %v", d, got)
		}
	})
}
