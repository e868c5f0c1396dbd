/* SPDX-License-Identifier: MIT
 *
 * Writing a call down: the third body of the texts, beside the host's and the device's.
 */
#include "paper.h"

#include "status.h"

#include <stdio.h>
#include <stdlib.h>

#include "verbs_paper.h"

#include "direct.h"
#include "hierarchical.h"
#include "ring.h"

const struct ko_paper_text ko_paper_texts[] = {
#define TEXT_ROW(what, name, text, most_bytes, most_ranks, hosts, why) \
    {KO_##what, name, text, most_ranks, hosts},
    KO_ALGORITHM_LIST(TEXT_ROW)
#undef TEXT_ROW
};
const int ko_npaper_texts = sizeof ko_paper_texts / sizeof *ko_paper_texts;

void ko_paper_note(verbs *v, struct ko_paper_action action)
{
    struct ko_paper_list *list = v->list;

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

int ko_paper_write(const struct ko_paper_call *call, int rank, struct ko_paper_list *list_out)
{
    struct ko_paper_list list = {NULL, 0, 0, false};
    verbs v = {.n = call->n,
               .rank = rank,
               .root = call->root,
               .count = call->count,
               .slice = call->slice,
               .in_blocks = {.count = call->count},
               .out_blocks = {.count = call->count},
               .hosts = call->hosts,
               .list = &list};

    call->text->run(&v);
    if (list.is_cut) {
        free(list.actions);
        return ko_fail(KOLO_E_NOMEM, "no memory for more than %zu actions of rank %d", list.n,
                       rank);
    }
    *list_out = list;
    return KOLO_OK;
}

/* ---- how a collective's buffers lie ------------------------------------------------------ */

size_t ko_paper_in_count(const struct ko_paper_call *call, int rank)
{
    switch (call->text->what) {
    case KO_BARRIER:
        return 0;
    case KO_REDUCE_SCATTER:
    case KO_ALL_TO_ALL:
        return (size_t)call->n * call->count;
    case KO_SCATTER:
        return rank == call->root ? (size_t)call->n * call->count : 0;
    default:
        return call->count;
    }
}

size_t ko_paper_out_count(const struct ko_paper_call *call, int rank)
{
    switch (call->text->what) {
    case KO_BARRIER:
        return 0;
    case KO_ALL_GATHER:
    case KO_ALL_TO_ALL:
        return (size_t)call->n * call->count;
    case KO_GATHER:
        return rank == call->root ? (size_t)call->n * call->count : 0;
    case KO_REDUCE:
        return rank == call->root ? call->count : 0;
    default:
        return call->count;
    }
}

/* ---- in words ---------------------------------------------------------------------------- */

/* "[6..9)" */
static const char *range(struct ko_part part, char *text, size_t nbytes)
{
    snprintf(text, nbytes, "[%zu..%zu)", part.at, part.at + part.count);
    return text;
}

void ko_paper_describe(const struct ko_paper_action *action, char *text, size_t nbytes)
{
    char mine[48], part[48];

    range(action->mine, mine, sizeof mine);
    range(action->part, part, sizeof part);
    switch (action->verb) {
    case KO_PAPER_SEND:
        snprintf(text, nbytes, "send to rank %d of %s%s", action->to, action->is_out ? "OUT" : "IN",
                 mine);
        return;
    case KO_PAPER_SEND_COPY:
        snprintf(text, nbytes, "send_copy to rank %d of IN%s", action->to, mine);
        return;
    case KO_PAPER_RECV:
        snprintf(text, nbytes, "recv from rank %d into OUT%s", action->from, part);
        return;
    case KO_PAPER_RECV_REDUCE:
        snprintf(text, nbytes, "recv_reduce from rank %d with %s%s into OUT%s", action->from,
                 action->is_out ? "OUT" : "IN", mine, part);
        return;
    case KO_PAPER_RECV_REDUCE_SEND:
        snprintf(text, nbytes, "recv_reduce_send from rank %d with %s%s to rank %d", action->from,
                 action->is_out ? "OUT" : "IN", mine, action->to);
        return;
    case KO_PAPER_REDUCE_FROM:
        snprintf(text, nbytes, "reduce_from %d ranks into OUT%s", action->nranks, part);
        return;
    case KO_PAPER_KEEP:
        snprintf(text, nbytes, "keep IN%s as OUT%s", mine, part);
        return;
    default:
        snprintf(text, nbytes, "no verb");
    }
}
