/* The calls that answer with a text, or with the numbers of one line in the order of their parameters or members. */
#include "fake.h"

#define TEXT(function)                                                                                                 \
    nvmlReturn_t function(nvmlDevice_t device, char *out, unsigned int length)                                         \
    {                                                                                                                  \
        return answer_text(device, #function, out, length);                                                            \
    }

TEXT(nvmlDeviceGetName)
TEXT(nvmlDeviceGetUUID)
TEXT(nvmlDeviceGetSerial)
TEXT(nvmlDeviceGetBoardPartNumber)
TEXT(nvmlDeviceGetVbiosVersion)
TEXT(nvmlDeviceGetInforomImageVersion)

nvmlReturn_t nvmlDeviceGetInforomVersion(nvmlDevice_t device, nvmlInforomObject_t object, char *out, unsigned int length)
{
    return answer_text(device, KEY("%s/%u", __func__, object), out, length);
}

nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *out)
{
    return answer_text(device, __func__, out, NVML_GSP_FIRMWARE_VERSION_BUF_SIZE);
}

/* Body of a call that reads `count` numbers into v and then runs the given assignments. */
#define ANSWER(key, count, ...)                                                                                        \
    {                                                                                                                  \
        u64 v[count];                                                                                                  \
        nvmlReturn_t ret = answer_numbers(device, key, count, v);                                                      \
        if (ret == NVML_SUCCESS) {                                                                                     \
            __VA_ARGS__;                                                                                               \
        }                                                                                                              \
        return ret;                                                                                                    \
    }

#define ONE(function, type)                                                                                            \
    nvmlReturn_t function(nvmlDevice_t device, type *a) ANSWER(#function, 1, *a = (type)v[0])

#define TWO(function, type)                                                                                            \
    nvmlReturn_t function(nvmlDevice_t device, type *a, type *b)                                                       \
        ANSWER(#function, 2, *a = (type)v[0]; *b = (type)v[1])

#define ONE_OF(function, selector, type)                                                                               \
    nvmlReturn_t function(nvmlDevice_t device, selector which, type *a)                                                \
        ANSWER(KEY("%s/%u", #function, (unsigned)which), 1, *a = (type)v[0])

ONE(nvmlDeviceGetBrand, nvmlBrandType_t)
ONE(nvmlDeviceGetMinorNumber, unsigned)
ONE(nvmlDeviceGetModuleId, unsigned)
ONE(nvmlDeviceGetArchitecture, nvmlDeviceArchitecture_t)
ONE(nvmlDeviceGetNumGpuCores, unsigned)
ONE(nvmlDeviceGetMemoryBusWidth, unsigned)
ONE(nvmlDeviceGetPersistenceMode, nvmlEnableState_t)
ONE(nvmlDeviceGetComputeMode, nvmlComputeMode_t)
ONE(nvmlDeviceGetVirtualizationMode, nvmlGpuVirtualizationMode_t)
ONE(nvmlDeviceGetAccountingMode, nvmlEnableState_t)
ONE(nvmlDeviceGetAccountingBufferSize, unsigned)
ONE(nvmlDeviceGetDisplayActive, nvmlEnableState_t)
ONE(nvmlDeviceGetDisplayMode, nvmlEnableState_t)
ONE(nvmlDeviceGetNumaNodeId, unsigned)
TWO(nvmlDeviceGetCudaComputeCapability, int)
TWO(nvmlDeviceGetGspFirmwareMode, unsigned)

ONE(nvmlDeviceGetPowerUsage, unsigned)
ONE(nvmlDeviceGetTotalEnergyConsumption, u64)
ONE(nvmlDeviceGetEnforcedPowerLimit, unsigned)
ONE(nvmlDeviceGetPowerManagementLimit, unsigned)
ONE(nvmlDeviceGetPowerManagementDefaultLimit, unsigned)
TWO(nvmlDeviceGetPowerManagementLimitConstraints, unsigned)
ONE(nvmlDeviceGetPerformanceState, nvmlPstates_t)
ONE(nvmlDeviceGetCurrentClocksEventReasons, u64)
ONE(nvmlDeviceGetCurrentClocksThrottleReasons, u64)
ONE(nvmlDeviceGetSupportedClocksEventReasons, u64)
ONE(nvmlDeviceGetSupportedClocksThrottleReasons, u64)
ONE_OF(nvmlDeviceGetClockInfo, nvmlClockType_t, unsigned)
ONE_OF(nvmlDeviceGetMaxClockInfo, nvmlClockType_t, unsigned)
ONE_OF(nvmlDeviceGetApplicationsClock, nvmlClockType_t, unsigned)
ONE_OF(nvmlDeviceGetTemperature, nvmlTemperatureSensors_t, unsigned)
ONE_OF(nvmlDeviceGetTemperatureThreshold, nvmlTemperatureThresholds_t, unsigned)
ONE(nvmlDeviceGetNumFans, unsigned)
ONE(nvmlDeviceGetFanSpeed, unsigned)
ONE_OF(nvmlDeviceGetFanSpeed_v2, unsigned, unsigned)

TWO(nvmlDeviceGetEncoderUtilization, unsigned)
TWO(nvmlDeviceGetDecoderUtilization, unsigned)
TWO(nvmlDeviceGetJpgUtilization, unsigned)
TWO(nvmlDeviceGetOfaUtilization, unsigned)

nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned int *sessions, unsigned int *fps,
                                       unsigned int *latency)
    ANSWER(__func__, 3, *sessions = (unsigned)v[0]; *fps = (unsigned)v[1]; *latency = (unsigned)v[2])

ONE(nvmlDeviceGetPcieReplayCounter, unsigned)
ONE(nvmlDeviceGetCurrPcieLinkGeneration, unsigned)
ONE(nvmlDeviceGetCurrPcieLinkWidth, unsigned)
ONE(nvmlDeviceGetMaxPcieLinkGeneration, unsigned)
ONE(nvmlDeviceGetMaxPcieLinkWidth, unsigned)
ONE(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned)
ONE(nvmlDeviceGetPcieSpeed, unsigned)
ONE_OF(nvmlDeviceGetPcieThroughput, nvmlPcieUtilCounter_t, unsigned)

ONE_OF(nvmlDeviceGetNvLinkState, unsigned, nvmlEnableState_t)
ONE_OF(nvmlDeviceGetNvLinkVersion, unsigned, unsigned)
ONE_OF(nvmlDeviceGetNvLinkRemoteDeviceType, unsigned, nvmlIntNvLinkDeviceType_t)

TWO(nvmlDeviceGetEccMode, nvmlEnableState_t)
ONE(nvmlDeviceGetDefaultEccMode, nvmlEnableState_t)
ONE(nvmlDeviceGetRetiredPagesPendingStatus, nvmlEnableState_t)

TWO(nvmlDeviceGetMigMode, unsigned)
ONE(nvmlDeviceGetMaxMigDeviceCount, unsigned)
ONE(nvmlDeviceGetGpuInstanceId, unsigned)
ONE(nvmlDeviceGetComputeInstanceId, unsigned)
ONE(nvmlDeviceGetSupportedEventTypes, u64)
ONE(nvmlGpmQueryIfStreamingEnabled, unsigned)

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter,
                                         u64 *count)
    ANSWER(KEY("%s/%u/%u", __func__, type, counter), 1, *count = v[0])

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                             nvmlEccCounterType_t counter, nvmlMemoryLocation_t location, u64 *count)
    ANSWER(KEY("%s/%u/%u/%u", __func__, type, counter, location), 1, *count = v[0])

nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link, nvmlNvLinkErrorCounter_t counter,
                                             u64 *count)
    ANSWER(KEY("%s/%u/%u", __func__, link, counter), 1, *count = v[0])

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *correctable, unsigned int *uncorrectable,
                                       unsigned int *pending, unsigned int *failed)
    ANSWER(__func__, 4, *correctable = (unsigned)v[0]; *uncorrectable = (unsigned)v[1]; *pending = (unsigned)v[2];
           *failed = (unsigned)v[3])
