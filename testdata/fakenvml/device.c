/* Handles: how GPUs and MIG devices are found. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "fake.h"

static struct nvmlDevice_st devices[MAX_GPUS][1 + MAX_MIGS];

static void name_devices(void)
{
    for (unsigned gpu = 0; gpu < MAX_GPUS; gpu++) {
        for (unsigned i = 0; i <= MAX_MIGS; i++) {
            struct nvmlDevice_st *device = &devices[gpu][i];
            device->gpu = gpu;
            device->is_mig = i > 0;
            device->mig = i ? i - 1 : 0;
            if (device->is_mig)
                snprintf(device->entity, sizeof device->entity, "gpu%u.mig%u", gpu % MAX_GPUS, device->mig % MAX_MIGS);
            else
                snprintf(device->entity, sizeof device->entity, "gpu%u", gpu);
        }
    }
}

static struct nvmlDevice_st *device_at(unsigned gpu, unsigned slot)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, name_devices);
    return &devices[gpu][slot];
}

nvmlDevice_t device_gpu(unsigned index)
{
    return (nvmlDevice_t){device_at(index, 0)};
}

nvmlDevice_t device_mig(unsigned gpu, unsigned slot)
{
    return (nvmlDevice_t){device_at(gpu, 1 + slot)};
}

const char *device_entity(nvmlDevice_t device)
{
    if (device.handle < &devices[0][0] || device.handle > &devices[MAX_GPUS - 1][MAX_MIGS])
        return NULL;
    return device.handle->entity;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    gate_lock();
    size_t lines;
    u64 count = 0;
    bool loaded = values_refresh();
    const struct line *line = loaded ? values_lines(VALUES, SYSTEM, "nvmlDeviceGetCount_v2", &lines) : NULL;
    if (line)
        line_numbers(line, 1, 1, &count);
    gate_leave();
    if (!loaded)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    if (index >= count || index >= MAX_GPUS)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlDevice_t found = device_gpu(index);
    nvmlReturn_t ret = gate_enter_device(found, __func__);
    if (ret != NVML_SUCCESS)
        return ret;
    gate_leave();
    *device = found;
    return NVML_SUCCESS;
}

/* Finds the device whose `key` line starts with the word `wanted`, faults of that device included. */
static nvmlReturn_t find(const char *function, const char *key, const char *wanted, unsigned slots, nvmlDevice_t *out)
{
    struct nvmlDevice_st *found = NULL;
    gate_lock();
    bool loaded = values_refresh();
    for (unsigned gpu = 0; loaded && gpu < MAX_GPUS && !found; gpu++) {
        for (unsigned slot = 0; slot < slots && !found; slot++) {
            const char *have = values_first(VALUES, device_at(gpu, slot)->entity, key);
            size_t length = have ? strcspn(have, " \t") : 0;
            if (length && length == strlen(wanted) && !strncasecmp(have, wanted, length))
                found = device_at(gpu, slot);
        }
    }
    gate_leave();
    if (!found)
        return loaded ? NVML_ERROR_NOT_FOUND : NVML_ERROR_DRIVER_NOT_LOADED;
    nvmlReturn_t ret = gate_enter(found->entity, function);
    if (ret != NVML_SUCCESS)
        return ret;
    gate_leave();
    *out = (nvmlDevice_t){found};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    return find(__func__, "nvmlDeviceGetUUID", uuid, 1 + MAX_MIGS, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    return find(__func__, "nvmlDeviceGetPciInfo_v3", bus_id, 1, device);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    nvmlReturn_t ret = gate_enter_device(device, __func__);
    if (ret != NVML_SUCCESS)
        return ret;
    *index = device.handle->is_mig ? device.handle->mig : device.handle->gpu;
    gate_leave();
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig)
{
    nvmlReturn_t ret = gate_enter_device(device, __func__);
    if (ret != NVML_SUCCESS)
        return ret;
    *is_mig = device.handle->is_mig;
    gate_leave();
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device)
{
    nvmlReturn_t ret = gate_enter_device(mig, __func__);
    if (ret != NVML_SUCCESS)
        return ret;
    gate_leave();
    if (!mig.handle->is_mig)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = device_gpu(mig.handle->gpu);
    return NVML_SUCCESS;
}

/* A slot that holds no MIG device is a hole (NOT_FOUND), not the end of the list. */
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig)
{
    nvmlReturn_t ret = gate_enter_device(device, __func__);
    if (ret != NVML_SUCCESS)
        return ret;
    size_t lines;
    u64 most = 0;
    const struct line *line = values_lines(VALUES, device_entity(device), "nvmlDeviceGetMaxMigDeviceCount", &lines);
    if (line)
        line_numbers(line, 1, 1, &most);
    if (!line)
        ret = NVML_ERROR_NOT_SUPPORTED;
    else if (index >= most || index >= MAX_MIGS)
        ret = NVML_ERROR_INVALID_ARGUMENT;
    else if (!values_know(device_entity(device_mig(device.handle->gpu, index))))
        ret = NVML_ERROR_NOT_FOUND;
    else
        *mig = device_mig(device.handle->gpu, index);
    gate_leave();
    return ret;
}

static nvmlReturn_t pci_info(nvmlDevice_t device, const char *key, nvmlPciInfo_t *pci)
{
    nvmlReturn_t ret = gate_enter_device(device, key);
    if (ret != NVML_SUCCESS)
        return ret;
    size_t lines;
    const struct line *line = values_lines(VALUES, device_entity(device), key, &lines);
    if (line) {
        char words[3][32];
        memset(pci, 0, sizeof *pci);
        if (line_words(line, 3, words) != 3 ||
            sscanf(words[0], "%x:%x:%x", &pci->domain, &pci->bus, &pci->device) != 3)
            values_fatal(line, "DOMAIN:BUS:DEVICE.FUNCTION DEVICE_ID SUBSYSTEM_ID");
        pci->pciDeviceId = (unsigned)line_number(line, words[1]);
        pci->pciSubSystemId = (unsigned)line_number(line, words[2]);
        strcpy(pci->busId, words[0]);
        snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", pci->domain & 0xffff, pci->bus & 0xff,
                 pci->device & 0xff);
    }
    gate_leave();
    return line ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    return pci_info(device, __func__, pci);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci)
{
    return pci_info(device, KEY("%s/%u", __func__, link), pci);
}
