/* SPDX-License-Identifier: MIT
 *
 * limits_reads.h: the methods of peer_limits.c that have the system read and write the memory of
 * the other's process.
 */
#ifndef LIMITS_READS_H
#define LIMITS_READS_H

#include "limits_sides.h"
#include "limits_sums.h"

#include <sys/uio.h>

/* What is to be added up is read in pieces that stay in a cache, of 64 KiB or, with WIDE slots, of
 * 256. */
static float piece[4 * CHUNK / sizeof(float)];

static size_t piece_count(void)
{
    return (nslots == WIDE ? sizeof piece : CHUNK) / sizeof *piece;
}

static void read_memory(float *out, const char *from, size_t count)
{
    const struct iovec here = {out, count * sizeof *out};
    const struct iovec there = {(void *)(uintptr_t)from, here.iov_len};

    if (process_vm_readv((pid_t)load(&theirs->process.word), &here, 1, &there, 1, 0) !=
        (ssize_t)here.iov_len)
        peer_die("limits", "the other process's memory cannot be read");
}

static void write_memory(char *to, const float *from, size_t count)
{
    const struct iovec here = {(void *)(uintptr_t)from, count * sizeof *from};
    const struct iovec there = {to, here.iov_len};

    if (process_vm_writev((pid_t)load(&theirs->process.word), &here, 1, &there, 1, 0) !=
        (ssize_t)here.iov_len)
        peer_die("limits", "the other process's memory cannot be written");
}

/* Whether the system permits it, for all that either can tell. */
static int may_read(void)
{
    float first;
    const struct iovec here = {&first, sizeof first};
    struct iovec there = {NULL, sizeof first};

    store(&mine->process.word, (uint64_t)getpid());
    store(&mine->source.word, (uintptr_t)&met);
    meet();
    there.iov_base = (void *)(uintptr_t)load(&theirs->source.word);
    return process_vm_readv((pid_t)load(&theirs->process.word), &here, 1, &there, 1, 0) > 0;
}

static void read_and_add(float *out, const float *own, const char *from, size_t count)
{
    for (size_t at = 0; at < count; at += piece_count()) {
        const size_t n = least(piece_count(), count - at);

        read_memory(piece, from + at * sizeof *out, n);
        combine(out + at, own + at, piece, n);
    }
}

static void reading(const struct transfer *t)
{
    const char *from;

    store(&mine->source.word, (uintptr_t)t->give);
    meet();
    from = (const char *)(uintptr_t)load(&theirs->source.word);
    if (t->ntake && t->own)
        read_and_add(t->take, t->own, from, t->ntake);
    else if (t->ntake)
        read_memory(t->take, from, t->ntake);
    meet();
}

/* Each rank adds up one half, and reads the other where the peer has done so. */
static void read_split(const struct transfer *t)
{
    const size_t half = t->ntake / 2, here = rank ? half : 0, there = rank ? 0 : half;
    const size_t nhere = rank ? t->ntake - half : half, nthere = t->ntake - nhere;
    const char *from;

    store(&mine->source.word, (uintptr_t)t->give);
    store(&mine->result.word, (uintptr_t)t->take);
    meet();
    from = (const char *)(uintptr_t)load(&theirs->source.word);
    read_and_add(t->take + here, t->own + here, from + here * sizeof(float), nhere);
    meet();
    from = (const char *)(uintptr_t)load(&theirs->result.word);
    read_memory(t->take + there, from + there * sizeof(float), nthere);
    meet();
}

/* The giver's buffer or the taker's is what the other copies from or to. */
static void both(const struct transfer *t)
{
    const size_t count = t->ngive ? t->ngive : t->ntake, half = count / 2;
    char *there;

    store(&mine->source.word, t->ngive ? (uintptr_t)t->give : (uintptr_t)t->take);
    meet();
    there = (char *)(uintptr_t)load(&theirs->source.word);
    if (t->ntake)
        read_memory(t->take, there, half);
    else
        write_memory(there + half * sizeof(float), t->give + half, count - half);
    meet();
}

#endif
