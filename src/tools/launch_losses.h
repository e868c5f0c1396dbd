/* SPDX-License-Identifier: MIT
 *
 * launch_losses.h: how the kolorun of several machines (launch_nodes.h) notice that one of them has
 * gone without a word: the end of its connection to the store tells at once, and its silence in
 * some time, as when a machine loses its power. The machine that serves the store looks for both,
 * and says for all who was lost; that it is lost itself, the others notice by their own requests.
 */
#ifndef KO_LAUNCH_LOSSES_H
#define KO_LAUNCH_LOSSES_H

#include "launch_nodes.h"

/* What the machine that serves knows of another. */
struct ko_life {
    int64_t beats;
    int silent_ms; /* -1: it has not come yet, or is not waited for any more */
    bool is_lost;
};

/* On the machine that serves, before others come: makes place for what it sees of them. */
int ko_losses_open(struct ko_nodes *nodes);

/* For a machine that has its number: says where it is, and leaves with the server what is to be
 * known when its connection ends. */
int ko_losses_join(struct ko_nodes *nodes);

/* Says that this machine is alive, or looks at the others, if it is time; to be called some times a
 * second. A loss ends the attempt, and is written under its key "lost". While all meet,
 * KOLO_E_PEER_LOST if one of those who have come was lost. */
int ko_losses_tend(struct ko_nodes *nodes, int attempt);

/* All have met: from now on each is waited for. */
void ko_losses_begin(struct ko_nodes *nodes);

/* How many machines were lost and have not been replaced, as the serving one knows. */
int ko_losses_count(const struct ko_nodes *nodes);

void ko_losses_close(struct ko_nodes *nodes);

/* ---- of launch_nodes.c: keys, and texts under them ---- */

int ko_nodes_set(struct ko_nodes *nodes, int attempt, const char *name, const char *text);
int ko_nodes_get(struct ko_nodes *nodes, int attempt, const char *name,
                 char text[KO_NODES_TEXT + 16]);
/* False too if the store has gone, which *err says. */
bool ko_nodes_has(struct ko_nodes *nodes, int attempt, const char *name, int *err);
/* Under "failed", unless something is there: code, what kind of failure, how. */
int ko_nodes_set_failed(struct ko_nodes *nodes, int attempt, int code, char kind, const char *how);

#endif
