/* SPDX-License-Identifier: MIT
 *
 * old_server.h: a server of an earlier PyTorch as a client meets it: passes bytes to a store server
 * of ours, as a client of that PyTorch's would send them, and hangs up where the old one would.
 */
#ifndef KO_TESTS_OLD_SERVER_H
#define KO_TESTS_OLD_SERVER_H

enum old_server_kind {
    OLD_1_13,    /* hangs up at VALIDATE, and at operations behind DELETE */
    OLD_2_1,     /* at VALIDATE, and at operations behind CANCEL_WAIT */
    OLD_NO_PING, /* hangs up at what does not begin with VALIDATE, and at operations from PING on */
    OLD_EARLY_2, /* hangs up at operations from QUEUE_PUSH on */
    OLD_BUSY,    /* hangs up at a client's first two connections, and is none of the old */
    OLD_BUSIER   /* at the first four */
};

struct old_server;

/* Passes on to 127.0.0.1:port, and listens there on *own_port. */
struct old_server *old_server_open(enum old_server_kind kind, int port, int *own_port);
void old_server_close(struct old_server *server);

#endif
