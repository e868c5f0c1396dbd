/* SPDX-License-Identifier: MIT */
#include "gpu_passage.h"

#include "exam.h"
#include "gpu_double.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { STALE = 0x5a };

int gpu_passage_rank;
int (*gpu_passage_settle)(int rank, void *argument);

static unsigned char value(int from, unsigned key, size_t i)
{
    return (unsigned char)(i * 13 + (i >> 8) + (unsigned)from * 101 + key * 7);
}

struct gpu_area gpu_area_new(size_t nbytes, bool is_on_gpu)
{
    struct gpu_area area = {.nbytes = nbytes, .is_on_gpu = is_on_gpu};
    ko_cu_ptr memory;

    if (!is_on_gpu)
        area.at = malloc(nbytes);
    else if (!gpu_rank_alloc(&memory, nbytes))
        abort();
    else
        area.at = (unsigned char *)(uintptr_t)memory;
    return area;
}

void gpu_area_free(struct gpu_area *area)
{
    if (area->is_on_gpu && !gpu_rank_free((uintptr_t)area->at, area->nbytes))
        abort();
    if (!area->is_on_gpu)
        free(area->at);
}

static void copy(void *to, const void *from, size_t nbytes)
{
    if (gpu_rank.cuda->copy((uintptr_t)to, (uintptr_t)from, nbytes, gpu_rank.stream) ||
        gpu_rank.cuda->stream_sync(gpu_rank.stream))
        abort();
}

void gpu_area_fill(const struct gpu_area *area, size_t offset, size_t nbytes, int from,
                   unsigned key)
{
    unsigned char *host = malloc(area->nbytes);

    memset(host, STALE, area->nbytes);
    for (size_t i = 0; i < nbytes; i++)
        host[offset + i] = value(from, key, i);
    copy(area->at, host, area->nbytes);
    free(host);
}

int gpu_area_check(const struct gpu_area *area, size_t offset, size_t nbytes, int from,
                   unsigned key)
{
    unsigned char *host = malloc(area->nbytes);
    int failed = 0;

    copy(host, area->at, area->nbytes);
    for (size_t i = 0; i < area->nbytes && !failed; i++) {
        const unsigned char wanted =
            i >= offset && i < offset + nbytes ? value(from, key, i - offset) : STALE;

        if (host[i] != wanted)
            failed = ranks_fail("byte %zu of %zu at %zu is %u, not %u", i, nbytes, offset, host[i],
                                wanted);
    }
    free(host);
    return failed;
}

/* ---- what the doubles have counted ----------------------------------------------------------- */

static void *find(const char *name)
{
    void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *function = library ? dlsym(library, name) : NULL;

    if (!function)
        abort();
    dlclose(library);
    return function;
}

int gpu_passage_dmabufs(bool ever)
{
    int (*count)(void);

    *(void **)&count = find(ever ? "fakeverbs_dmabufs_ever" : "fakeverbs_dmabufs");
    return count();
}

int gpu_passage_flushes(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    int (*count)(void);

    *(void **)&count = dlsym(library, "fakecuda_flushes");
    dlclose(library);
    return count();
}

/* ---- runs ------------------------------------------------------------------------------------ */

int gpu_passage_enter(kolo_group *group)
{
    int failed = gpu_rank_enter(group);

    gpu_passage_rank = kolo_group_rank(group);
    return failed || ranks_exchange(group);
}

static int settle(int number, void *argument)
{
    setenv("KOLO_HOST", number % 2 ? "north" : "south", 1);
    return gpu_passage_settle ? gpu_passage_settle(number, argument) : 0;
}

void gpu_passage_run(ranks_body body, int timeout_ms, int tolerated)
{
    const struct ranks ranks = {.kind = RANKS_PROCESSES,
                                .n = 2,
                                .timeout_ms = timeout_ms,
                                .tolerated = tolerated,
                                .settle = settle};

    exam_set_variables("rdma", "", GPU_PASSAGE_SLICE);
    assert_int_equal(ranks_run(&ranks, body, NULL), 0);
}

static int say_warnings(int number, void *argument)
{
    (void)number;
    (void)argument;
    return setenv("KOLO_DEBUG", "WARN", 1);
}

void gpu_passage_run_warned(ranks_body body, char *text, size_t cap)
{
    char path[] = "/tmp/test-rdma-XXXXXX";
    const int fd = mkstemp(path);
    ssize_t nbytes;

    assert_true(fd >= 0);
    setenv("KOLO_DEBUG_FILE", path, 1);
    gpu_passage_settle = say_warnings;
    gpu_passage_run(body, 0, 0);
    gpu_passage_settle = NULL;
    unsetenv("KOLO_DEBUG_FILE");
    nbytes = read(fd, text, cap - 1);
    close(fd);
    unlink(path);
    assert_true(nbytes > 0);
    text[nbytes] = 0;
}

/* ---- messages -------------------------------------------------------------------------------- */

static int send_it(kolo_group *group, const struct gpu_passage *passage, unsigned char *at)
{
    kolo_work *work;
    int err;

    if (!passage->is_async)
        return kolo_send(group, at, passage->nbytes, KOLO_INT8, !gpu_passage_rank, 3);
    err = kolo_isend(group, at, passage->nbytes, KOLO_INT8, !gpu_passage_rank, 3, &work);
    if (!err)
        err = kolo_work_wait(work, -1);
    kolo_work_free(work);
    return err;
}

static int receive_it(kolo_group *group, const struct gpu_passage *passage, unsigned char *at)
{
    kolo_message message;
    kolo_work *work;
    int err;

    if (!passage->is_async)
        return kolo_recv(group, at, passage->nbytes, KOLO_INT8, !gpu_passage_rank, 3);
    err = kolo_irecv_message(group, at, passage->nbytes + 5, KOLO_INT8, !gpu_passage_rank, 3,
                             &message, &work);
    if (!err)
        err = kolo_work_wait(work, -1);
    kolo_work_free(work);
    return err || message.count == passage->nbytes ? err : KOLO_E_INTERNAL;
}

int gpu_pass(kolo_group *group, const struct gpu_passage *passage, const struct gpu_area *area,
             uint64_t *with_host)
{
    const bool is_sender = gpu_passage_rank == passage->from;
    const size_t offset = is_sender ? passage->out_at : passage->in_at;
    struct gpu_bytes before;
    int err;

    gpu_area_fill(area, offset, is_sender ? passage->nbytes : 0, gpu_passage_rank, passage->key);
    before = gpu_bytes_now();
    err = is_sender ? send_it(group, passage, area->at + offset)
                    : receive_it(group, passage, area->at + offset);
    *with_host = gpu_bytes_since(before).with_host;
    if (err)
        return ranks_fail("a message of %zu", passage->nbytes);
    return gpu_area_check(area, offset, passage->nbytes, passage->from, passage->key);
}

int gpu_pass_best(kolo_group *group, const struct gpu_passage *passage, const struct gpu_area *area,
                  uint64_t *with_host, int *nflushes)
{
    int failed = 0;

    *with_host = UINT64_MAX;
    for (int i = 0; i < 4 && !failed; i++) {
        const int before = gpu_passage_flushes();
        uint64_t some;

        failed = gpu_pass(group, passage, area, &some);
        if (some < *with_host) {
            *with_host = some;
            *nflushes = gpu_passage_flushes() - before;
        }
    }
    return failed;
}
