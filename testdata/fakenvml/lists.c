/* The calls that answer with a list: one line of the file per element, a line without values for an empty list. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake.h"

#define NO_INSTANCE 0xFFFFFFFF

static u64 timestamp(const struct line *line, const char *word)
{
    return strcmp(word, "now") ? line_number(line, word) : clock_us(CLOCK_REALTIME);
}

/* NVML's rule for lists: too small a buffer is answered with the size that is needed. */
static nvmlReturn_t room_for(size_t have, unsigned *count)
{
    unsigned room = *count;
    *count = (unsigned)have;
    return have > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

/* Enters the gate and finds the list's elements, leaving the gate again unless there is a list. */
static nvmlReturn_t list_enter(nvmlDevice_t device, const char *key, const struct line **lines, size_t *count)
{
    nvmlReturn_t ret = gate_enter_device(device, key);
    if (ret != NVML_SUCCESS)
        return ret;
    *lines = values_lines(VALUES, device_entity(device), key, count);
    if (!*lines) {
        gate_leave();
        return NVML_ERROR_NOT_SUPPORTED;
    }
    /* The line that says "a list, if an empty one" is no element of it. */
    if (!*(*lines)->rest) {
        ++*lines;
        --*count;
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t processes(nvmlDevice_t device, const char *key, unsigned *count, nvmlProcessInfo_t *out)
{
    const struct line *lines;
    size_t have;
    nvmlReturn_t ret = list_enter(device, key, &lines, &have);
    if (ret != NVML_SUCCESS)
        return ret;
    ret = room_for(have, count);
    for (size_t i = 0; ret == NVML_SUCCESS && i < have; i++) {
        u64 v[4] = {0, 0, NO_INSTANCE, NO_INSTANCE};
        line_numbers(&lines[i], 2, 4, v);
        out[i] = (nvmlProcessInfo_t){(unsigned)v[0], v[1], (unsigned)v[2], (unsigned)v[3]};
    }
    gate_leave();
    return ret;
}

/* Drivers before R470 have the short struct only. */
static nvmlReturn_t processes_v1(nvmlDevice_t device, const char *key, unsigned *count, nvmlProcessInfo_v1_t *out)
{
    nvmlProcessInfo_t *infos = calloc(*count + 1, sizeof *infos);
    if (!infos)
        return NVML_ERROR_MEMORY;
    nvmlReturn_t ret = processes(device, key, count, infos);
    for (unsigned i = 0; ret == NVML_SUCCESS && i < *count; i++)
        out[i] = (nvmlProcessInfo_v1_t){infos[i].pid, infos[i].usedGpuMemory};
    free(infos);
    return ret;
}

#define PROCESSES(function)                                                                                            \
    nvmlReturn_t function##_v3(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *out)                           \
    {                                                                                                                  \
        return processes(device, #function, count, out);                                                               \
    }                                                                                                                  \
    nvmlReturn_t function##_v2(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v2_t *out)                        \
    {                                                                                                                  \
        return processes(device, #function, count, out);                                                               \
    }                                                                                                                  \
    nvmlReturn_t function(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v1_t *out)                             \
    {                                                                                                                  \
        return processes_v1(device, #function, count, out);                                                            \
    }

PROCESSES(nvmlDeviceGetComputeRunningProcesses)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses)

static nvmlProcessUtilizationSample_t process_sample(const struct line *line)
{
    char w[6][32];
    if (line_words(line, 6, w) != 6)
        values_fatal(line, "PID SM MEMORY ENCODER DECODER TIMESTAMP_US");
    return (nvmlProcessUtilizationSample_t){.pid = (unsigned)line_number(line, w[0]),
                                            .smUtil = (unsigned)line_number(line, w[1]),
                                            .memUtil = (unsigned)line_number(line, w[2]),
                                            .encUtil = (unsigned)line_number(line, w[3]),
                                            .decUtil = (unsigned)line_number(line, w[4]),
                                            .timeStamp = timestamp(line, w[5])};
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *out,
                                             unsigned int *count, u64 last_seen)
{
    const struct line *lines;
    size_t have, fresh = 0;
    nvmlReturn_t ret = list_enter(device, __func__, &lines, &have);
    if (ret != NVML_SUCCESS)
        return ret;
    for (size_t i = 0; i < have; i++) {
        nvmlProcessUtilizationSample_t sample = process_sample(&lines[i]);
        if (sample.timeStamp <= last_seen)
            continue;
        if (out && fresh < *count)
            out[fresh] = sample;
        fresh++;
    }
    gate_leave();
    /* An idle GPU is NOT_FOUND here, unlike in every other list. */
    return fresh ? room_for(fresh, count) : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type, u64 last_seen,
                                  nvmlValueType_t *value_type, unsigned int *count, nvmlSample_t *out)
{
    const struct line *lines;
    size_t have, fresh = 0;
    nvmlReturn_t ret = list_enter(device, KEY("%s/%u", __func__, type), &lines, &have);
    if (ret != NVML_SUCCESS)
        return ret;
    for (size_t i = 0; i < have; i++) {
        char w[3][32];
        nvmlSample_t sample;
        if (line_words(&lines[i], 3, w) != 3)
            values_fatal(&lines[i], "TYPE VALUE TIMESTAMP_US");
        *value_type = value_parse(&lines[i], w[0], w[1], &sample.sampleValue);
        sample.timeStamp = timestamp(&lines[i], w[2]);
        if (sample.timeStamp <= last_seen)
            continue;
        if (out && fresh < *count)
            out[fresh] = sample;
        fresh++;
    }
    gate_leave();
    if (!fresh)
        return NVML_ERROR_NOT_FOUND;
    /* Here, and only here, asking for the size is a success. */
    if (out)
        return room_for(fresh, count);
    *count = (unsigned)fresh;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned int *count,
                                          u64 *addresses, u64 *timestamps)
{
    const struct line *lines;
    size_t have;
    nvmlReturn_t ret = list_enter(device, KEY("%s/%u", __func__, cause), &lines, &have);
    if (ret != NVML_SUCCESS)
        return ret;
    ret = room_for(have, count);
    for (size_t i = 0; ret == NVML_SUCCESS && i < have; i++) {
        u64 v[2];
        line_numbers(&lines[i], 2, 2, v);
        addresses[i] = v[0];
        timestamps[i] = v[1];
    }
    gate_leave();
    return ret;
}

/* A line of 64-bit words of the mask, the lowest first; the rest of the caller's room is empty. */
static nvmlReturn_t mask(nvmlDevice_t device, const char *key, unsigned int room, unsigned long *out)
{
    nvmlReturn_t ret = gate_enter_device(device, key);
    if (ret != NVML_SUCCESS)
        return ret;
    u64 words[16] = {0};
    size_t lines, count = 0;
    const struct line *line = values_lines(VALUES, device_entity(device), key, &lines);
    if (line)
        count = line_numbers(line, 1, sizeof words / sizeof words[0], words);
    gate_leave();
    if (!line)
        return NVML_ERROR_NOT_SUPPORTED;
    if (count > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memset(out, 0, room * sizeof *out);
    memcpy(out, words, count * sizeof *out);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int room, unsigned long *out)
{
    return mask(device, __func__, room, out);
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int room, unsigned long *out,
                                         nvmlAffinityScope_t scope)
{
    return mask(device, KEY("%s/%u", __func__, scope), room, out);
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t other, nvmlGpuTopologyLevel_t *level)
{
    u64 v[1];
    if (!device_entity(other))
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t ret = answer_numbers(device, KEY("%s/%u", __func__, other.handle->gpu), 1, v);
    if (ret == NVML_SUCCESS)
        *level = (nvmlGpuTopologyLevel_t)v[0];
    return ret;
}
