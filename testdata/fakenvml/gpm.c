/* GPM: samples remember whose they are; the metrics are what the file says of that device when they are asked for. */
#include <stdlib.h>
#include <string.h>

#include "fake.h"

struct nvmlGpmSample_st {
    char entity[ENTITY_SIZE];
};

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support)
{
    u64 v[1];
    nvmlReturn_t ret = answer_numbers(device, __func__, 1, v);
    if (ret == NVML_SUCCESS)
        support->isSupportedDevice = (unsigned)v[0];
    return ret;
}

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample)
{
    nvmlReturn_t ret = gate_enter(SYSTEM, __func__);
    if (ret != NVML_SUCCESS)
        return ret;
    sample->handle = calloc(1, sizeof *sample->handle);
    gate_leave();
    return sample->handle ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample)
{
    nvmlReturn_t ret = gate_enter(SYSTEM, __func__);
    if (ret != NVML_SUCCESS)
        return ret;
    free(sample.handle);
    gate_leave();
    return NVML_SUCCESS;
}

static bool supported(nvmlDevice_t device)
{
    size_t count;
    u64 yes = 0;
    const struct line *line = values_lines(VALUES, device_entity(device), "nvmlGpmQueryDeviceSupport", &count);
    if (line)
        line_numbers(line, 1, 1, &yes);
    return yes;
}

nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample)
{
    nvmlReturn_t ret = gate_enter_device(device, __func__);
    if (ret != NVML_SUCCESS)
        return ret;
    ret = supported(device) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
    if (ret == NVML_SUCCESS)
        strcpy(sample.handle->entity, device_entity(device));
    gate_leave();
    return ret;
}

nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int gpu_instance, nvmlGpmSample_t sample)
{
    nvmlReturn_t ret = gate_enter_device(device, __func__);
    if (ret != NVML_SUCCESS)
        return ret;
    ret = supported(device) ? NVML_ERROR_NOT_FOUND : NVML_ERROR_NOT_SUPPORTED;
    for (unsigned slot = 0; ret == NVML_ERROR_NOT_FOUND && slot < MAX_MIGS; slot++) {
        size_t count;
        u64 id;
        const char *mig = device_entity(device_mig(device.handle->gpu, slot));
        const struct line *line = values_lines(VALUES, mig, "nvmlDeviceGetGpuInstanceId", &count);
        if (!line || line_numbers(line, 1, 1, &id) != 1 || id != gpu_instance)
            continue;
        strcpy(sample.handle->entity, mig);
        ret = NVML_SUCCESS;
    }
    gate_leave();
    return ret;
}

static nvmlReturn_t metric(const char *entity, unsigned id, double *out)
{
    const char *key = KEY("gpm/%u", id);
    nvmlReturn_t ret = gate_field(entity, key);
    if (ret != NVML_SUCCESS)
        return ret;
    size_t count;
    nvmlValue_t value;
    const struct line *line = values_lines(VALUES, entity, key, &count);
    if (!line)
        return NVML_ERROR_NOT_SUPPORTED;
    value_parse(line, "double", line->rest, &value);
    *out = value.dVal;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get)
{
    if (!get->sample1.handle || !get->sample2.handle || get->numMetrics > NVML_GPM_METRIC_MAX)
        return NVML_ERROR_INVALID_ARGUMENT;
    const char *entity = get->sample2.handle->entity;
    if (!*entity || strcmp(get->sample1.handle->entity, entity))
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t ret = gate_enter(entity, __func__);
    if (ret != NVML_SUCCESS)
        return ret;
    for (unsigned i = 0; i < get->numMetrics; i++)
        get->metrics[i].nvmlReturn = metric(entity, get->metrics[i].metricId, &get->metrics[i].value);
    gate_leave();
    return NVML_SUCCESS;
}
