/* SPDX-License-Identifier: MIT
 *
 * store_server.h: serves a store over TCP from one thread of its own. A client that is silent,
 * sends garbage, half of a message or more than its share, or does not read, holds up nobody else.
 */
#ifndef KO_STORE_SERVER_H
#define KO_STORE_SERVER_H

struct ko_server;

/* Listens on host (that address only) and port, 0 for any free one, and starts to serve. */
int ko_server_open(const char *host, int port, struct ko_server **server);

int ko_server_port(const struct ko_server *server);

/* Stops the thread and cuts off all clients, which wakes those that wait. NULL is allowed. */
void ko_server_close(struct ko_server *server);

#endif
