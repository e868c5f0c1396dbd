/* SPDX-License-Identifier: MIT
 *
 * group.h: a process group, as its parts see it. Layers above reach links through its two channels:
 * one for collectives, one for point to point, so that neither ever finds the other's messages.
 */
#ifndef KO_GROUP_H
#define KO_GROUP_H

#include "algorithms.h"
#include "channel.h"
#include "endpoint.h"
#include "engine.h"
#include "gpu.h"
#include "gpu_share.h"
#include "hosts.h"
#include "mailbox.h"
#include "status.h"

#include <pthread.h>
#include <stdatomic.h>

enum { KO_CHANNEL_COLLECTIVES, KO_CHANNEL_P2P };

struct ko_gpu_writers;
struct ko_verbs; /* coll_host.c */
struct ko_watch; /* group_watch.c */
struct ko_world; /* what only the world group has: the store it joined by */

/* A block of memory that grows. */
struct ko_memory {
    unsigned char *bytes;
    size_t nbytes;
};

/* How often groups have been made of a list of ranks. */
struct ko_list {
    uint64_t hash, count;
};

/* An op that kolo_op_premul_sum has made: KO_PREMUL plus its index. */
enum { KO_MOST_PREMULS = 64, KO_PREMUL = KOLO_NOPS + 1 };

struct ko_premul {
    double factor;
    bool is_used;
};

/* How collectives of buffers in GPU memory have gone, one for each tensor: tests see by it that the
 * way which they are about was taken. */
struct ko_gpu_ways {
    uint64_t reached;  /* where the buffers are, on all ranks */
    uint64_t staged;   /* in copies on the GPU; each piece of them is one that is reached */
    uint64_t divided;  /* each rank its share, between hosts */
    uint64_t by_host;  /* by way of host memory */
    uint64_t captured; /* for a graph */
    /* buffers of other processes that were reached so */
    uint64_t by_handles, by_descriptors;
};

struct kolo_group {
    uint64_t id; /* the same on all its ranks, of no other group */
    int rank, size;
    int *world_ranks; /* by rank */
    atomic_int timeout_ms;
    struct ko_endpoint *endpoint;
    kolo_group **link, *next; /* of the endpoint's; under its groups_lock; link: NULL in none */
    kolo_group **link_here, *next_here; /* of this process's, the same (group_fork.h) */
    struct ko_world *world;             /* NULL but in the world group */
    uint64_t nchildren;    /* groups made from this one by all its ranks so far; under the lock */
    uint64_t nmonitored;   /* monitored barriers begun so far; under the lock */
    struct ko_list *lists; /* of those made by their members alone; under the lock */
    size_t nlists;

    struct ko_channel collectives;      /* used by whoever runs a collective, one at a time */
    struct ko_mailbox *_Atomic mailbox; /* made at first use, under lock */
    struct ko_engine engine;
    uint64_t seq; /* collectives begun so far; of whoever has the engine's turn */

    struct ko_gpu *_Atomic gpu;         /* once the group has a stream */
    struct ko_gpu_share *_Atomic share; /* once all ranks have, if those of a host reach its */
    struct ko_places *_Atomic places;   /* then: of messages */
    pthread_mutex_t ordering;           /* of calls behind the stream */
    struct ko_engine behind;            /* runs messages there (p2p_stream.h) */
    pthread_mutex_t listing;            /* of: */
    struct ko_behind *first_behind;     /* messages there that are not done */
    pthread_cond_t fewer_behind;        /* one of them is done */
    pthread_mutex_t streaming;          /* of: */
    struct ko_streamed *first_streamed; /* works in the stream (group_streamed.h) */
    atomic_bool has_met;                /* the other ranks, about GPUs: has begun to */
    atomic_bool has_gathered;           /* has met them: share and places stay as they are */
    atomic_bool has_gpus;               /* one of them has, all know */
    struct ko_watch *_Atomic watch;     /* once a graph has taken anything in; under the lock */
    struct ko_hosts *_Atomic hosts;     /* found by the first collective */
    /* of the host's ranks: NULL, or set when share is */
    struct ko_gpu_writers *_Atomic writers;
    /* of whoever has the engine's turn */
    struct ko_memory scratch, packing, scaled; /* grow as needed */
    int *ranks;                                /* this and the next three: one for each rank */
    const void **parts;
    void **outs;
    struct ko_link **links;
    struct ko_verbs *verbs; /* of the last call of each collective; made by the first */
    struct ko_gpu_ways gpu_ways;
    /* GPUs have been waited for, as a call had failed */
    bool has_settled;
    atomic_bool has_warned; /* that another rank's GPU still writes */
    /* collectives in streams which wait for others' there, so far; the same on all ranks; set by
     * whoever has the engine's turn */
    _Atomic uint32_t nstreamed;
    int gpu_carrier; /* who has begun the kernels of the last call on a GPU that the ranks share */

    /* by collective, whether its blocks are uneven, and size: a row of algorithms.h plus 1; 0: not
     * yet chosen; of whoever has the engine's turn */
    unsigned char choices[KO_NCOLLECTIVES][2][KO_SIZE_CLASSES];

    struct ko_premul premuls[KO_MOST_PREMULS]; /* under the lock */
    short wishes[KO_NCOLLECTIVES];             /* KOLO_ALGO at creation: rows, or -1 */
    bool checks_calls;                         /* KOLO_CHECK at creation */
    bool is_ordered;                           /* KOLO_DETERMINISTIC at creation */

    pthread_mutex_t lock;       /* failing, and the mailbox's creation */
    atomic_bool has_told_waits; /* the store has this rank's word (group_waits.h) */
    atomic_int failed;          /* 0, or the KOLO_E_ code; set once, after failure_text */
    char failure_text[KO_ERROR_TEXT];
    pthread_mutex_t writing; /* of the failure, into the store */
    atomic_bool has_written;
    struct kolo_work telling; /* of the failure, behind whoever might have seen it too late */
};

/* True once kolo_group_set_stream has given it one. */
static inline bool ko_group_has_stream(const kolo_group *group)
{
    return atomic_load_explicit(&group->gpu, memory_order_relaxed);
}

/* acquire: the text was written before */
static inline bool ko_group_has_failed(const kolo_group *group)
{
    return atomic_load_explicit(&group->failed, memory_order_acquire);
}

/* What a rank tells the others when its group fails. Travels as it is. */
struct ko_failure {
    int32_t status;
    char text[KO_ERROR_TEXT];
};

/* Its code, if it is one. */
static inline int ko_failure_status(const struct ko_failure *failure)
{
    return failure->status > KOLO_OK && failure->status <= KOLO_E_INTERNAL ? failure->status
                                                                           : KOLO_E_PROTOCOL;
}

/* Fails the group unless it has failed already, wakes its waiters, tells the other ranks; text may
 * be the thread's own, and one that names no rank is said of this one. Returns the group's (first)
 * error, with its text as the thread's own. The caller may have the engine's turn or the mailbox's
 * lock; those peers it has to tell itself. */
int ko_group_fail(kolo_group *group, int status, const char *text);

/* The group's error, its text as the thread's own; of a group that has failed. */
int ko_group_error(kolo_group *group);

/* KOLO_OK, or the group's error and its text as the thread's own. */
static inline int ko_group_check(kolo_group *group)
{
    return ko_group_has_failed(group) ? ko_group_error(group) : KOLO_OK;
}

/* Leaves word of the failure in the store, once; after the links have been told, which is faster.
 */
void ko_group_write_failure(kolo_group *group);

/* The same of all groups over an endpoint that have failed. */
void ko_group_write_failures(struct ko_endpoint *endpoint);

/* This rank goes on in a new group: why it has failed in an earlier one is no reason any more to be
 * late in others. */
void ko_group_take_word_back(kolo_group *group);

/* Looks in the store whether another rank has failed this group, and then fails it here too; for
 * waits that no link could end. KOLO_OK, or the group's error. */
int ko_group_check_store(kolo_group *group);

/* Fails the group because a rank was lost, or kept this one waiting for too long (status), as text
 * says; unless the store knows of an earlier failure, or has gone itself: a rank that is lost may
 * have ended because of another one. peer: the rank, of which the store may know why it has failed
 * elsewhere; -1: any of the others, of a loss. */
int ko_group_fail_for(kolo_group *group, int peer, int status, const char *text);

/* Puts the reason first that a peer, or (-1) the first of the others that has one, had for going or
 * staying away: the loss of the store, or another group's failure. False if none is known. */
bool ko_group_find_reason(kolo_group *group, int peer, char text[KO_ERROR_TEXT]);

/* The same of a loss that no one rank stands for. */
int ko_group_fail_lost(kolo_group *group, const char *text);

/* Fails the group if the store has gone, and with it the rank of this group that serves it. */
int ko_group_check_server(kolo_group *group, const char *text);

/* "rank 2 (host:1234, over shm)", "rank 2 (rank 4 of the world, host:1234, over shm)" */
void ko_group_describe_rank(kolo_group *group, int rank, char *text, size_t nbytes);

/* The factor of an op of the group; KOLO_E_INVALID if it is none. Any thread. */
int ko_group_factor(kolo_group *group, kolo_op op, double *factor);

/* Memory of nbytes that lasts until the next call of the same function; for whoever has the
 * engine's turn. */
int ko_group_scratch(kolo_group *group, size_t nbytes, unsigned char **memory);
int ko_group_packing(kolo_group *group, size_t nbytes, unsigned char **memory);
int ko_group_scaled(kolo_group *group, size_t nbytes, unsigned char **memory);

/* Finds out where the group's ranks sit, by asking the store: then group->hosts is set for good.
 * Any thread. An error has failed the group. */
int ko_group_find_hosts(kolo_group *group);

/* Once they are known: whether the rank sits on this one's host. */
static inline bool ko_group_is_mate(const kolo_group *group, int rank)
{
    const struct ko_hosts *hosts = group->hosts;

    return hosts->host[rank] == hosts->host[group->rank];
}

/* The ranks of this one's host, itself too, have places there from 0 on. */
static inline int ko_group_count_mates(const kolo_group *group)
{
    const struct ko_hosts *hosts = group->hosts;

    return host_size(hosts, hosts->host[group->rank]);
}

static inline int ko_group_mate_at(const kolo_group *group, int place)
{
    const struct ko_hosts *hosts = group->hosts;

    return rank_at(hosts, hosts->host[group->rank], place);
}

static inline int ko_group_place_of(const kolo_group *group, int rank)
{
    const struct ko_hosts *hosts = group->hosts;

    return hosts->place[rank];
}

/* The costs by which the group's collectives are chosen, once its hosts are known: the same on all
 * ranks. Unless a file of costs says otherwise, a host has as many cores as the ranks of the
 * largest one may run on together. */
void ko_group_costs(const kolo_group *group, struct ko_costs *costs);

/* How many cores the ranks of a host may run on together; one for each rank if they do not know. */
int ko_group_count_cores(const kolo_group *group, int host);

/* Whether this rank's host has more ranks than cores on which they may run: then waits leave
 * their turns (channel_turns.c) instead of spinning. By the hosts once they are known, of this
 * group or the world; else by what the pair of this rank and a peer tells, or for NULL by what the
 * launcher has said. */
bool ko_group_is_crowded(const kolo_group *group, const struct ko_contact *peer);
/* Once a group's hosts are known: if it is the world, all groups made of it hear that. */
void ko_group_note_crowd(kolo_group *group);

/* Bytes of a slice in the group's collectives, once its hosts are known: all ranks cut alike, as
 * the shortest of their links wants it. */
size_t ko_group_slice_bytes(const kolo_group *group);

/* Places that long slices between this rank and a peer of its host take in turn: all together, what
 * comes to a rank goes through twice its own cache (window_places.h); one where the two share that
 * cache, or where more ranks than two take turns on a core. A guess while hosts are not known. */
uint32_t ko_group_spread(const kolo_group *group, const struct ko_contact *peer);

/* Checks a rank of the group given by the user, called `what` there. */
int ko_group_wrong_rank(const kolo_group *group, int rank, const char *what);
static inline int ko_group_check_rank(const kolo_group *group, int rank, const char *what)
{
    return rank >= 0 && rank < group->size ? KOLO_OK : ko_group_wrong_rank(group, rank, what);
}

/* A group of its own over an endpoint that becomes (also) its; world_ranks becomes its too, even on
 * failure. */
int ko_group_make(struct ko_endpoint *endpoint, uint64_t id, int *world_ranks, int rank, int size,
                  int timeout_ms, kolo_group **group);

/* ko_world, rendezvous.c: tells the store that this rank leaves; the rank that serves the store
 * waits a bounded time for the others, which are the endpoint's. status: of the group's failure, or
 * KOLO_OK. Frees the world. NULL allowed. */
void ko_world_leave(struct ko_world *world, struct ko_endpoint *endpoint, int status);

#endif
