/* SPDX-License-Identifier: MIT
 *
 * Every action of every text of kernels/ matters: the proof fails if any one of them is left out or
 * has to do with another rank, if two messages of a link change places, and if a message is neither
 * sent nor received.
 */
#include "layout.h"
#include "paper.h"
#include "verbs_paper.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SLICE = 3, SLOTS = 8, MOST_RANKS = 8 };

enum kind { LEAVE_OUT, OTHER_SOURCE, OTHER_TARGET, SWAP, NO_MESSAGE, NKINDS };

static const char *const kinds[NKINDS] = {"left out", "from another rank", "to another rank",
                                          "swapped with the next", "not there, as its message"};

/* One mistake in what one rank does. A text is a function of its verbs alone: what is to be edited
 * lies beside it. */
static struct {
    const struct ko_paper_text *text;
    enum kind kind;
    int rank;
    size_t at;
    bool is_done;

    /* NO_MESSAGE: what the rank sent first was this message of those to its peer */
    int peer, number;
} edit;

/* Another rank than this one and than peer. */
static int another(const verbs *v, int peer)
{
    const int other = (peer + 1) % v->n;

    return other == v->rank ? (other + 1) % v->n : other;
}

static bool is_of_one_link(const struct ko_paper_action *a, const struct ko_paper_action *b)
{
    return (a->from >= 0 && a->from == b->from) || (a->to >= 0 && a->to == b->to);
}

static void leave_out(struct ko_paper_list *list, size_t at)
{
    list->n--;
    memmove(&list->actions[at], &list->actions[at + 1], (list->n - at) * sizeof *list->actions);
    edit.is_done = true;
}

static void swap(struct ko_paper_list *list, size_t at)
{
    const struct ko_paper_action first = list->actions[at];

    edit.is_done = at + 1 < list->n && is_of_one_link(&first, &list->actions[at + 1]);
    if (!edit.is_done)
        return;
    list->actions[at] = list->actions[at + 1];
    list->actions[at + 1] = first;
}

static void edit_action(verbs *v)
{
    struct ko_paper_action *action = &v->list->actions[edit.at];

    switch (edit.kind) {
    case OTHER_SOURCE:
        edit.is_done = action->from >= 0;
        action->from = edit.is_done ? another(v, action->from) : -1;
        break;
    case OTHER_TARGET:
        edit.is_done = action->to >= 0;
        action->to = edit.is_done ? another(v, action->to) : -1;
        break;
    case SWAP:
        swap(v->list, edit.at);
        break;
    default:
        leave_out(v->list, edit.at);
    }
}

/* Where the receiver has the message that edit.rank does not send; SIZE_MAX: that is part of an
 * action with more to it. */
static size_t find_receive(const struct ko_paper_list *list)
{
    int number = 0;

    for (size_t i = 0; i < list->n; i++) {
        const struct ko_paper_action *action = &list->actions[i];

        if (action->from == edit.rank && number++ == edit.number)
            return action->to < 0 ? i : SIZE_MAX;
    }
    return SIZE_MAX;
}

static void run_edited(verbs *v)
{
    edit.text->run(v);
    if (v->rank == edit.rank)
        edit_action(v);
    else if (edit.kind == NO_MESSAGE && v->rank == edit.peer)
        leave_out(v->list, find_receive(v->list));
}

/* Whether action `at` of rank's list is a message that can vanish. */
static bool is_message(const struct ko_paper_call *call, const struct ko_paper_list *mine)
{
    const struct ko_paper_action *action = &mine->actions[edit.at];
    struct ko_paper_list theirs;
    bool is_found;

    if (action->to < 0 || action->from >= 0)
        return false;
    edit.peer = action->to;
    edit.number = 0;
    for (size_t i = 0; i < edit.at; i++)
        edit.number += mine->actions[i].to == edit.peer;
    assert_int_equal(ko_paper_write(call, edit.peer, &theirs), 0);
    is_found = find_receive(&theirs) != SIZE_MAX;
    ko_paper_free(&theirs);
    return is_found;
}

/* What need not be noticed: an empty message that carries no news either, and in a dissemination
 * among ranks that are no power of two, where some come to know of others twice. */
static bool may_miss(const struct ko_paper_call *call, const struct ko_paper_action *action)
{
    if (edit.kind != NO_MESSAGE)
        return false;
    if (call->text->what != KO_BARRIER)
        return !action->mine.count;
    return !strcmp(call->text->name, "dissemination") && call->n & (call->n - 1);
}

/* Edits what the rank does at each place in turn; returns the number of edits. */
static int edit_rank(const struct ko_paper_call *call, int rank)
{
    const struct ko_paper_text text = {call->text->what, call->text->name, run_edited,
                                       call->text->flags};
    struct ko_paper_call edited = *call;
    struct ko_paper_list list;
    int nedits = 0;

    assert_int_equal(ko_paper_write(call, rank, &list), 0);
    edited.text = &text;
    edit.text = call->text;
    edit.rank = rank;
    for (edit.at = 0; edit.at < list.n; edit.at++)
        for (int kind = 0; kind < NKINDS; kind++) {
            char what[128];
            int err;

            edit.kind = (enum kind)kind;
            edit.is_done = false;
            if (kind == NO_MESSAGE && !is_message(call, &list))
                continue;
            err = ko_paper_verify(&edited, NULL);
            nedits += edit.is_done;
            if (may_miss(call, &list.actions[edit.at]))
                continue;
            ko_paper_describe(&list.actions[edit.at], what, sizeof what);
            if (err != (edit.is_done ? KOLO_E_INTERNAL : KOLO_OK))
                fail_msg("%s of %d, rank %d, \"%s\" %s: status %d", call->text->name, call->n, rank,
                         what, kinds[kind], err);
        }
    ko_paper_free(&list);
    return nedits;
}

static int edit_text(const struct ko_paper_text *text, int n, const struct ko_hosts *hosts)
{
    struct ko_paper_call call = {.text = text,
                                 .n = n,
                                 .root = n / 2,
                                 .count = text->what == KO_BARRIER ? 0 : 2 * (size_t)n + 1,
                                 .slice = SLICE,
                                 .slots = SLOTS,
                                 .hosts = hosts};
    int nedits = 0;

    if (text->flags & KO_SMALL)
        call.slice = (size_t)n * call.count;
    for (int rank = 0; rank < n; rank++)
        nedits += edit_rank(&call, rank);
    return nedits;
}

static void every_edit_is_noticed(void **state)
{
    const char *const machines[MOST_RANKS] = {"a", "b", "a", "b", "a", "c", "c", "a"};

    (void)state;
    for (int n = 3; n <= MOST_RANKS; n++) {
        struct ko_hosts *hosts;

        assert_int_equal(ko_layout_make(machines, n, &hosts), 0);
        for (int i = 0; i < ko_npaper_texts; i++)
            assert_true(edit_text(&ko_paper_texts[i], n, hosts) >= 3 * n);
        free(hosts);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_edit_is_noticed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
