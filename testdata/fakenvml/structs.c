/* The calls that fill a struct from one line, its numbers in the order of the struct's members. */
#include <string.h>

#include "fake.h"

#define FILL(function, type, count, ...)                                                                               \
    nvmlReturn_t function(nvmlDevice_t device, type *out)                                                              \
    {                                                                                                                  \
        u64 v[count];                                                                                                  \
        nvmlReturn_t ret = answer_numbers(device, #function, count, v);                                                \
        if (ret == NVML_SUCCESS)                                                                                       \
            *out = (type){__VA_ARGS__};                                                                                \
        return ret;                                                                                                    \
    }

/* The same where the caller states the struct's version, which NVML refuses when it knows no such struct. */
#define FILL_VERSION(function, type, expected, key, count, ...)                                                        \
    nvmlReturn_t function(nvmlDevice_t device, type *out)                                                              \
    {                                                                                                                  \
        u64 v[count];                                                                                                  \
        if (out->version != expected)                                                                                  \
            return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;                                                               \
        nvmlReturn_t ret = answer_numbers(device, key, count, v);                                                      \
        if (ret == NVML_SUCCESS)                                                                                       \
            *out = (type){out->version, __VA_ARGS__};                                                                  \
        return ret;                                                                                                    \
    }

FILL(nvmlDeviceGetMemoryInfo, nvmlMemory_t, 3, v[0], v[1], v[2])
FILL_VERSION(nvmlDeviceGetMemoryInfo_v2, nvmlMemory_v2_t, nvmlMemory_v2, __func__, 4, v[0], v[1], v[2], v[3])
FILL(nvmlDeviceGetConfComputeProtectedMemoryUsage, nvmlMemory_t, 3, v[0], v[1], v[2])
FILL(nvmlDeviceGetFBCStats, nvmlFBCStats_t, 3, v[0], v[1], v[2])
FILL(nvmlDeviceGetBAR1MemoryInfo, nvmlBAR1Memory_t, 3, v[0], v[1], v[2])
FILL(nvmlDeviceGetUtilizationRates, nvmlUtilization_t, 2, v[0], v[1])
FILL(nvmlDeviceGetAttributes_v2, nvmlDeviceAttributes_t, 9, v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8])
FILL(nvmlDeviceGetRowRemapperHistogram, nvmlRowRemapperHistogramValues_t, 5, v[0], v[1], v[2], v[3], v[4])
FILL(nvmlDeviceGetRemappedRows_v2, nvmlRemappedRowsInfo_v2_t, 6, v[0], v[1], v[2], v[3], v[4], v[5])
FILL(nvmlDeviceGetC2cModeInfoV, nvmlC2cModeInfo_v1_t, 1, v[0])
FILL_VERSION(nvmlDeviceGetTemperatureV, nvmlTemperature_t, nvmlTemperature_v1,
             KEY("%s/%u", __func__, (unsigned)out->sensorType), 1, out->sensorType, (int)v[0])
FILL_VERSION(nvmlDeviceGetMarginTemperature, nvmlMarginTemperature_t, nvmlMarginTemperature_v1, __func__, 1, (int)v[0])
FILL_VERSION(nvmlDeviceGetFanSpeedRPM, nvmlFanSpeedInfo_t, nvmlFanSpeedInfo_v1, KEY("%s/%u", __func__, out->fan), 1,
             out->fan, v[0])
FILL_VERSION(nvmlDeviceGetRepairStatus, nvmlRepairStatus_t, nvmlRepairStatus_v1, __func__, 2, v[0], v[1])
FILL_VERSION(nvmlDeviceGetSramEccErrorStatus, nvmlEccSramErrorStatus_t, nvmlEccSramErrorStatus_v1, __func__, 12, v[0],
             v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10], v[11])

/* Whether a licence is needed, and the state of the vGPU feature's. */
static nvmlReturn_t licence(nvmlDevice_t device, nvmlGridLicensableFeatures_t *out)
{
    u64 v[2];
    nvmlReturn_t ret = answer_numbers(device, "nvmlDeviceGetGridLicensableFeatures", 2, v);
    if (ret != NVML_SUCCESS)
        return ret;
    memset(out, 0, sizeof *out);
    out->isGridLicenseSupported = (int)v[0];
    out->licensableFeaturesCount = 1;
    out->gridLicensableFeatures[0].featureCode = NVML_GRID_LICENSE_FEATURE_CODE_VGPU;
    out->gridLicensableFeatures[0].featureState = (unsigned)v[1];
    return ret;
}

nvmlReturn_t nvmlDeviceGetGridLicensableFeatures_v4(nvmlDevice_t device, nvmlGridLicensableFeatures_t *out)
{
    return licence(device, out);
}

/* The file has how many there are; their handles count from one. */
nvmlReturn_t nvmlDeviceGetActiveVgpus(nvmlDevice_t device, unsigned int *count, nvmlVgpuInstance_t *out)
{
    u64 v[1];
    unsigned room = *count;
    nvmlReturn_t ret = answer_numbers(device, __func__, 1, v);
    if (ret != NVML_SUCCESS)
        return ret;
    *count = (unsigned)v[0];
    if (*count > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; i++)
        out[i] = i + 1;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, nvmlPerfPolicyType_t policy, nvmlViolationTime_t *out)
{
    u64 v[2];
    nvmlReturn_t ret = answer_numbers(device, KEY("%s/%u", __func__, policy), 2, v);
    if (ret == NVML_SUCCESS)
        *out = (nvmlViolationTime_t){v[0], v[1]};
    return ret;
}

/* STATUS CLIQUE STATE HEALTH_MASK HEALTH_SUMMARY; the cluster's uuid stays zero. */
nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *out)
{
    u64 v[5];
    if (out->version != nvmlGpuFabricInfo_v3)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t ret = answer_numbers(device, __func__, 5, v);
    if (ret == NVML_SUCCESS)
        *out = (nvmlGpuFabricInfoV_t){.version = out->version,
                                      .status = (nvmlReturn_t)v[0],
                                      .cliqueId = (unsigned)v[1],
                                      .state = (nvmlGpuFabricState_t)v[2],
                                      .healthMask = (unsigned)v[3],
                                      .healthSummary = (unsigned char)v[4]};
    return ret;
}
