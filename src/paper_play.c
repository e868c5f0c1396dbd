/* SPDX-License-Identifier: MIT
 *
 * Plays the ranks' lists against one another. A message takes a slot of its link from the send
 * until its receiver lets it go; a receiver that passes on lets it go only when it has a slot to
 * pass it on in, as on the host. Whether such a game ends, and how, does not depend on who moves
 * first, so one game decides for all; only writing over what was sent by reference could depend on
 * it, and paper_memory.c judges that by what ranks can know.
 */
#include "paper_play.h"

#include "status.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- links ------------------------------------------------------------------------------- */

static struct ko_paper_link *link_of(struct ko_paper_board *board, int from, int to)
{
    return &board->links[from * board->call->n + to];
}

/* The slots of a link with their values and clocks, in one piece, which begins with them. */
static int open_slots(const struct ko_paper_call *call, struct ko_paper_link *link)
{
    const size_t n = (size_t)call->n, slots = (size_t)call->slots;
    struct ko_paper_message *messages;
    struct ko_paper_value *values;
    uint32_t *clocks;

    assert(slots > 0); /* the first keeps what was allocated */
    messages = ko_alloc_unset(
        slots * (sizeof *messages + call->slice * sizeof *values + n * sizeof *clocks),
        "slots on paper");
    if (!messages)
        return KOLO_E_NOMEM;
    values = (struct ko_paper_value *)(messages + slots);
    clocks = (uint32_t *)(values + slots * call->slice);
    for (size_t i = 0; i < slots; i++)
        messages[i] =
            (struct ko_paper_message){.values = values + i * call->slice, .clock = clocks + i * n};
    link->slots = messages;
    return KOLO_OK;
}

/* A slot to fill; KO_AGAIN if none is free. */
static int room(struct ko_paper_board *board, int from, int to, struct ko_paper_message **message)
{
    const uint64_t slots = (uint64_t)board->call->slots;
    struct ko_paper_link *link;
    int err = KOLO_OK;

    if (to < 0 || to >= board->call->n || to == from)
        return ko_paper_wrong(board, from, "there is no link to rank %d", to);
    link = link_of(board, from, to);
    if (!link->slots)
        err = open_slots(board->call, link);
    if (!err && link->received + slots <= link->sent)
        err = KO_AGAIN;
    if (!err)
        *message = &link->slots[link->sent % slots];
    return err;
}

static void show(const struct ko_paper_board *board, bool is_sent, int from, int to,
                 const struct ko_paper_message *message)
{
    const struct ko_paper_observer *observer = board->call->observer;
    const struct ko_paper_event event = {is_sent, from, to, message->count, message->values};

    if (observer)
        observer->see(observer->context, &event);
}

static void commit(struct ko_paper_board *board, int from, int to, size_t count,
                   struct ko_paper_loan *loan)
{
    const struct ko_hosts *hosts = board->call->hosts;
    struct ko_paper_player *player = &board->players[from];
    struct ko_paper_link *link = link_of(board, from, to);
    struct ko_paper_message *message = &link->slots[link->sent++ % (uint64_t)board->call->slots];

    message->count = count;
    message->loan = loan;
    message->step = player->step + 1;
    memcpy(message->clock, player->clock, (size_t)board->call->n * sizeof *player->clock);
    board->report.messages++;
    board->report.sent[from] += count;
    if (hosts && hosts->host[from] != hosts->host[to])
        board->report.sent_away[from] += count;
    if (board->report.steps < message->step)
        board->report.steps = message->step;
    show(board, true, from, to, message);
}

/* The next message; KO_AGAIN if there is none. */
static int arrived(struct ko_paper_board *board, int from, int to, size_t count,
                   struct ko_paper_message **message)
{
    struct ko_paper_link *link;

    if (from < 0 || from >= board->call->n || from == to)
        return ko_paper_wrong(board, to, "there is no link from rank %d", from);
    link = link_of(board, from, to);
    if (link->sent == link->received)
        return KO_AGAIN;
    *message = &link->slots[link->received % (uint64_t)board->call->slots];
    if ((*message)->count != count)
        return ko_paper_wrong(board, to, "message #%llu from rank %d has %zu elements, not %zu",
                              (unsigned long long)link->received + 1, from, (*message)->count,
                              count);
    return KOLO_OK;
}

/* Every number becomes that of theirs, if that is larger: of so many ranks at once a fifth of a
 * proof is spent on this. */
static void learn(uint32_t *mine, const uint32_t *theirs, int n)
{
#pragma omp simd
    for (int i = 0; i < n; i++)
        mine[i] = mine[i] > theirs[i] ? mine[i] : theirs[i];
}

/* The receiver has the message, and with it what its sender knew. */
static void release(struct ko_paper_board *board, int from, int to)
{
    struct ko_paper_player *player = &board->players[to];
    struct ko_paper_link *link = link_of(board, from, to);
    struct ko_paper_message *message =
        &link->slots[link->received++ % (uint64_t)board->call->slots];

    learn(player->clock, message->clock, board->call->n);
    if (message->loan)
        message->loan->received_at = player->clock[to];
    if (player->step < message->step)
        player->step = message->step;
    show(board, false, from, to, message);
}

/* ---- verbs ------------------------------------------------------------------------------- */

static int reduce(struct ko_paper_board *board, int rank, const struct ko_paper_value *a,
                  const struct ko_paper_value *b, struct ko_paper_value *sum)
{
    uint64_t both = a->ranks & b->ranks;

    if (both)
        return ko_paper_wrong(board, rank,
                              "element %u would have the contribution of rank %d twice", a->index,
                              __builtin_ctzll(both));
    if (a->index != b->index)
        return ko_paper_wrong(board, rank, "element %u would be mixed with element %u", a->index,
                              b->index);
    if (a->is_final || b->is_final)
        return ko_paper_wrong(board, rank, "element %u was complete already (AVG)", a->index);
    *sum = (struct ko_paper_value){.ranks = a->ranks | b->ranks,
                                   .shape = ko_paper_join(a->shape, b->shape),
                                   .index = a->index};
    return KOLO_OK;
}

static int reduce_all(struct ko_paper_board *board, int rank, bool is_own_first,
                      const struct ko_paper_value *mine, struct ko_paper_message *message)
{
    struct ko_paper_value *theirs = message->values;
    int err = KOLO_OK;

    for (size_t i = 0; i < message->count && !err; i++)
        err = reduce(board, rank, is_own_first ? &mine[i] : &theirs[i],
                     is_own_first ? &theirs[i] : &mine[i], &theirs[i]);
    return err;
}

static void finalise(struct ko_paper_value *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i].is_final = true;
}

static int play_send(struct ko_paper_board *board, int rank, const struct ko_paper_action *action)
{
    struct ko_paper_loan *loan = NULL;
    struct ko_paper_message *message;
    struct ko_paper_value *from;
    int err = ko_paper_read(board, rank, action->buffer, action->mine, &from);

    if (!err)
        err = room(board, rank, action->to, &message);
    if (err)
        return err;
    memcpy(message->values, from, action->mine.count * sizeof *from);
    if (action->verb == KO_PAPER_SEND)
        loan = ko_paper_lend(board, rank, action);
    commit(board, rank, action->to, action->mine.count, loan);
    return KOLO_OK;
}

static int play_recv(struct ko_paper_board *board, int rank, const struct ko_paper_action *action)
{
    struct ko_paper_message *message;
    int err = arrived(board, action->from, rank, action->part.count, &message);

    if (err)
        return err;
    release(board, action->from, rank);
    return ko_paper_put(board, rank, action->target, action->part, message->values);
}

static int play_recv_reduce(struct ko_paper_board *board, int rank,
                            const struct ko_paper_action *action)
{
    struct ko_paper_message *message;
    struct ko_paper_value *mine;
    int err = arrived(board, action->from, rank, action->part.count, &message);

    if (!err)
        err = ko_paper_read(board, rank, action->buffer, action->mine, &mine);
    if (!err && action->mine.count != action->part.count)
        err = ko_paper_wrong(board, rank, "the two parts differ in length");
    if (!err)
        err = reduce_all(board, rank, rank < action->from, mine, message);
    if (err)
        return err;
    if (action->is_complete)
        finalise(message->values, message->count);
    release(board, action->from, rank);
    return ko_paper_put(board, rank, action->target, action->part, message->values);
}

static int play_recv_reduce_send(struct ko_paper_board *board, int rank,
                                 const struct ko_paper_action *action)
{
    struct ko_paper_message *message, *place;
    struct ko_paper_value *mine;
    int err = arrived(board, action->from, rank, action->mine.count, &message);

    if (!err)
        err = ko_paper_read(board, rank, action->buffer, action->mine, &mine);
    if (!err)
        err = room(board, rank, action->to, &place);
    if (!err)
        err = reduce_all(board, rank, false, mine, message);
    if (err)
        return err;
    memcpy(place->values, message->values, message->count * sizeof *mine);
    release(board, action->from, rank);
    commit(board, rank, action->to, action->mine.count, NULL);
    return KOLO_OK;
}

/* Rank i of the action's list. */
static int listed(const struct ko_paper_board *board, int rank,
                  const struct ko_paper_action *action, int i)
{
    return board->players[rank].list.ranks[action->ranks_at + (size_t)i];
}

/* The slices of the listed ranks, and the own part among them; KO_AGAIN until all have come. */
static int collect(struct ko_paper_board *board, int rank, const struct ko_paper_action *action,
                   struct ko_paper_value *parts[])
{
    struct ko_paper_message *message;
    int err = KOLO_OK;

    if (action->nranks < 1)
        return ko_paper_wrong(board, rank, "a reduction of no parts");
    for (int i = 0; i < action->nranks && !err; i++) {
        const int peer = listed(board, rank, action, i);

        if (peer == rank) {
            err = ko_paper_read(board, rank, IN, action->mine, &parts[i]);
        } else {
            err = arrived(board, peer, rank, action->mine.count, &message);
            parts[i] = err ? NULL : message->values;
        }
    }
    return err;
}

static void release_listed(struct ko_paper_board *board, int rank,
                           const struct ko_paper_action *action)
{
    for (int i = 0; i < action->nranks; i++)
        if (listed(board, rank, action, i) != rank)
            release(board, listed(board, rank, action, i), rank);
}

/* Element i of all parts, in their order. */
static int reduce_element(struct ko_paper_board *board, int rank,
                          const struct ko_paper_action *action,
                          struct ko_paper_value *const parts[], size_t i,
                          struct ko_paper_value *sum)
{
    int err = KOLO_OK;

    *sum = parts[0][i];
    for (int k = 1; k < action->nranks && !err; k++)
        err = reduce(board, rank, sum, &parts[k][i], sum);
    sum->is_final = action->is_complete;
    return err;
}

static int play_reduce_from(struct ko_paper_board *board, int rank,
                            const struct ko_paper_action *action)
{
    struct ko_paper_value *parts[KO_PAPER_MOST_RANKS], *to, sum;
    int err = collect(board, rank, action, parts);

    if (!err && action->mine.count != action->part.count)
        err = ko_paper_wrong(board, rank, "the two parts differ in length");
    if (err)
        return err;
    release_listed(board, rank, action);
    err = ko_paper_write_at(board, rank, action->target, action->part, &to);
    for (size_t i = 0; i < action->part.count && !err; i++) {
        err = reduce_element(board, rank, action, parts, i, &sum);
        to[i] = sum; /* only now: it may be one of the parts */
    }
    return err;
}

static int play_reduce_from_send(struct ko_paper_board *board, int rank,
                                 const struct ko_paper_action *action)
{
    struct ko_paper_value *parts[KO_PAPER_MOST_RANKS];
    struct ko_paper_message *place;
    int err = collect(board, rank, action, parts);

    if (!err)
        err = room(board, rank, action->to, &place);
    for (size_t i = 0; i < action->mine.count && !err; i++)
        err = reduce_element(board, rank, action, parts, i, &place->values[i]);
    if (err)
        return err;
    release_listed(board, rank, action);
    commit(board, rank, action->to, action->mine.count, NULL);
    return KOLO_OK;
}

static int play_move(struct ko_paper_board *board, int rank, const struct ko_paper_action *action)
{
    struct ko_paper_value *from, *to;
    int err = ko_paper_read(board, rank, action->buffer, action->mine, &from);

    if (!err && action->mine.count != action->part.count)
        err = ko_paper_wrong(board, rank, "the two parts differ in length");
    if (!err)
        err = ko_paper_at(board, rank, action->target, action->part, &to);
    if (err || from == to) /* in place there is nothing to do */
        return err;
    return ko_paper_put(board, rank, action->target, action->part, from);
}

static int play_send_comb(struct ko_paper_board *board, int rank,
                          const struct ko_paper_action *action)
{
    const struct ko_comb *comb = &action->comb;
    struct ko_paper_message *message;
    struct ko_paper_value *from;
    size_t done = 0;
    int err = room(board, rank, action->to, &message);

    for (size_t at = comb->at; comb->run && at < comb->end && !err; at += comb->stride) {
        const struct ko_part run = run_of(comb, at);

        err = ko_paper_read(board, rank, TMP, run, &from);
        if (!err)
            memcpy(message->values + done, from, run.count * sizeof *from);
        done += run.count;
    }
    if (!err)
        commit(board, rank, action->to, action->mine.count, NULL);
    return err;
}

static int play_recv_comb(struct ko_paper_board *board, int rank,
                          const struct ko_paper_action *action)
{
    const struct ko_comb *comb = &action->comb;
    struct ko_paper_message *message;
    size_t done = 0;
    int err = arrived(board, action->from, rank, action->part.count, &message);

    if (err)
        return err;
    release(board, action->from, rank);
    for (size_t at = comb->at; comb->run && at < comb->end && !err; at += comb->stride) {
        const struct ko_part run = run_of(comb, at);

        err = ko_paper_put(board, rank, TMP, run, message->values + done);
        done += run.count;
    }
    return err;
}

typedef int (*play_verb)(struct ko_paper_board *, int, const struct ko_paper_action *);

static const play_verb verbs[KO_PAPER_NVERBS] = {
    [KO_PAPER_SEND] = play_send,
    [KO_PAPER_SEND_COPY] = play_send,
    [KO_PAPER_RECV] = play_recv,
    [KO_PAPER_RECV_REDUCE] = play_recv_reduce,
    [KO_PAPER_RECV_REDUCE_SEND] = play_recv_reduce_send,
    [KO_PAPER_REDUCE_FROM] = play_reduce_from,
    [KO_PAPER_REDUCE_FROM_SEND] = play_reduce_from_send,
    [KO_PAPER_MOVE] = play_move,
    [KO_PAPER_SEND_COMB] = play_send_comb,
    [KO_PAPER_RECV_COMB] = play_recv_comb,
};

/* ---- the game ---------------------------------------------------------------------------- */

/* Carries out what the rank can do now; KO_AGAIN if it stopped before its end. */
static int play_rank(struct ko_paper_board *board, int rank)
{
    struct ko_paper_player *player = &board->players[rank];
    int err = KOLO_OK;

    while (!err && player->done < player->list.n) {
        const struct ko_paper_action *action = &player->list.actions[player->done];

        if (action->verb != KO_PAPER_MOVE &&
            (action->mine.count > board->call->slice || action->part.count > board->call->slice))
            return ko_paper_wrong(board, rank, "that is more than a slice");
        player->clock[rank] = (uint32_t)player->done + 1;
        err = verbs[action->verb](board, rank, action);
        player->done += !err;
    }
    return err;
}

/* Everybody waits for somebody. */
static int deadlocked(const struct ko_paper_board *board)
{
    char text[384] = "", action[128];
    int first = -1, listed = 0;

    for (int rank = 0; rank < board->call->n && listed < 4; rank++) {
        const struct ko_paper_player *player = &board->players[rank];
        size_t used = strlen(text);

        if (player->done == player->list.n)
            continue;
        if (first < 0) {
            first = rank;
            continue;
        }
        ko_paper_describe(&player->list.actions[player->done], action, sizeof action);
        snprintf(text + used, sizeof text - used, "%s rank %d in %s", listed++ ? "," : "", rank,
                 action);
    }
    return ko_paper_wrong(board, first, "a deadlock: so waits%s", listed ? text : " no other rank");
}

static int play(struct ko_paper_board *board)
{
    const int n = board->call->n;
    int nfinished = 0, err = KOLO_OK;

    while (nfinished < n) {
        size_t before = 0, after = 0;

        nfinished = 0;
        for (int rank = 0; rank < n; rank++) {
            before += board->players[rank].done;
            err = play_rank(board, rank);
            after += board->players[rank].done;
            nfinished += !err;
            if (err && err != KO_AGAIN)
                return err;
        }
        if (nfinished < n && before == after)
            return deadlocked(board);
    }
    return KOLO_OK;
}

static int check_links(struct ko_paper_board *board)
{
    for (int from = 0; from < board->call->n; from++)
        for (int to = 0; to < board->call->n; to++) {
            const struct ko_paper_link *link = link_of(board, from, to);

            if (link->sent != link->received)
                return ko_paper_wrong(board, from, "%llu messages to rank %d were never received",
                                      (unsigned long long)(link->sent - link->received), to);
        }
    return KOLO_OK;
}

/* Nobody leaves a barrier before everybody has come. */
static int check_meeting(struct ko_paper_board *board)
{
    const int n = board->call->text->what == KO_BARRIER ? board->call->n : 0;

    for (int rank = 0; rank < n; rank++)
        for (int other = 0; other < n; other++)
            if (!board->players[rank].clock[other])
                return ko_paper_wrong(board, rank, "that does not wait until rank %d has come",
                                      other);
    return KOLO_OK;
}

static int check_call(const struct ko_paper_call *call)
{
    if (call->n < 2 || call->n > KO_PAPER_MOST_RANKS)
        return ko_fail(KOLO_E_INVALID, "on paper there are 2 to %d ranks, not %d",
                       KO_PAPER_MOST_RANKS, call->n);
    if (call->root < 0 || call->root >= call->n || !call->slice || call->slots < 1 ||
        call->count > UINT32_MAX / KO_PAPER_MOST_RANKS)
        return ko_fail(KOLO_E_INVALID,
                       "root %d of %d, slices of %zu, %d slots, %zu elements: no call", call->root,
                       call->n, call->slice, call->slots, call->count);
    if (call->text->flags & KO_SPREAD && !call->hosts)
        return ko_fail(KOLO_E_INVALID, "%s asks where the ranks sit, which the call does not say",
                       call->text->name);
    if (call->is_in_place && call->text->what == KO_ALL_TO_ALL)
        return ko_fail(KOLO_E_INVALID, "all_to_all cannot be in place");
    return KOLO_OK;
}

int ko_paper_verify(const struct ko_paper_call *call, struct ko_paper_report *report)
{
    struct ko_paper_board board;
    int err = check_call(call);

    if (err)
        return err;
    err = ko_paper_board_open(&board, call);
    if (!err)
        err = play(&board);
    if (!err)
        err = check_links(&board);
    if (!err)
        err = check_meeting(&board);
    if (!err)
        err = ko_paper_check_outputs(&board);
    if (!err && report)
        *report = board.report;
    ko_paper_board_close(&board);
    return err;
}
