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
 *   both       what one rank gives alone: the other reads one half, and it writes the other half
 *   socket     TCP over loopback: both send and receive at once; no sum
 *   socket_naps  the same, sleeping in the kernel when there is nothing to do for long
 *
 * Nobody else's waits ever sleep and nobody checks for errors: a library has to do both. The ranks
 * meet in the file LIMITS_FILE.
 */
#include "limits_sums.h"
#include "peer.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <immintrin.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum {
    LINE = 64,
    CHUNK = 64 << 10,
    NARROW = 8, /* slots, which stay in a cache of 1 MiB, and which do not */
    WIDE = 32,
    EXCHANGE = 4096,
    SHARED_BYTES = 256 << 20
};

struct line {
    uint64_t word;
    char pad[LINE - sizeof(uint64_t)];
};

/* By the rank that writes it. */
struct side {
    struct line posted, taken, met, process, source;
    char exchange[2][EXCHANGE + LINE];
    char slots[WIDE][CHUNK];
    char buffers[];
};

static int rank;
static unsigned nslots = NARROW;
static struct side *mine, *theirs;
static uint64_t met, steps_out, steps_in;
static size_t allocated;

static uint64_t load(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void store(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static void await(const uint64_t *word, uint64_t value)
{
    while (load(word) < value)
        _mm_pause();
}

static void meet(void)
{
    store(&mine->met.word, ++met);
    await(&theirs->met.word, met);
}

/* ---- what an operation is: elements given, elements taken --------------------------------- */

/* give[ngive] goes to the peer; take[ntake] = theirs, plus own if there is one; at_peer is where
 * the peer's give lies in its in (shared buffers). keep[nkeep] is copied to kept. */
struct transfer {
    const float *give, *own, *keep;
    float *take, *kept;
    size_t ngive, ntake, nkeep, at_peer;
};

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

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
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

static int read_memory(float *out, const char *from, size_t count)
{
    const struct iovec here = {out, count * sizeof *out};
    const struct iovec there = {(void *)(uintptr_t)from, here.iov_len};

    return process_vm_readv((pid_t)load(&theirs->process.word), &here, 1, &there, 1, 0) ==
           (ssize_t)here.iov_len;
}

/* What is to be added up is read in pieces that stay in the cache. */
static void reading(const struct transfer *t)
{
    static float piece[CHUNK / sizeof(float)];
    const size_t chunk = t->own ? least(t->ntake, CHUNK / sizeof(float)) : t->ntake;
    const char *from;

    store(&mine->source.word, (uintptr_t)t->give);
    meet();
    from = (const char *)(uintptr_t)load(&theirs->source.word);
    for (size_t at = 0; at < t->ntake; at += chunk) {
        const size_t count = least(chunk, t->ntake - at);

        if (!read_memory(t->own ? piece : t->take + at, from + at * sizeof(float), count))
            peer_die("limits", "the other process's memory cannot be read");
        if (t->own)
            combine(t->take + at, t->own + at, piece, count);
    }
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
    if (t->ntake) {
        if (!read_memory(t->take, there, half))
            peer_die("limits", "the other process's memory cannot be read");
    } else {
        const struct iovec from = {(void *)(uintptr_t)(t->give + half),
                                   (count - half) * sizeof(float)};
        const struct iovec to = {there + half * sizeof(float), from.iov_len};

        if (process_vm_writev((pid_t)load(&theirs->process.word), &from, 1, &to, 1, 0) !=
            (ssize_t)from.iov_len)
            peer_die("limits", "the other process's memory cannot be written");
    }
    meet();
}

/* Whether the system permits it, for all that either can tell. */
static int may_read(void)
{
    float first;

    store(&mine->process.word, (uint64_t)getpid());
    store(&mine->source.word, (uintptr_t)&met);
    meet();
    return read_memory(&first, (const char *)(uintptr_t)load(&theirs->source.word), 1);
}

static int connection = -1;

/* Looks that find nothing before a sleep; 0: never sleeps. */
static int looks_before_nap;

static void nap(int gives, int takes)
{
    struct pollfd entry = {.fd = connection};

    entry.events = (short)((gives ? POLLOUT : 0) | (takes ? POLLIN : 0));
    poll(&entry, 1, -1);
}

static void over_socket(const struct transfer *t)
{
    size_t given = 0, got = 0;
    const size_t give = t->ngive * sizeof(float), take = t->ntake * sizeof(float);
    int looks = 0;

    while (given < give || got < take) {
        const size_t before = given + got;
        ssize_t n;

        if (given < give) {
            n = send(connection, (const char *)t->give + given, give - given, MSG_DONTWAIT);
            given += n > 0 ? (size_t)n : 0;
        }
        if (got < take) {
            n = recv(connection, (char *)t->take + got, take - got, MSG_DONTWAIT);
            got += n > 0 ? (size_t)n : 0;
        }
        looks = given + got > before ? 0 : looks + 1;
        if (looks_before_nap && looks == looks_before_nap) {
            nap(given < give, got < take);
            looks = 0;
        }
    }
}

static void over_socket_with_naps(const struct transfer *t)
{
    looks_before_nap = 100;
    over_socket(t);
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
};

static const struct method methods[] = {{"exchange", exchange, 0, NARROW, 0},
                                        {"exchange_strings", exchange, 0, NARROW, 1},
                                        {"staged", staged, 0, NARROW, 0},
                                        {"staged_wide", staged, 0, WIDE, 0},
                                        {"staged_strings", staged, 0, NARROW, 1},
                                        {"staged_strings_wide", staged, 0, WIDE, 1},
                                        {"staged_nt", staged_nt, 0, NARROW, 0},
                                        {"staged_nt_wide", staged_nt, 0, WIDE, 0},
                                        {"split", split, 0, NARROW, 0},
                                        {"split_wide", split, 0, WIDE, 0},
                                        {"split_strings", split, 0, NARROW, 1},
                                        {"split_strings_wide", split, 0, WIDE, 1},
                                        {"direct", direct, 1, NARROW, 0},
                                        {"direct_nt", direct_nt, 1, NARROW, 0},
                                        {"pushed", pushed, 1, NARROW, 0},
                                        {"read", reading, 0, NARROW, 0},
                                        {"both", both, 0, NARROW, 0},
                                        {"socket", over_socket, 0, NARROW, 0},
                                        {"socket_naps", over_socket_with_naps, 0, NARROW, 0}};

static int can(enum peer_operation what, size_t bytes)
{
    if (run_transfer == exchange)
        return bytes <= EXCHANGE;
    if (run_transfer == split || run_transfer == pushed)
        return what == ALL_REDUCE && bytes >= 64;
    if ((run_transfer == reading || run_transfer == both) && bytes < EXCHANGE)
        return 0;
    if (run_transfer == both)
        return what == BROADCAST || what == PING_PONG || what == ONE_WAY;
    return connection >= 0 || what != BARRIER;
}

static float *allocate(size_t nbytes)
{
    float *buffer = (float *)(void *)(mine->buffers + allocated);

    allocated += (nbytes + 4095) / 4096 * 4096;
    return buffer;
}

static void map(const char *path)
{
    const size_t each = (sizeof(struct side) + SHARED_BYTES + 4095) / 4096 * 4096;
    int fd = open(path, O_RDWR);
    char *memory;

    if (fd < 0 || ftruncate(fd, (off_t)(2 * each)))
        peer_die("limits", "LIMITS_FILE cannot be used");
    memory = mmap(NULL, 2 * each, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        peer_die("limits", "LIMITS_FILE cannot be mapped");
    mine = (struct side *)(void *)(memory + (size_t)rank * each);
    theirs = (struct side *)(void *)(memory + (size_t)(1 - rank) * each);
}

/* Rank 0 listens and leaves its port where rank 1 finds it. */
static int connect_ranks(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1, taken_fd;

    if (rank == 0) {
        if (bind(fd, (struct sockaddr *)&address, length) || listen(fd, 1) ||
            getsockname(fd, (struct sockaddr *)&address, &length))
            peer_die("limits", "cannot listen");
        store(&mine->met.word, address.sin_port + 1U);
        taken_fd = accept(fd, NULL, NULL);
        close(fd);
        fd = taken_fd;
    } else {
        await(&theirs->met.word, 1);
        address.sin_port = (in_port_t)(load(&theirs->met.word) - 1);
        if (connect(fd, (struct sockaddr *)&address, length))
            peer_die("limits", "cannot connect");
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
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
        }
    if (!run_transfer)
        peer_die("limits", "no such method");
    map(getenv("LIMITS_FILE"));
    peer_pin(rank);
    if ((run_transfer == reading || run_transfer == both) && !may_read())
        return 0;
    peer.only_moves = run_transfer == over_socket || run_transfer == over_socket_with_naps;
    if (peer.only_moves)
        connection = connect_ranks();
    peer_measure(&peer, &plan);
    return 0;
}
