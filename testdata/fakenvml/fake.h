/* What the parts of the fake libnvidia-ml share. The format of the values file is described in README.md. */
#ifndef FAKENVML_FAKE_H
#define FAKENVML_FAKE_H

#include <stdbool.h>
#include <stddef.h>

#include "nvml.h"

#define MAX_GPUS 64
#define MAX_MIGS 16
#define KEY_SIZE 128
#define ENTITY_SIZE 16
#define SYSTEM "sys"

typedef unsigned long long u64;

/* Nobody outside this library may bind to its helpers. */
#pragma GCC visibility push(hidden)

/* values.c: the values file. Everything but values_fatal wants the gate's lock, and pointers into the file's text are
 * good only until it is given up, because the file may be read again. */
enum table { VALUES, FAULTS };

struct line {
    const char *entity, *key, *rest;
    size_t number;
};

bool values_refresh(void);
bool values_know(const char *entity);
const struct line *values_lines(enum table table, const char *entity, const char *key, size_t *count);
const char *values_first(enum table table, const char *entity, const char *key);
_Noreturn void values_fatal(const struct line *line, const char *wanted);

/* Read a line's rest, which must hold as many words or numbers as asked for; return how many there were. */
size_t line_numbers(const struct line *line, size_t least, size_t most, u64 *out);
u64 line_number(const struct line *line, const char *text);
size_t line_words(const struct line *line, size_t most, char words[][32]);

/* gate.c: what every call passes. gate_enter holds the lock when, and only when, it returns NVML_SUCCESS. */
nvmlReturn_t gate_enter(const char *entity, const char *key);
nvmlReturn_t gate_enter_device(nvmlDevice_t device, const char *key);
nvmlReturn_t gate_init(const char *key);
nvmlReturn_t gate_shutdown(const char *key);
nvmlReturn_t gate_field(const char *entity, const char *key);
void gate_lock(void);
void gate_leave(void);
void pause_ms(unsigned ms);
u64 clock_us(int clock);

/* Builds FUNCTION/SELECTOR/SELECTOR… in a buffer that lives as long as the caller's block. */
#define KEY(...) key_format((char[KEY_SIZE]){0}, __VA_ARGS__)
char *key_format(char *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* One whole call whose answer is a line of numbers or a text. */
nvmlReturn_t answer_numbers(nvmlDevice_t device, const char *key, size_t count, u64 *out);
nvmlReturn_t answer_text(nvmlDevice_t device, const char *key, char *out, size_t size);
nvmlReturn_t answer_system_text(const char *key, char *out, size_t size);

/* device.c: handles point into a table that never moves, so a stale handle is refused instead of followed. */
struct nvmlDevice_st {
    char entity[ENTITY_SIZE];
    unsigned gpu, mig;
    bool is_mig;
};

const char *device_entity(nvmlDevice_t device);
nvmlDevice_t device_gpu(unsigned index);
nvmlDevice_t device_mig(unsigned gpu, unsigned slot);

/* field.c: a number with one of NVML's value types, as field values and samples carry them. */
nvmlValueType_t value_parse(const struct line *line, const char *type, const char *text, nvmlValue_t *out);

/* event.c */
void events_forget(void);

#pragma GCC visibility pop
#endif
