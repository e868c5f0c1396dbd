/* SPDX-License-Identifier: MIT
 *
 * descriptors.h: how many files this process may have open. Any thread.
 */
#ifndef KO_DESCRIPTORS_H
#define KO_DESCRIPTORS_H

/* After a descriptor has been made: if its number, which is the least that was free, comes near the
 * limit, raises that as far as the process may. */
void ko_descriptors_note(int newest);

#endif
