/* SPDX-License-Identifier: MIT */
#include "numa.h"

#include <sched.h>
#include <stdio.h>

int ko_numa_of_device(const char *folder)
{
    char path[160];
    FILE *file;
    int node = -1;

    snprintf(path, sizeof path, "%s/numa_node", folder);
    file = fopen(path, "re");
    if (!file)
        return -1;
    if (fscanf(file, "%d", &node) != 1)
        node = -1;
    fclose(file);
    return node;
}

int ko_numa_of_thread(void)
{
    unsigned cpu, node;

    return getcpu(&cpu, &node) ? -1 : (int)node;
}
