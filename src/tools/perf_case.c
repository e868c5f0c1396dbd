/* SPDX-License-Identifier: MIT
 *
 * Bandwidths follow the rules of nccl-tests: the algorithm's is the larger buffer over the time,
 * the bus's that times a factor that makes it comparable with the speed of a link.
 */
#include "perf_case.h"

#include "perf.h"
#include "perf_data.h"

#include <string.h>

enum { STREAM_MESSAGES = 64, STREAM_BYTES = 64 << 20, TAG = 7, TAG_BACK = 8 };

/* ---- collectives ------------------------------------------------------------------------- */

static int all_reduce(const struct ko_perf_call *c, kolo_work **work)
{
    return work ? kolo_all_reduce_async(c->group, c->in, c->out, c->count, c->dtype, c->op, work)
                : kolo_all_reduce(c->group, c->in, c->out, c->count, c->dtype, c->op);
}

static int reduce(const struct ko_perf_call *c, kolo_work **work)
{
    return work ? kolo_reduce_async(c->group, c->in, c->out, c->count, c->dtype, c->op, c->root,
                                    work)
                : kolo_reduce(c->group, c->in, c->out, c->count, c->dtype, c->op, c->root);
}

static int broadcast(const struct ko_perf_call *c, kolo_work **work)
{
    return work ? kolo_broadcast_async(c->group, c->out, c->count, c->dtype, c->root, work)
                : kolo_broadcast(c->group, c->out, c->count, c->dtype, c->root);
}

static int all_gather(const struct ko_perf_call *c, kolo_work **work)
{
    return work ? kolo_all_gather_async(c->group, c->in, c->out, c->count, c->dtype, work)
                : kolo_all_gather(c->group, c->in, c->out, c->count, c->dtype);
}

static int reduce_scatter(const struct ko_perf_call *c, kolo_work **work)
{
    return work
               ? kolo_reduce_scatter_async(c->group, c->in, c->out, c->count, c->dtype, c->op, work)
               : kolo_reduce_scatter(c->group, c->in, c->out, c->count, c->dtype, c->op);
}

static int gather(const struct ko_perf_call *c, kolo_work **work)
{
    return work ? kolo_gather_async(c->group, c->in, c->out, c->count, c->dtype, c->root, work)
                : kolo_gather(c->group, c->in, c->out, c->count, c->dtype, c->root);
}

static int scatter(const struct ko_perf_call *c, kolo_work **work)
{
    return work ? kolo_scatter_async(c->group, c->in, c->out, c->count, c->dtype, c->root, work)
                : kolo_scatter(c->group, c->in, c->out, c->count, c->dtype, c->root);
}

static int all_to_all(const struct ko_perf_call *c, kolo_work **work)
{
    return work ? kolo_all_to_all_async(c->group, c->in, c->out, c->count, c->dtype, work)
                : kolo_all_to_all(c->group, c->in, c->out, c->count, c->dtype);
}

static int barrier(const struct ko_perf_call *c, kolo_work **work)
{
    return work ? kolo_barrier_async(c->group, work) : kolo_barrier(c->group);
}

/* ---- messages ---------------------------------------------------------------------------- */

/* To the next rank of the circle, from the one before. */
static int sendrecv(const struct ko_perf_call *c, kolo_work **work)
{
    const kolo_p2p ops[2] = {
        {1, (c->rank + 1) % c->nranks, TAG, c->dtype, c->count, c->in},
        {0, (c->rank + c->nranks - 1) % c->nranks, TAG, c->dtype, c->count, c->out}};

    (void)work;
    return kolo_batch(c->group, ops, 2);
}

/* From rank 0 to rank 1 and back. */
static int ping_pong(const struct ko_perf_call *c, kolo_work **work)
{
    int other = 1 - c->rank, err = KOLO_OK;

    (void)work;
    if (other < 0)
        return KOLO_OK;
    if (c->rank == 0)
        err = kolo_send(c->group, c->in, c->count, c->dtype, other, TAG);
    if (!err)
        err = kolo_recv(c->group, c->out, c->count, c->dtype, other, TAG);
    if (!err && c->rank == 1)
        err = kolo_send(c->group, c->in, c->count, c->dtype, other, TAG);
    return err;
}

/* Messages of nbytes that are under way at once. */
static int stream_length(size_t nbytes)
{
    size_t fit = nbytes ? STREAM_BYTES / nbytes : STREAM_MESSAGES;

    return fit < 1 ? 1 : fit > STREAM_MESSAGES ? STREAM_MESSAGES : (int)fit;
}

/* A stream's messages from rank 0 to rank 1, and one element back. */
static int one_way(const struct ko_perf_call *c, kolo_work **work)
{
    int messages = stream_length(c->count * kolo_dtype_size(c->dtype));
    const kolo_p2p message = {c->rank == 0, 1 - c->rank, TAG,
                              c->dtype,     c->count,    c->rank == 0 ? c->in : c->out};
    kolo_p2p ops[STREAM_MESSAGES];
    uint8_t last = 0;
    int err;

    (void)work;
    if (c->rank > 1)
        return KOLO_OK;
    for (int i = 0; i < messages; i++)
        ops[i] = message;
    err = kolo_batch(c->group, ops, (size_t)messages);
    if (err)
        return err;
    return c->rank == 0 ? kolo_recv(c->group, &last, 1, KOLO_UINT8, 1, TAG_BACK)
                        : kolo_send(c->group, &last, 1, KOLO_UINT8, 0, TAG_BACK);
}

/* ---- what is right ----------------------------------------------------------------------- */

static struct ko_perf_outcome nothing(const struct ko_perf_call *c)
{
    (void)c;
    return (struct ko_perf_outcome){KO_PERF_NOTHING, 0, 0};
}

static struct ko_perf_outcome sum(const struct ko_perf_call *c)
{
    (void)c;
    return (struct ko_perf_outcome){KO_PERF_REDUCED, 1, 0};
}

static struct ko_perf_outcome sum_at_root(const struct ko_perf_call *c)
{
    return c->rank == c->root ? sum(c) : nothing(c);
}

static struct ko_perf_outcome part_of_sum(const struct ko_perf_call *c)
{
    return (struct ko_perf_outcome){KO_PERF_REDUCED, 1, (size_t)c->rank * c->count};
}

static struct ko_perf_outcome of_root(const struct ko_perf_call *c)
{
    return (struct ko_perf_outcome){c->root, 1, 0};
}

static struct ko_perf_outcome part_of_root(const struct ko_perf_call *c)
{
    return (struct ko_perf_outcome){c->root, 1, (size_t)c->rank * c->count};
}

static struct ko_perf_outcome of_each(const struct ko_perf_call *c)
{
    return (struct ko_perf_outcome){0, c->nranks, 0};
}

static struct ko_perf_outcome of_each_at_root(const struct ko_perf_call *c)
{
    return c->rank == c->root ? of_each(c) : nothing(c);
}

static struct ko_perf_outcome part_of_each(const struct ko_perf_call *c)
{
    return (struct ko_perf_outcome){0, c->nranks, (size_t)c->rank * c->count};
}

static struct ko_perf_outcome of_previous(const struct ko_perf_call *c)
{
    return (struct ko_perf_outcome){(c->rank + c->nranks - 1) % c->nranks, 1, 0};
}

static struct ko_perf_outcome of_other(const struct ko_perf_call *c)
{
    return c->rank > 1 ? nothing(c) : (struct ko_perf_outcome){1 - c->rank, 1, 0};
}

static struct ko_perf_outcome of_sender(const struct ko_perf_call *c)
{
    return c->rank != 1 ? nothing(c) : (struct ko_perf_outcome){0, 1, 0};
}

/* ---- the table --------------------------------------------------------------------------- */

enum {
    MESSAGE = KO_PERF_IS_MESSAGE | KO_PERF_NO_IN,
    IN = KO_PERF_BLOCKS_IN,
    OUT = KO_PERF_BLOCKS_OUT,
    REDUCES = KO_PERF_REDUCES,
    ROOT = KO_PERF_HAS_ROOT
};

static const struct ko_perf_case cases[] = {
    {"all_reduce", REDUCES, 1, all_reduce, sum},
    {"reduce", REDUCES | ROOT, 1, reduce, sum_at_root},
    {"broadcast", ROOT | KO_PERF_NO_OUT, 1, broadcast, of_root},
    {"all_gather", OUT, 1, all_gather, of_each},
    {"reduce_scatter", REDUCES | IN, 1, reduce_scatter, part_of_sum},
    {"gather", ROOT | OUT, 1, gather, of_each_at_root},
    {"scatter", ROOT | IN, 1, scatter, part_of_root},
    {"all_to_all", IN | OUT | KO_PERF_NO_IN, 1, all_to_all, part_of_each},
    {"barrier", KO_PERF_NO_IN | KO_PERF_IS_EMPTY, 1, barrier, nothing},
    {"sendrecv", MESSAGE, 1, sendrecv, of_previous},
    {"ping_pong", MESSAGE, 2, ping_pong, of_other},
    {"one_way", MESSAGE, 2, one_way, of_sender},
};

const struct ko_perf_case *ko_perf_cases(int *count)
{
    *count = sizeof cases / sizeof *cases;
    return cases;
}

static size_t blocks(const struct ko_perf_case *row, int nranks)
{
    return row->flags & (KO_PERF_BLOCKS_IN | KO_PERF_BLOCKS_OUT) ? (size_t)nranks : 1;
}

size_t ko_perf_case_count(const struct ko_perf_case *row, size_t nbytes, kolo_dtype dtype,
                          int nranks)
{
    return row->flags & KO_PERF_IS_EMPTY ? 0
                                         : nbytes / kolo_dtype_size(dtype) / blocks(row, nranks);
}

size_t ko_perf_case_bytes(const struct ko_perf_case *row, size_t count, kolo_dtype dtype,
                          int nranks)
{
    return count * kolo_dtype_size(dtype) * blocks(row, nranks);
}

double ko_perf_case_factor(const struct ko_perf_case *row, int nranks)
{
    double others = (double)(nranks - 1) / nranks;

    if (row->run == all_reduce)
        return 2 * others;
    return row->flags & (KO_PERF_BLOCKS_IN | KO_PERF_BLOCKS_OUT) ? others : 1;
}

int ko_perf_case_parts(const struct ko_perf_case *row, size_t nbytes)
{
    return row->run == one_way ? stream_length(nbytes) : row->run == ping_pong ? 2 : 1;
}

void ko_perf_case_place(const struct ko_perf_case *row, int form, void *a, void *b,
                        struct ko_perf_call *call)
{
    size_t own = (size_t)call->rank * call->count * kolo_dtype_size(call->dtype);
    bool blocks_in = row->flags & KO_PERF_BLOCKS_IN, blocks_out = row->flags & KO_PERF_BLOCKS_OUT;

    call->in = a;
    call->out = b;
    if (form == KO_PERF_OUT_OF_PLACE)
        return;
    if (blocks_in && !blocks_out)
        call->out = (char *)a + own;
    else
        call->in = (char *)b + (blocks_out && !blocks_in ? own : 0);
}

bool ko_perf_case_repeats(const struct ko_perf_case *row, int form)
{
    return form == KO_PERF_OUT_OF_PLACE || !(row->flags & KO_PERF_REDUCES);
}
