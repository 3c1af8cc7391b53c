/* The values file: lines of `ENTITY KEY REST`, sorted for look-up, read again whenever the file was replaced. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake.h"

static struct {
    struct stat identity;
    char *text;
    struct {
        struct line *lines;
        size_t count;
    } tables[2];
} file;

static const char *path(void)
{
    static const char *name;
    if (!name)
        name = getenv("FAKENVML_FILE");
    return name ? name : "";
}

void values_fatal(const struct line *line, const char *wanted)
{
    fprintf(stderr, "fakenvml: %s:%zu: %s %s %s: want %s\n", path(), line->number, line->entity, line->key, line->rest,
            wanted);
    abort();
}

static int compare(const void *a, const void *b)
{
    const struct line *left = a, *right = b;
    int order = strcmp(left->entity, right->entity);
    if (!order)
        order = strcmp(left->key, right->key);
    if (!order)
        order = (left->number > right->number) - (left->number < right->number);
    return order;
}

static char *next_word(char **cursor)
{
    char *word = *cursor + strspn(*cursor, " \t");
    *cursor = word + strcspn(word, " \t");
    if (**cursor)
        *(*cursor)++ = '\0';
    return word;
}

static void add_line(char *text, size_t number)
{
    struct line line = {.number = number};
    line.entity = next_word(&text);
    line.key = next_word(&text);
    line.rest = text + strspn(text, " \t");
    if (!*line.entity || *line.entity == '#')
        return;
    if (!*line.key)
        values_fatal(&line, "ENTITY KEY VALUE…");
    enum table table = *line.rest == '!' ? FAULTS : VALUES;
    file.tables[table].lines[file.tables[table].count++] = line;
}

static void parse(void)
{
    size_t lines = 1;
    for (const char *c = file.text; *c; c++)
        lines += *c == '\n';
    for (enum table t = VALUES; t <= FAULTS; t++) {
        free(file.tables[t].lines);
        file.tables[t].lines = calloc(lines, sizeof(struct line));
        file.tables[t].count = 0;
        if (!file.tables[t].lines)
            abort();
    }
    size_t number = 0;
    for (char *cursor = file.text, *line; (line = strsep(&cursor, "\n"));)
        add_line(line, ++number);
    for (enum table t = VALUES; t <= FAULTS; t++)
        qsort(file.tables[t].lines, file.tables[t].count, sizeof(struct line), compare);
}

static char *slurp(int fd, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        abort();
    size_t have = 0;
    while (have < size) {
        ssize_t got = read(fd, text + have, size - have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        have += (size_t)got;
    }
    text[have] = '\0';
    return text;
}

static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Reports whether there is a values file to serve from. */
bool values_refresh(void)
{
    struct stat now;
    if (stat(path(), &now) != 0)
        return false;
    if (file.text && same(&now, &file.identity))
        return true;
    int fd = open(path(), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool ok = fstat(fd, &now) == 0;
    if (ok) {
        free(file.text);
        file.text = slurp(fd, (size_t)now.st_size);
        file.identity = now;
        parse();
    }
    close(fd);
    return ok;
}

static size_t lower_bound(enum table table, const char *entity, const char *key)
{
    struct line wanted = {.entity = entity, .key = key};
    size_t low = 0, high = file.tables[table].count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare(&file.tables[table].lines[middle], &wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Reports whether any line speaks of the entity. */
bool values_know(const char *entity)
{
    for (enum table t = VALUES; t <= FAULTS; t++) {
        size_t at = lower_bound(t, entity, "");
        if (at < file.tables[t].count && !strcmp(file.tables[t].lines[at].entity, entity))
            return true;
    }
    return false;
}

const struct line *values_lines(enum table table, const char *entity, const char *key, size_t *count)
{
    size_t first = lower_bound(table, entity, key), end = first;
    const struct line *lines = file.tables[table].lines;
    while (end < file.tables[table].count && !strcmp(lines[end].entity, entity) && !strcmp(lines[end].key, key))
        end++;
    *count = end - first;
    return *count ? &lines[first] : NULL;
}

const char *values_first(enum table table, const char *entity, const char *key)
{
    size_t count;
    const struct line *line = values_lines(table, entity, key, &count);
    return line ? line->rest : NULL;
}

u64 line_number(const struct line *line, const char *text)
{
    char *end;
    errno = 0;
    u64 number = strtoull(text, &end, strncmp(text, "0x", 2) ? 10 : 16);
    if (end == text || *end || errno)
        values_fatal(line, "whole numbers, decimal or 0x…");
    return number;
}

size_t line_words(const struct line *line, size_t most, char words[][32])
{
    size_t count = 0;
    for (const char *c = line->rest + strspn(line->rest, " \t"); *c; c += strspn(c, " \t")) {
        size_t length = strcspn(c, " \t");
        if (count == most || length >= sizeof words[0])
            values_fatal(line, "fewer or shorter words");
        memcpy(words[count], c, length);
        words[count++][length] = '\0';
        c += length;
    }
    return count;
}

size_t line_numbers(const struct line *line, size_t least, size_t most, u64 *out)
{
    char words[16][32];
    size_t count = line_words(line, most, words);
    if (count < least)
        values_fatal(line, "more numbers");
    for (size_t i = 0; i < count; i++)
        out[i] = line_number(line, words[i]);
    return count;
}
