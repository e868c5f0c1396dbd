/* SPDX-License-Identifier: MIT
 *
 * p2p_stream.h: messages that come behind a group's stream while their caller goes on: a thread of
 * the library's carries them out, call by call, as the stream does, which waits behind each until
 * it is done. With them come those that would else overtake them: messages of host memory to or
 * from the same rank, with the same tag. Any thread.
 */
#ifndef KO_P2P_STREAM_H
#define KO_P2P_STREAM_H

#include "group.h"
#include "mailbox.h"

/* Posts all ops, behind the mark if there is one since any is in GPU memory, and waits for all;
 * letters has room for as many. */
typedef int ko_p2p_carry(kolo_group *group, const kolo_p2p *ops, size_t nops,
                         struct ko_letter *letters, const struct ko_gpu_mark *mark);

/* For checked ops of a group that has a stream, any in GPU memory or none: has them carried out in
 * their place. *work: NULL if they have none, and may be posted at once. */
int ko_p2p_start(kolo_group *group, const kolo_p2p *ops, size_t nops, bool is_on_gpu,
                 ko_p2p_carry *carry, kolo_work **work);

/* The same, and waits for them; the stream need not. */
int ko_p2p_run(kolo_group *group, const kolo_p2p *ops, size_t nops, bool is_on_gpu,
               ko_p2p_carry *carry, struct ko_letter *letters);

/* Waits for those that these ops would overtake, which end in any case. */
void ko_p2p_let_pass(kolo_group *group, const kolo_p2p *ops, size_t nops);

#endif
