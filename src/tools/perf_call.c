/* SPDX-License-Identifier: MIT
 *
 * Where the elements of a call are. The input of a rank is one run of numbered elements, cut into
 * tensors and these into blocks; an output is made of pieces of inputs.
 */
#include "perf.h"
#include "perf_case.h"
#include "status.h"

/* ---- blocks ------------------------------------------------------------------------------ */

/* Of uneven blocks, `at` being where each stands in the row of all lengths: of two neighbours the
 * first has half of count, the second the rest of both. */
static size_t uneven_length(size_t count, int n, int at)
{
    if (at % 2)
        return 2 * count - count / 2;
    return at + 1 < n ? count / 2 : count;
}

/* Of a rank's block, with count for each on average. From a rank to a rank goes as much as back;
 * else all ranks' blocks are the same. */
static size_t length(const struct ko_perf_case *row, int n, size_t count, int rank, int block)
{
    const unsigned both = KO_PERF_BLOCKS_IN | KO_PERF_BLOCKS_OUT;

    if (!(row->flags & KO_PERF_UNEVEN))
        return count;
    return uneven_length(count, n, (row->flags & both) == both ? (rank + block) % n : block);
}

static size_t start(const struct ko_perf_case *row, int n, size_t count, int rank, int block)
{
    size_t sum = 0;

    if (!(row->flags & KO_PERF_UNEVEN))
        return (size_t)block * count;
    for (int b = 0; b < block; b++)
        sum += length(row, n, count, rank, b);
    return sum;
}

int ko_perf_call_blocks(const struct ko_perf_case *row, const struct ko_perf_call *call)
{
    return row->flags & KO_PERF_BLOCKS_OUT ? call->nranks : 1;
}

/* ---- tensors ----------------------------------------------------------------------------- */

/* Elements of the tensors before tensor t, of one block. */
static size_t before(const struct ko_perf_call *call, int t)
{
    const size_t n = (size_t)call->ntensors, each = call->count / n, rest = call->count % n;

    return (size_t)t * each + ((size_t)t < rest ? (size_t)t : rest);
}

/* The number of the first element of a tensor's input. */
static size_t first(const struct ko_perf_case *row, const struct ko_perf_call *call, int t)
{
    return before(call, t) * (row->flags & KO_PERF_BLOCKS_IN ? (size_t)call->nranks : 1);
}

struct ko_perf_piece ko_perf_call_in(const struct ko_perf_case *row,
                                     const struct ko_perf_call *call, int tensor)
{
    const kolo_tensor *mine = &call->tensors[tensor];
    struct ko_perf_piece piece = {.at = (void *)(uintptr_t)mine->in,
                                  .from = first(row, call, tensor)};

    piece.count = row->flags & KO_PERF_BLOCKS_IN
                      ? mine->count * (size_t)call->nranks
                      : length(row, call->nranks, mine->count, call->rank, call->rank);
    return piece;
}

struct ko_perf_piece ko_perf_call_out(const struct ko_perf_case *row,
                                      const struct ko_perf_call *call, int tensor, int block)
{
    const kolo_tensor *mine = &call->tensors[tensor];
    const int n = call->nranks, source = row->source(call, block);
    const bool blocks_in = row->flags & KO_PERF_BLOCKS_IN;
    const bool blocks_out = row->flags & KO_PERF_BLOCKS_OUT;
    const size_t at = blocks_out ? start(row, n, mine->count, call->rank, block) : 0;
    struct ko_perf_piece piece = {.at = (char *)mine->out + at * kolo_dtype_size(call->dtype),
                                  .from = first(row, call, tensor)};

    piece.count = length(row, n, mine->count, call->rank, blocks_out ? block : call->rank);
    if (blocks_in)
        piece.from += start(row, n, mine->count, source, call->rank);
    return piece;
}

/* ---- calls ------------------------------------------------------------------------------- */

int ko_perf_call_open(struct ko_perf_call *call, kolo_group *group, const struct ko_perf_case *row,
                      int ntensors)
{
    const int n = kolo_group_size(group), takes = row->flags & KO_PERF_TENSORS ? ntensors : 1;
    struct ko_perf_call opened = {
        .group = group, .rank = kolo_group_rank(group), .nranks = n, .ntensors = takes};

    opened.tensors = ko_alloc((size_t)takes * sizeof *opened.tensors, "a list of tensors");
    opened.lengths = ko_alloc((size_t)n * sizeof *opened.lengths, "blocks");
    opened.starts = ko_alloc((size_t)n * sizeof *opened.starts, "blocks");
    opened.messages = ko_alloc(2 * (size_t)n * sizeof *opened.messages, "messages");
    if (!opened.tensors || !opened.lengths || !opened.starts || !opened.messages) {
        ko_perf_call_close(&opened);
        return KOLO_E_NOMEM;
    }
    *call = opened;
    return KOLO_OK;
}

void ko_perf_call_close(struct ko_perf_call *call)
{
    kolo_free(call->tensors);
    kolo_free(call->lengths);
    kolo_free(call->starts);
    kolo_free(call->messages);
}

static void place_tensor(const struct ko_perf_case *row, int form, struct ko_perf_call *call, int t)
{
    const size_t nbytes = kolo_dtype_size(call->dtype), at = before(call, t) * nbytes;
    const size_t n = (size_t)call->nranks, count = before(call, t + 1) - before(call, t);
    const bool blocks_in = row->flags & KO_PERF_BLOCKS_IN;
    const bool blocks_out = row->flags & KO_PERF_BLOCKS_OUT;
    const size_t own = start(row, call->nranks, count, call->rank, call->rank) * nbytes;
    char *in = (char *)call->in + at * (blocks_in ? n : 1);
    char *out = (char *)call->out + at * (blocks_out ? n : 1);

    if (form == KO_PERF_IN_PLACE && blocks_in)
        out = in + (blocks_out ? 0 : own);
    else if (form == KO_PERF_IN_PLACE)
        in = out + (blocks_out ? own : 0);
    call->tensors[t] = (kolo_tensor){.in = in, .out = out, .count = count};
}

void ko_perf_call_place(const struct ko_perf_case *row, int form, void *a, void *b,
                        struct ko_perf_call *call)
{
    call->in = a;
    call->out = b;
    for (int t = 0; t < call->ntensors; t++)
        place_tensor(row, form, call, t);
    call->in = (void *)(uintptr_t)call->tensors[0].in;
    call->out = call->tensors[0].out;
    for (int r = 0; r < call->nranks; r++) {
        const size_t at = start(row, call->nranks, call->count, call->rank, r);
        const size_t nbytes = kolo_dtype_size(call->dtype);
        const kolo_p2p to = {
            1, r, KO_PERF_TAG, call->dtype, call->count, (char *)call->in + at * nbytes, NULL};
        const kolo_p2p from = {
            0, r, KO_PERF_TAG, call->dtype, call->count, (char *)call->out + at * nbytes, NULL};

        call->lengths[r] = length(row, call->nranks, call->count, call->rank, r);
        call->starts[r] = at;
        call->messages[2 * r] = to;
        call->messages[2 * r + 1] = from;
    }
}
