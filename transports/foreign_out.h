/* SPDX-License-Identifier: MIT
 *
 * foreign_out.h: the sender's side of slices that are left where they lie, for the receiver to read
 * (foreign.h). Each has a place in the window all the same: a sender who waits for his memory and
 * sees nobody come takes the slice back, which is to say that he puts it into its place. So a
 * message can be complete before its receiver has asked for it, and what the system keeps from the
 * receiver gets there too.
 */
#ifndef KO_FOREIGN_OUT_H
#define KO_FOREIGN_OUT_H

#include "link.h"

struct ko_foreign_out;

/* Whether the link's next slice, of nbytes, is to be left: each is with cma; with try-cma where
 * that saves time (link->flow), or where it has to be found out whether it does. */
bool ko_foreign_is_due(struct ko_link *link, size_t nbytes);

/* KO_AGAIN's reason: it is to come after those that have been left, to be compared with them. */
bool ko_foreign_has_to_wait(struct ko_link *link, size_t nbytes);

/* Whether that may be so. */
bool ko_foreign_may_be_due(const struct ko_link *link, size_t nbytes);

/* Whether a slice that is not left is to be compared with one that is. */
bool ko_foreign_is_compared(const struct ko_link *link, size_t nbytes);

/* Whether the last slice was left, and one more like it needs no thought. */
bool ko_foreign_goes_on(const struct ko_link *link, size_t nbytes);

/* Writes into the next slot, for which a place has been chosen, that nbytes are left at `from`. */
int ko_foreign_leave(struct ko_link *link, const void *from, size_t nbytes);

/* Takes back what the peer does not read yet: before its sender sleeps, when it has said so. What
 * the peer is done with, or cannot read, only later it rings for. */
void ko_foreign_take_back(struct ko_link *link);

/* Before the link is freed: what has been left the peer reads no more. */
void ko_foreign_withdraw(struct ko_link *link);

/* The slices sent, up to the last before which none lies with its sender any more. For who asks
 * again and again because he waits for that: after a while it takes them back. */
uint64_t ko_foreign_settled(struct ko_link *link);

/* For who waits for the peer: helps it with what it reads (foreign_share.h). */
void ko_foreign_help(struct ko_link *link);

/* Whether the peer is just reading one. */
bool ko_foreign_is_read(const struct ko_link *link);

/* NULL is allowed. */
void ko_foreign_out_free(struct ko_foreign_out *out);

#endif
