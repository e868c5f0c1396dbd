/* SPDX-License-Identifier: MIT
 *
 * store_bench.h: a server without sockets: some sessions, and what their clients say and hear, in
 * hexadecimal (store_words.h).
 */
#ifndef STORE_BENCH_H
#define STORE_BENCH_H

#include "store_session.h"

enum { STORE_CLIENTS = 3, STORE_TABLE_CAP = 1 << 20, STORE_BUFFERS_CAP = 1 << 20 };

struct store_bench {
    struct ko_service service;
    struct ko_session clients[STORE_CLIENTS];
};

void store_bench_open(struct store_bench *bench);
/* The same; two clients of today have said so. */
void store_bench_open_two(struct store_bench *bench);
void store_bench_close(struct store_bench *bench);

/* All that the client is to get, in out, so that a test may look at it. */
void store_gather(struct ko_session *client);

/* Runs it for as many turns as it needs, and gathers that. */
int store_run(struct ko_session *client);

/* n bytes come from a client; what its session says. */
int store_feed(struct ko_session *client, const uint8_t *bytes, size_t n);

/* A message comes, which is in order. */
void store_asks(struct ko_session *client, const char *hex);

/* The same, but it has one turn only, and what it gets stays where it is. */
void store_begins(struct ko_session *client, const char *hex);

/* Goes on with what it has begun, in so many turns more; between them another one, who has V under
 * X, is answered at once. */
void store_goes_on(struct ko_session *client, struct ko_session *other, int fewest, int most);

/* Exactly these bytes are there for the client, once it has been run if it was woken. */
void store_gets(struct ko_session *client, const char *hex);

/* For a service all of whose clients have another connection. */
bool store_has_other_half(struct ko_session *session, enum ko_half half);

#endif
