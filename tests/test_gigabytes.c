/* SPDX-License-Identifier: MIT
 *
 * Calls and messages of more than 4 GiB, whose lengths 32 bits do not hold. Little memory lies
 * behind them: what is sent is zero but for its end, and what comes is written to the same few
 * pages again and again, but for its end.
 */
#include "ranks.h"
#include "sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sys/mman.h>
#include <unistd.h>

/* 4 GiB are no multiple: what is 4 GiB away is something else. */
enum { TILE = (2 << 20) + 3 * 4096, BEHIND = (1 << 20) + 4096, SPARE = 5 };

static const size_t FOUR_GIB = (size_t)1 << 32, LENGTH = ((size_t)1 << 32) + BEHIND - SPARE;

static unsigned char *reserve(void)
{
    unsigned char *bytes = mmap(NULL, FOUR_GIB + BEHIND, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (bytes == MAP_FAILED)
        abort();
    return bytes;
}

/* Zero before 4 GiB, and behind them never. */
static unsigned char content(int rank, size_t i)
{
    return i < FOUR_GIB ? 0 : (unsigned char)(1 + (i - FOUR_GIB + (unsigned)rank * 31) % 101);
}

static unsigned char *make_input(int rank)
{
    unsigned char *bytes = reserve();

    (void)madvise(bytes, FOUR_GIB, MADV_HUGEPAGE); /* of zeros: else to read them takes longer */
    for (size_t i = FOUR_GIB; i < LENGTH; i++)
        bytes[i] = content(rank, i);
    return bytes;
}

/* Before 4 GiB a file of one tile, again and again. */
static unsigned char *make_output(void)
{
    const int file = memfd_create("tile", MFD_CLOEXEC);
    unsigned char *bytes = reserve();

    if (file < 0 || ftruncate(file, TILE))
        abort();
    for (size_t at = 0; at < FOUR_GIB; at += TILE)
        if (mmap(bytes + at, FOUR_GIB - at < TILE ? FOUR_GIB - at : TILE, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
            abort();
    close(file);
    return bytes;
}

/* The sum of what the ranks before `end` have. */
static int check(const unsigned char *out, size_t from, size_t to, int first, int end)
{
    for (size_t i = from; i < to; i++) {
        unsigned char want = 0;

        for (int rank = first; rank < end; rank++)
            want = (unsigned char)(want + content(rank, i));
        if (out[i] != want)
            return ranks_fail("byte %zu of %zu is %d", i, LENGTH, out[i]);
    }
    return 0;
}

static int check_all(const unsigned char *out, int first, int end)
{
    return check(out, 0, TILE, first, end) || check(out, FOUR_GIB, LENGTH, first, end) ||
           (out[LENGTH] ? ranks_fail("the byte behind") : 0);
}

static int reduce(kolo_group *group, const unsigned char *in, unsigned char *out)
{
    if (kolo_reduce(group, in, out, LENGTH, KOLO_UINT8, KOLO_SUM, 1))
        return ranks_fail("reduce");
    return out ? check_all(out, 0, 2) : 0;
}

static int send(kolo_group *group, const unsigned char *in, unsigned char *out)
{
    kolo_message got = {.count = LENGTH};
    int err = out ? kolo_recv_message(group, out, LENGTH + 1, KOLO_UINT8, 0, 3, &got)
                  : kolo_send(group, in, LENGTH, KOLO_UINT8, 1, 3);

    if (err || got.count != LENGTH)
        return ranks_fail("a message of %zu bytes", got.count);
    return out ? check_all(out, 0, 1) : 0;
}

/* Short blocks, of which one lies behind 4 GiB. */
static int gather_far(kolo_group *group, const unsigned char *in, unsigned char *out)
{
    const size_t counts[] = {3000, 4000}, starts[] = {1, FOUR_GIB + 9};
    const kolo_blocks blocks = {counts, starts};
    int err = kolo_gather_v(group, in + FOUR_GIB, counts[out ? 1 : 0], out, &blocks, KOLO_UINT8, 1);

    if (err)
        return ranks_fail("gather_v");
    for (size_t r = 0; r < 2 && out; r++)
        for (size_t i = 0; i < counts[r]; i++)
            if (out[starts[r] + i] != content((int)r, FOUR_GIB + i))
                return ranks_fail("byte %zu of block %zu", i, r);
    return 0;
}

typedef int call(kolo_group *group, const unsigned char *in, unsigned char *out);

/* Rank 1 has what comes out. */
static int call_all(kolo_group *group, void *argument)
{
    call *const *calls = argument;
    unsigned char *in = make_input(kolo_group_rank(group)), *out;
    int failed = 0;

    for (size_t i = 0; calls[i] && !failed; i++) {
        out = kolo_group_rank(group) ? make_output() : NULL;
        failed = calls[i](group, in, out);
        if (out)
            munmap(out, FOUR_GIB + BEHIND);
    }
    munmap(in, FOUR_GIB + BEHIND);
    return failed;
}

static void run(enum ranks_kind kind, const char *transport, call **calls)
{
    const struct ranks ranks = {.kind = kind, .n = 2, .timeout_ms = ranks_lengthen(60000)};

    if (IS_SANITIZED) /* which watches each byte */
        skip();
    setenv("KOLO_TRANSPORT", transport, 1);
    assert_int_equal(ranks_run(&ranks, call_all, calls), 0);
}

static void within_a_host(void **state)
{
    call *calls[] = {gather_far, reduce, send, NULL};

    (void)state;
    run(RANKS_THREADS, "shm", calls);
}

static void over_tcp(void **state)
{
    call *calls[] = {gather_far, send, NULL};

    (void)state;
    run(RANKS_PROCESSES, "tcp", calls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(within_a_host),
        cmocka_unit_test(over_tcp),
    };

    setenv("KOLO_DEBUG", "NONE", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
