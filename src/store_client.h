/* SPDX-License-Identifier: MIT
 *
 * store_client.h: one connection to a store that is served over TCP, by kolo or by PyTorch, 1.13 or
 * 2.x. One thread at a time; only ko_client_stop and ko_client_own_address may come from any.
 */
#ifndef KO_STORE_CLIENT_H
#define KO_STORE_CLIENT_H

#include "fork_fds.h"
#include "secret_gate.h"
#include "store.h"
#include "store_wire.h"

#include <stdatomic.h>

enum { KO_CLIENT_HOST = 256 };

struct ko_client {
    pthread_mutex_t fd_lock;  /* guards socket, and that it is shut down if is_stopped */
    struct ko_fork_fd socket; /* -1: not connected, as in a child of fork */
    atomic_bool is_stopped;
    struct ko_buffer out; /* the request that is being put together */
    struct ko_guard guard;
    bool is_foreign; /* the server is PyTorch's, which knows no token */
    uint32_t nonce;
    enum ko_wire_numbering numbering; /* of the server, once it has been reached */
    enum { LATE_UNKNOWN, LATE_THERE, LATE_LACKING } late; /* does it know queues and so on? */
    int port;
    char host[KO_CLIENT_HOST];
    char where[KO_CLIENT_HOST + 24]; /* "the store at host:port" */
};

/* Makes a client that is not connected yet; KOLO_E_INVALID for a token that cannot be used, and
 * then the client is to be closed too. host is shorter than KO_CLIENT_HOST. */
int ko_client_open(struct ko_client *client, const char *host, int port, bool is_foreign);

/* Connects and shakes hands, trying again until the deadline. */
int ko_client_connect(struct ko_client *client, const ko_deadline *deadline);

/* Carries out one request; connects again first if an earlier one broke the connection. */
int ko_client_call(struct ko_client *client, const struct ko_request *request,
                   const ko_deadline *deadline, struct ko_reply *reply);

/* Makes the call in progress and all later ones fail with KOLO_E_ABORTED. */
void ko_client_stop(struct ko_client *client);

void ko_client_close(struct ko_client *client);

/* ---- between store_connect.c, store_exchange.c and store_client.c ---- */

/* Of a request, whose keys and values may be too much for one message, those from the one numbered
 * `from` on that go into one. */
struct ko_request ko_client_part(const struct ko_request *request, size_t from);
/* Appends a request to out, in the server's numbering, which has the operation. */
int ko_client_put(struct ko_client *client, const struct ko_request *request);
/* Sends what has been put together. */
int ko_client_flush(struct ko_client *client, const ko_deadline *deadline);
int ko_client_receive(struct ko_client *client, const struct ko_request *request,
                      const ko_deadline *deadline, struct ko_reply *reply);
/* The name of the call that an operation stands for. */
const char *ko_client_verb(enum ko_store_op op);

bool ko_client_is_stopped(struct ko_client *client);
int ko_client_fail_stopped(const struct ko_client *client);
void ko_client_disconnect(struct ko_client *client);
/* Says who failed besides why: err's text is that of the socket. */
int ko_client_fail_with(const struct ko_client *client, int err, const char *what);

/* The numeric address of this end of the connection. */
int ko_client_own_address(struct ko_client *client, char *host, size_t cap);

#endif
