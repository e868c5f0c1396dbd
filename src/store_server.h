/* SPDX-License-Identifier: MIT
 *
 * store_server.h: serves a store over TCP from one thread of its own. A client that is silent,
 * sends garbage, half of a message or more than its share, or does not read, holds up nobody else.
 */
#ifndef KO_STORE_SERVER_H
#define KO_STORE_SERVER_H

#include "clock.h"

#include <stddef.h>

struct ko_server;

/* What a server bears. When three quarters of buffer_bytes are in use, the client that holds most
 * of them is cut off. */
struct ko_server_limits {
    size_t table_bytes;  /* keys, values, waits */
    size_t buffer_bytes; /* messages half come and replies not yet sent, beyond 16 KiB each, and of
                            each 128 KiB of a reply */
    int strangers; /* who have not said a whole message, of each kind; 0: half of the descriptors
                      that this process may come to have */
    int introduction_ms; /* from a connection's first byte to its first whole message; 0: as usual
                          */
};

/* Listens on host (all its addresses, which it has the time to find until the deadline, and no
 * others) and port, 0 for any free one, and starts to serve. limits NULL: KOLO_STORE_BYTES,
 * KOLO_STORE_BUFFER_BYTES, and the rest as usual. */
int ko_server_open(const char *host, int port, const struct ko_server_limits *limits,
                   const ko_deadline *deadline, struct ko_server **server);

int ko_server_port(const struct ko_server *server);

/* Stops the thread and cuts off all clients, which wakes those that wait. NULL is allowed. */
void ko_server_close(struct ko_server *server);

#endif
