/* SPDX-License-Identifier: MIT */
#include "coll_gpu_division.h"

enum { LINE_BYTES = 128 };

bool ko_division_suits(enum ko_collective what, const struct ko_hosts *hosts)
{
    switch (what) {
    case KO_ALL_REDUCE:
    case KO_REDUCE_SCATTER:
    case KO_ALL_GATHER:
        return true;
    case KO_REDUCE:
    case KO_BROADCAST:
        return hosts->n == 2;
    default:
        return false;
    }
}

int ko_division_deputy(const struct ko_hosts *hosts, int host, int owner)
{
    return host == hosts->host[owner]
               ? owner
               : rank_at(hosts, host, hosts->place[owner] % host_size(hosts, host));
}

static bool has_blocks(const struct ko_division *division)
{
    return division->what == KO_REDUCE_SCATTER || division->what == KO_ALL_GATHER;
}

static bool has_root(const struct ko_division *division)
{
    return division->what == KO_REDUCE || division->what == KO_BROADCAST;
}

static size_t line_of(const struct ko_division *division)
{
    return has_blocks(division) ? 1 : (size_t)LINE_BYTES >> division->shift;
}

/* Share i of n of the lines. */
static struct ko_part lines_of(const struct ko_division *division, int n, int i)
{
    const size_t line = line_of(division), count = division->count;
    struct ko_part part = chunk_of((count + line - 1) / line, n, i);

    part.at *= line;
    part.count *= line;
    if (part.count && part.at + part.count > count)
        part.count = count - part.at;
    return part;
}

struct ko_part ko_division_block(const struct ko_division *division, int owner)
{
    const struct ko_hosts *hosts = division->hosts;
    const struct ko_part own = {(size_t)owner * division->count, division->count}, none = {0, 0};
    const int host = hosts->host[owner];

    if (has_blocks(division))
        return own;
    if (!has_root(division))
        return lines_of(division, division->n, owner);
    if (host != hosts->host[division->root])
        return none;
    return lines_of(division, host_size(hosts, host), hosts->place[owner]);
}

/* Of them all; the root's host has a longest one, or any. */
static size_t longest(const struct ko_division *division)
{
    size_t most = 0;

    for (int r = 0; r < division->n; r++) {
        const size_t count = ko_division_block(division, r).count;

        most = count > most ? count : most;
    }
    return most;
}

size_t ko_division_piece(const struct ko_division *division, uint64_t nbytes)
{
    const struct ko_hosts *hosts = division->hosts;
    const int nblocks =
        has_root(division) ? host_size(hosts, hosts->host[division->root]) : division->n;
    const size_t line = line_of(division), all = longest(division);
    const size_t lines = (size_t)(nbytes >> division->shift) / (size_t)nblocks / line;
    const size_t most = (lines ? lines : 1) * line;

    return most < all ? most : all;
}

size_t ko_division_npieces(const struct ko_division *division, size_t most)
{
    const size_t all = longest(division);

    return most ? (all + most - 1) / most : 0;
}

struct ko_part ko_division_part(const struct ko_division *division, int owner, size_t most,
                                size_t k)
{
    struct ko_part part = ko_division_block(division, owner);
    const size_t before = k * most < part.count ? k * most : part.count;

    part.at += before;
    part.count -= before;
    if (part.count > most)
        part.count = most;
    return part;
}

bool ko_division_has_result(const struct ko_division *division, int rank, int owner)
{
    switch (division->what) {
    case KO_REDUCE:
        return rank == division->root;
    case KO_BROADCAST:
        return rank != division->root;
    case KO_REDUCE_SCATTER:
        return rank == owner;
    default:
        return true;
    }
}
