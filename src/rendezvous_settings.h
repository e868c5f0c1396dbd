/* SPDX-License-Identifier: MIT
 *
 * rendezvous_settings.h: the variables that all ranks have to set alike, as the first rank to come
 * leaves them in the store for the others to compare. Others agree in their own way: what a link's
 * ends have to know of each other goes by its hello, of costs (KOLO_TUNING) rank 0's count, and
 * what GPUs can do is told when ranks meet about them.
 */
#ifndef KO_RENDEZVOUS_SETTINGS_H
#define KO_RENDEZVOUS_SETTINGS_H

#include <stddef.h>

enum { KO_SETTINGS_TEXT = 4096 };

/* This process's, a line each. */
void ko_settings_write(char *text, size_t nbytes);

/* KOLO_E_INVALID names the first variable in which another rank's text differs from what own_rank,
 * this process, has, with both ranks and values. One that has no line there is not compared: it may
 * be a text of another version. */
int ko_settings_compare(const char *text, int rank, int own_rank);

#endif
