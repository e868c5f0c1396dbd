/* SPDX-License-Identifier: MIT */
#include "init_method.h"

#include "config.h"
#include "status.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int invalid_method(const char *text)
{
    return ko_fail(KOLO_E_INVALID,
                   "the init method \"%s\" is none of env://, tcp://host:port?rank=R&world_size=N, "
                   "file:///path?rank=R&world_size=N",
                   text);
}

/* rank=R&world_size=N, in any order, and what is PyTorch's. */
static int parse_query(char *query, struct ko_placement *placement)
{
    char *rest = NULL;
    int err = KOLO_OK;

    placement->rank = -1;
    for (char *item = strtok_r(query, "&", &rest); item && !err;
         item = strtok_r(NULL, "&", &rest)) {
        if (!strncmp(item, "rank=", 5))
            err = ko_config_whole("rank", item + 5, 0, INT_MAX, &placement->rank);
        else if (!strncmp(item, "world_size=", 11))
            err = ko_config_whole("world_size", item + 11, 1, KO_MOST_RANKS, &placement->size);
        else if (strncmp(item, "use_libuv=", 10) != 0) /* PyTorch's, of its own server */
            err = ko_fail(KOLO_E_INVALID, "an init method takes rank and world_size, not \"%s\"",
                          item);
    }
    if (!err && (placement->rank < 0 || placement->size < 1 || placement->rank >= placement->size))
        err = ko_fail(KOLO_E_INVALID,
                      "an init method needs rank=R&world_size=N with 0 <= R < N; it has rank %d, "
                      "world_size %d",
                      placement->rank, placement->size);
    return err;
}

/* host:port, perhaps with a "/" behind it; an IPv6 host stands in brackets. */
static int read_address(char *address, struct ko_placement *placement)
{
    char *slash = strchr(address, '/');
    int err;

    if (slash && !slash[1])
        *slash = 0;
    err = ko_address_parse("the port of the init method", address, false, placement->host,
                           &placement->port);

    if (!err)
        placement->meeting = ko_placement_is_agents(environ, placement->host, placement->port)
                                 ? KO_MEET_AGENT
                                 : KO_MEET_RANK0;
    return err;
}

static int read_path(const char *path, struct ko_placement *placement)
{
    const size_t nbytes = strlen(path) + 1;

    if (nbytes > sizeof placement->host)
        return ko_fail(KOLO_E_INVALID, "the path of the init method has more than %zu characters",
                       sizeof placement->host - 1);
    memcpy(placement->host, path, nbytes);
    placement->meeting = KO_MEET_FILE;
    return KOLO_OK;
}

/* tcp://host:port?query or file:///path?query. */
static int read_url(const char *text, struct ko_placement *placement)
{
    char copy[2 * KO_HOST_TEXT];
    bool is_file = !strncmp(text, "file:///", 8);
    char *place = copy + (is_file ? 7 : 6), *query;
    int err;

    if (strlen(text) >= sizeof copy || (!is_file && strncmp(text, "tcp://", 6) != 0))
        return invalid_method(text);
    snprintf(copy, sizeof copy, "%s", text);
    query = strchr(place, '?');
    if (!query || query == place || *place == ':')
        return invalid_method(text);
    *query++ = 0;
    if (is_file ? !place[1] : !strchr(place, ':'))
        return invalid_method(text);
    err = is_file ? read_path(place, placement) : read_address(place, placement);
    if (!err)
        err = parse_query(query, placement);
    if (!err)
        err = ko_placement_attempt(environ, &placement->attempt);
    return err;
}

int ko_init_method_read(const char *text, struct ko_placement *placement)
{
    if (!text || !strcmp(text, "env://"))
        return ko_placement_read(environ, placement);
    *placement = (struct ko_placement){.launcher = "init method",
                                       .local_rank = -1,
                                       .local_size = -1,
                                       .node = -1,
                                       .nnodes = -1,
                                       .pmi_fd = -1};
    return read_url(text, placement);
}
