/* SPDX-License-Identifier: MIT
 *
 * watch.h: what the programs of tests/gpu need for what may hang: streams that are waited for so
 * long and no longer, and memory in which the host and a GPU talk meanwhile.
 */
#ifndef WATCH_H
#define WATCH_H

#include "cuda_driver.h"

#include <stdbool.h>
#include <stdint.h>

enum { WATCH_MS = 5000, WATCH_PAGE_BYTES = 4096 };

/* True once the stream is idle, false if it is not in time. */
bool watch_ends(const struct ko_cuda *cuda, ko_cu_stream stream, int ms);

/* The same, looked at now and again only. */
bool watch_patiently(const struct ko_cuda *cuda, ko_cu_stream stream, int ms);

/* The same of kernels that end as soon as *stop is not 0, which it becomes if they are late. What
 * takes longer than a millisecond is looked at now and again only. False: they were late, or have
 * failed. */
bool watch_or_stop(const struct ko_cuda *cuda, ko_cu_stream stream, int ms, _Atomic uint32_t *stop);

double watch_us_since(int64_t began_ns);
void watch_nap_us(long us);

/* A page of the host's, all 0, that is the GPU's too, for good; is_shared: that processes forked
 * later have too. False: it cannot be had. */
struct watch_page {
    void *host;
    ko_cu_ptr at; /* the same on the GPU */
};
bool watch_page_make(const struct ko_cuda *cuda, bool is_shared, struct watch_page *page);

#endif
