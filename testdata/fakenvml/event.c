/* Events: each set sees each event of a registered GPU and type once, if it came after the registration. */
#include <string.h>
#include <time.h>

#include "fake.h"

#define MAX_SETS 16
#define POLL_MS 5
#define NO_INSTANCE 0xFFFFFFFF

static struct nvmlEventSet_st {
    bool used;
    u64 types[MAX_GPUS], seen[MAX_GPUS];
} sets[MAX_SETS];

static bool in_use(nvmlEventSet_t set)
{
    return set.handle >= sets && set.handle < sets + MAX_SETS && set.handle->used;
}

void events_forget(void)
{
    memset(sets, 0, sizeof sets);
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    nvmlReturn_t ret = gate_enter(SYSTEM, __func__);
    if (ret != NVML_SUCCESS)
        return ret;
    size_t i = 0;
    while (i < MAX_SETS && sets[i].used)
        i++;
    if (i < MAX_SETS) {
        memset(&sets[i], 0, sizeof sets[i]);
        sets[i].used = true;
        set->handle = &sets[i];
    }
    gate_leave();
    return i < MAX_SETS ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_RESOURCES;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    nvmlReturn_t ret = gate_enter(SYSTEM, __func__);
    if (ret != NVML_SUCCESS)
        return ret;
    ret = in_use(set) ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
    if (ret == NVML_SUCCESS)
        set.handle->used = false;
    gate_leave();
    return ret;
}

struct event {
    u64 type, data, sequence, gpu_instance, compute_instance;
};

static struct event parse_event(const struct line *line)
{
    u64 v[5] = {0, 0, 0, NO_INSTANCE, NO_INSTANCE};
    line_numbers(line, 3, 5, v);
    return (struct event){v[0], v[1], v[2], v[3], v[4]};
}

/* The oldest event of a GPU that is of one of the types and newer than `seen`. */
static bool next_event(unsigned gpu, u64 types, u64 seen, struct event *out)
{
    size_t count;
    bool found = false;
    const struct line *lines = values_lines(VALUES, device_entity(device_gpu(gpu)), "event", &count);
    for (size_t i = 0; i < count; i++) {
        struct event event = parse_event(&lines[i]);
        if (event.sequence > seen && event.type & types && (!found || event.sequence < out->sequence)) {
            *out = event;
            found = true;
        }
    }
    return found;
}

static u64 newest(unsigned gpu)
{
    size_t count;
    u64 sequence = 0;
    const struct line *lines = values_lines(VALUES, device_entity(device_gpu(gpu)), "event", &count);
    for (size_t i = 0; i < count; i++) {
        struct event event = parse_event(&lines[i]);
        if (event.sequence > sequence)
            sequence = event.sequence;
    }
    return sequence;
}

static nvmlReturn_t supports(const char *entity, u64 types)
{
    size_t count;
    u64 supported;
    const struct line *line = values_lines(VALUES, entity, "nvmlDeviceGetSupportedEventTypes", &count);
    if (!line)
        return NVML_ERROR_NOT_SUPPORTED;
    line_numbers(line, 1, 1, &supported);
    return types & ~supported ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, u64 types, nvmlEventSet_t set)
{
    nvmlReturn_t ret = gate_enter_device(device, __func__);
    if (ret != NVML_SUCCESS)
        return ret;
    ret = in_use(set) && !device.handle->is_mig ? supports(device_entity(device), types) : NVML_ERROR_INVALID_ARGUMENT;
    if (ret == NVML_SUCCESS) {
        unsigned gpu = device.handle->gpu;
        if (!set.handle->types[gpu])
            set.handle->seen[gpu] = newest(gpu);
        set.handle->types[gpu] |= types;
    }
    gate_leave();
    return ret;
}

/* Reports whether the driver would say of every call on the GPU that it is lost. */
static bool is_lost(unsigned gpu)
{
    char words[2][32];
    size_t count;
    const struct line *fault = values_lines(FAULTS, device_entity(device_gpu(gpu)), "*", &count);
    return fault && line_words(fault, 2, words) == 2 && !strcmp(words[0], "!error") &&
           line_number(fault, words[1]) == NVML_ERROR_GPU_IS_LOST;
}

/* Looks once, under the lock. What came before a GPU was lost is delivered first. */
static nvmlReturn_t deliver(nvmlEventSet_t set, nvmlEventData_t *data)
{
    if (!in_use(set))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!values_refresh())
        return NVML_ERROR_DRIVER_NOT_LOADED;
    for (unsigned gpu = 0; gpu < MAX_GPUS; gpu++) {
        struct event event;
        if (!set.handle->types[gpu] || !next_event(gpu, set.handle->types[gpu], set.handle->seen[gpu], &event))
            continue;
        set.handle->seen[gpu] = event.sequence;
        *data = (nvmlEventData_t){device_gpu(gpu), event.type, event.data, (unsigned)event.gpu_instance,
                                  (unsigned)event.compute_instance};
        return NVML_SUCCESS;
    }
    for (unsigned gpu = 0; gpu < MAX_GPUS; gpu++)
        if (set.handle->types[gpu] && is_lost(gpu))
            return NVML_ERROR_GPU_IS_LOST;
    return NVML_ERROR_TIMEOUT;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
    u64 deadline = clock_us(CLOCK_MONOTONIC) + timeout_ms * 1000ULL;
    nvmlReturn_t ret = gate_enter(SYSTEM, __func__);
    if (ret != NVML_SUCCESS)
        return ret;
    while ((ret = deliver(set, data)) == NVML_ERROR_TIMEOUT && clock_us(CLOCK_MONOTONIC) < deadline) {
        gate_leave();
        pause_ms(POLL_MS);
        gate_lock();
    }
    gate_leave();
    return ret;
}
