/* SPDX-License-Identifier: MIT */
#include "watch.h"

#include "clock.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

bool watch_ends(const struct ko_cuda *cuda, ko_cu_stream stream, int ms)
{
    const ko_deadline deadline = ko_deadline_in(ms);
    ko_cu_result result = cuda->stream_query(stream);

    while (result == KO_CU_NOT_READY && !ko_deadline_passed(&deadline))
        result = cuda->stream_query(stream);
    return result == KO_CU_SUCCESS;
}

/* The double's kernels need the processor that looking takes. */
bool watch_patiently(const struct ko_cuda *cuda, ko_cu_stream stream, int ms)
{
    const ko_deadline deadline = ko_deadline_in(ms);

    while (!watch_ends(cuda, stream, 0) && !ko_deadline_passed(&deadline))
        watch_nap_us(20);
    return watch_ends(cuda, stream, 0);
}

bool watch_or_stop(const struct ko_cuda *cuda, ko_cu_stream stream, int ms, _Atomic uint32_t *stop)
{
    const bool is_in_time = watch_ends(cuda, stream, 1) || watch_patiently(cuda, stream, ms);

    if (!is_in_time)
        atomic_store(stop, 1);
    return !cuda->stream_sync(stream) && is_in_time;
}

double watch_us_since(int64_t began_ns)
{
    return (double)(ko_now_ns() - began_ns) / 1000;
}

void watch_nap_us(long us)
{
    const struct timespec nap = {0, us * 1000};

    nanosleep(&nap, NULL);
}

bool watch_page_make(const struct ko_cuda *cuda, bool is_shared, struct watch_page *page)
{
    void *host = MAP_FAILED;

    if (is_shared)
        host =
            mmap(NULL, WATCH_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    else if (posix_memalign(&host, WATCH_PAGE_BYTES, WATCH_PAGE_BYTES))
        return false;
    if (host == MAP_FAILED ||
        cuda->host_register(host, WATCH_PAGE_BYTES, KO_CU_HOST_PORTABLE | KO_CU_HOST_MAPPED) ||
        cuda->host_address(&page->at, host, 0))
        return false;
    page->host = host;
    memset(host, 0, WATCH_PAGE_BYTES);
    return true;
}
