"""Ask NVML what documentation leaves open and only hardware can tell. Only reads; no GPM, no Xid is forced.

An argument names another library than libnvidia-ml.so.1, such as the fake one of the tests.
"""

import ctypes
import os
import sys
import time

# Field ids that driver headers have given two meanings, and counters whose width is not documented.
FIELDS = [197, 198, 251, 252, 253, 269, 270, 271]
VALUE_TYPES = ["double", "uint", "ulong", "ull", "sll", "int", "ushort"]
# nvmlSamplingType_t.
SAMPLES = {"total power": 0, "GPU utilization": 1, "memory utilization": 2, "SM clock": 5, "memory clock": 6}
CALLS = 20  # of each kind, to tell how long one takes


class FieldValue(ctypes.Structure):
    _fields_ = [
        ("field", ctypes.c_uint), ("scope", ctypes.c_uint), ("timestamp", ctypes.c_longlong),
        ("latency", ctypes.c_longlong), ("type", ctypes.c_int), ("code", ctypes.c_int), ("value", ctypes.c_ulonglong),
    ]


class Sample(ctypes.Structure):
    _fields_ = [("timestamp", ctypes.c_ulonglong), ("value", ctypes.c_ulonglong)]


def fields(nvml, gpu):
    values = (FieldValue * len(FIELDS))()
    for value, field in zip(values, FIELDS):
        value.field = field
    code = nvml.nvmlDeviceGetFieldValues(gpu, len(FIELDS), values)
    print(f"  field values: code {code}")
    for v in values:
        kind = VALUE_TYPES[v.type] if 0 <= v.type < len(VALUE_TYPES) else v.type
        print(f"    {v.field}: code {v.code}, type {kind}, raw {v.value:#018x}, {v.latency} us")


def samples(nvml, gpu):
    for name, kind in SAMPLES.items():
        value_type, count = ctypes.c_int(), ctypes.c_uint()
        ask = lambda room: nvml.nvmlDeviceGetSamples(  # noqa: E731
            gpu, kind, ctypes.c_ulonglong(0), ctypes.byref(value_type), ctypes.byref(count), room)
        code = ask(None)
        if code == 0:
            room = (Sample * count.value)()
            code = ask(room)
        if code != 0:
            print(f"  samples of {name}: code {code}")
            continue
        stamps = [s.timestamp for s in room[:count.value]]
        steps = sorted(b - a for a, b in zip(stamps, stamps[1:]))
        middle = steps[len(steps) // 2] if steps else None
        print(f"  samples of {name}: {len(room)} places, {count.value} filled, type {value_type.value}, median step {middle} us")


def events(nvml, gpu):
    bits = ctypes.c_ulonglong()
    code = nvml.nvmlDeviceGetSupportedEventTypes(gpu, ctypes.byref(bits))
    print(f"  event types: code {code}, bits {bits.value:#x}")


def latency(nvml, gpu):
    number = ctypes.c_uint()
    for function in ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetPcieReplayCounter", "nvmlDeviceGetPerformanceState"):
        took = []
        for _ in range(CALLS):
            begin = time.perf_counter()
            code = getattr(nvml, function)(gpu, ctypes.byref(number))
            took.append(time.perf_counter() - begin)
        took.sort()
        print(f"  {function}: code {code}, median {1e6 * took[CALLS // 2]:.0f} us, longest {1e6 * took[-1]:.0f} us")


def main():
    nvml = ctypes.CDLL(sys.argv[1] if len(sys.argv) > 1 else "libnvidia-ml.so.1")
    code = nvml.nvmlInit_v2()
    if code != 0:
        sys.exit(f"initialize NVML: code {code}")
    print(f"as user {os.geteuid()}")
    count = ctypes.c_uint()
    code = nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    if code != 0:
        sys.exit(f"count the GPUs: code {code}")
    for index in range(count.value):
        gpu = ctypes.c_void_p()
        code = nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(gpu))
        print(f"GPU {index}: code {code}")
        if code == 0:
            for look in (fields, samples, events, latency):
                look(nvml, gpu)
    nvml.nvmlShutdown()


main()
