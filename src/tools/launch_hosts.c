/* SPDX-License-Identifier: MIT */
#include "launch_hosts.h"

#include "config.h"
#include "kolo.h"
#include "socket.h"
#include "status.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_RANKS = 1 << 20 };

/* By name, in full or up to its first dot, or by an address. */
static bool is_this_machine(const char *host)
{
    char own[HOST_NAME_MAX + 1] = "";
    const size_t length = strcspn(host, ".");

    (void)gethostname(own, sizeof own - 1);
    if (!strcmp(host, "localhost") || !strcmp(host, own) ||
        (length == strcspn(own, ".") && !strncmp(host, own, length)))
        return true;
    return !ko_socket_check_address("the host", host);
}

static int check_host(const char *host)
{
    if (!*host)
        return ko_fail(KOLO_E_INVALID, "a host's name is missing");
    if (is_this_machine(host))
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
        if (ko_config_whole(*host, colon + 1, 1, MOST_RANKS, nranks))
            return KOLO_E_INVALID;
    }
    if (bracket) {
        *bracket = 0;
        ++*host;
    }
    return KOLO_OK;
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
        *nranks += count;
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
            err = ko_config_whole("slots", word + 6, 1, MOST_RANKS, nranks);
    return err ? err : check_host(host);
}

static int read_lines(FILE *file, int *nranks)
{
    char *line = NULL;
    size_t cap = 0;
    bool is_known = true;
    int err = KOLO_OK, count;

    *nranks = 0;
    while (!err && getline(&line, &cap, file) >= 0) {
        err = read_line(line, &count);
        is_known = is_known && count >= 0;
        *nranks += count;
    }
    free(line);
    if (!is_known)
        *nranks = 0;
    return err;
}

int ko_hosts_file(const char *path, int *nranks)
{
    FILE *file = fopen(path, "re");
    int err;

    if (!file)
        return ko_fail(KOLO_E_INVALID, "%s: %s", path, strerror(errno));
    err = read_lines(file, nranks);
    fclose(file);
    return err;
}
