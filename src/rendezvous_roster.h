/* SPDX-License-Identifier: MIT
 *
 * rendezvous_roster.h: which ranks of a world have come, and from where. One thread at a time.
 */
#ifndef KO_RENDEZVOUS_ROSTER_H
#define KO_RENDEZVOUS_ROSTER_H

#include "kolo.h"

#include <stdbool.h>

enum { KO_ROSTER_PLACE = 40 }; /* the longest place, a host and its address */

/* Belongs to whoever has opened it. */
struct ko_roster {
    char (*places)[KO_ROSTER_PLACE + 1]; /* of each rank; "": it has not come */
    bool *is_listed;
    int size;
    int looked; /* at the first so many ranks, of this turn */
    int said;   /* when so many had come; -1: nothing yet */
};

/* The key under which a rank says where it is. */
void ko_roster_key(int rank, char *key, size_t nbytes);

int ko_roster_open(int size, struct ko_roster *roster);
void ko_roster_close(struct ko_roster *roster);

/* Looks at some more ranks, where they are not known to have come. KOLO_E_PEER_LOST: there is no
 * store any more. */
int ko_roster_look(struct ko_roster *roster, kolo_store *keys);

/* How many of those that have been looked at are missing; their list as by ko_rank_list. */
int ko_roster_missing(struct ko_roster *roster, char *list, size_t nbytes);

/* "0-3, 7 (node1 10.0.0.1), 4 (node2 10.0.0.2) and 5 more". nbytes: at least 168. */
void ko_roster_come(struct ko_roster *roster, char *text, size_t nbytes);

/* Logs all of it, on as many lines as it takes, if it has changed since. */
void ko_roster_say(struct ko_roster *roster);

#endif
