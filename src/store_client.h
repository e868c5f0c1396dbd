/* SPDX-License-Identifier: MIT
 *
 * store_client.h: one connection to a store that is served over TCP, by kolo or by PyTorch (2.x).
 * One thread at a time; only ko_client_stop and ko_client_own_address may come from any.
 */
#ifndef KO_STORE_CLIENT_H
#define KO_STORE_CLIENT_H

#include "store.h"
#include "store_wire.h"

enum { KO_CLIENT_HOST = 256 };

struct ko_client {
    pthread_mutex_t fd_lock; /* guards fd and is_stopped */
    int fd;                  /* -1: not connected */
    bool is_stopped;
    struct ko_buffer out; /* the request that is being put together */
    uint32_t nonce;
    int port;
    char host[KO_CLIENT_HOST];
    char where[KO_CLIENT_HOST + 24]; /* "the store at host:port" */
};

/* Makes a client that is not connected yet. host is shorter than KO_CLIENT_HOST. */
void ko_client_open(struct ko_client *client, const char *host, int port);

/* Connects and shakes hands, trying again until the deadline. */
int ko_client_connect(struct ko_client *client, const ko_deadline *deadline);

/* Carries out one request; connects again first if an earlier one broke the connection. */
int ko_client_call(struct ko_client *client, const struct ko_request *request,
                   const ko_deadline *deadline, struct ko_reply *reply);

/* Makes the call in progress and all later ones fail with KOLO_E_ABORTED. */
void ko_client_stop(struct ko_client *client);

void ko_client_close(struct ko_client *client);

/* The numeric address of this end of the connection. */
int ko_client_own_address(struct ko_client *client, char *host, size_t cap);

#endif
