/* SPDX-License-Identifier: MIT
 *
 * What lies in the ranks' buffers on paper, before, meanwhile and afterwards. A loan ends for its
 * owner when he surely knows that the receiver has it: when a chain of messages leads from the
 * receive to him, whatever the timing. Free slots are no such chain, since a link may have more.
 */
#include "paper_play.h"

#include "status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const collective_names[] = {
#define COLLECTIVE_NAME(id, name) #name,
    KO_COLLECTIVE_LIST(COLLECTIVE_NAME)
#undef COLLECTIVE_NAME
};

static const char *const buffer_names[] = {"IN", "OUT", "TMP"};

int(ko_paper_wrong)(const struct ko_paper_board *board, int rank, const char *format, ...)
{
    const struct ko_paper_call *call = board->call;
    const struct ko_paper_player *player = &board->players[rank];
    char what[256], action[128] = "its end";
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    if (player->done < player->list.n)
        ko_paper_describe(&player->list.actions[player->done], action, sizeof action);
    return ko_fail(KOLO_E_INTERNAL,
                   "%s by %s, %d ranks, root %d, %zu elements in slices of %zu, %d slots%s: rank "
                   "%d, at action %zu, %s: %s",
                   collective_names[call->text->what], call->text->name, call->n, call->root,
                   call->count, call->slice, call->slots, call->is_in_place ? ", in place" : "",
                   rank, player->done, action, what);
}

/* ---- before ------------------------------------------------------------------------------ */

/* Where in == out, or part of it, is allowed, as kolo.h says. */
static void lay_out(const struct ko_paper_call *call, int rank, struct ko_paper_player *player)
{
    const enum ko_collective what = call->text->what;
    struct ko_part *in = &player->places[IN], *out = &player->places[OUT];
    struct ko_part *tmp = &player->places[TMP];

    *in = (struct ko_part){0, ko_paper_in_count(call, rank)};
    *out = (struct ko_part){0, ko_paper_out_count(call, rank)};
    if (what == KO_ALL_GATHER || (what == KO_GATHER && rank == call->root))
        in->at = ko_paper_out_block(call, rank, rank).at;
    else if (what == KO_REDUCE_SCATTER || (what == KO_SCATTER && rank == call->root))
        out->at = ko_paper_in_block(call, rank, rank).at;
    if (!call->is_in_place && what != KO_BROADCAST) {
        in->at = 0;
        out->at = in->count;
    }
    tmp->at = in->at + in->count > out->at + out->count ? in->at + in->count : out->at + out->count;
    tmp->count = player->list.scratch;
    player->memory_count = tmp->at + tmp->count;
}

static size_t count_loans(const struct ko_paper_list *list)
{
    size_t n = 0;

    for (size_t i = 0; i < list->n; i++)
        n += list->actions[i].verb == KO_PAPER_SEND;
    return n;
}

static int open_player(const struct ko_paper_call *call, int rank, struct ko_paper_player *player)
{
    bool is_source = call->text->what != KO_BROADCAST || rank == call->root;
    int err = ko_paper_write(call, rank, &player->list);

    if (err)
        return err;
    lay_out(call, rank, player);
    player->memory = ko_alloc(player->memory_count * sizeof *player->memory, "a buffer on paper");
    player->clock = ko_alloc((size_t)call->n * sizeof *player->clock, "a clock on paper");
    player->pool = ko_alloc(count_loans(&player->list) * sizeof *player->pool, "messages on paper");
    if (!player->memory || !player->clock || !player->pool)
        return KOLO_E_NOMEM;
    for (size_t i = 0; is_source && i < player->places[IN].count; i++)
        player->memory[player->places[IN].at + i] = (struct ko_paper_value){
            .ranks = (uint64_t)1 << rank, .shape = ko_paper_leaf(rank), .index = (uint32_t)i};
    return KOLO_OK;
}

int ko_paper_board_open(struct ko_paper_board *board, const struct ko_paper_call *call)
{
    int err = KOLO_OK;

    *board = (struct ko_paper_board){.call = call};
    board->links = ko_alloc((size_t)call->n * (size_t)call->n * sizeof *board->links, "links");
    if (!board->links)
        return KOLO_E_NOMEM;
    for (int rank = 0; rank < call->n && !err; rank++)
        err = open_player(call, rank, &board->players[rank]);
    return err;
}

void ko_paper_board_close(struct ko_paper_board *board)
{
    const int n = board->call->n;

    for (int i = 0; board->links && i < n * n; i++)
        free(board->links[i].slots);
    for (int rank = 0; rank < n; rank++) {
        ko_paper_free(&board->players[rank].list);
        free(board->players[rank].memory);
        free(board->players[rank].clock);
        free(board->players[rank].pool);
    }
    free(board->links);
}

/* ---- meanwhile --------------------------------------------------------------------------- */

int ko_paper_at(struct ko_paper_board *board, int rank, enum buffer buffer, struct ko_part part,
                struct ko_paper_value **values)
{
    struct ko_paper_player *player = &board->players[rank];
    const struct ko_part whole = player->places[buffer];

    if (part.at > whole.count || part.count > whole.count - part.at)
        return ko_paper_wrong(board, rank, "%s has %zu elements only", buffer_names[buffer],
                              whole.count);
    *values = player->memory + whole.at + part.at;
    return KOLO_OK;
}

int ko_paper_read(struct ko_paper_board *board, int rank, enum buffer buffer, struct ko_part part,
                  struct ko_paper_value **values)
{
    int err = ko_paper_at(board, rank, buffer, part, values);

    for (size_t i = 0; i < part.count && !err; i++)
        if (!(*values)[i].ranks)
            err = ko_paper_wrong(board, rank, "reads element %zu of %s, which is empty",
                                 part.at + i, buffer_names[buffer]);
    return err;
}

static bool overlaps(struct ko_part a, struct ko_part b)
{
    return a.count && b.count && a.at < b.at + b.count && b.at < a.at + a.count;
}

/* Drops loans that are over, complains of one that a write to `where` would spoil. */
static int check_loans(struct ko_paper_board *board, int rank, struct ko_part where)
{
    struct ko_paper_player *player = &board->players[rank];
    struct ko_paper_loan **link = &player->loans;

    while (*link) {
        const struct ko_paper_loan *loan = *link;

        if (loan->received_at && player->clock[loan->to] >= loan->received_at)
            *link = loan->next;
        else if (overlaps(loan->where, where) || overlaps(loan->back, where))
            return ko_paper_wrong(
                board, rank,
                "overwrites what was lent to rank %d, which may not have received "
                "it",
                loan->to);
        else
            link = &(*link)->next;
    }
    return KOLO_OK;
}

int ko_paper_write_at(struct ko_paper_board *board, int rank, enum buffer buffer,
                      struct ko_part part, struct ko_paper_value **values)
{
    const size_t at = board->players[rank].places[buffer].at + part.at;
    int err = ko_paper_at(board, rank, buffer, part, values);

    return err ? err : check_loans(board, rank, (struct ko_part){at, part.count});
}

int ko_paper_put(struct ko_paper_board *board, int rank, enum buffer buffer, struct ko_part part,
                 const struct ko_paper_value *values)
{
    struct ko_paper_value *to;
    int err = ko_paper_write_at(board, rank, buffer, part, &to);

    if (!err && part.count)
        memmove(to, values, part.count * sizeof *to);
    return err;
}

struct ko_paper_loan *ko_paper_lend(struct ko_paper_board *board, int rank,
                                    const struct ko_paper_action *action)
{
    struct ko_paper_player *player = &board->players[rank];
    struct ko_paper_loan *loan = &player->pool[player->pool_used++];
    const struct ko_part part = action->mine;

    *loan = (struct ko_paper_loan){
        .where = {player->places[action->buffer].at + part.at, part.count},
        .back = {player->places[OUT].at + part.at, action->is_lent ? part.count : 0},
        .to = action->to,
        .next = player->loans};
    player->loans = loan;
    return loan;
}

/* ---- afterwards -------------------------------------------------------------------------- */

/* The rank in whose block of OUT element i lies. */
static int giver_of(const struct ko_paper_call *call, int rank, size_t i)
{
    int giver = call->count ? (int)(i / call->count) : 0;

    while (i >=
           ko_paper_out_block(call, rank, giver).at + ko_paper_out_block(call, rank, giver).count)
        giver++;
    return giver;
}

/* What element i of the rank's output should be. */
static struct ko_paper_value expected(const struct ko_paper_call *call, int rank, size_t i)
{
    const uint64_t all = ~(uint64_t)0 >> (KO_PAPER_MOST_RANKS - call->n);
    const uint64_t root = (uint64_t)1 << call->root;
    int giver;

    switch (call->text->what) {
    case KO_BROADCAST:
        return (struct ko_paper_value){.ranks = root, .index = (uint32_t)i};
    case KO_SCATTER:
        i += ko_paper_in_block(call, call->root, rank).at;
        return (struct ko_paper_value){.ranks = root, .index = (uint32_t)i};
    case KO_ALL_GATHER:
    case KO_GATHER:
        giver = giver_of(call, rank, i);
        i -= ko_paper_out_block(call, rank, giver).at;
        return (struct ko_paper_value){.ranks = (uint64_t)1 << giver, .index = (uint32_t)i};
    case KO_ALL_TO_ALL:
        giver = giver_of(call, rank, i);
        i -= ko_paper_out_block(call, rank, giver).at;
        i += ko_paper_in_block(call, giver, rank).at;
        return (struct ko_paper_value){.ranks = (uint64_t)1 << giver, .index = (uint32_t)i};
    case KO_REDUCE_SCATTER:
        i += ko_paper_in_block(call, rank, rank).at;
        return (struct ko_paper_value){.ranks = all, .index = (uint32_t)i, .is_final = true};
    default:
        return (struct ko_paper_value){.ranks = all, .index = (uint32_t)i, .is_final = true};
    }
}

/* The shape of a sum in the order of the ranks. */
static uint64_t ordered_shape(int n)
{
    uint64_t shape = ko_paper_leaf(0);

    for (int rank = 1; rank < n; rank++)
        shape = ko_paper_join(shape, ko_paper_leaf(rank));
    return shape;
}

/* The first rank that one of the two has and the other has not. */
static int first_difference(uint64_t a, uint64_t b)
{
    return __builtin_ctzll(a ^ b);
}

static int check_value(const struct ko_paper_board *board, int rank, size_t i)
{
    const struct ko_paper_player *player = &board->players[rank];
    const struct ko_paper_value *value = &player->memory[player->places[OUT].at + i];
    const struct ko_paper_value *others =
        board->players[0].memory + board->players[0].places[OUT].at;
    const struct ko_paper_value want = expected(board->call, rank, i);

    if (value->ranks != want.ranks) {
        int which = first_difference(value->ranks, want.ranks);

        return ko_paper_wrong(board, rank, "element %zu of OUT %s the contribution of rank %d", i,
                              want.ranks >> which & 1 ? "lacks" : "should not have", which);
    }
    if (value->index != want.index)
        return ko_paper_wrong(board, rank, "element %zu of OUT holds element %u, not %u", i,
                              value->index, want.index);
    if (value->is_final != want.is_final)
        return ko_paper_wrong(board, rank, "element %zu of OUT was %s", i,
                              want.is_final ? "never completed (AVG)" : "reduced");
    if (board->call->text->what == KO_ALL_REDUCE && value->shape != others[i].shape)
        return ko_paper_wrong(board, rank,
                              "element %zu of OUT was added up in another order than "
                              "on rank 0",
                              i);
    if (want.is_final && board->call->text->flags & KO_ORDERED && value->shape != board->ordered)
        return ko_paper_wrong(board, rank,
                              "element %zu of OUT was not added up in the order of the ranks", i);
    return KOLO_OK;
}

int ko_paper_check_outputs(struct ko_paper_board *board)
{
    int err = KOLO_OK;

    board->ordered = ordered_shape(board->call->n);
    for (int rank = 0; rank < board->call->n && !err; rank++)
        for (size_t i = 0; i < board->players[rank].places[OUT].count && !err; i++)
            err = check_value(board, rank, i);
    return err;
}
