/* SPDX-License-Identifier: MIT
 *
 * From words to a call on paper: names to a row, wishes to numbers.
 */
#include "explain.h"

#include "coll.h"
#include "group_wishes.h"
#include "info.h"
#include "layout.h"
#include "status.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = 8, CHUNK = 3 };

/* ---- names -------------------------------------------------------------------------------- */

static void append(char names[KO_NAMES_CAP], const char *name)
{
    const size_t used = strlen(names);

    snprintf(names + used, KO_NAMES_CAP - used, "%s%s", used ? ", " : "", name);
}

static int find_collective(const char *name, enum ko_collective *what)
{
    const int found = ko_collective_find(name, strlen(name));
    char names[KO_NAMES_CAP];

    if (found >= 0) {
        *what = (enum ko_collective)found;
        return KOLO_OK;
    }
    ko_collectives_list(names);
    return ko_fail(KOLO_E_INVALID, "no collective is called \"%s\"; there are %s", name, names);
}

/* The one of that name, or without a name the first that suits. */
static int find_text(const struct ko_explain_wish *wish, enum ko_collective what,
                     const struct ko_paper_text **text)
{
    char names[KO_NAMES_CAP] = "";

    for (int i = 0; i < ko_npaper_texts; i++) {
        const struct ko_paper_text *row = &ko_paper_texts[i];
        const bool suits = !(row->flags & KO_SPREAD) || wish->hosts;

        if (row->what != what)
            continue;
        append(names, row->name);
        if (wish->algorithm ? !strcmp(row->name, wish->algorithm) : suits) {
            *text = row;
            return KOLO_OK;
        }
    }
    return ko_fail(KOLO_E_INVALID, "%s has no algorithm \"%s\"; it has %s",
                   ko_collective_name(what), wish->algorithm, names);
}

int ko_explain_find(const struct ko_explain_wish *wish, const struct ko_paper_text **text)
{
    enum ko_collective what;
    int err = find_collective(wish->collective, &what);

    return err ? err : find_text(wish, what, text);
}

/* ---- hosts -------------------------------------------------------------------------------- */

/* host[rank], from "4,2"; how many ranks that are in *n. */
static int read_hosts(const char *text, int host[KO_PAPER_MOST_RANKS], int *n)
{
    const char *at = text;

    *n = 0;
    for (int number = 0;; number++, at++) {
        char *end;
        long size = strtol(at, &end, 10);

        if (end == at || (*end && *end != ',') || size < 1 || size > KO_PAPER_MOST_RANKS - *n)
            return ko_fail(KOLO_E_INVALID,
                           "--hosts is \"%s\"; it takes the number of ranks of each host, such as "
                           "4,4 or 3,2,2, %d in all at most",
                           text, KO_PAPER_MOST_RANKS);
        while (size--)
            host[(*n)++] = number;
        at = end;
        if (!*at)
            return KOLO_OK;
    }
}

static int make_hosts(const int host[], int n, struct ko_hosts **hosts)
{
    char names[KO_PAPER_MOST_RANKS][8];
    const char *machines[KO_PAPER_MOST_RANKS];

    for (int rank = 0; rank < n; rank++) {
        snprintf(names[rank], sizeof names[rank], "%d", host[rank] % 1000);
        machines[rank] = names[rank];
    }
    return ko_layout_make(machines, n, hosts);
}

int ko_explain_hosts(const char *text, int *n, struct ko_hosts **hosts)
{
    int host[KO_PAPER_MOST_RANKS];
    int err = read_hosts(text, host, n);

    return err ? err : make_hosts(host, *n, hosts);
}

/* ---- the call ----------------------------------------------------------------------------- */

static bool has_blocks(enum ko_collective what)
{
    return what != KO_ALL_REDUCE && what != KO_REDUCE && what != KO_BROADCAST;
}

/* Elements enough that each chunk has some. */
static size_t fitting_count(enum ko_collective what, int n)
{
    if (what == KO_BARRIER)
        return 0;
    return has_blocks(what) ? CHUNK : (size_t)(CHUNK * n);
}

/* A slice that carries whatever is sent at once. */
static size_t whole_slice(const struct ko_paper_call *call)
{
    const size_t whole = has_blocks(call->text->what) ? (size_t)call->n * call->count : call->count;

    return whole ? whole : 1;
}

/* How long the call takes in slices of so many elements. */
static int take_time(const struct ko_paper_call *call, size_t slice, size_t *elements)
{
    struct ko_paper_call sliced = *call;
    struct ko_trace trace;
    int err;

    sliced.slice = slice;
    err = ko_trace_make(&sliced, &trace);
    if (err)
        return err;
    *elements = ko_trace_time(&trace);
    ko_trace_free(&trace);
    return KOLO_OK;
}

/* The whole, unless slices of a chunk, one behind the other, are there in two thirds of the time.
 */
static int fit_slice(struct ko_paper_call *call)
{
    const size_t whole = whole_slice(call),
                 chunk = (call->count + (size_t)call->n - 1) / (size_t)call->n;
    size_t whole_time, chunk_time;
    int err;

    call->slice = whole;
    if (has_blocks(call->text->what) || !chunk)
        return KOLO_OK;
    err = take_time(call, whole, &whole_time);
    if (!err)
        err = take_time(call, chunk, &chunk_time);
    if (!err && 3 * chunk_time < 2 * whole_time)
        call->slice = chunk;
    return err;
}

static int set_slice(const struct ko_explain_wish *wish, struct ko_paper_call *call)
{
    if (wish->slice <= 0)
        return fit_slice(call);
    call->slice = (size_t)wish->slice;
    if (call->text->flags & KO_SMALL && call->slice < whole_slice(call))
        return ko_fail(KOLO_E_INVALID,
                       "%s sends many blocks in one slice, which must be of %zu elements at least",
                       call->text->name, whole_slice(call));
    return KOLO_OK;
}

static int set_root(const struct ko_explain_wish *wish, struct ko_paper_call *call)
{
    const enum ko_collective what = call->text->what;

    if (wish->root < 0)
        return KOLO_OK;
    if (!ko_explain_has_root(what))
        return ko_fail(KOLO_E_INVALID, "--root %d: %s has no root", wish->root,
                       ko_collective_name(what));
    if (wish->root >= call->n)
        return ko_fail(KOLO_E_INVALID, "--root %d: of %d ranks the last is %d", wish->root, call->n,
                       call->n - 1);
    call->root = wish->root;
    return KOLO_OK;
}

int ko_explain_call(const struct ko_explain_wish *wish, struct ko_paper_call *call,
                    struct ko_hosts **hosts)
{
    int host[KO_PAPER_MOST_RANKS], n = wish->ranks ? wish->ranks : KO_EXPLAIN_RANKS;
    int err;

    *hosts = NULL;
    *call = (struct ko_paper_call){.root = 0};
    err = ko_explain_find(wish, &call->text);
    if (!err && wish->hosts)
        err = read_hosts(wish->hosts, host, &n);
    if (!err && wish->ranks && n != wish->ranks)
        err =
            ko_fail(KOLO_E_INVALID, "--hosts %s are %d ranks, not %d", wish->hosts, n, wish->ranks);
    if (err)
        return err;
    call->n = n;
    for (int rank = 0; !wish->hosts && rank < n; rank++)
        host[rank] = rank >= (n + 1) / 2;
    if (wish->hosts || call->text->flags & KO_SPREAD)
        err = make_hosts(host, n, hosts);
    call->hosts = *hosts;
    call->slots = wish->slots ? wish->slots : SLOTS;
    call->count = wish->count < 0 ? fitting_count(call->text->what, n) : (size_t)wish->count;
    if (!err)
        err = set_root(wish, call);
    return err ? err : set_slice(wish, call);
}

int ko_explain_prove(const struct ko_paper_call *call, size_t *nproved)
{
    const size_t n = (size_t)call->n;
    const size_t counts[] = {call->count, 0, 1, n - 1, n, n + 1, 13};
    const bool is_exchange = call->text->what == KO_ALL_TO_ALL;
    int err = KOLO_OK;

    *nproved = 0;
    for (size_t i = 0; i < sizeof counts / sizeof *counts && !err; i++)
        for (int in_place = 0; in_place < 2 - is_exchange && !err; in_place++)
            for (int root = 0; root < call->n && !err; root++) {
                struct ko_paper_call one = *call;

                one.count = counts[i];
                one.is_in_place = in_place;
                one.root = root;
                if (one.text->flags & KO_SMALL && one.slice < whole_slice(&one))
                    one.slice = whole_slice(&one);
                err = ko_paper_verify(&one, NULL);
                *nproved += !err;
            }
    return err;
}

void ko_explain_list(FILE *file)
{
    for (int i = 0; i < ko_npaper_texts; i++) {
        const struct ko_paper_text *row = &ko_paper_texts[i];

        fprintf(file, "%-16s %-16s %s", ko_collective_name(row->what), row->name, ko_why_of(row));
        if (row->flags & KO_SPREAD)
            fputs("; for several hosts", file);
        putc('\n', file);
    }
}
