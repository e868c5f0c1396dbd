/* SPDX-License-Identifier: MIT
 *
 * gpu_share.h: memory of one GPU that several ranks use, or of several GPUs that have access to
 * each other's: what a rank says of a buffer so that others reach it, and the addresses that theirs
 * have here. Allocations are mapped once and kept: a buffer is found by its allocation's number and
 * its offset, so that parts of one are no more work, and an address that the driver has given out
 * again is not mistaken. For whoever has the engine's turn.
 */
#ifndef KO_GPU_SHARE_H
#define KO_GPU_SHARE_H

#include "gpu.h"
#include "gpu_pieces.h"
#include "unix_socket.h"

enum ko_gpu_kind {
    KO_GPU_NO_BUFFER, /* an empty one, or none */
    KO_GPU_HOST,      /* host memory */
    KO_GPU_PRIVATE,   /* for ranks of the same process only */
    KO_GPU_LEGACY,    /* by a handle that other processes open */
    KO_GPU_PIECES     /* by descriptors, from a socket */
};

enum { KO_GPU_MOST_GONE = 3 };

/* Where a buffer lies, for other ranks. Travels as it is. */
struct ko_gpu_place {
    uint64_t id;           /* of its allocation, which no other of its process ever has */
    uint64_t base, nbytes; /* of the allocation, in its process */
    uint64_t offset;       /* of the buffer */
    uint32_t kind;
    uint32_t is_new;                 /* it has not been described before, to all that it is for */
    uint64_t gone[KO_GPU_MOST_GONE]; /* others that need not be reached any more, or 0 */
    union {
        ko_cu_ipc_handle handle;
        char socket[KO_UNIX_NAME]; /* of pieces */
    };
};
_Static_assert(sizeof(struct ko_gpu_place) == 64 + sizeof(ko_cu_ipc_handle),
               "messages of no more bytes travel themselves (kolo.h)");

/* What no allocation could be; who looks for older ones relies on the sum. */
static inline bool ko_gpu_place_is_odd(const struct ko_gpu_place *place)
{
    return !place->nbytes || place->base > UINT64_MAX - place->nbytes ||
           place->offset >= place->nbytes;
}

static inline bool ko_gpu_says_gone(const struct ko_gpu_place *place, uint64_t id)
{
    bool is_gone = false;

    for (int i = 0; i < KO_GPU_MOST_GONE; i++)
        is_gone |= place->gone[i] == id;
    return is_gone;
}

struct ko_gpu_share;

/* What the ranks of a group use: one GPU; several; one each. */
enum ko_gpu_layout { KO_GPU_ONE, KO_GPU_SEVERAL, KO_GPU_EACH };

/* For a group of n ranks; is_here says of each whether it is of this process. Ends before gpu does.
 * KOLO_E_INVALID for a malformed variable. */
int ko_gpu_share_open(struct ko_gpu *gpu, int n, const bool *is_here, enum ko_gpu_layout layout,
                      struct ko_gpu_share **share);
bool ko_gpu_share_is_spread(const struct ko_gpu_share *share);
bool ko_gpu_share_is_here(const struct ko_gpu_share *share, int rank); /* of this process */

/* The number of a rank's process (ko_cuda_process). Before anything is reached. */
void ko_gpu_share_set_process(struct ko_gpu_share *share, int rank, uint64_t process);

/* The rank is of another host: no memory of its is reached here, nor the other way round. What it
 * describes counts as reached, but by ko_gpu_share_address, since its own host's ranks answer for
 * it. Before anything is described. */
void ko_gpu_share_set_away(struct ko_gpu_share *share, int rank);

/* Whether allocations may be described by handles, which are tried first. */
bool ko_gpu_share_has_handles(const struct ko_gpu_share *share);
void ko_gpu_share_set_handles(struct ko_gpu_share *share, bool has_handles);

/* From now on no allocation is described by descriptors, which would have to be handed over.
 * Returns whether they were allowed. */
bool ko_gpu_share_keep_handles(struct ko_gpu_share *share);

/* Whether memory of the library's own on the GPU may be reached where other memory is not: until it
 * is found not to be; the same on all ranks. */
bool ko_gpu_share_has_stages(const struct ko_gpu_share *share);
void ko_gpu_share_give_up_stages(struct ko_gpu_share *share);

/* At the end of the group, when its GPU need not be stopped any more. NULL is allowed. */
void ko_gpu_share_close(struct ko_gpu_share *share);

/* At any time, of one that no stream has used. */
void ko_gpu_share_discard(struct ko_gpu_share *share);

/* The same, of one that graphs use as they do the other, which they may still after a failure. */
void ko_gpu_share_close_with(struct ko_gpu_share *share, const struct ko_gpu_share *other);

/* What other ranks, by bits, are to know of a buffer of nbytes; and of what has gone that they have
 * been told of, as far as there is room. */
#define KO_GPU_ALL_RANKS UINT32_MAX
int ko_gpu_share_describe(struct ko_gpu_share *share, uint32_t to, const void *buffer,
                          size_t nbytes, struct ko_gpu_place *place);

/* True if the descriptors of a place's pieces have to be handed over: its rank serves them to those
 * of other processes, who then ask whether they reach it (gpu_pieces.h). */
bool ko_gpu_share_is_handed(const struct ko_gpu_place *place);
int ko_gpu_share_serve(struct ko_gpu_share *share, const struct ko_gpu_place *place,
                       const ko_deadline *deadline, ko_unix_look *look, void *owner);

/* Whether a rank could reach what this one has described so, by all that is known here. */
bool ko_gpu_share_is_open_to(const struct ko_gpu_share *share, int rank,
                             const struct ko_gpu_place *place);

/* Whether this rank can reach what another one has described so; opens what is new. */
bool ko_gpu_share_reaches(struct ko_gpu_share *share, int rank, const struct ko_gpu_place *place);

/* Of one that it does not: whether it may later on, when no stream of this process waits. */
bool ko_gpu_share_has_put_off(const struct ko_gpu_share *share, int rank,
                              const struct ko_gpu_place *place);

/* From now on it does not, since another rank does not. */
void ko_gpu_share_refuse(struct ko_gpu_share *share, int rank, const struct ko_gpu_place *place);

/* It is as if a rank had not described it so; and of this rank's own, which is new the next time.
 * Of pieces, whose descriptors have been handed over, neither. */
void ko_gpu_share_forget(struct ko_gpu_share *share, int rank, const struct ko_gpu_place *place);
void ko_gpu_share_tell_again(struct ko_gpu_share *share, const struct ko_gpu_place *place);

/* From now on graphs use what this rank has described so: others go on to reach it as long as any
 * of its pieces are left. */
void ko_gpu_share_keep(struct ko_gpu_share *share, const struct ko_gpu_place *place);

/* Its address here; only of a place that is reached. */
uint64_t ko_gpu_share_address(struct ko_gpu_share *share, int rank,
                              const struct ko_gpu_place *place);

/* Words for streams, in each rank's memory, and behind them, where the ranks have a GPU each, what
 * small messages need: a rank makes and describes its own and waits for them, the others write them
 * once they have opened them. They are 0 at first; about each rank there is one of each kind.
 * Without handles they are made such as can be handed over. ko_gpu_share_has_words: whether there
 * are any; the same on all ranks. */
enum ko_gpu_word { KO_GPU_ARRIVED, KO_GPU_DONE, KO_GPU_NWORDS };

/* Graphs have words and boxes of their own: they may be launched in another stream than calls go
 * into, so that which of the two comes first is another question on each rank. */
enum ko_gpu_round { KO_GPU_CALLS, KO_GPU_GRAPHS, KO_GPU_NROUNDS };
int ko_gpu_share_make_words(struct ko_gpu_share *share, const ko_deadline *deadline,
                            struct ko_gpu_place *place);
void ko_gpu_share_open_words(struct ko_gpu_share *share, int rank,
                             const struct ko_gpu_place *place);
bool ko_gpu_share_has_words(const struct ko_gpu_share *share);

/* The address of a word of `owner`'s about `rank`; and of one that is not 0 once its owner has
 * given up a wait (kernel_args.h). */
uint64_t ko_gpu_share_word(const struct ko_gpu_share *share, enum ko_gpu_round round, int owner,
                           int rank, enum ko_gpu_word word);
uint64_t ko_gpu_share_given_up(const struct ko_gpu_share *share, int owner);

/* Words for messages in graphs, KO_GPU_MESSAGES each way between two ranks, which these take in
 * turns: that a message of `rank`'s, the seq-th to the owner, is there; and that the one of the
 * owner's to `rank` has been taken. Streams wait until one is 1 or more. */
enum { KO_GPU_MESSAGES = 64 };
enum ko_gpu_message_word { KO_GPU_SENT, KO_GPU_TAKEN };
uint64_t ko_gpu_share_message_word(const struct ko_gpu_share *share, int owner, int rank,
                                   enum ko_gpu_message_word word, uint64_t seq);

/* What the owner's words are now, by rank; what reads them may stand behind streams that wait for
 * them. KO_AGAIN: it did for KO_GPU_LOOK_MS, or does since an earlier time. */
enum { KO_GPU_LOOK_MS = 1000 };
typedef uint32_t ko_gpu_words[KO_FOLD_MOST][KO_GPU_NWORDS];
int ko_gpu_share_read(struct ko_gpu_share *share, enum ko_gpu_round round, int owner,
                      ko_gpu_words words);

/* Whether a rank has given up a wait, as far as that can be found out so. */
bool ko_gpu_share_has_given_up(struct ko_gpu_share *share, int rank);

/* Where the ranks have a GPU each, if they have words: all of a ko_push (kernel_args.h) but what is
 * sent and where it goes; and memory of this rank's for KO_PUSH_BYTES from each rank. */
bool ko_gpu_share_has_boxes(const struct ko_gpu_share *share);
void ko_gpu_share_push(const struct ko_gpu_share *share, enum ko_gpu_round round, int rank,
                       struct ko_push *push, uint64_t *scratch);

/* Up to which call a rank's streams may go past it: at the end of each they wait until the word is
 * as much as ko_gpu_passage says of its number. It is 0 at first, which is enough for all. */
uint64_t ko_gpu_share_passable(const struct ko_gpu_share *share, int owner);
static inline uint32_t ko_gpu_passage(uint32_t call)
{
    const uint32_t round = UINT32_C(1) << 30;

    return call % round - round; /* below 0 */
}

/* Streams wait for these words from now on, or graphs do. Once the group has failed any thread ends
 * these waits: ko_gpu_share_stop kernels', which have ended soon; true: streams may come to some,
 * too. Then ko_gpu_share_let_go, again and again, those which streams of this rank have come to;
 * but they go past the call `last` only when they may go past another one. False: the GPU has not
 * done it within KO_GPU_LET_GO_MS of when it was told to, or has failed. */
enum { KO_GPU_LET_GO_MS = 2000 };
void ko_gpu_share_has_round(struct ko_gpu_share *share, enum ko_gpu_round round);
bool ko_gpu_share_stop(struct ko_gpu_share *share);
bool ko_gpu_share_let_go(struct ko_gpu_share *share, int rank, uint32_t last);

/* Whether that has been done beside graphs: what they use may still be touched. NULL is allowed. */
bool ko_gpu_share_is_left(const struct ko_gpu_share *share);

#endif
