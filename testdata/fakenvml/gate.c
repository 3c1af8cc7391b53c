/* What every call passes: the trace, the lock, the faults. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fake.h"

#define POLL_MS 5

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned users;

void pause_ms(unsigned ms)
{
    struct timespec left = {ms / 1000, (ms % 1000) * 1000000L};
    /* Go interrupts threads with signals all the time. */
    while (nanosleep(&left, &left) != 0) {
    }
}

u64 clock_us(int clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (u64)now.tv_sec * 1000000 + (u64)now.tv_nsec / 1000;
}

char *key_format(char *buffer, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(buffer, KEY_SIZE, format, arguments);
    va_end(arguments);
    return buffer;
}

static int trace_fd = -1;

static void open_trace(void)
{
    const char *path = getenv("FAKENVML_TRACE");
    if (!path)
        return;
    trace_fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (trace_fd < 0) {
        fprintf(stderr, "fakenvml: FAKENVML_TRACE: cannot open %s\n", path);
        abort();
    }
}

/* One write per call, so that lines of several threads and processes do not mix. */
static void trace(const char *entity, const char *key)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_trace);
    if (trace_fd >= 0)
        dprintf(trace_fd, "%d %d %llu %s %s\n", getpid(), gettid(), clock_us(CLOCK_REALTIME), entity, key);
}

static const struct line *fault_at(const char *entity, const char *key)
{
    size_t count;
    return values_lines(FAULTS, entity, key, &count);
}

/* The fault nearest to the call: of this key, of its function, of the entity, of the GPU that holds a MIG device. */
static const struct line *fault_of(const char *entity, const char *key)
{
    char function[KEY_SIZE], gpu[ENTITY_SIZE];
    snprintf(function, sizeof function, "%.*s", (int)strcspn(key, "/"), key);
    snprintf(gpu, sizeof gpu, "%.*s", (int)strcspn(entity, "."), entity);
    const struct line *fault = fault_at(entity, key);
    if (!fault)
        fault = fault_at(entity, function);
    if (!fault)
        fault = fault_at(entity, "*");
    return fault ? fault : fault_at(gpu, "*");
}

/* Serves out a fault with the lock held, giving the lock up while it waits. Returns true when the call must look again
 * at what the file says now, false with *ret set when it can go on or is over. */
static bool suffer(const struct line *fault, bool *delayed, nvmlReturn_t *ret)
{
    char words[2][32];
    size_t count = fault ? line_words(fault, 2, words) : 0;
    unsigned ms = POLL_MS;
    *ret = NVML_SUCCESS;
    if (!fault)
        return false;
    if (count == 2 && !strcmp(words[0], "!error")) {
        *ret = (nvmlReturn_t)line_number(fault, words[1]);
        return false;
    }
    if (count == 2 && !strcmp(words[0], "!delay")) {
        if (*delayed)
            return false;
        *delayed = true;
        ms = (unsigned)line_number(fault, words[1]);
    } else if (count != 1 || strcmp(words[0], "!hang")) {
        values_fatal(fault, "!error CODE, !delay MILLISECONDS or !hang");
    }
    pthread_mutex_unlock(&lock);
    pause_ms(ms);
    pthread_mutex_lock(&lock);
    return true;
}

static nvmlReturn_t pass(const char *entity, const char *key, bool exact)
{
    bool delayed = false;
    nvmlReturn_t ret;
    do {
        if (!values_refresh())
            return NVML_ERROR_DRIVER_NOT_LOADED;
    } while (suffer(exact ? fault_at(entity, key) : fault_of(entity, key), &delayed, &ret));
    return ret;
}

static nvmlReturn_t enter(const char *entity, const char *key, bool need_init)
{
    trace(entity, key);
    pthread_mutex_lock(&lock);
    nvmlReturn_t ret = need_init && !users ? NVML_ERROR_UNINITIALIZED : pass(entity, key, false);
    /* A handle outlives its device; NVML calls such a handle invalid. */
    if (ret == NVML_SUCCESS && strcmp(entity, SYSTEM) && !values_know(entity))
        ret = NVML_ERROR_INVALID_ARGUMENT;
    if (ret != NVML_SUCCESS)
        pthread_mutex_unlock(&lock);
    return ret;
}

nvmlReturn_t gate_enter(const char *entity, const char *key)
{
    return enter(entity, key, true);
}

nvmlReturn_t gate_enter_device(nvmlDevice_t device, const char *key)
{
    const char *entity = device_entity(device);
    return entity ? gate_enter(entity, key) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t gate_init(const char *key)
{
    nvmlReturn_t ret = enter(SYSTEM, key, false);
    if (ret != NVML_SUCCESS)
        return ret;
    users++;
    gate_leave();
    return NVML_SUCCESS;
}

nvmlReturn_t gate_shutdown(const char *key)
{
    nvmlReturn_t ret = gate_enter(SYSTEM, key);
    if (ret != NVML_SUCCESS)
        return ret;
    if (!--users)
        events_forget();
    gate_leave();
    return NVML_SUCCESS;
}

/* The faults of one entry in a call that is already inside the gate. Only its own: those of the call were served. */
nvmlReturn_t gate_field(const char *entity, const char *key)
{
    return pass(entity, key, true);
}

void gate_lock(void)
{
    pthread_mutex_lock(&lock);
}

void gate_leave(void)
{
    pthread_mutex_unlock(&lock);
}

nvmlReturn_t answer_numbers(nvmlDevice_t device, const char *key, size_t count, u64 *out)
{
    nvmlReturn_t ret = gate_enter_device(device, key);
    if (ret != NVML_SUCCESS)
        return ret;
    size_t lines;
    const struct line *line = values_lines(VALUES, device_entity(device), key, &lines);
    if (line)
        line_numbers(line, count, count, out);
    gate_leave();
    return line ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t copy_text(const char *entity, const char *key, char *out, size_t size)
{
    const char *text = values_first(VALUES, entity, key);
    nvmlReturn_t ret = NVML_SUCCESS;
    if (!text)
        ret = NVML_ERROR_NOT_SUPPORTED;
    else if (strlen(text) >= size)
        ret = NVML_ERROR_INSUFFICIENT_SIZE;
    else
        strcpy(out, text);
    gate_leave();
    return ret;
}

nvmlReturn_t answer_text(nvmlDevice_t device, const char *key, char *out, size_t size)
{
    nvmlReturn_t ret = gate_enter_device(device, key);
    return ret == NVML_SUCCESS ? copy_text(device_entity(device), key, out, size) : ret;
}

nvmlReturn_t answer_system_text(const char *key, char *out, size_t size)
{
    nvmlReturn_t ret = gate_enter(SYSTEM, key);
    return ret == NVML_SUCCESS ? copy_text(SYSTEM, key, out, size) : ret;
}
