/* SPDX-License-Identifier: MIT
 *
 * What this machine allows two ranks: the operations as simple programs that know nothing but one
 * operation, its size and one peer. METHOD, after the plan, is one of
 *
 *   exchange   short messages, in lines that carry their own flag or follow one
 *   staged     ordinary memory, chunks pipelined through shared slots
 *   staged_nt  the same, storing past the caches
 *   split      all_reduce like staged, each rank reducing one half for both
 *   ..._wide   these three with more slots in turn than stay in the reader's own cache
 *   ..._strings  exchange, staged and split, copying by `rep movs` instead of vectors
 *   direct     both ranks' buffers are shared: each reads the other's memory itself
 *   direct_nt  the same, storing past the caches
 *   pushed     all_reduce on shared buffers: each reduces one half into both outputs
 *   read       ordinary memory that each reads out of the other's process (process_vm_readv)
 *   read_split  all_reduce like read, each rank adding up one half and reading the other's
 *   ..._wide   these two reading pieces of 256 KiB at a time instead of 64 before they add them
 *   both       what one rank gives alone: the other reads one half, and it writes the other half
 *   socket     TCP over loopback: both send and receive at once; no sum
 *   socket_reno, socket_cubic  the same by this congestion control instead of the system's
 *   ..._naps   these three sleeping in the kernel when there is nothing to do for long
 *   ..._256k, ..._1m, ..._4m  with such buffers of the system, from 64 KiB
 *
 * Nobody else's waits ever sleep and nobody checks for errors: a library has to do both. The ranks
 * meet in the file LIMITS_FILE.
 */
#include "limits_reads.h"
#include "limits_sides.h"
#include "limits_socket.h"
#include "limits_sums.h"
#include "peer.h"

static uint64_t steps_out, steps_in;
static size_t allocated;

/* ---- what an operation is: elements given, elements taken --------------------------------- */

static struct transfer transfer_of(enum peer_operation what, float *in, float *out, size_t count,
                                   int source)
{
    const size_t here = (size_t)rank * count, there = (size_t)(1 - rank) * count;
    const int is_source = rank == source;

    switch (what) {
    case ALL_REDUCE:
        return (struct transfer){in, in, NULL, out, NULL, count, count, 0, 0};
    case REDUCE: /* source: the root, which takes */
        return is_source ? (struct transfer){NULL, in, NULL, out, NULL, 0, count, 0, 0}
                         : (struct transfer){in, NULL, NULL, NULL, NULL, count, 0, 0, 0};
    case ALL_GATHER:
        return (struct transfer){in, NULL, in, out + there, out + here, count, count, count, 0};
    case REDUCE_SCATTER:
        return (struct transfer){in + there, in + here, NULL, out, NULL, count, count, 0, here};
    case ALL_TO_ALL:
        return (struct transfer){in + there, NULL,  in + here, out + there, out + here,
                                 count,      count, count,     here};
    case BARRIER:
        return (struct transfer){in, NULL, NULL, out, NULL, 1, 1, 0, 0};
    default: /* broadcast (out is its only buffer) and messages */
        return is_source ? (struct transfer){what == BROADCAST ? out : in,
                                             NULL,
                                             NULL,
                                             NULL,
                                             NULL,
                                             count,
                                             0,
                                             0,
                                             0}
                         : (struct transfer){NULL, NULL, NULL, out, NULL, 0, count, 0, 0};
    }
}

/* ---- the methods: give and take ----------------------------------------------------------- */

static void (*run_transfer)(const struct transfer *t);

/* A rank that only gives is at most one round ahead, as the others are. */
static void exchange(const struct transfer *t)
{
    static uint64_t round;
    char *to = mine->exchange[++round & 1], *from = theirs->exchange[round & 1];
    size_t head =
        t->ngive * sizeof(float) <= LINE - 8 && t->ntake * sizeof(float) <= LINE - 8 ? 0 : LINE;

    if (by_strings)
        copy((float *)(void *)(to + head), t->give, t->ngive);
    else if (t->ngive)
        memcpy(to + head, t->give, t->ngive * sizeof(float));
    store((uint64_t *)(void *)(to + LINE - 8), round);
    await((uint64_t *)(void *)(from + LINE - 8), round);
    if (t->ntake)
        combine(t->take, t->own, (float *)(void *)(from + head), t->ntake);
}

/* Chunks small enough that the first arrives soon. */
static size_t chunk_count(size_t count)
{
    size_t bytes = count * sizeof(float);

    bytes = bytes <= 16384 ? bytes : bytes / 4 < 16384 ? 16384 : bytes / 4;
    return least(bytes, CHUNK) / sizeof(float);
}

static void put(const float *from, size_t count)
{
    if (steps_out >= nslots)
        await(&theirs->taken.word, steps_out + 1 - nslots);
    copy((float *)(void *)mine->slots[steps_out % nslots], from, count);
    store(&mine->posted.word, ++steps_out);
}

static float *next_chunk(void)
{
    await(&theirs->posted.word, steps_in + 1);
    return (float *)(void *)theirs->slots[steps_in % nslots];
}

static void taken(void)
{
    store(&mine->taken.word, ++steps_in);
}

static void pipeline(const struct transfer *t,
                     void (*land)(float *out, const float *own, const float *other, size_t count))
{
    const size_t chunk = chunk_count(t->ngive > t->ntake ? t->ngive : t->ntake);
    size_t given = 0, got = 0;

    while (given < t->ngive || got < t->ntake) {
        if (given < t->ngive && given < got + 2 * chunk + (t->ntake ? 0 : t->ngive)) {
            put(t->give + given, least(chunk, t->ngive - given));
            given += least(chunk, t->ngive - given);
            if (given < got + 2 * chunk && given < t->ngive)
                continue; /* one chunk ahead */
        }
        if (got < t->ntake) {
            size_t count = least(chunk, t->ntake - got);

            land(t->take + got, t->own ? t->own + got : NULL, next_chunk(), count);
            taken();
            got += count;
        }
    }
}

static void staged(const struct transfer *t)
{
    pipeline(t, combine);
}

static void staged_nt(const struct transfer *t)
{
    pipeline(t, combine_nt);
}

/* Each rank reduces one half, into its output and into a slot for the peer. */
static void split(const struct transfer *t)
{
    const size_t half = t->ntake / 2, chunk = chunk_count(half ? half : 1);
    const size_t here = rank ? half : 0, there = rank ? 0 : half;

    for (size_t at = 0; at < half; at += chunk) {
        const size_t count = least(chunk, half - at);

        put(t->give + there + at, count);
        if (steps_out >= nslots)
            await(&theirs->taken.word, steps_out + 1 - nslots);
        combine_twice(t->take + here + at, (float *)(void *)mine->slots[steps_out % nslots],
                      t->own + here + at, next_chunk(), count);
        taken();
        store(&mine->posted.word, ++steps_out);
        copy(t->take + there + at, next_chunk(), count);
        taken();
    }
}

/* Where the peer has what we have at `here`, in shared memory. */
static float *at_peer(const void *here)
{
    return (float *)(void *)((char *)theirs + ((const char *)here - (const char *)mine));
}

static const float *peer_source;

static void direct(const struct transfer *t)
{
    meet();
    if (t->ntake)
        combine(t->take, t->own, peer_source + t->at_peer, t->ntake);
    meet();
}

static void direct_nt(const struct transfer *t)
{
    meet();
    if (t->ntake)
        combine_nt(t->take, t->own, peer_source + t->at_peer, t->ntake);
    meet();
}

static void pushed(const struct transfer *t)
{
    const size_t half = t->ntake / 2, here = rank ? half : 0;
    const size_t count = rank ? t->ntake - half : half;

    meet();
    combine_twice(t->take + here, at_peer(t->take) + here, t->own + here, at_peer(t->give) + here,
                  count);
    meet();
}

/* ---- operations --------------------------------------------------------------------------- */

static void go(enum peer_operation what, float *in, float *out, size_t count, int source)
{
    struct transfer t = transfer_of(what, in, out, count, source);

    if (run_transfer == direct || run_transfer == direct_nt)
        peer_source = at_peer(what == BROADCAST ? out : in);
    if (t.nkeep)
        copy(t.kept, t.keep, t.nkeep);
    run_transfer(&t);
}

/* A word from everybody, by whatever method reaches. */
static void word(int source, float *out)
{
    struct transfer t = transfer_of(BROADCAST, NULL, out, 1, source);

    (connection >= 0 ? over_socket : exchange)(&t);
}

static void run(enum peer_operation what, float *in, float *out, size_t count, int root)
{
    float ignored;

    if (what == PING_PONG) {
        go(what, in, out, count, 0);
        go(what, in, out, count, 1);
    } else if (what == ONE_WAY) {
        for (int i = peer_window(count); i > 0; i--)
            go(what, in, out, count, 0);
        word(1, &ignored);
    } else if (count == 1 && what == BROADCAST) {
        word(root, out);
    } else if (what == BARRIER) {
        struct transfer t = {&ignored, NULL, NULL, &ignored, NULL, 1, 1, 0, 0};

        (connection >= 0 ? over_socket : exchange)(&t);
    } else {
        go(what, in, out, count, root);
    }
}

/* ---- setting up --------------------------------------------------------------------------- */

struct method {
    const char *name;
    void (*transfer)(const struct transfer *t);
    int is_shared;
    unsigned nslots;
    int by_strings;
    struct wire wire;
};

enum { NAPS = 100, KIB = 1 << 10, MIB = 1 << 20 };

static const struct method methods[] = {
    {"exchange", exchange, 0, NARROW, 0, {0}},
    {"exchange_strings", exchange, 0, NARROW, 1, {0}},
    {"staged", staged, 0, NARROW, 0, {0}},
    {"staged_wide", staged, 0, WIDE, 0, {0}},
    {"staged_strings", staged, 0, NARROW, 1, {0}},
    {"staged_strings_wide", staged, 0, WIDE, 1, {0}},
    {"staged_nt", staged_nt, 0, NARROW, 0, {0}},
    {"staged_nt_wide", staged_nt, 0, WIDE, 0, {0}},
    {"split", split, 0, NARROW, 0, {0}},
    {"split_wide", split, 0, WIDE, 0, {0}},
    {"split_strings", split, 0, NARROW, 1, {0}},
    {"split_strings_wide", split, 0, WIDE, 1, {0}},
    {"direct", direct, 1, NARROW, 0, {0}},
    {"direct_nt", direct_nt, 1, NARROW, 0, {0}},
    {"pushed", pushed, 1, NARROW, 0, {0}},
    {"read", reading, 0, NARROW, 0, {0}},
    {"read_wide", reading, 0, WIDE, 0, {0}},
    {"read_split", read_split, 0, NARROW, 0, {0}},
    {"read_split_wide", read_split, 0, WIDE, 0, {0}},
    {"both", both, 0, NARROW, 0, {0}},
    {"socket", over_socket, 0, NARROW, 0, {NULL, 0, 0}},
    {"socket_naps", over_socket, 0, NARROW, 0, {NULL, 0, NAPS}},
    {"socket_reno", over_socket, 0, NARROW, 0, {"reno", 0, 0}},
    {"socket_reno_naps", over_socket, 0, NARROW, 0, {"reno", 0, NAPS}},
    {"socket_reno_256k", over_socket, 0, NARROW, 0, {"reno", 256 * KIB, 0}},
    {"socket_reno_1m", over_socket, 0, NARROW, 0, {"reno", 1 * MIB, 0}},
    {"socket_reno_4m", over_socket, 0, NARROW, 0, {"reno", 4 * MIB, 0}},
    {"socket_cubic", over_socket, 0, NARROW, 0, {"cubic", 0, 0}},
    {"socket_cubic_naps", over_socket, 0, NARROW, 0, {"cubic", 0, NAPS}},
    {"socket_cubic_256k", over_socket, 0, NARROW, 0, {"cubic", 256 * KIB, 0}},
    {"socket_cubic_1m", over_socket, 0, NARROW, 0, {"cubic", 1 * MIB, 0}},
    {"socket_cubic_4m", over_socket, 0, NARROW, 0, {"cubic", 4 * MIB, 0}}};

/* Whether it is by the system's reading of the other's memory. */
static int reads(void)
{
    return run_transfer == reading || run_transfer == read_split || run_transfer == both;
}

/* Pieces are of what is added up. */
static int has_pieces(enum peer_operation what)
{
    return what == ALL_REDUCE || what == REDUCE || what == REDUCE_SCATTER;
}

static int can(enum peer_operation what, size_t bytes)
{
    if (run_transfer == exchange)
        return bytes <= EXCHANGE;
    if (run_transfer == split || run_transfer == pushed)
        return what == ALL_REDUCE && bytes >= 64;
    if (reads() && bytes < EXCHANGE)
        return 0;
    if (run_transfer == read_split)
        return what == ALL_REDUCE;
    if (run_transfer == reading && nslots == WIDE)
        return has_pieces(what);
    if (run_transfer == both)
        return what == BROADCAST || what == PING_PONG || what == ONE_WAY;
    if (wire.buffer_bytes)
        return what != BARRIER && bytes >= CHUNK;
    return connection >= 0 || what != BARRIER;
}

static float *allocate(size_t nbytes)
{
    float *buffer = (float *)(void *)(mine->buffers + allocated);

    allocated += (nbytes + 4095) / 4096 * 4096;
    return buffer;
}

int main(int argc, char **argv)
{
    struct peer_plan plan = peer_read_plan(argc, argv);
    struct peer peer = {.name = argv[5], .run = run, .can = can};

    if (argc != 6 || strcmp(getenv("WORLD_SIZE"), "2") != 0)
        peer_die("limits", "a method follows the plan, and there are two ranks");
    peer.rank = rank = atoi(getenv("RANK"));
    peer.size = 2;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (!strcmp(methods[i].name, argv[5])) {
            run_transfer = methods[i].transfer;
            peer.allocate = methods[i].is_shared ? allocate : NULL;
            nslots = methods[i].nslots;
            by_strings = methods[i].by_strings;
            wire = methods[i].wire;
        }
    if (!run_transfer)
        peer_die("limits", "no such method");
    map(getenv("LIMITS_FILE"));
    peer_pin(rank);
    if (reads() && !may_read())
        return 0;
    peer.only_moves = run_transfer == over_socket;
    if (peer.only_moves && !connect_ranks())
        return 0;
    peer_measure(&peer, &plan);
    return 0;
}
