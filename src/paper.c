/* SPDX-License-Identifier: MIT
 *
 * Writing a call down: the third body of the texts, beside the host's and the device's.
 */
#include "paper.h"

#include "status.h"

#include <stdio.h>
#include <stdlib.h>

#include "verbs_paper.h"

#include "bruck.h"
#include "direct.h"
#include "doubling.h"
#include "hierarchical.h"
#include "hierarchical_all_to_all.h"
#include "hierarchical_blocks.h"
#include "hierarchical_doubling.h"
#include "hierarchical_gather.h"
#include "hierarchical_rooted.h"
#include "ring.h"
#include "tree.h"

const struct ko_paper_text ko_paper_texts[] = {
#define TEXT_ROW(what, name, text, flags, why) {KO_##what, name, text, flags},
    KO_ALGORITHM_LIST(TEXT_ROW)
#undef TEXT_ROW
};
const int ko_npaper_texts = sizeof ko_paper_texts / sizeof *ko_paper_texts;

void ko_paper_note(verbs *v, struct ko_paper_action action)
{
    struct ko_paper_list *list = v->list;

    if (list->is_tally) {
        list->n++;
        return;
    }
    if (list->reader) {
        if (!list->is_cut)
            list->reader->read(list->reader->context, &action, list->ranks);
        list->nranks = 0;
        return;
    }
    if (list->n == list->cap && !list->is_cut) {
        size_t cap = list->cap ? 2 * list->cap : 64;
        struct ko_paper_action *grown = realloc(list->actions, cap * sizeof *grown);

        list->is_cut = !grown;
        list->actions = grown ? grown : list->actions;
        list->cap = grown ? cap : list->cap;
    }
    if (!list->is_cut)
        list->actions[list->n++] = action;
}

void ko_paper_note_ranks(verbs *v, const int *ranks, struct ko_paper_action action)
{
    struct ko_paper_list *list = v->list;
    const size_t needed = list->nranks + (size_t)action.nranks;

    if (list->is_tally) {
        list->nranks = needed;
        list->n++;
        return;
    }
    if (needed > list->ranks_cap) {
        int *grown = realloc(list->ranks, 2 * needed * sizeof *grown);

        list->is_cut = list->is_cut || !grown;
        list->ranks = grown ? grown : list->ranks;
        list->ranks_cap = grown ? 2 * needed : list->ranks_cap;
    }
    action.ranks_at = list->nranks;
    for (int i = 0; !list->is_cut && i < action.nranks; i++)
        list->ranks[list->nranks++] = ranks ? ranks[i] : i;
    ko_paper_note(v, action);
}

void ko_paper_free(struct ko_paper_list *list)
{
    free(list->actions);
    free(list->ranks);
}

/* ---- how a collective's buffers lie ------------------------------------------------------ */

/* Of the block that rank `from` gives to rank `to`, where blocks are of one of the two. */
static size_t block_count(const struct ko_paper_call *call, int from, int to)
{
    const size_t first = (size_t)from, second = (size_t)to;

    if (!call->counts)
        return call->count;
    switch (call->text->what) {
    case KO_ALL_TO_ALL:
        return call->counts[first * (size_t)call->n + second];
    case KO_ALL_GATHER:
    case KO_GATHER:
        return call->counts[first];
    default:
        return call->counts[second];
    }
}

struct ko_part ko_paper_in_block(const struct ko_paper_call *call, int rank, int i)
{
    struct ko_part part = {(size_t)i * call->count, block_count(call, rank, i)};

    for (int before = 0; call->counts && before < i; before++)
        part.at += block_count(call, rank, before);
    return part;
}

struct ko_part ko_paper_out_block(const struct ko_paper_call *call, int rank, int i)
{
    struct ko_part part = {(size_t)i * call->count, block_count(call, i, rank)};

    for (int before = 0; call->counts && before < i; before++)
        part.at += block_count(call, before, rank);
    return part;
}

/* What the texts call count. */
static size_t own_count(const struct ko_paper_call *call, int rank)
{
    return block_count(call, rank, rank);
}

static size_t end_of(struct ko_part part)
{
    return part.at + part.count;
}

size_t ko_paper_in_count(const struct ko_paper_call *call, int rank)
{
    switch (call->text->what) {
    case KO_BARRIER:
        return 0;
    case KO_REDUCE_SCATTER:
    case KO_ALL_TO_ALL:
        return end_of(ko_paper_in_block(call, rank, call->n - 1));
    case KO_SCATTER:
        return rank == call->root ? end_of(ko_paper_in_block(call, rank, call->n - 1)) : 0;
    default:
        return own_count(call, rank);
    }
}

size_t ko_paper_out_count(const struct ko_paper_call *call, int rank)
{
    switch (call->text->what) {
    case KO_BARRIER:
        return 0;
    case KO_ALL_GATHER:
    case KO_ALL_TO_ALL:
        return end_of(ko_paper_out_block(call, rank, call->n - 1));
    case KO_GATHER:
        return rank == call->root ? end_of(ko_paper_out_block(call, rank, call->n - 1)) : 0;
    case KO_REDUCE:
        return rank == call->root ? call->count : 0;
    default:
        return own_count(call, rank);
    }
}

/* ---- writing down ------------------------------------------------------------------------ */

/* The counts and starts of the rank's blocks, if they differ; `numbers` has room for 4 n. */
static void list_blocks(const struct ko_paper_call *call, int rank, size_t *numbers, verbs *v)
{
    const size_t n = (size_t)call->n;

    v->in_blocks = (struct ko_blocks){0, numbers, numbers + n};
    v->out_blocks = (struct ko_blocks){0, numbers + 2 * n, numbers + 3 * n};
    for (size_t i = 0; i < n; i++) {
        const struct ko_part in = ko_paper_in_block(call, rank, (int)i);
        const struct ko_part out = ko_paper_out_block(call, rank, (int)i);

        numbers[i] = in.count;
        numbers[n + i] = in.at;
        numbers[2 * n + i] = out.count;
        numbers[3 * n + i] = out.at;
    }
}

/* Ranks that a text lists at once: those of a host, and what they meet of others; or all, of a call
 * that does not say where its ranks sit. */
static size_t listed_room(const struct ko_paper_call *call)
{
    return call->hosts ? (size_t)call->hosts->most + KO_MOST_CHILDREN + 1 : (size_t)call->n;
}

static int run_text(const struct ko_paper_call *call, int rank, struct ko_paper_list *list)
{
    const size_t n = (size_t)call->n, room = listed_room(call);
    int few[KO_PAPER_MOST_RANKS + KO_MOST_CHILDREN + 1], *ranks = few;
    size_t *numbers = NULL;
    verbs v = {.n = call->n,
               .rank = rank,
               .root = call->root,
               .count = own_count(call, rank),
               .slice = call->slice,
               .in_blocks = {.count = call->count},
               .out_blocks = {.count = call->count},
               .hosts = call->hosts,
               .list = list};
    int err = KOLO_E_NOMEM;

    if (room > sizeof few / sizeof *few) /* as of simulations */
        ranks = ko_alloc_unset(room * sizeof *ranks, "a list of ranks");
    if (call->counts)
        numbers = ko_alloc(4 * n * sizeof *numbers, "blocks on paper");
    if (!ranks || (call->counts && !numbers))
        goto undo;
    if (numbers)
        list_blocks(call, rank, numbers, &v);
    v.ranks = ranks;
    call->text->run(&v);
    err = KOLO_OK;
undo:
    free(numbers);
    if (ranks != few)
        free(ranks);
    return err;
}

int ko_paper_write(const struct ko_paper_call *call, int rank, struct ko_paper_list *list_out)
{
    struct ko_paper_list list = {.actions = NULL};
    int err = run_text(call, rank, &list);

    if (!err && list.is_cut)
        err = ko_fail(KOLO_E_NOMEM, "no memory for more than %zu actions of rank %d", list.n, rank);
    if (err)
        ko_paper_free(&list);
    else
        *list_out = list;
    return err;
}

int ko_paper_tell(const struct ko_paper_call *call, int rank, const struct ko_paper_reader *reader)
{
    struct ko_paper_list list = {.reader = reader};
    int err = run_text(call, rank, &list);

    if (!err && list.is_cut)
        err = ko_fail(KOLO_E_NOMEM, "no memory for the ranks that rank %d reduces from", rank);
    ko_paper_free(&list);
    return err;
}

int ko_paper_tally(const struct ko_paper_call *call, int rank, size_t *nactions)
{
    struct ko_paper_list list = {.is_tally = true};
    int err = run_text(call, rank, &list);

    if (!err)
        *nactions = list.n + list.nranks;
    return err;
}

/* ---- in words ---------------------------------------------------------------------------- */

/* "OUT[6..9)" */
static const char *place(enum buffer buffer, struct ko_part part, char *text, size_t nbytes)
{
    static const char *const names[] = {"IN", "OUT", "TMP"};

    snprintf(text, nbytes, "%s[%zu..%zu)", names[buffer], part.at, part.at + part.count);
    return text;
}

void ko_paper_describe(const struct ko_paper_action *action, char *text, size_t nbytes)
{
    char mine[64], part[64];

    place(action->buffer, action->mine, mine, sizeof mine);
    place(action->target, action->part, part, sizeof part);
    switch (action->verb) {
    case KO_PAPER_SEND:
        snprintf(text, nbytes, "%s to rank %d of %s", action->is_lent ? "lend" : "send", action->to,
                 mine);
        return;
    case KO_PAPER_SEND_COPY:
        snprintf(text, nbytes, "send_copy to rank %d of %s", action->to, mine);
        return;
    case KO_PAPER_RECV:
        snprintf(text, nbytes, "recv from rank %d into %s", action->from, part);
        return;
    case KO_PAPER_RECV_REDUCE:
        snprintf(text, nbytes, "%s from rank %d with %s into %s",
                 action->is_complete ? "recv_reduce" : "recv_add", action->from, mine, part);
        return;
    case KO_PAPER_RECV_REDUCE_SEND:
        snprintf(text, nbytes, "recv_reduce_send from rank %d with %s to rank %d", action->from,
                 mine, action->to);
        return;
    case KO_PAPER_REDUCE_FROM:
        snprintf(text, nbytes, "reduce_from %d ranks with %s into %s", action->nranks, mine, part);
        return;
    case KO_PAPER_REDUCE_FROM_SEND:
        snprintf(text, nbytes, "reduce_from_send of %d ranks with %s to rank %d", action->nranks,
                 mine, action->to);
        return;
    case KO_PAPER_MOVE:
        snprintf(text, nbytes, "move %s to %s", mine, part);
        return;
    case KO_PAPER_SEND_COMB:
        snprintf(text, nbytes, "send_comb to rank %d of %zu elements", action->to,
                 action->mine.count);
        return;
    case KO_PAPER_RECV_COMB:
        snprintf(text, nbytes, "recv_comb from rank %d of %zu elements", action->from,
                 action->part.count);
        return;
    default:
        snprintf(text, nbytes, "no verb");
    }
}
