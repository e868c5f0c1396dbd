/* SPDX-License-Identifier: MIT */
#include "spare_memory.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The number behind a word at the beginning of a line; "": the file has nothing else. SIZE_MAX if
 * there is none, as where a limit is "max". */
static size_t read_number(const char *file_name, const char *word)
{
    FILE *file = fopen(file_name, "re");
    const size_t length = strlen(word);
    unsigned long long number = 0;
    char line[128];
    bool has = false;

    while (file && !has && fgets(line, sizeof line, file))
        has = !strncmp(line, word, length) && sscanf(line + length, " %llu", &number) == 1;
    if (file)
        fclose(file);
    return has ? (size_t)number : SIZE_MAX;
}

static size_t number_of_group(const char *folder, const char *name, const char *word)
{
    char file_name[PATH_MAX];

    snprintf(file_name, sizeof file_name, "%s/%s", folder, name);
    return read_number(file_name, word);
}

/* Within one group's limit; pages of files that nobody uses make room. */
static size_t left_in(const char *folder)
{
    const size_t most = number_of_group(folder, "memory.max", "");
    const size_t used = number_of_group(folder, "memory.current", "");
    const size_t files = number_of_group(folder, "memory.stat", "inactive_file");

    if (most == SIZE_MAX || used == SIZE_MAX)
        return SIZE_MAX;
    return (used < most ? most - used : 0) + (files == SIZE_MAX ? 0 : files);
}

size_t ko_spare_memory_of_group(const char *mount, const char *path)
{
    const size_t root = strlen(mount);
    size_t least = SIZE_MAX;
    char folder[PATH_MAX];

    snprintf(folder, sizeof folder, "%s%s", mount, path);
    for (char *end = folder + strlen(folder); end; end = strrchr(folder + root, '/')) {
        size_t left;

        *end = '\0';
        left = left_in(folder);
        least = left < least ? left : least;
    }
    return least;
}

static size_t left_in_groups(void)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    size_t left = SIZE_MAX;
    char line[PATH_MAX];

    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, "0::", 3)) {
            line[strcspn(line, "\n")] = '\0';
            left = ko_spare_memory_of_group("/sys/fs/cgroup", line + 3);
        }
    if (file)
        fclose(file);
    return left;
}

size_t ko_spare_memory(void)
{
    const size_t free_kib = read_number("/proc/meminfo", "MemAvailable:");
    const size_t swap_kib = read_number("/proc/meminfo", "SwapFree:");
    const size_t of_groups = left_in_groups();
    size_t of_machine;

    if (free_kib == SIZE_MAX)
        return of_groups;
    of_machine = 1024 * (free_kib + (swap_kib == SIZE_MAX ? 0 : swap_kib));
    return of_machine < of_groups ? of_machine : of_groups;
}
