/* nvmlDeviceGetFieldValues: one call, an answer and a return code per entry. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake.h"

nvmlValueType_t value_parse(const struct line *line, const char *type, const char *text, nvmlValue_t *out)
{
    static const char *const names[NVML_VALUE_TYPE_COUNT] = {"double", "uint", "ulong", "ull", "sll", "int", "ushort"};
    unsigned t = 0;
    while (t < NVML_VALUE_TYPE_COUNT && strcmp(type, names[t]))
        t++;
    memset(out, 0, sizeof *out);
    if (t == NVML_VALUE_TYPE_DOUBLE) {
        char *end;
        out->dVal = strtod(text, &end);
        if (end == text || *end)
            values_fatal(line, "a number");
        return NVML_VALUE_TYPE_DOUBLE;
    }
    u64 number = line_number(line, text);
    switch (t) {
    case NVML_VALUE_TYPE_UNSIGNED_INT:
        out->uiVal = (unsigned)number;
        break;
    case NVML_VALUE_TYPE_UNSIGNED_LONG:
        out->ulVal = number;
        break;
    case NVML_VALUE_TYPE_UNSIGNED_LONG_LONG:
        out->ullVal = number;
        break;
    case NVML_VALUE_TYPE_SIGNED_LONG_LONG:
        out->sllVal = (long long)number;
        break;
    case NVML_VALUE_TYPE_SIGNED_INT:
        out->siVal = (int)number;
        break;
    case NVML_VALUE_TYPE_UNSIGNED_SHORT:
        out->usVal = (unsigned short)number;
        break;
    default:
        values_fatal(line, "one of the types double uint ulong ull sll int ushort");
    }
    return (nvmlValueType_t)t;
}

/* Scope 0 is what a caller gets who does not think of scopes; NVML then means link 0. */
static const char *field_key(char *buffer, const nvmlFieldValue_t *value)
{
    if (!value->scopeId)
        return key_format(buffer, "field/%u", value->fieldId);
    if (value->scopeId == 0xFFFFFFFF)
        return key_format(buffer, "field/%u/all", value->fieldId);
    return key_format(buffer, "field/%u/%u", value->fieldId, value->scopeId);
}

static nvmlReturn_t field_value(const char *entity, nvmlFieldValue_t *value)
{
    char buffer[KEY_SIZE], words[4][32];
    const char *key = field_key(buffer, value);
    nvmlReturn_t ret = gate_field(entity, key);
    if (ret != NVML_SUCCESS)
        return ret;
    size_t lines;
    const struct line *line = values_lines(VALUES, entity, key, &lines);
    if (!line)
        return NVML_ERROR_NOT_SUPPORTED;
    size_t count = line_words(line, 4, words);
    if (count < 2)
        values_fatal(line, "TYPE VALUE [LATENCY_US [TIMESTAMP_US]]");
    value->valueType = value_parse(line, words[0], words[1], &value->value);
    value->latencyUsec = count > 2 ? (long long)line_number(line, words[2]) : 1;
    value->timestamp = (long long)(count > 3 ? line_number(line, words[3]) : clock_us(CLOCK_REALTIME));
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    if (count <= 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t ret = gate_enter_device(device, __func__);
    if (ret != NVML_SUCCESS)
        return ret;
    for (int i = 0; i < count; i++)
        values[i].nvmlReturn = field_value(device_entity(device), &values[i]);
    gate_leave();
    return NVML_SUCCESS;
}
