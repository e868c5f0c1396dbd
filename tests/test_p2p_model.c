/* SPDX-License-Identifier: MIT
 *
 * Random messages and random receives, of given and of any rank and tag, held to MPI's rules:
 *  - a receive gets a message that it takes, whole, and every receive gets one;
 *  - of what one rank sent, it gets the first message that it takes, unless a receive that was
 *    posted before it has got that one.
 * For one sender there is just one matching that keeps these rules; for several any that does is
 * right. To see to it that no receive is starved, each rank sends as many messages of each tag as
 * there are receives that take them; those that are left over are received at the end.
 *   test_p2p_model [SEEDS [FIRST]]
 */
#include "letters.h"
#include "seeded.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    MOST_RANKS = 4,
    NTAGS = 3,
    NRECEIVES = 12,
    MOST_SENT = NTAGS * NRECEIVES,
    ROOM = 8 * LETTERS_SLICE_BYTES
};

static uint64_t first_seed = 1;
static int nseeds = 12;

/* ---- what is to be sent and received ------------------------------------------------------- */

struct receive {
    int from, tag;
    unsigned char *out;
    kolo_message got;
    kolo_work *work;
};

/* One rank's messages to rank 0, in order; no two have the same length, by which they are known. */
struct sender {
    int n;
    int tags[MOST_SENT];
    size_t lengths[MOST_SENT];
};

struct plan {
    uint64_t seed;
    int n, nreceives; /* with those of what is left over */
    struct receive receives[MOST_RANKS * MOST_SENT];
    struct sender senders[MOST_RANKS];
};

static bool takes(const struct receive *receive, int from, int tag)
{
    return (receive->from == KOLO_ANY_RANK || receive->from == from) &&
           (receive->tag == KOLO_ANY_TAG || receive->tag == tag);
}

/* Lengths of up to four slices, and a few much longer ones. */
static size_t random_length(const struct sender *sender, uint64_t *state)
{
    for (;;) {
        const size_t length = (size_t)seeded_below(state, 4 * LETTERS_SLICE_BYTES + 1) *
                              (size_t)(seeded_below(state, 8) ? 1 : 2);
        int i = 0;

        while (i < sender->n && sender->lengths[i] != length)
            i++;
        if (i == sender->n)
            return length;
    }
}

static void plan_sender(struct plan *plan, int rank, uint64_t *state)
{
    struct sender *sender = &plan->senders[rank];

    for (int tag = 0; tag < NTAGS; tag++)
        for (int i = 0; i < NRECEIVES; i++)
            if (takes(&plan->receives[i], rank, tag)) {
                sender->lengths[sender->n] = random_length(sender, state);
                sender->tags[sender->n++] = tag;
            }
    for (int i = sender->n; i > 1; i--) {
        const int k = seeded_below(state, i), tag = sender->tags[k];

        sender->tags[k] = sender->tags[i - 1];
        sender->tags[i - 1] = tag;
    }
    plan->nreceives += sender->n;
}

static void make_plan(struct plan *plan, uint64_t seed, int n)
{
    uint64_t state = seed * 77 + (uint64_t)n;

    memset(plan, 0, sizeof *plan);
    plan->seed = seed;
    plan->n = n;
    for (int i = 0; i < MOST_RANKS * MOST_SENT; i++) {
        const bool is_left_over = i >= NRECEIVES;

        plan->receives[i].from =
            is_left_over || seeded_below(&state, 2) ? KOLO_ANY_RANK : seeded_below(&state, n);
        plan->receives[i].tag =
            is_left_over || !seeded_below(&state, 3) ? KOLO_ANY_TAG : seeded_below(&state, NTAGS);
    }
    for (int rank = 0; rank < n; rank++)
        plan_sender(plan, rank, &state);
}

/* ---- doing it ------------------------------------------------------------------------------ */

static unsigned id_of(int from, int index)
{
    return (unsigned)(from * 100 + index);
}

static int send_all(kolo_group *group, const struct plan *plan, kolo_work **works,
                    unsigned char **bytes)
{
    const int rank = kolo_group_rank(group);
    const struct sender *sender = &plan->senders[rank];
    uint64_t state = plan->seed * 31 + (uint64_t)rank;
    int failed = 0;

    for (int i = 0; i < sender->n && !failed; i++) {
        bytes[i] = letter_make(sender->lengths[i], id_of(rank, i));
        failed = kolo_isend(group, bytes[i], sender->lengths[i], KOLO_UINT8, 0, sender->tags[i],
                            &works[i]);
        if (!seeded_below(&state, 8))
            ranks_nap_ms(1);
    }
    return failed ? ranks_fail("send_all") : 0;
}

static int end_sends(const struct sender *sender, kolo_work **works, unsigned char **bytes)
{
    int failed = 0;

    for (int i = 0; i < sender->n; i++) {
        failed |= kolo_work_wait(works[i], -1);
        kolo_work_free(works[i]);
        free(bytes[i]);
    }
    return failed ? ranks_fail("end_sends") : 0;
}

/* Some of the receives are waited for as soon as they are posted, if they can be done. */
static int post_all(kolo_group *group, struct plan *plan)
{
    uint64_t state = plan->seed * 13;
    int failed = 0;

    for (int i = 0; i < plan->nreceives && !failed; i++) {
        struct receive *receive = &plan->receives[i];
        int done;

        receive->out = malloc(ROOM);
        failed = kolo_irecv_message(group, receive->out, ROOM, KOLO_UINT8, receive->from,
                                    receive->tag, &receive->got, &receive->work);
        if (!failed && !seeded_below(&state, 4))
            failed = kolo_work_test(receive->work, &done);
        if (!seeded_below(&state, 8))
            ranks_nap_ms(1);
    }
    for (int i = plan->nreceives; i-- > 0 && !failed;)
        failed = kolo_work_wait(plan->receives[i].work, -1);
    for (int i = 0; i < plan->nreceives; i++)
        kolo_work_free(plan->receives[i].work);
    return failed ? ranks_fail("post_all") : 0;
}

/* ---- judging it ---------------------------------------------------------------------------- */

/* Which of its sender's messages a receive got; -1: it is none. */
static int index_of(const struct plan *plan, const kolo_message *got)
{
    const struct sender *sender = &plan->senders[got->from];
    int i = 0;

    while (i < sender->n && sender->lengths[i] != got->count)
        i++;
    return i < sender->n && sender->tags[i] == got->tag ? i : -1;
}

/* taker: the receive that each message went to. */
static int judge_contents(const struct plan *plan, int (*taker)[MOST_SENT])
{
    for (int i = 0; i < plan->nreceives; i++) {
        const struct receive *receive = &plan->receives[i];
        const kolo_message *got = &receive->got;
        const int index = index_of(plan, got);

        if (index < 0 || !takes(receive, got->from, got->tag) || taker[got->from][index] >= 0)
            return ranks_fail("receive %d got %zu bytes of tag %d from %d", i, got->count, got->tag,
                              got->from);
        if (!letter_is(receive->out, got->count, id_of(got->from, index)))
            return ranks_fail("the bytes of receive %d are wrong", i);
        taker[got->from][index] = i;
    }
    return 0;
}

static int judge_order(const struct plan *plan, int (*taker)[MOST_SENT])
{
    for (int i = 0; i < plan->nreceives; i++) {
        const struct receive *receive = &plan->receives[i];
        const int from = receive->got.from, index = index_of(plan, &receive->got);

        for (int before = 0; before < index; before++)
            if (takes(receive, from, plan->senders[from].tags[before]) && taker[from][before] > i)
                return ranks_fail("receive %d got message %d of rank %d; an earlier one, %d, went "
                                  "to a later receive, %d",
                                  i, index, from, before, taker[from][before]);
    }
    return 0;
}

static int judge(const struct plan *plan)
{
    int taker[MOST_RANKS][MOST_SENT];

    memset(taker, 0xff, sizeof taker);
    return judge_contents(plan, taker) || judge_order(plan, taker);
}

static int run_plan(kolo_group *group, uint64_t seed)
{
    struct plan *plan = malloc(sizeof *plan);
    kolo_work *works[MOST_SENT];
    unsigned char *bytes[MOST_SENT];
    const int rank = kolo_group_rank(group);
    int failed;

    make_plan(plan, seed, kolo_group_size(group));
    failed = send_all(group, plan, works, bytes);
    if (!failed && rank == 0)
        failed = post_all(group, plan) || judge(plan);
    if (!failed)
        failed = end_sends(&plan->senders[rank], works, bytes);
    for (int i = 0; rank == 0 && i < plan->nreceives; i++)
        free(plan->receives[i].out);
    free(plan);
    return failed ? ranks_fail("seed %llu", (unsigned long long)seed) : 0;
}

static int run_plans(kolo_group *group, void *argument)
{
    int failed = 0;

    (void)argument;
    for (int i = 0; i < nseeds && !failed; i++)
        failed = run_plan(group, first_seed + (uint64_t)i) || kolo_barrier(group);
    return failed;
}

/* What comes unasked is kept, or steps aside from different lengths on. */
static void messages_match_as_mpi_says(void **state)
{
    static const char *const eager[] = {"0", "600", "4M"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        setenv("KOLO_EAGER_BYTES", eager[i], 1);
        for (int n = 1; n <= MOST_RANKS; n++)
            letters_run(n, run_plans);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(messages_match_as_mpi_says)};

    if (argc > 1)
        nseeds = atoi(argv[1]);
    if (argc > 2)
        first_seed = strtoull(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
