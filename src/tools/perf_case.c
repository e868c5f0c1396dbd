/* SPDX-License-Identifier: MIT
 *
 * Bandwidths follow the rules of nccl-tests: the algorithm's is the larger buffer over the time,
 * the bus's that times a factor that makes it comparable with the speed of a link.
 */
#include "perf_case.h"

#include "perf.h"
#include "perf_data.h"

#include <string.h>

enum { STREAM_MESSAGES = 64, STREAM_BYTES = 64 << 20, TAG_BACK = 8 };
enum { TAG = KO_PERF_TAG };

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

/* ---- collectives of blocks of different lengths ------------------------------------------ */

static int all_gather_v(const struct ko_perf_call *c, kolo_work **work)
{
    const kolo_blocks blocks = {c->lengths, c->starts};

    return work ? kolo_all_gather_v_async(c->group, c->in, c->out, &blocks, c->dtype, work)
                : kolo_all_gather_v(c->group, c->in, c->out, &blocks, c->dtype);
}

static int reduce_scatter_v(const struct ko_perf_call *c, kolo_work **work)
{
    const kolo_blocks blocks = {c->lengths, c->starts};

    return work ? kolo_reduce_scatter_v_async(c->group, c->in, &blocks, c->out, c->dtype, c->op,
                                              work)
                : kolo_reduce_scatter_v(c->group, c->in, &blocks, c->out, c->dtype, c->op);
}

static int gather_v(const struct ko_perf_call *c, kolo_work **work)
{
    const kolo_blocks blocks = {c->lengths, c->starts};
    const size_t count = c->lengths[c->rank];

    return work ? kolo_gather_v_async(c->group, c->in, count, c->out, &blocks, c->dtype, c->root,
                                      work)
                : kolo_gather_v(c->group, c->in, count, c->out, &blocks, c->dtype, c->root);
}

static int scatter_v(const struct ko_perf_call *c, kolo_work **work)
{
    const kolo_blocks blocks = {c->lengths, c->starts};
    const size_t count = c->lengths[c->rank];

    return work ? kolo_scatter_v_async(c->group, c->in, &blocks, c->out, count, c->dtype, c->root,
                                       work)
                : kolo_scatter_v(c->group, c->in, &blocks, c->out, count, c->dtype, c->root);
}

/* What a rank sends to another is as long as what it gets from there. */
static int all_to_all_v(const struct ko_perf_call *c, kolo_work **work)
{
    const kolo_blocks blocks = {c->lengths, c->starts};

    return work ? kolo_all_to_all_v_async(c->group, c->in, &blocks, c->out, &blocks, c->dtype, work)
                : kolo_all_to_all_v(c->group, c->in, &blocks, c->out, &blocks, c->dtype);
}

/* ---- collectives of several tensors ------------------------------------------------------ */

static int all_reduce_coalesced(const struct ko_perf_call *c, kolo_work **work)
{
    const size_t n = (size_t)c->ntensors;

    return work ? kolo_all_reduce_coalesced_async(c->group, c->tensors, n, c->dtype, c->op, work)
                : kolo_all_reduce_coalesced(c->group, c->tensors, n, c->dtype, c->op);
}

static int reduce_coalesced(const struct ko_perf_call *c, kolo_work **work)
{
    const size_t n = (size_t)c->ntensors;

    return work ? kolo_reduce_coalesced_async(c->group, c->tensors, n, c->dtype, c->op, c->root,
                                              work)
                : kolo_reduce_coalesced(c->group, c->tensors, n, c->dtype, c->op, c->root);
}

static int broadcast_coalesced(const struct ko_perf_call *c, kolo_work **work)
{
    const size_t n = (size_t)c->ntensors;

    return work ? kolo_broadcast_coalesced_async(c->group, c->tensors, n, c->dtype, c->root, work)
                : kolo_broadcast_coalesced(c->group, c->tensors, n, c->dtype, c->root);
}

static int all_gather_coalesced(const struct ko_perf_call *c, kolo_work **work)
{
    const size_t n = (size_t)c->ntensors;

    return work ? kolo_all_gather_coalesced_async(c->group, c->tensors, n, c->dtype, work)
                : kolo_all_gather_coalesced(c->group, c->tensors, n, c->dtype);
}

static int reduce_scatter_coalesced(const struct ko_perf_call *c, kolo_work **work)
{
    const size_t n = (size_t)c->ntensors;

    return work
               ? kolo_reduce_scatter_coalesced_async(c->group, c->tensors, n, c->dtype, c->op, work)
               : kolo_reduce_scatter_coalesced(c->group, c->tensors, n, c->dtype, c->op);
}

/* ---- messages ---------------------------------------------------------------------------- */

/* To the next rank of the circle, from the one before. */
static int sendrecv(const struct ko_perf_call *c, kolo_work **work)
{
    const int next = (c->rank + 1) % c->nranks, last = (c->rank + c->nranks - 1) % c->nranks;

    return work ? kolo_sendrecv_async(c->group, c->in, c->count, next, c->out, c->count, last,
                                      c->dtype, TAG, work)
                : kolo_sendrecv(c->group, c->in, c->count, next, c->out, c->count, last, c->dtype,
                                TAG);
}

/* A block to each rank and one from each. */
static int batch(const struct ko_perf_call *c, kolo_work **work)
{
    const size_t n = 2 * (size_t)c->nranks;

    return work ? kolo_batch_async(c->group, c->messages, n, work)
                : kolo_batch(c->group, c->messages, n);
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
    const kolo_p2p message = {
        c->rank == 0, 1 - c->rank, TAG, c->dtype, c->count, c->rank == 0 ? c->in : c->out, NULL};
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

static int nobody(const struct ko_perf_call *c, int block)
{
    (void)c, (void)block;
    return KO_PERF_NOTHING;
}

static int all(const struct ko_perf_call *c, int block)
{
    (void)c, (void)block;
    return KO_PERF_REDUCED;
}

static int all_at_root(const struct ko_perf_call *c, int block)
{
    return c->rank == c->root ? all(c, block) : KO_PERF_NOTHING;
}

static int root(const struct ko_perf_call *c, int block)
{
    (void)block;
    return c->root;
}

static int each(const struct ko_perf_call *c, int block)
{
    (void)c;
    return block;
}

static int each_at_root(const struct ko_perf_call *c, int block)
{
    return c->rank == c->root ? block : KO_PERF_NOTHING;
}

static int previous(const struct ko_perf_call *c, int block)
{
    (void)block;
    return (c->rank + c->nranks - 1) % c->nranks;
}

static int other(const struct ko_perf_call *c, int block)
{
    (void)block;
    return c->rank > 1 ? KO_PERF_NOTHING : 1 - c->rank;
}

static int sender(const struct ko_perf_call *c, int block)
{
    (void)block;
    return c->rank == 1 ? 0 : KO_PERF_NOTHING;
}

/* ---- the table --------------------------------------------------------------------------- */

enum {
    MESSAGE = KO_PERF_NO_IN,
    PAIR = KO_PERF_IS_PAIR | MESSAGE,
    IN = KO_PERF_BLOCKS_IN,
    OUT = KO_PERF_BLOCKS_OUT,
    REDUCES = KO_PERF_REDUCES,
    ROOT = KO_PERF_HAS_ROOT,
    UNEVEN = KO_PERF_UNEVEN,
    TENSORS = KO_PERF_TENSORS
};

static const struct ko_perf_case cases[] = {
    {"all_reduce", REDUCES, 1, all_reduce, all},
    {"reduce", REDUCES | ROOT, 1, reduce, all_at_root},
    {"broadcast", ROOT | KO_PERF_NO_OUT, 1, broadcast, root},
    {"all_gather", OUT, 1, all_gather, each},
    {"reduce_scatter", REDUCES | IN, 1, reduce_scatter, all},
    {"gather", ROOT | OUT, 1, gather, each_at_root},
    {"scatter", ROOT | IN, 1, scatter, root},
    {"all_to_all", IN | OUT | KO_PERF_NO_IN, 1, all_to_all, each},
    {"barrier", KO_PERF_NO_IN | KO_PERF_IS_EMPTY, 1, barrier, nobody},
    {"all_gather_v", OUT | UNEVEN, 1, all_gather_v, each},
    {"reduce_scatter_v", REDUCES | IN | UNEVEN, 1, reduce_scatter_v, all},
    {"gather_v", ROOT | OUT | UNEVEN, 1, gather_v, each_at_root},
    {"scatter_v", ROOT | IN | UNEVEN, 1, scatter_v, root},
    {"all_to_all_v", IN | OUT | UNEVEN | KO_PERF_NO_IN, 1, all_to_all_v, each},
    {"all_reduce_coalesced", REDUCES | TENSORS, 1, all_reduce_coalesced, all},
    {"reduce_coalesced", REDUCES | ROOT | TENSORS, 1, reduce_coalesced, all_at_root},
    {"broadcast_coalesced", ROOT | TENSORS | KO_PERF_NO_OUT, 1, broadcast_coalesced, root},
    {"all_gather_coalesced", OUT | TENSORS, 1, all_gather_coalesced, each},
    {"reduce_scatter_coalesced", REDUCES | IN | TENSORS, 1, reduce_scatter_coalesced, all},
    {"sendrecv", MESSAGE, 1, sendrecv, previous},
    {"batch", IN | OUT | MESSAGE, 1, batch, each},
    {"ping_pong", PAIR, 2, ping_pong, other},
    {"one_way", PAIR | KO_PERF_BY_HOST, 2, one_way, sender},
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

    if (row->run == all_reduce || row->run == all_reduce_coalesced)
        return 2 * others;
    return row->flags & (KO_PERF_BLOCKS_IN | KO_PERF_BLOCKS_OUT) ? others : 1;
}

int ko_perf_case_parts(const struct ko_perf_case *row, size_t nbytes)
{
    return row->run == one_way ? stream_length(nbytes) : row->run == ping_pong ? 2 : 1;
}

bool ko_perf_case_repeats(const struct ko_perf_case *row, int form)
{
    return form == KO_PERF_OUT_OF_PLACE || !(row->flags & KO_PERF_REDUCES);
}
