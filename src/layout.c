/* SPDX-License-Identifier: MIT */
#include "layout.h"

#include "status.h"
#include "transport.h"

#include <string.h>

/* Numbers the hosts; firsts[] gets the lowest rank of each. Returns how many there are. */
static int number_hosts(const char *const machines[], int n, int *host, int *firsts)
{
    int nhosts = 0;

    for (int r = 0; r < n; r++) {
        int h = 0;

        while (h < nhosts && strcmp(machines[firsts[h]], machines[r]) != 0)
            h++;
        if (h == nhosts)
            firsts[nhosts++] = r;
        host[r] = h;
    }
    return nhosts;
}

/* Lists the ranks by host; begins[] has room for one more than there are hosts. */
static void list_ranks(int n, int nhosts, const int *host, int *place, int *begins, int *ranks)
{
    memset(begins, 0, ((size_t)nhosts + 1) * sizeof *begins);
    for (int r = 0; r < n; r++)
        place[r] = begins[host[r] + 1]++; /* for a while: how many the host has */
    for (int h = 0; h < nhosts; h++)
        begins[h + 1] += begins[h];
    for (int r = 0; r < n; r++)
        ranks[begins[host[r]] + place[r]] = r;
}

/* machines[n], or NULL: hosts of per_host ranks each, one behind the other. */
static int make(const char *const machines[], int n, int per_host, struct ko_hosts **hosts_out)
{
    const size_t count = (size_t)n;
    struct ko_hosts *hosts = ko_alloc(sizeof *hosts + (4 * count + 1) * sizeof(int), "a layout");
    int *host, *place, *ranks, *begins;

    if (!hosts)
        return KOLO_E_NOMEM;
    host = (int *)(hosts + 1);
    place = host + n;
    ranks = place + n;
    begins = ranks + n;
    hosts->n = machines ? number_hosts(machines, n, host, begins) : (n - 1) / per_host + 1;
    for (int r = 0; !machines && r < n; r++)
        host[r] = r / per_host;
    list_ranks(n, hosts->n, host, place, begins, ranks);
    hosts->host = host;
    hosts->place = place;
    hosts->ranks = ranks;
    hosts->begins = begins;
    hosts->has_windows = hosts->n < n;
    hosts->least = n;
    hosts->most = 1;
    for (int h = 0; h < hosts->n; h++) {
        const int size = host_size(hosts, h);

        hosts->least = size < hosts->least ? size : hosts->least;
        hosts->most = size > hosts->most ? size : hosts->most;
    }
    *hosts_out = hosts;
    return KOLO_OK;
}

int ko_layout_make(const char *const machines[], int n, struct ko_hosts **hosts)
{
    return make(machines, n, 0, hosts);
}

int ko_layout_even(int n, int per_host, struct ko_hosts **hosts)
{
    return make(NULL, n, per_host, hosts);
}

size_t ko_layout_slice_bytes(const struct ko_hosts *hosts, uint32_t slot_bytes)
{
    const size_t message = ko_message_bytes(slot_bytes);
    const int nranks = hosts->begins[hosts->n];

    if (hosts->has_windows)
        return slot_bytes;
    return nranks == 2 ? message : message / 2;
}
