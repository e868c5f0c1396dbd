/* SPDX-License-Identifier: MIT
 *
 * Facts come from the compiler's macros, the Makefile's definitions and /proc. One that cannot be
 * had is "unknown", never left out.
 */
#include "info.h"

#include "kolo.h"
#include "launcher.h"

#include <assert.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#ifndef KO_BUILD_FLAGS
#define KO_BUILD_FLAGS "unknown"
#endif
#ifndef KO_BUILD_ABI
#define KO_BUILD_ABI "unknown"
#endif
#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "gcc " __VERSION__
#endif

static void __attribute__((format(printf, 4, 5)))
add(struct ko_facts *facts, const char *name, bool is_number, const char *format, ...)
{
    struct ko_fact *fact = &facts->list[facts->count];
    va_list arguments;

    assert(facts->count < KO_FACTS_CAP);
    fact->name = name;
    fact->is_number = is_number;
    va_start(arguments, format);
    vsnprintf(fact->text, sizeof fact->text, format, arguments);
    va_end(arguments);
    facts->count++;
}

static void add_number(struct ko_facts *facts, const char *name, long long number)
{
    if (number < 0)
        add(facts, name, false, "unknown");
    else
        add(facts, name, true, "%lld", number);
}

void ko_facts_build(struct ko_facts *facts)
{
    facts->count = 0;
    add(facts, "version", false, "%s", kolo_version());
    add(facts, "abi", false, "%s", KO_BUILD_ABI);
    add(facts, "compiler", false, "%s", COMPILER);
    add(facts, "flags", false, "%s", KO_BUILD_FLAGS);
    add_number(facts, "pointer_bits", (long long)sizeof(void *) * 8);
}

/* ---- the machine -------------------------------------------------------------------------- */

static void add_file(struct ko_facts *facts, const char *name, const char *path)
{
    char line[200] = "unknown";
    FILE *file = fopen(path, "re");

    if (file && !fgets(line, sizeof line, file))
        snprintf(line, sizeof line, "unknown");
    if (file)
        fclose(file);
    line[strcspn(line, "\n")] = '\0';
    add(facts, name, false, "%s", line);
}

static void add_link(struct ko_facts *facts, const char *name, const char *path)
{
    char target[200] = "unknown";
    ssize_t n = readlink(path, target, sizeof target - 1);

    if (n > 0)
        target[n] = '\0';
    add(facts, name, false, "%s", target);
}

static void add_limit(struct ko_facts *facts, const char *name, __rlimit_resource_t resource)
{
    struct rlimit limit;

    if (!getrlimit(resource, &limit) && limit.rlim_cur == RLIM_INFINITY)
        add(facts, name, false, "unlimited");
    else
        add_number(facts, name, getrlimit(resource, &limit) ? -1 : (long long)limit.rlim_cur);
}

static long long shared_memory_free(void)
{
    struct statvfs fs;

    return statvfs("/dev/shm", &fs) ? -1 : (long long)fs.f_bavail * (long long)fs.f_frsize;
}

static int usable_cores(void)
{
    cpu_set_t cores;

    CPU_ZERO(&cores);
    return sched_getaffinity(0, sizeof cores, &cores) ? -1 : CPU_COUNT(&cores);
}

void ko_facts_machine(struct ko_facts *facts)
{
    struct utsname name = {.sysname = "unknown"};

    uname(&name);
    facts->count = 0;
    add(facts, "host", false, "%s", name.nodename);
    add(facts, "system", false, "%s %s %s", name.sysname, name.release, name.machine);
    add_number(facts, "cores_usable", usable_cores());
    add_number(facts, "cores_online", sysconf(_SC_NPROCESSORS_ONLN));
    add_number(facts, "memory_bytes",
               (long long)sysconf(_SC_PHYS_PAGES) * (long long)sysconf(_SC_PAGESIZE));
    add_number(facts, "shm_free_bytes", shared_memory_free());
    add_limit(facts, "open_files_limit", RLIMIT_NOFILE);
    add_limit(facts, "locked_bytes_limit", RLIMIT_MEMLOCK);
    add_file(facts, "boot_id", "/proc/sys/kernel/random/boot_id");
    add_link(facts, "network_namespace", "/proc/self/ns/net");
    add_link(facts, "process_namespace", "/proc/self/ns/pid");
}

/* ---- the job ------------------------------------------------------------------------------ */

void ko_facts_job(struct ko_facts *facts, int *nproblems)
{
    struct ko_placement placement;
    char text[KO_PLACEMENT_TEXT];

    facts->count = 0;
    *nproblems = ko_placement_read(environ, &placement) ? 1 : 0;
    if (*nproblems) {
        add(facts, "refused", false, "%s", kolo_last_error());
        return;
    }
    ko_placement_describe(&placement, text, sizeof text);
    add(facts, "launcher", false, "%s", placement.launcher);
    add(facts, "rank", true, "%d", placement.rank);
    add(facts, "size", true, "%d", placement.size);
    add(facts, "placement", false, "%s", text);
    if (placement.warning[0])
        add(facts, "warning", false, "%s", placement.warning);
    if (placement.note[0])
        add(facts, "note", false, "%s", placement.note);
}
