/* Lifecycle and what belongs to the whole machine. */
#include <string.h>

#include "fake.h"

nvmlReturn_t nvmlInit_v2(void)
{
    return gate_init(__func__);
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    return gate_init(__func__);
}

nvmlReturn_t nvmlShutdown(void)
{
    return gate_shutdown(__func__);
}

const char *nvmlErrorString(nvmlReturn_t result)
{
    static const char *const texts[] = {
        [NVML_SUCCESS] = "Success",
        [NVML_ERROR_UNINITIALIZED] = "Uninitialized",
        [NVML_ERROR_INVALID_ARGUMENT] = "Invalid Argument",
        [NVML_ERROR_NOT_SUPPORTED] = "Not Supported",
        [NVML_ERROR_NO_PERMISSION] = "Insufficient Permissions",
        [NVML_ERROR_NOT_FOUND] = "Not Found",
        [NVML_ERROR_INSUFFICIENT_SIZE] = "Insufficient Size",
        [NVML_ERROR_DRIVER_NOT_LOADED] = "Driver Not Loaded",
        [NVML_ERROR_TIMEOUT] = "Timeout",
        [NVML_ERROR_GPU_IS_LOST] = "GPU is lost",
        [NVML_ERROR_RESET_REQUIRED] = "GPU requires reset",
        [NVML_ERROR_LIB_RM_VERSION_MISMATCH] = "Driver/library version mismatch",
        [NVML_ERROR_IN_USE] = "In use by another client",
        [NVML_ERROR_ARGUMENT_VERSION_MISMATCH] = "Argument version mismatch",
    };
    if ((size_t)result < sizeof texts / sizeof texts[0] && texts[result])
        return texts[result];
    return "Unknown Error";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    return answer_system_text(__func__, version, length);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    return answer_system_text(__func__, version, length);
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
    nvmlReturn_t ret = answer_system_text(KEY("%s/%u", __func__, pid), name, length);
    /* NVML knows no "not supported" here: it does not find the process. */
    return ret == NVML_ERROR_NOT_SUPPORTED ? NVML_ERROR_NOT_FOUND : ret;
}

nvmlReturn_t nvmlSystemGetDriverBranch(nvmlSystemDriverBranchInfo_t *info, unsigned int length)
{
    if (info->version != nvmlSystemDriverBranchInfo_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return answer_system_text(__func__, info->branch, length < sizeof info->branch ? length : sizeof info->branch);
}

static nvmlReturn_t system_numbers(const char *key, size_t count, u64 *out)
{
    nvmlReturn_t ret = gate_enter(SYSTEM, key);
    if (ret != NVML_SUCCESS)
        return ret;
    size_t lines;
    const struct line *line = values_lines(VALUES, SYSTEM, key, &lines);
    if (line)
        line_numbers(line, count, count, out);
    gate_leave();
    return line ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    u64 v[1];
    nvmlReturn_t ret = system_numbers(__func__, 1, v);
    if (ret == NVML_SUCCESS)
        *version = (int)v[0];
    return ret;
}

nvmlReturn_t nvmlSystemGetConfComputeState(nvmlConfComputeSystemState_t *state)
{
    u64 v[3];
    nvmlReturn_t ret = system_numbers(__func__, 3, v);
    if (ret == NVML_SUCCESS)
        *state = (nvmlConfComputeSystemState_t){(unsigned)v[0], (unsigned)v[1], (unsigned)v[2]};
    return ret;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    u64 v[1];
    nvmlReturn_t ret = system_numbers(__func__, 1, v);
    if (ret == NVML_SUCCESS)
        *count = (unsigned)v[0];
    return ret;
}
