/* SPDX-License-Identifier: MIT */
#include "launch_hosts.h"
#include "launch_values.h"

#include "clock.h"
#include "config.h"
#include "interface.h"
#include "kolo.h"
#include "look_up.h"
#include "status.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOOK_UP_MS = 5000 };

/* In full, or, if one has no dot, up to the other's first. */
static bool is_same_name(const char *a, const char *b)
{
    const size_t length = strcspn(a, ".");

    if (a[length] && b[strcspn(b, ".")])
        return !strcmp(a, b);
    return length == strcspn(b, ".") && !strncmp(a, b, length);
}

static bool is_own_address(const char *host)
{
    const ko_deadline soon = ko_deadline_in(LOOK_UP_MS);
    struct addrinfo *list;
    bool is_own = false;

    if (ko_look_up(host, 0, 0, &soon, &list))
        return false;
    for (const struct addrinfo *entry = list; entry && !is_own; entry = entry->ai_next)
        is_own = ko_interface_has(entry->ai_addr);
    freeaddrinfo(list);
    return is_own;
}

bool ko_hosts_is_here(const char *host)
{
    char own[HOST_NAME_MAX + 1] = "";

    (void)gethostname(own, sizeof own - 1);
    return !strcmp(host, "localhost") || is_same_name(host, own) || is_own_address(host);
}

static int check_host(const char *host)
{
    if (!*host)
        return ko_fail(KOLO_E_INVALID, "a host's name is missing");
    if (ko_hosts_is_here(host))
        return KOLO_OK;
    return ko_fail(KOLO_E_INVALID,
                   "%.100s is another machine, and kolorun starts ranks on its own; run it on each "
                   "machine, with --nnodes, or by srun",
                   host);
}

/* Cuts ":4" off "host:4" and "[::1]:4", and the brackets; *nranks stays without it. */
static int cut_count(char **host, int *nranks)
{
    char *const bracket = **host == '[' ? strchr(*host, ']') : NULL;
    char *const colon = strchr(bracket ? bracket : *host, ':');
    const bool is_address = !bracket && colon && strchr(colon + 1, ':');

    if (colon && !is_address) {
        *colon = 0;
        if (ko_config_whole(*host, colon + 1, 1, KO_LAUNCH_MOST_RANKS, nranks))
            return KOLO_E_INVALID;
    }
    if (bracket) {
        *bracket = 0;
        ++*host;
    }
    return KOLO_OK;
}

static int add_ranks(int *nranks, int count)
{
    *nranks += count;
    if (*nranks <= KO_LAUNCH_MOST_RANKS)
        return KOLO_OK;
    return ko_fail(KOLO_E_INVALID, "it names more than %d ranks, which a machine has at most",
                   KO_LAUNCH_MOST_RANKS);
}

int ko_hosts_list(const char *list, int *nranks)
{
    char *const copy = strdup(list);
    char *next = copy, *host;
    int err = copy ? KOLO_OK : ko_fail(KOLO_E_NOMEM, "no memory for a list of hosts");

    *nranks = 0;
    while (!err && (host = strsep(&next, ","))) {
        int count = 1;

        err = cut_count(&host, &count);
        if (!err)
            err = check_host(host);
        if (!err)
            err = add_ranks(nranks, count);
    }
    free(copy);
    return err;
}

/* "host", "host:4", "host slots=4 max_slots=8"; -1 ranks: none are said. */
static int read_line(char *line, int *nranks)
{
    static const char blank[] = " \t\r\n";
    char *rest = NULL, *host, *word;
    int err;

    line[strcspn(line, "#")] = 0;
    host = strtok_r(line, blank, &rest);
    *nranks = host ? -1 : 0;
    if (!host)
        return KOLO_OK;
    err = cut_count(&host, nranks);
    while (!err && (word = strtok_r(NULL, blank, &rest)))
        if (!strncmp(word, "slots=", 6))
            err = ko_config_whole("slots", word + 6, 1, KO_LAUNCH_MOST_RANKS, nranks);
    return err ? err : check_host(host);
}

static int read_lines(FILE *file, const char *path, int *nranks)
{
    char *line = NULL;
    size_t cap = 0;
    bool is_known = true, is_empty = true;
    int err = KOLO_OK, count;

    *nranks = 0;
    while (!err && getline(&line, &cap, file) >= 0) {
        err = read_line(line, &count);
        is_known = is_known && count >= 0;
        is_empty = is_empty && count == 0;
        if (!err && count > 0)
            err = add_ranks(nranks, count);
    }
    free(line);
    if (!is_known)
        *nranks = 0;
    if (!err && ferror(file))
        return ko_fail(KOLO_E_INVALID, "%s cannot be read: %s", path, strerror(errno));
    if (!err && is_empty)
        return ko_fail(KOLO_E_INVALID, "%s has no host in it", path);
    return err;
}

int ko_hosts_file(const char *path, int *nranks)
{
    FILE *file = fopen(path, "re");
    int err;

    if (!file)
        return ko_fail(KOLO_E_INVALID, "%s: %s", path, strerror(errno));
    err = read_lines(file, path, nranks);
    fclose(file);
    return err;
}
