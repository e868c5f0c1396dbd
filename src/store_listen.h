/* SPDX-License-Identifier: MIT
 *
 * store_listen.h: where a store's server listens: on each address of the host's that it was given,
 * on one port. One thread.
 */
#ifndef KO_STORE_LISTEN_H
#define KO_STORE_LISTEN_H

#include "clock.h"

#include <stdbool.h>

enum { KO_LISTENERS = 8 };

struct ko_listeners {
    int fds[KO_LISTENERS];
    int n, port;
    bool is_inherited; /* KOLO_STORE_FD */
};

/* Port 0 is any free one. Takes the socket that KOLO_STORE_FD names, if it is the one for this port
 * and no other server of this process has it, else its own; host's addresses are found by the
 * deadline. */
int ko_listeners_open(struct ko_listeners *listeners, const char *host, int port,
                      const ko_deadline *deadline);

/* Safe on all zeros. */
void ko_listeners_close(struct ko_listeners *listeners);

#endif
