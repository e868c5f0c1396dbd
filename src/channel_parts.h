/* SPDX-License-Identifier: MIT
 *
 * channel_parts.h: what the files of a channel have of each other: channel.c drives and waits,
 * channel_link.c opens links, channel_report.c puts failures into words and compares calls,
 * channel_others.c says what other ranks wait for, channel_turns.c whose turn it is. Nobody else
 * includes this.
 */
#ifndef KO_CHANNEL_PARTS_H
#define KO_CHANNEL_PARTS_H

#include "channel.h"

/* Takes the port out of the poller. */
void ko_channel_unpoll(struct ko_channel *channel, struct ko_port *port);

/* Gets on with a port that is not open yet, without waiting. */
int ko_channel_drive_opening(struct ko_channel *channel, struct ko_port *port);

/* Before this rank leaves: links that it has answered, and that are open to their peers but not yet
 * here, get open, so that it can say bye. Waits for that, but not long. */
void ko_channel_finish_answered(struct ko_channel *channel);

/* The peer of a link that nothing depends on has gone before the link was open. */
void ko_channel_give_up(struct ko_channel *channel, struct ko_port *port);

/* Whether the rank that is waited for, or, peer being -1, any of those who may send, has ended
 * before its link was open: the first fails the group, of the others nothing is expected from now
 * on. */
int ko_channel_check_processes(struct ko_channel *channel, int peer);

/* Whether a rank of the group was lost, wherever in the call it was and whoever is waited for: no
 * other call can follow, and perhaps this one does not end. That fails the group. */
int ko_channel_check_members(struct ko_channel *channel);

/* Opens the links that other ranks have begun on this channel, and those for messages on others:
 * they may wait for it before this rank comes to use it, as around a ring. */
int ko_channel_answer_arrivals(struct ko_channel *channel);

/* The peer is, and waits for us, in the call of stamp. */
int ko_channel_hear_waiting(struct ko_channel *channel, struct ko_port *port,
                            const struct ko_stamp *stamp);

/* "", or "; " and what others wait for while this rank has waited in vain for the peer; -1: for
 * any, and then also who has left. */
void ko_channel_describe_others(struct ko_channel *channel, int peer, char *text, size_t nbytes);

/* "", or "; " and the ranks whose processes have ended, as far as this one sees. */
void ko_channel_describe_ended(const struct ko_channel *channel, char *text, size_t nbytes);

/* The deadline of a wait has passed: the group's error. */
int ko_channel_timed_out(struct ko_channel *channel, struct ko_wait *wait);

/* Where ranks take turns: whether to look again for what is waited for before another has his. */
bool ko_channel_keeps_turn(const struct ko_channel *channel, const struct ko_wait *wait);

#endif
