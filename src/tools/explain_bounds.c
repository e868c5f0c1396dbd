/* SPDX-License-Identifier: MIT
 *
 * What the call moves and adds up, beside the least that any algorithm must, after Chan, Heimlich,
 * Purkayastha and van de Geijn, "Collective communication: theory, practice, and experience"
 * (2007), table 1. There a rank sends one message at a time and receives one; the contribution of
 * every rank that matters must get everywhere it is needed, and each step at most doubles the ranks
 * that it has reached: hence log2 n steps. No algorithm reaches all of the bounds at once.
 */
#include "explain.h"

/* What each rank sends, to other hosts too, receives and adds up. */
struct account {
    size_t sent, sent_away, received, added;
};

static bool is_to_others(const struct ko_hosts *hosts, int rank, int to)
{
    return hosts && hosts->host[rank] != hosts->host[to];
}

static void keep_account(const struct ko_paper_call *call, int rank,
                         const struct ko_paper_action *action, struct account *account)
{
    const size_t count = action->mine.count, others = (size_t)action->nranks - 1;

    switch (action->verb) {
    case KO_PAPER_RECV:
    case KO_PAPER_RECV_COMB:
        account->received += action->part.count;
        break;
    case KO_PAPER_RECV_REDUCE:
    case KO_PAPER_RECV_REDUCE_SEND:
        account->received += count;
        account->added += count;
        break;
    case KO_PAPER_REDUCE_FROM:
    case KO_PAPER_REDUCE_FROM_SEND:
        account->received += others * count;
        account->added += others * count;
        break;
    default:
        break;
    }
    if (action->to >= 0) {
        account->sent += count;
        account->sent_away += is_to_others(call->hosts, rank, action->to) ? count : 0;
    }
}

static int keep_accounts(const struct ko_paper_call *call, struct account *accounts)
{
    for (int rank = 0; rank < call->n; rank++) {
        struct ko_paper_list list;
        int err = ko_paper_write(call, rank, &list);

        if (err)
            return err;
        for (size_t i = 0; i < list.n; i++)
            keep_account(call, rank, &list.actions[i], &accounts[rank]);
        ko_paper_free(&list);
    }
    return KOLO_OK;
}

static size_t at_least(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t longest_buffer(const struct ko_paper_call *call)
{
    size_t longest = 0;

    for (int rank = 0; rank < call->n; rank++)
        longest = at_least(longest,
                           at_least(ko_paper_in_count(call, rank), ko_paper_out_count(call, rank)));
    return longest;
}

/* ---- the least, in whole buffers ---------------------------------------------------------- */

struct least {
    double sent, received, all, added;
};

/* A figure of the busiest rank is at least the average of all. */
static struct least least_of(const struct ko_paper_call *call)
{
    const double n = call->n, others = n - 1, share = others / n;

    switch (call->text->what) {
    case KO_ALL_REDUCE:
        return (struct least){2 * share, 2 * share, 2 * others, share};
    case KO_REDUCE:
        return (struct least){1, 1, others, share};
    case KO_BROADCAST:
        return (struct least){1, 1, others, 0};
    case KO_REDUCE_SCATTER:
        return (struct least){share, share, others, share};
    case KO_ALL_GATHER:
    case KO_ALL_TO_ALL:
        return (struct least){share, share, others, 0};
    case KO_GATHER:
        return (struct least){1 / n, share, share, 0};
    case KO_SCATTER:
        return (struct least){share, 1 / n, share, 0};
    default:
        return (struct least){0, 0, 0, 0};
    }
}

/* ceil(log2 n) */
static size_t least_steps(int n)
{
    size_t steps = 0;

    while ((1 << steps) < n)
        steps++;
    return steps;
}

/* ---- between hosts ------------------------------------------------------------------------ */

/* Elements that the busiest host sends to others. */
static size_t busiest_host(const struct ko_hosts *hosts, const struct account *accounts)
{
    size_t most = 0;

    for (int host = 0; host < hosts->n; host++) {
        size_t sent = 0;

        for (int place = 0; place < host_size(hosts, host); place++)
            sent += accounts[rank_at(hosts, host, place)].sent_away;
        most = at_least(most, sent);
    }
    return most;
}

/* Blocks that host `from` has for ranks of others, of a call with a root those that the root has
 * for them or they for the root. */
static size_t blocks_for_others(const struct ko_paper_call *call, int from)
{
    const size_t here = (size_t)host_size(call->hosts, from), others = (size_t)call->n - here;
    const bool has_root = call->hosts->host[call->root] == from;

    switch (call->text->what) {
    case KO_GATHER:
        return has_root ? 0 : here;
    case KO_SCATTER:
        return has_root ? others : 0;
    default:
        return here * others;
    }
}

static double most_for_others(const struct ko_paper_call *call)
{
    size_t most = 0;

    for (int host = 0; host < call->hosts->n; host++)
        most = at_least(most, blocks_for_others(call, host));
    return (double)most / call->n;
}

/* Between hosts a host is a rank: what leaves it is not less than with one rank on each. Of an
 * all_gather that is so on average; of a reduce_scatter at the host that has the fewest blocks.
 * Where each block is for one rank alone, all that are for another host have to leave. */
static double least_of_host(const struct ko_paper_call *call)
{
    const double hosts = call->hosts->n, share = (hosts - 1) / hosts;

    switch (call->text->what) {
    case KO_ALL_REDUCE:
        return 2 * share;
    case KO_REDUCE:
    case KO_BROADCAST:
        return 1;
    case KO_ALL_GATHER:
        return share;
    case KO_REDUCE_SCATTER:
        return 1 - (double)call->hosts->least / call->n;
    case KO_GATHER:
    case KO_SCATTER:
    case KO_ALL_TO_ALL:
        return most_for_others(call);
    default:
        return -1;
    }
}

/* ---- all ---------------------------------------------------------------------------------- */

static void add_figure(struct ko_figures *figures, const char *what, size_t elements, double least)
{
    const double whole = figures->whole ? (double)elements / (double)figures->whole : 0;

    figures->list[figures->n++] = (struct ko_figure){what, elements, whole, least};
}

static void add_figures(const struct ko_paper_call *call, const struct account *accounts,
                        struct ko_figures *figures)
{
    const struct least least = least_of(call);
    struct account most = {0};
    size_t all = 0;

    for (int rank = 0; rank < call->n; rank++) {
        most.sent = at_least(most.sent, accounts[rank].sent);
        most.received = at_least(most.received, accounts[rank].received);
        most.added = at_least(most.added, accounts[rank].added);
        all += accounts[rank].sent;
    }
    add_figure(figures, "sent by the busiest rank", most.sent, least.sent);
    add_figure(figures, "received by the busiest rank", most.received, least.received);
    add_figure(figures, "sent by all ranks", all, least.all);
    if (ko_explain_reduces(call))
        add_figure(figures, "added up by the busiest rank", most.added, least.added);
    if (call->hosts && call->hosts->n > 1)
        add_figure(figures, "sent by the busiest host to others",
                   busiest_host(call->hosts, accounts), least_of_host(call));
}

int ko_figures_count(const struct ko_paper_call *call, struct ko_figures *figures)
{
    struct account accounts[KO_PAPER_MOST_RANKS] = {{0}};
    int err = keep_accounts(call, accounts);

    *figures = (struct ko_figures){
        .call = *call, .whole = longest_buffer(call), .least_steps = least_steps(call->n)};
    for (int rank = 0; rank < call->n; rank++)
        figures->sent[rank] = accounts[rank].sent;
    if (!err && figures->whole)
        add_figures(call, accounts, figures);
    return err;
}

int ko_figures_weigh(const struct ko_paper_call *call, size_t nbytes, size_t slice_bytes,
                     struct ko_figures *figures)
{
    struct ko_paper_call heavy = *call;

    heavy.count = nbytes;
    heavy.slice = slice_bytes;
    if (call->text->flags & KO_SMALL && heavy.slice / (size_t)call->n < nbytes)
        heavy.slice = nbytes * (size_t)call->n;
    return ko_figures_count(&heavy, figures);
}
