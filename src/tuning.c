/* SPDX-License-Identifier: MIT */
#include "tuning.h"

#include "caches.h"
#include "config.h"
#include "protocols.h"
#include "status.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char HEADER[] = "kolo tuning 5";
static const char HOW[] = "make a new one with kolo-perf --tune";

struct number {
    const char *name;
    size_t offset;
};

#define NUMBER(name, member)                    \
    {                                           \
        name, offsetof(struct ko_costs, member) \
    }
#define BYTES(name, member)                                           \
    NUMBER(name ".128K", member[0]), NUMBER(name ".512K", member[1]), \
        NUMBER(name ".2M", member[2]), NUMBER(name ".8M", member[3]), \
        NUMBER(name ".32M", member[4]), NUMBER(name ".128M", member[5])
#define LINK(name, link)                                                                  \
    NUMBER(name ".latency", links[link].latency), NUMBER(name ".send", links[link].send), \
        NUMBER(name ".receive", links[link].receive),                                     \
        BYTES(name ".send_byte", links[link].send_byte),                                  \
        BYTES(name ".receive_byte", links[link].receive_byte),                            \
        BYTES(name ".waiting_byte", links[link].waiting_byte),                            \
        NUMBER(name ".wire_byte", links[link].wire_byte)

static const struct number numbers[] = {
    LINK("local", KO_LOCAL),
    LINK("remote", KO_REMOTE),
    BYTES("reduce_byte", reduce_byte),
    BYTES("copy_byte", copy_byte),
    BYTES("lone_copy_byte", lone_copy_byte),
    NUMBER("reading.call", reading.call),
    BYTES("reading.byte", reading.byte),
    BYTES("reading.helped_byte", reading.helped_byte),
    NUMBER("reading.cache", reading.cache),
    NUMBER("cores", cores),
    NUMBER("change", change),
    NUMBER("spin", spin),
    NUMBER("wake", wake),
    NUMBER("call", call),
};

enum { NNUMBERS = sizeof numbers / sizeof *numbers, LINE_BYTES = 256 };

_Static_assert(NNUMBERS * sizeof(double) == sizeof(struct ko_costs), "every number has its line");

static double *at(struct ko_costs *costs, const struct number *number)
{
    return (double *)(void *)((char *)costs + number->offset);
}

static double value(const struct ko_costs *costs, const struct number *number)
{
    double read;

    memcpy(&read, (const char *)costs + number->offset, sizeof read);
    return read;
}

int ko_costs_check(const struct ko_costs *costs)
{
    for (size_t i = 0; i < NNUMBERS; i++)
        if (!(value(costs, &numbers[i]) >= 0 && value(costs, &numbers[i]) < 1e15))
            return ko_fail(KOLO_E_INVALID, "%s is %g, which it cannot be", numbers[i].name,
                           value(costs, &numbers[i]));
    if (costs->cores < 1 || costs->cores > 65536)
        return ko_fail(KOLO_E_INVALID, "cores is %g", costs->cores);
    return KOLO_OK;
}

/* A program may be in a language that writes 0,5; in a file of costs it is 0.5. Returns what this
 * thread is in till write_as_before; 0: it stays in that. */
static locale_t write_points(void)
{
    const locale_t points = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);

    return points ? uselocale(points) : (locale_t)0;
}

static void write_as_before(locale_t before)
{
    if (before)
        freelocale(uselocale(before));
}

/* ---- the machine ------------------------------------------------------------------------- */

/* Those that this process may use. */
static int count_cores(void)
{
    cpu_set_t set;

    if (!sched_getaffinity(0, sizeof set, &set))
        return CPU_COUNT(&set);
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

/* What a line of /proc/cpuinfo says of this; text stays if it is none of them, or one says it
 * already. */
static void take_field(const char *line, const char *field, char *text, size_t nbytes)
{
    const char *colon = strchr(line, ':');

    if (!*text && colon && !strncmp(line, field, strlen(field)))
        snprintf(text, nbytes, "%.*s", (int)strcspn(colon + 1, "\n"), colon + 1);
}

/* ARM's have no name there, but numbers of the maker and of what he calls the part. Machines that
 * are rented often have one name for many processors, which their numbers tell apart. */
void ko_tuning_processor(FILE *cpuinfo, char *name, size_t nbytes)
{
    char line[LINE_BYTES], model[80] = "", maker[16] = "", part[16] = "";
    char family[16] = "", number[16] = "", step[16] = "", variant[16] = "", revision[16] = "";

    while (cpuinfo && fgets(line, sizeof line, cpuinfo)) {
        take_field(line, "model name", model, sizeof model);
        take_field(line, "cpu family", family, sizeof family);
        take_field(line, "model\t", number, sizeof number);
        take_field(line, "stepping", step, sizeof step);
        take_field(line, "CPU implementer", maker, sizeof maker);
        take_field(line, "CPU part", part, sizeof part);
        take_field(line, "CPU variant", variant, sizeof variant);
        take_field(line, "CPU revision", revision, sizeof revision);
    }
    if (*model)
        snprintf(name, nbytes, "%s family%s model%s stepping%s", model + strspn(model, " "), family,
                 number, step);
    else if (*maker && *part)
        snprintf(name, nbytes, "processor%s%s variant%s revision%s", maker, part, variant,
                 revision);
    else
        snprintf(name, nbytes, "unknown processor");
}

void ko_tuning_machine(char *text, size_t nbytes)
{
    char name[LINE_BYTES];
    FILE *file = fopen("/proc/cpuinfo", "re");

    ko_tuning_processor(file, name, sizeof name);
    if (file)
        fclose(file);
    snprintf(text, nbytes, "%.160s, %ld cores, caches of %zu and %zu KiB", name,
             sysconf(_SC_NPROCESSORS_ONLN), ko_cache_first_bytes(2) >> 10,
             ko_cache_first_bytes(3) >> 10);
}

/* ---- reading ----------------------------------------------------------------------------- */

struct reader {
    const char *name; /* of what says the path */
    const char *path;
    bool is_of_any; /* machine */
    FILE *file;
    int line;
    char text[LINE_BYTES];
};

static int wrong(const struct reader *reader, const char *what)
{
    return ko_fail(KOLO_E_INVALID, "%s: %s, line %d: %s; %s", reader->name, reader->path,
                   reader->line, what, HOW);
}

/* The next line without its end; "" after the last. */
static int next_line(struct reader *reader)
{
    size_t length;

    reader->line++;
    if (!fgets(reader->text, sizeof reader->text, reader->file))
        reader->text[0] = 0;
    length = strlen(reader->text);
    if (length && reader->text[length - 1] != '\n')
        return wrong(reader, "the line is too long, or cut off");
    reader->text[strcspn(reader->text, "\n")] = 0;
    return KOLO_OK;
}

/* "0.1.0, slices of 131072 bytes": with which costs were measured, as they hold for no others. */
static int name_maker(char *text, size_t nbytes)
{
    int64_t slice_bytes = 0;
    int err = ko_config_number(KO_CONFIG_SLICE_BYTES, &slice_bytes);

    if (!err)
        snprintf(text, nbytes, "%s, slices of %lld bytes", kolo_version(), (long long)slice_bytes);
    return err;
}

static int read_format(struct reader *reader)
{
    const size_t length = strcspn(HEADER, "0123456789");
    int err = next_line(reader);

    if (err || !strcmp(reader->text, HEADER))
        return err;
    if (strncmp(reader->text, HEADER, length) != 0)
        return wrong(reader, "this is no tuning file");
    return wrong(reader, "this tuning file is stale: another version of kolo wrote it");
}

static int read_maker(struct reader *reader)
{
    char maker[LINE_BYTES], what[2 * LINE_BYTES + 64];
    int err = next_line(reader);

    if (!err && strncmp(reader->text, "kolo ", 5) != 0)
        err = wrong(reader, "the version of kolo is missing");
    if (!err)
        err = name_maker(maker, sizeof maker);
    if (err || reader->is_of_any || !strcmp(reader->text + 5, maker))
        return err;
    snprintf(what, sizeof what, "it is stale: kolo %.200s measured it, but this is kolo %s",
             reader->text + 5, maker);
    return wrong(reader, what);
}

static int read_machine(struct reader *reader)
{
    char machine[LINE_BYTES], what[2 * LINE_BYTES + 64];
    int err = next_line(reader);

    if (err)
        return err;
    ko_tuning_machine(machine, sizeof machine);
    if (strncmp(reader->text, "machine ", 8) != 0)
        return wrong(reader, "the machine is missing");
    if (reader->is_of_any || !strcmp(reader->text + 8, machine))
        return KOLO_OK;
    snprintf(what, sizeof what, "it was measured on \"%.220s\", but this is \"%.220s\"",
             reader->text + 8, machine);
    return wrong(reader, what);
}

/* Fewer are right: whoever measured may have been bound to some. */
static int check_number(const struct reader *reader, const struct number *number, double read)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    char what[LINE_BYTES];

    if (number->offset != offsetof(struct ko_costs, cores) || reader->is_of_any ||
        read <= (double)cores)
        return KOLO_OK;
    snprintf(what, sizeof what, "cores is %g, but this machine has %ld", read, cores);
    return wrong(reader, what);
}

static int read_number(struct reader *reader, struct ko_costs *costs, bool has[NNUMBERS])
{
    char *space = strchr(reader->text, ' '), *end;
    double read;

    if (!space)
        return wrong(reader, "this is no name with a number");
    *space = 0;
    errno = 0;
    read = strtod(space + 1, &end);
    if (end == space + 1 || *end || errno || !isfinite(read))
        return wrong(reader, "what follows the name is no number");
    for (size_t i = 0; i < NNUMBERS; i++)
        if (!strcmp(numbers[i].name, reader->text)) {
            if (has[i])
                return wrong(reader, "the number is there twice");
            has[i] = true;
            *at(costs, &numbers[i]) = read;
            return check_number(reader, &numbers[i], read);
        }
    return wrong(reader, "no number has this name");
}

/* Two files in one, say. */
static int check_end(const struct reader *reader)
{
    if (fgetc(reader->file) == EOF)
        return KOLO_OK;
    return wrong(reader, "there is more behind the \"end\"");
}

static int read_numbers(struct reader *reader, struct ko_costs *costs)
{
    bool has[NNUMBERS] = {false};
    char what[LINE_BYTES];
    int err = next_line(reader);

    while (!err && reader->text[0] && strcmp(reader->text, "end") != 0) {
        err = read_number(reader, costs, has);
        if (!err)
            err = next_line(reader);
    }
    if (!err && !reader->text[0])
        err = wrong(reader, "the file ends without its \"end\"");
    if (!err)
        err = check_end(reader);
    for (size_t i = 0; i < NNUMBERS && !err; i++)
        if (!has[i]) {
            snprintf(what, sizeof what, "%s is missing", numbers[i].name);
            err = wrong(reader, what);
        }
    if (!err && ko_costs_check(costs)) {
        snprintf(what, sizeof what, "%s", kolo_last_error());
        err = wrong(reader, what);
    }
    return err;
}

enum { NO_FILE = -1 };

/* A pipe that nobody writes to would be waited for without end, and some devices never end: of what
 * can be opened only a file is taken. errno's number, or NO_FILE. */
static int open_file(const char *path, FILE **file)
{
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat status = {.st_mode = 0};
    int error = fd < 0 || fstat(fd, &status) ? errno : 0;

    if (!error && !S_ISREG(status.st_mode))
        error = S_ISDIR(status.st_mode) ? EISDIR : NO_FILE;
    *file = error ? NULL : fdopen(fd, "r");
    if (!error && !*file)
        error = errno;
    if (error && fd >= 0)
        close(fd);
    return error;
}

/* What can be opened and cannot be read is found out by the first byte. */
static int open_readable(struct reader *reader)
{
    int error = open_file(reader->path, &reader->file), first = error ? EOF : getc(reader->file);

    if (!error && ferror(reader->file)) {
        error = errno;
        fclose(reader->file);
    }
    if (error)
        return ko_fail(KOLO_E_INVALID, "%s: %s cannot be read: %s; %s", reader->name, reader->path,
                       error == NO_FILE ? "Not a regular file" : strerror(error), HOW);
    ungetc(first, reader->file);
    return KOLO_OK;
}

static int read_file(struct reader *reader, struct ko_costs *costs)
{
    struct ko_costs read = {.cores = 0};
    locale_t before;
    int err = open_readable(reader);

    if (err)
        return err;
    before = write_points();
    err = read_format(reader);
    if (!err)
        err = read_maker(reader);
    if (!err)
        err = read_machine(reader);
    if (!err)
        err = read_numbers(reader, &read);
    write_as_before(before);
    fclose(reader->file);
    if (!err)
        *costs = read;
    return err;
}

int ko_tuning_read(const char *path, struct ko_costs *costs)
{
    return read_file(&(struct reader){.name = "KOLO_TUNING", .path = path}, costs);
}

int ko_tuning_read_any(const char *name, const char *path, struct ko_costs *costs)
{
    return read_file(&(struct reader){.name = name, .path = path, .is_of_any = true}, costs);
}

void ko_tuning_usual(struct ko_costs *costs)
{
    *costs = ko_default_costs;
    costs->cores = count_cores();
}

int ko_tuning_get(struct ko_costs *costs)
{
    unsigned protocols = 0;
    int err = ko_protocols_read(&protocols);

    if (!err && ko_config_is_set(KO_CONFIG_TUNING))
        err = ko_tuning_read(ko_config_text(KO_CONFIG_TUNING), costs);
    else
        ko_tuning_usual(costs);
    if (!(protocols & (KO_PROTO_CMA | KO_PROTO_TRY_CMA)))
        costs->reading.cache = 0;
    return err;
}

/* ---- writing ----------------------------------------------------------------------------- */

static int fail_write(const char *path)
{
    return ko_fail(KOLO_E_SYSTEM, "the tuning file %s cannot be written: %s", path,
                   strerror(errno));
}

static int write_all(FILE *file, const char *maker, const struct ko_costs *costs)
{
    const locale_t before = write_points();
    char machine[LINE_BYTES];

    ko_tuning_machine(machine, sizeof machine);
    fprintf(file, "%s\nkolo %s\nmachine %s\n", HEADER, maker, machine);
    for (size_t i = 0; i < NNUMBERS; i++)
        fprintf(file, "%s %.9g\n", numbers[i].name, value(costs, &numbers[i]));
    fprintf(file, "end\n");
    write_as_before(before);
    return ferror(file) | fflush(file) | fsync(fileno(file));
}

/* Begins the file that is to replace it, whose name half gets. */
static int open_beside(const char *path, char half[PATH_MAX], FILE **file)
{
    if (snprintf(half, PATH_MAX, "%s.%d", path, (int)getpid()) >= PATH_MAX)
        return ko_fail(KOLO_E_INVALID, "the name of the tuning file is too long");
    *file = fopen(half, "we");
    return *file ? KOLO_OK : fail_write(half);
}

int ko_tuning_check_beside(const char *path)
{
    char half[PATH_MAX];
    FILE *file;
    int err = open_beside(path, half, &file);

    if (err)
        return err;
    fclose(file);
    unlink(half);
    return KOLO_OK;
}

int ko_tuning_write(const char *path, const struct ko_costs *costs)
{
    char half[PATH_MAX], maker[LINE_BYTES];
    FILE *file;
    int failed, err = ko_costs_check(costs);

    if (!err)
        err = name_maker(maker, sizeof maker);
    if (!err)
        err = open_beside(path, half, &file);
    if (err)
        return err;
    failed = write_all(file, maker, costs);
    failed |= fclose(file);
    if (failed || rename(half, path)) {
        err = fail_write(path);
        unlink(half);
    }
    return err;
}
