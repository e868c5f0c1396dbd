/* SPDX-License-Identifier: MIT
 *
 * foreign_share.h: while a receiver reads slices out of the sender's process, the sender waits to
 * have its memory again: there is nothing that it does better meanwhile than to write some of them
 * into the receiver's, so that two cores copy. The receiver offers the pages of what it is about to
 * read and takes some of them from the end at a time, and the sender some from the front, until
 * they meet. The offer ends before the receiver goes on: nobody writes into its memory at any other
 * time, unless a wait for the sender ends first, by its limit or the failure of the link's owner.
 */
#ifndef KO_FOREIGN_SHARE_H
#define KO_FOREIGN_SHARE_H

#include "foreign_process.h"

struct ko_link;

/* The receiver's: copies nbytes, what the next slice of the link and some behind it are, from there
 * to `to`. KO_AGAIN: the system does not let us. KOLO_E_PEER_LOST. KOLO_E_TIMEOUT: the peer
 * stood still while it wrote, until the link's limit or failure. */
int ko_foreign_share_read(struct ko_link *link, struct ko_foreign_process *process,
                          uint64_t address, void *to, size_t nbytes);

/* The sender's: the step of the first slice of which pages are on offer, as far as steps up to
 * link->sent go; 0: none are. */
uint64_t ko_foreign_share_asked(const struct ko_link *link);

/* Writes pages of them to the peer while some are on offer from that step on. nbytes: all that lie
 * side by side `from` on, where its slice begins. False: it cannot, and need not try again. */
bool ko_foreign_share_help(struct ko_link *link, struct ko_foreign_process *process, uint64_t step,
                           const void *from, size_t nbytes);

#endif
