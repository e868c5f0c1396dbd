/* SPDX-License-Identifier: MIT
 *
 * verbs_paper.h: the verbs of kernels/verbs.h on paper: each writes down that
 * it was called. Verbs that verbs_host.h makes of two others are made of the same two here.
 */
#ifndef KO_VERBS_PAPER_H
#define KO_VERBS_PAPER_H

#include "paper.h"

typedef struct ko_paper_verbs {
    /* what the texts read */
    int n, rank, root;
    size_t count, slice;
    struct ko_blocks in_blocks, out_blocks;
    const struct ko_hosts *hosts; /* of texts for several */
    int *ranks;
    bool by_host;

    struct ko_paper_list *list;
} verbs;

/* paper.c: appends an action; a list of ranks (NULL: 0, 1, 2 ...) to that of the action. */
void ko_paper_note(verbs *v, struct ko_paper_action action);
void ko_paper_note_ranks(verbs *v, const int *ranks, struct ko_paper_action action);

KO_FN void send(verbs *v, int to, enum buffer buffer, struct ko_part part)
{
    ko_paper_note(v,
                  (struct ko_paper_action){
                      .verb = KO_PAPER_SEND, .from = -1, .to = to, .buffer = buffer, .mine = part});
}

KO_FN void send_copy(verbs *v, int to, enum buffer buffer, struct ko_part part)
{
    ko_paper_note(
        v, (struct ko_paper_action){
               .verb = KO_PAPER_SEND_COPY, .from = -1, .to = to, .buffer = buffer, .mine = part});
}

KO_FN void lend(verbs *v, int to, struct ko_part part)
{
    ko_paper_note(v, (struct ko_paper_action){.verb = KO_PAPER_SEND,
                                              .is_lent = true,
                                              .from = -1,
                                              .to = to,
                                              .buffer = IN,
                                              .mine = part});
}

KO_FN void recv_to(verbs *v, int from, enum buffer buffer, struct ko_part part)
{
    ko_paper_note(
        v, (struct ko_paper_action){
               .verb = KO_PAPER_RECV, .from = from, .to = -1, .target = buffer, .part = part});
}

KO_FN void recv(verbs *v, int from, struct ko_part part)
{
    recv_to(v, from, OUT, part);
}

KO_FN void recv_send(verbs *v, int from, int to, struct ko_part part)
{
    recv(v, from, part);
    send(v, to, OUT, part);
}

KO_FN void recv_add(verbs *v, int from, enum buffer buffer, struct ko_part mine, enum buffer target,
                    struct ko_part part)
{
    ko_paper_note(v, (struct ko_paper_action){.verb = KO_PAPER_RECV_REDUCE,
                                              .from = from,
                                              .to = -1,
                                              .buffer = buffer,
                                              .mine = mine,
                                              .target = target,
                                              .part = part});
}

KO_FN void recv_reduce(verbs *v, int from, enum buffer buffer, struct ko_part mine,
                       struct ko_part part)
{
    ko_paper_note(v, (struct ko_paper_action){.verb = KO_PAPER_RECV_REDUCE,
                                              .is_complete = true,
                                              .from = from,
                                              .to = -1,
                                              .buffer = buffer,
                                              .mine = mine,
                                              .target = OUT,
                                              .part = part});
}

KO_FN void recv_reduce_send(verbs *v, int from, int to, enum buffer buffer, struct ko_part mine)
{
    ko_paper_note(v, (struct ko_paper_action){.verb = KO_PAPER_RECV_REDUCE_SEND,
                                              .from = from,
                                              .to = to,
                                              .buffer = buffer,
                                              .mine = mine});
}

KO_FN void recv_reduce_send_all(verbs *v, int from, int to, enum buffer buffer, struct ko_part part)
{
    recv_reduce(v, from, buffer, part, part);
    send(v, to, OUT, part);
}

KO_FN void reduce_from(verbs *v, const int *ranks, int nranks, struct ko_part mine,
                       struct ko_part part, bool is_complete)
{
    ko_paper_note_ranks(v, ranks,
                        (struct ko_paper_action){.verb = KO_PAPER_REDUCE_FROM,
                                                 .is_complete = is_complete,
                                                 .from = -1,
                                                 .to = -1,
                                                 .buffer = IN,
                                                 .mine = mine,
                                                 .target = OUT,
                                                 .part = part,
                                                 .nranks = nranks});
}

KO_FN void reduce_for_all(verbs *v, struct ko_part part)
{
    reduce_from(v, NULL, v->n, part, part, true);
    for (int k = 1; k < v->n; k++)
        send(v, around(v->rank + k, v->n), OUT, part);
}

KO_FN void reduce_from_send(verbs *v, const int *ranks, int nranks, int to, struct ko_part mine)
{
    ko_paper_note_ranks(v, ranks,
                        (struct ko_paper_action){.verb = KO_PAPER_REDUCE_FROM_SEND,
                                                 .from = -1,
                                                 .to = to,
                                                 .buffer = IN,
                                                 .mine = mine,
                                                 .nranks = nranks});
}

KO_FN void move(verbs *v, enum buffer buffer, struct ko_part mine, enum buffer target,
                struct ko_part part)
{
    ko_paper_note(v, (struct ko_paper_action){.verb = KO_PAPER_MOVE,
                                              .from = -1,
                                              .to = -1,
                                              .buffer = buffer,
                                              .mine = mine,
                                              .target = target,
                                              .part = part});
}

KO_FN void keep(verbs *v, struct ko_part mine, struct ko_part part)
{
    move(v, IN, mine, OUT, part);
}

KO_FN void scratch(verbs *v, size_t count)
{
    v->list->scratch = count;
}

KO_FN void send_comb(verbs *v, int to, struct ko_comb comb)
{
    ko_paper_note(v, (struct ko_paper_action){.verb = KO_PAPER_SEND_COMB,
                                              .from = -1,
                                              .to = to,
                                              .buffer = TMP,
                                              .mine = {comb.at, comb_count(&comb)},
                                              .comb = comb});
}

KO_FN void recv_comb(verbs *v, int from, struct ko_comb comb)
{
    ko_paper_note(v, (struct ko_paper_action){.verb = KO_PAPER_RECV_COMB,
                                              .from = from,
                                              .to = -1,
                                              .target = TMP,
                                              .part = {comb.at, comb_count(&comb)},
                                              .comb = comb});
}

#endif
