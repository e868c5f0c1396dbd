/* SPDX-License-Identifier: MIT
 *
 * Words that streams wait for, and boxes for what kernels send each other: what lies where in the
 * memory that each rank gives for them, and how such waits end once a group has failed.
 */
#include "gpu_share_parts.h"

#include "clock.h"
#include "kernel_args.h"
#include "status.h"

#include <string.h>
#include <time.h>

/* What lies behind the words; boxes, of each round, where the ranks have a GPU each, and behind all
 * of them the memory for what comes in. */
enum { EPOCHS_AT = 256, EPOCHS = KO_PUSH_BLOCKS * 4 };
enum { GIVEN_UP_AT = EPOCHS_AT + KO_GPU_NROUNDS * EPOCHS, PASSABLE_AT = GIVEN_UP_AT + 4 };
enum { MESSAGES_AT = 512 };
enum { LEAST_NAP_NS = 20000, MOST_NAP_NS = 1000000 };
enum { OF_RANK = 2 * KO_GPU_MESSAGES * 4, BOXES_AT = MESSAGES_AT + KO_FOLD_MOST * OF_RANK };
_Static_assert(KO_GPU_NROUNDS * sizeof(ko_gpu_words) <= EPOCHS_AT, "words fit");
_Static_assert(sizeof(ko_gpu_words) <= sizeof(uint32_t) * KO_GPU_LOOK, "a look fits");
_Static_assert(PASSABLE_AT + sizeof(uint32_t) <= MESSAGES_AT, "epochs fit");

static size_t boxes_at(const struct ko_gpu_share *share, enum ko_gpu_round round)
{
    return BOXES_AT + (size_t)round * (size_t)share->n * KO_PUSH_BOX;
}

static size_t scratch_at(const struct ko_gpu_share *share, enum ko_gpu_round round)
{
    return boxes_at(share, KO_GPU_NROUNDS) + (size_t)round * (size_t)share->n * KO_PUSH_BYTES;
}

/* ---- aside ----------------------------------------------------------------------------------- */

/* For a small part of the time that it has been waited: it takes microseconds, or as long as a GPU
 * does not answer. */
static void nap_beside(int64_t waited_ns)
{
    const int64_t part_ns = waited_ns / 16;
    const struct timespec nap = {.tv_nsec = part_ns < LEAST_NAP_NS  ? LEAST_NAP_NS
                                            : part_ns > MOST_NAP_NS ? MOST_NAP_NS
                                                                    : part_ns};

    nanosleep(&nap, NULL);
}

/* With the context: as long as something has not ended there, KO_CU_NOT_READY. It may stand behind
 * another stream's work (CUDA_DEVICE_MAX_CONNECTIONS), and so is never waited for without a limit;
 * heeds_stop: nor once the group has failed.
 */
static ko_cu_result await_aside(struct ko_gpu_share *share, bool heeds_stop,
                                const ko_deadline *deadline)
{
    const int64_t began_ns = ko_now_ns();
    ko_cu_result result;

    while ((result = share->cuda->stream_query(share->aside)) == KO_CU_NOT_READY &&
           !(heeds_stop && ko_gpu_is_stopped(share->gpu)) && !ko_deadline_passed(deadline))
        nap_beside(ko_now_ns() - began_ns);
    return result;
}

bool ko_gpu_share_is_at_rest(const struct ko_gpu_share *share)
{
    return !share->aside || share->cuda->stream_query(share->aside) != KO_CU_NOT_READY;
}

/* With the context; as urgent as the group's own stream is. */
static ko_cu_result make_aside(struct ko_gpu_share *share)
{
    int least, most;
    ko_cu_result result = share->cuda->stream_priorities(&least, &most);

    return result
               ? result
               : share->cuda->stream_create_urgent(&share->aside, KO_CU_STREAM_NON_BLOCKING, most);
}

/* With the context. A GPU, or its driver, may have no pieces. KO_CU_NOT_READY: it has not filled
 * them. */
static ko_cu_result make(struct ko_gpu_share *share, size_t nbytes, bool is_piece,
                         const ko_deadline *deadline)
{
    ko_cu_result result = share->aside ? KO_CU_SUCCESS : make_aside(share);
    struct ko_gpu_memory made;

    if (!result && is_piece)
        is_piece = !ko_gpu_memory_make(share->cuda, nbytes, true, &made);
    if (result || (!is_piece && share->words.at))
        return result;
    if (!is_piece)
        result = ko_gpu_memory_make(share->cuda, nbytes, false, &made);
    if (result)
        return result;
    share->spare = share->words;
    share->words = made;
    result = share->cuda->fill(made.at, 0, nbytes, share->aside);
    return result ? result : await_aside(share, true, deadline);
}

int ko_gpu_share_make_words(struct ko_gpu_share *share, const ko_deadline *deadline,
                            struct ko_gpu_place *place)
{
    const size_t nbytes =
        share->layout == KO_GPU_EACH ? scratch_at(share, KO_GPU_NROUNDS) : BOXES_AT;
    ko_cu_result result;
    int err = ko_gpu_enter(share->gpu);

    if (err)
        return err;
    result = make(share, nbytes, !share->has_legacy && share->has_pieces && !share->words.is_piece,
                  deadline);
    ko_gpu_leave(share->gpu);
    if (result == KO_CU_NOT_READY && ko_gpu_is_stopped(share->gpu))
        return ko_fail(KOLO_E_ABORTED, "the GPU had not filled a group's words when that failed");
    if (result == KO_CU_NOT_READY)
        return ko_fail(KOLO_E_TIMEOUT,
                       "the GPU has not filled a group's words in %d ms: what does may stand "
                       "behind streams that wait (CUDA_DEVICE_MAX_CONNECTIONS); %s sets the limit",
                       deadline->timeout_ms, ko_deadline_source(deadline));
    err = ko_cuda_check(share->cuda, result, "the GPU has no memory for words");
    return err ? err
               : ko_gpu_share_describe(share, KO_GPU_ALL_RANKS, (void *)(uintptr_t)share->words.at,
                                       nbytes, place);
}

void ko_gpu_share_open_words(struct ko_gpu_share *share, int rank, const struct ko_gpu_place *place)
{
    if (ko_gpu_share_reaches(share, rank, place))
        share->ranks[rank].words = ko_gpu_share_address(share, rank, place);
}

bool ko_gpu_share_has_words(const struct ko_gpu_share *share)
{
    return share->ranks[0].words;
}

uint64_t ko_gpu_share_word(const struct ko_gpu_share *share, enum ko_gpu_round round, int owner,
                           int rank, enum ko_gpu_word word)
{
    return share->ranks[owner].words + sizeof(ko_gpu_words) * (unsigned)round +
           sizeof(uint32_t) * (KO_GPU_NWORDS * (unsigned)rank + (unsigned)word);
}

uint64_t ko_gpu_share_message_word(const struct ko_gpu_share *share, int owner, int rank,
                                   enum ko_gpu_message_word word, uint64_t seq)
{
    const uint64_t index = (uint64_t)word * KO_GPU_MESSAGES + seq % KO_GPU_MESSAGES;

    return share->ranks[owner].words + MESSAGES_AT + (uint64_t)rank * OF_RANK + 4 * index;
}

uint64_t ko_gpu_share_given_up(const struct ko_gpu_share *share, int owner)
{
    return share->ranks[owner].words + GIVEN_UP_AT;
}

uint64_t ko_gpu_share_passable(const struct ko_gpu_share *share, int owner)
{
    return share->ranks[owner].words + PASSABLE_AT;
}

/* Reads into the page, which lasts if this does not end in time. With the context. */
static ko_cu_result look(struct ko_gpu_share *share, ko_cu_ptr from, size_t nbytes)
{
    const ko_deadline deadline = ko_deadline_in(KO_GPU_LOOK_MS);
    ko_cu_result result;

    if (share->is_unanswered && !ko_gpu_share_is_at_rest(share))
        return KO_CU_NOT_READY;
    result =
        share->cuda->copy((uintptr_t)ko_gpu_page(share->gpu)->look, from, nbytes, share->aside);
    if (!result)
        result = await_aside(share, false, &deadline);
    share->is_unanswered = result == KO_CU_NOT_READY;
    return result;
}

static int read_from(struct ko_gpu_share *share, ko_cu_ptr from, void *to, size_t nbytes)
{
    ko_cu_result result;
    int err = ko_gpu_enter(share->gpu);

    if (err)
        return err;
    pthread_mutex_lock(&share->looking);
    result = look(share, from, nbytes);
    if (!result)
        memcpy(to, ko_gpu_page(share->gpu)->look, nbytes);
    pthread_mutex_unlock(&share->looking);
    ko_gpu_leave(share->gpu);
    if (result == KO_CU_NOT_READY)
        return KO_AGAIN;
    return ko_cuda_check(share->cuda, result, "the words that streams wait for cannot be read");
}

int ko_gpu_share_read(struct ko_gpu_share *share, enum ko_gpu_round round, int owner,
                      ko_gpu_words words)
{
    return read_from(share, ko_gpu_share_word(share, round, owner, 0, (enum ko_gpu_word)0), words,
                     (size_t)share->n * sizeof *words);
}

bool ko_gpu_share_has_given_up(struct ko_gpu_share *share, int rank)
{
    uint32_t has = 0;

    return !read_from(share, ko_gpu_share_given_up(share, rank), &has, sizeof has) && has;
}

bool ko_gpu_share_has_boxes(const struct ko_gpu_share *share)
{
    return share->layout == KO_GPU_EACH && share->n > 1 && ko_gpu_share_has_words(share);
}

void ko_gpu_share_push(const struct ko_gpu_share *share, enum ko_gpu_round round, int rank,
                       struct ko_push *push, uint64_t *scratch)
{
    const ko_cu_ptr page_at = ko_gpu_page_at(share->gpu);

    *push = (struct ko_push){.rank = (uint32_t)rank,
                             .n = (uint32_t)share->n,
                             .epochs = share->words.at + EPOCHS_AT + EPOCHS * (unsigned)round,
                             .given_up = ko_gpu_share_given_up(share, rank),
                             .stop = page_at + offsetof(struct ko_gpu_page, stop),
                             .stalled = page_at + offsetof(struct ko_gpu_page, stalled[round])};
    for (int r = 0; r < share->n; r++)
        push->boxes[r] = share->ranks[r].words + boxes_at(share, round);
    *scratch = share->words.at + scratch_at(share, round);
}

void ko_gpu_share_has_round(struct ko_gpu_share *share, enum ko_gpu_round round)
{
    if (round == KO_GPU_GRAPHS) {
        ko_gpu_keep_page(share->gpu);
        atomic_store(&share->has_captured, true);
    }
    atomic_store(&share->has_waits, true);
}

/* One wait after another, since who has waited takes the words back. Others are told no more that
 * this rank is done, since it has not got what it waited for. What streams may go past is said
 * before. Of a context that has failed the driver takes none of it. */
static ko_cu_result let_go(struct ko_gpu_share *share, int rank, uint32_t last)
{
    const ko_cu_stream stream = share->aside;

    (void)share->cuda->stream_put_word(stream, ko_gpu_share_given_up(share, rank), 1, 0);
    (void)share->cuda->stream_put_word(stream, ko_gpu_share_passable(share, rank),
                                       ko_gpu_passage(last), 0);
    for (int i = 0; i < KO_GPU_NROUNDS * KO_GPU_NWORDS * share->n; i++)
        (void)share->cuda->stream_put_word(
            stream,
            ko_gpu_share_word(share, (enum ko_gpu_round)(i % KO_GPU_NROUNDS), rank,
                              i / KO_GPU_NROUNDS / KO_GPU_NWORDS,
                              (enum ko_gpu_word)(i / KO_GPU_NROUNDS % KO_GPU_NWORDS)),
            1, 0);
    return share->cuda->fill(share->ranks[rank].words + MESSAGES_AT, 1, (size_t)share->n * OF_RANK,
                             stream);
}

bool ko_gpu_share_stop(struct ko_gpu_share *share)
{
    atomic_store(&ko_gpu_page(share->gpu)->stop, 1);
    if (!atomic_load(&share->has_waits))
        return false;
    atomic_store(&share->has_let_go, true);
    return true;
}

/* With the context. */
static bool has_let_go(struct ko_gpu_share *share)
{
    const ko_deadline deadline = {.at_ns = atomic_load(&share->let_go_ns)};

    if (deadline.at_ns && await_aside(share, false, &deadline) == KO_CU_NOT_READY)
        return false;
    atomic_store(&share->let_go_ns, 0);
    return true;
}

bool ko_gpu_share_let_go(struct ko_gpu_share *share, int rank, uint32_t last)
{
    bool has;

    if (ko_gpu_enter(share->gpu))
        return false;
    /* not one behind the other without end, where they stand: the driver would have who puts in
     * more wait some time */
    has = has_let_go(share) && !let_go(share, rank, last);
    if (has) {
        atomic_store(&share->let_go_ns, ko_deadline_in(KO_GPU_LET_GO_MS).at_ns);
        has = has_let_go(share);
    }
    ko_gpu_leave(share->gpu);
    return has;
}
