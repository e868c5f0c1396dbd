/* SPDX-License-Identifier: MIT
 *
 * A core or socket is named by the lowest of its processors that may be used, a NUMA node by its
 * number; all are counted in that order.
 */
#include "launch_binding.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NODES = 1024 };

static const size_t most_cpus = CPU_SETSIZE;

/* "0-3,8" into set; false if it is not that. */
static bool parse_list(const char *text, cpu_set_t *set)
{
    char *end;

    CPU_ZERO(set);
    for (;;) {
        long low = strtol(text, &end, 10), high = low;

        if (end == text)
            return false;
        if (*end == '-') {
            text = end + 1;
            high = strtol(text, &end, 10);
        }
        for (long cpu = low; cpu >= 0 && cpu <= high && (size_t)cpu < most_cpus; cpu++)
            CPU_SET((size_t)cpu, set);
        if (*end != ',')
            return CPU_COUNT(set) > 0;
        text = end + 1;
    }
}

/* The processors that a file of the kernel lists, of those in all. False: there are none. */
static bool read_list(const char *path, const cpu_set_t *all, cpu_set_t *set)
{
    char line[4096];
    FILE *file = fopen(path, "re");
    bool is_read = file && fgets(line, sizeof line, file);

    if (file)
        fclose(file);
    if (!is_read || !parse_list(line, set))
        return false;
    CPU_AND(set, set, all);
    return CPU_COUNT(set) > 0;
}

static size_t first_of(const cpu_set_t *set)
{
    size_t cpu = 0;

    while (cpu < most_cpus && !CPU_ISSET(cpu, set))
        cpu++;
    return cpu;
}

/* Those that share with a processor what a rank is bound to: a core, a socket, or nothing. */
static void read_siblings(const char *system, enum ko_binding binding, size_t cpu,
                          const cpu_set_t *all, cpu_set_t *siblings)
{
    char path[512];

    snprintf(path, sizeof path, "%s/cpu/cpu%zu/topology/%s_siblings_list", system, cpu,
             binding == KO_BIND_SOCKET ? "core" : "thread"); /* "core" lists a socket's */
    if (binding != KO_BIND_HWTHREAD && read_list(path, all, siblings))
        return;
    CPU_ZERO(siblings);
    CPU_SET(cpu, siblings);
    if (binding == KO_BIND_SOCKET)
        *siblings = *all;
}

/* Core, socket or processor number `index` of all; how many there are if index is -1. */
static int find_siblings(const char *system, enum ko_binding binding, const cpu_set_t *all,
                         int index, cpu_set_t *siblings)
{
    int n = 0;

    for (size_t cpu = 0; cpu < most_cpus; cpu++) {
        if (!CPU_ISSET(cpu, all))
            continue;
        read_siblings(system, binding, cpu, all, siblings);
        if (first_of(siblings) == cpu && n++ == index)
            break;
    }
    return n;
}

/* The same of NUMA nodes that have processors. */
static int find_node(const char *system, const cpu_set_t *all, int index, cpu_set_t *node)
{
    char path[512];
    int nnodes = 0;

    for (int i = 0; i < MOST_NODES; i++) {
        snprintf(path, sizeof path, "%s/node/node%d/cpulist", system, i);
        if (read_list(path, all, node) && nnodes++ == index)
            break;
    }
    return nnodes;
}

static int find(const char *system, enum ko_binding binding, const cpu_set_t *all, int index,
                cpu_set_t *found)
{
    return binding == KO_BIND_NUMA ? find_node(system, all, index, found)
                                   : find_siblings(system, binding, all, index, found);
}

void ko_binding_choose(enum ko_binding binding, const char *system, const cpu_set_t *all,
                       int local_rank, int nprocs, cpu_set_t *chosen)
{
    const bool in_turns = binding == KO_BIND_CORE || binding == KO_BIND_HWTHREAD;
    const int n = binding == KO_BIND_NONE ? 0 : find(system, binding, all, -1, chosen);

    if (n == 0)
        *chosen = *all;
    else
        find(system, binding, all, in_turns ? local_rank % n : (int)((long)local_rank * n / nprocs),
             chosen);
}

void ko_binding_describe(const cpu_set_t *set, char *text, int cap)
{
    int used = 0;

    *text = 0;
    for (size_t cpu = 0; cpu < most_cpus && used < cap; cpu++) {
        const size_t low = cpu;

        if (!CPU_ISSET(cpu, set))
            continue;
        while (cpu + 1 < most_cpus && CPU_ISSET(cpu + 1, set))
            cpu++;
        used += snprintf(text + used, (size_t)(cap - used), cpu > low ? "%s%zu-%zu" : "%s%zu",
                         used ? "," : "", low, cpu);
    }
}
