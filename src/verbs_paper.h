/* SPDX-License-Identifier: MIT
 *
 * verbs_paper.h: the verbs of kernels/ring.h and kernels/direct.h on paper: each writes down that
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

    struct ko_paper_list *list;
} verbs;

enum buffer { IN, OUT };

/* paper.c: appends an action. */
void ko_paper_note(verbs *v, struct ko_paper_action action);

KO_FN void send(verbs *v, int to, enum buffer buffer, struct ko_part part)
{
    ko_paper_note(
        v, (struct ko_paper_action){
               .verb = KO_PAPER_SEND, .is_out = buffer == OUT, .from = -1, .to = to, .mine = part});
}

KO_FN void send_copy(verbs *v, int to, struct ko_part part)
{
    ko_paper_note(v, (struct ko_paper_action){
                         .verb = KO_PAPER_SEND_COPY, .from = -1, .to = to, .mine = part});
}

KO_FN void recv(verbs *v, int from, struct ko_part part)
{
    ko_paper_note(
        v, (struct ko_paper_action){.verb = KO_PAPER_RECV, .from = from, .to = -1, .part = part});
}

KO_FN void recv_send(verbs *v, int from, int to, struct ko_part part)
{
    recv(v, from, part);
    send(v, to, OUT, part);
}

KO_FN void recv_reduce(verbs *v, int from, enum buffer buffer, struct ko_part mine,
                       struct ko_part part)
{
    ko_paper_note(v, (struct ko_paper_action){.verb = KO_PAPER_RECV_REDUCE,
                                              .is_out = buffer == OUT,
                                              .from = from,
                                              .to = -1,
                                              .mine = mine,
                                              .part = part});
}

KO_FN void recv_reduce_send(verbs *v, int from, int to, enum buffer buffer, struct ko_part mine)
{
    ko_paper_note(v, (struct ko_paper_action){.verb = KO_PAPER_RECV_REDUCE_SEND,
                                              .is_out = buffer == OUT,
                                              .from = from,
                                              .to = to,
                                              .mine = mine});
}

KO_FN void recv_reduce_send_all(verbs *v, int from, int to, enum buffer buffer, struct ko_part part)
{
    recv_reduce(v, from, buffer, part, part);
    send(v, to, OUT, part);
}

KO_FN void keep(verbs *v, struct ko_part mine, struct ko_part part)
{
    ko_paper_note(v, (struct ko_paper_action){
                         .verb = KO_PAPER_KEEP, .from = -1, .to = -1, .mine = mine, .part = part});
}

KO_FN void reduce_from(verbs *v, const int *ranks, int nranks, struct ko_part part)
{
    ko_paper_note(v, (struct ko_paper_action){.verb = KO_PAPER_REDUCE_FROM,
                                              .from = -1,
                                              .to = -1,
                                              .mine = part,
                                              .part = part,
                                              .ranks = ranks,
                                              .nranks = nranks});
}

KO_FN void reduce_ranks(verbs *v, struct ko_part part)
{
    reduce_from(v, NULL, v->n, part);
}

#endif
