/* SPDX-License-Identifier: MIT
 *
 * verbs.h: the words in which algorithms are written. A text is a function of `verbs *v`. It is
 * included after a header that gives the verbs a body (src/verbs_host.h over links, verbs_paper.h
 * on paper), and reads of v what stands below.
 */
#ifndef KO_VERBS_H
#define KO_VERBS_H

#include "chunk.h"
#include "hosts.h"

#include <stdbool.h>

/* clang-format off
 *
 * v->n, v->rank, v->root
 * v->count      elements of the call; where there are blocks, of this rank's own
 * v->in_blocks, v->out_blocks
 *               where each rank's block lies in IN and in OUT (chunk.h)
 * v->slice      elements that one message carries at most
 * v->hosts      where the ranks sit (hosts.h)
 * v->ranks      room for n ranks, to write down a list for reduce_from
 * v->by_host    for a text to set, false at first: recv_add and recv_reduce have the lower host's
 *               first, instead of the lower rank's
 *
 * Each verb is about one slice: `part` of OUT or of the buffer that is named (chunk.h).
 *
 * send(v, to, buffer, part)
 *     What lies there goes to rank `to`. The text leaves it alone until it knows, by messages that
 *     it received, that the receiver has it.
 * send_copy(v, to, buffer, part)
 *     The same, but the text may change it at once.
 * lend(v, to, part)
 *     IN[part] goes to rank `to`, from which OUT[part] will come (reduce_for_all), and which may
 *     write it there itself: the text touches neither before it has received it.
 * recv(v, from, part)
 *     OUT[part] = received, which is final: a text that looks at it again says so (KO_REREADS).
 * recv_to(v, from, buffer, part)
 *     The same anywhere, to be read again.
 * recv_send(v, from, to, part)
 *     recv, and passes it on.
 * recv_add(v, from, buffer, mine, target, part)
 *     target[part] = received and buffer[mine] reduced, the lower rank's first: of two NaNs the
 *     first may be the result, and two that exchange what they have are to have the same bits.
 * recv_reduce(v, from, buffer, mine, part)
 *     The same into OUT, and with it the result is complete (AVG divides) and final.
 * recv_reduce_send(v, from, to, buffer, mine)
 *     Passes on received op buffer[mine].
 * recv_reduce_send_all(v, from, to, buffer, part)
 *     recv_reduce, and passes it on.
 * reduce_from(v, ranks, nranks, mine, part, is_complete)
 *     OUT[part] = a slice received from each rank of the list, which names the own rank too, for
 *     IN[mine], reduced in the list's order; final if complete. ranks NULL: 0, 1, 2 ...
 * reduce_for_all(v, part)
 *     OUT[part] = IN[part] and what each other rank has lent for it, reduced in the order of the
 *     ranks; final. All of them receive it.
 * reduce_from_send(v, ranks, nranks, to, mine)
 *     The same, passed on.
 * keep(v, mine, part)
 *     OUT[part] = IN[mine], of any length; final.
 * move(v, buffer, mine, target, part)
 *     target[part] = buffer[mine], of any length.
 * scratch(v, count)
 *     TMP has count elements, of no value; once, before its first use.
 * send_comb(v, to, comb), recv_comb(v, from, comb)
 *     One message of several runs of TMP (chunk.h).
 *
 * clang-format on */

#endif
