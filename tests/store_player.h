/* SPDX-License-Identifier: MIT
 *
 * store_player.h: a thread that plays a store's server from a script, byte by byte, so that what a
 * client makes of it rests on no server of ours. A test's *state is the player.
 */
#ifndef STORE_PLAYER_H
#define STORE_PLAYER_H

#include "clock.h"
#include "kolo.h"

#include <pthread.h>
#include <stdbool.h>

enum { PLAYER_PATIENCE_MS = 60000 };

/* What the client must say and is told. With a PING behind it: its nonce, which may be any, is told
 * back. */
#define HANG_UP NULL /* and the next turn is on another connection */
struct turn {
    const char *hear, *say;
    bool is_pinged;
};

/* How a client of ours meets a server of today. */
extern const struct turn player_handshake;

struct player {
    pthread_t thread;
    int listen_fd, port;
    const struct turn *turns;
    int nturns, nplayed;
    int nkeys; /* of the one wait, for a player who answers late */
};

int player_open(void **state);
int player_close(void **state);
#define PLAYED(name) cmocka_unit_test_setup_teardown(name, player_open, player_close)

/* The connection of the next client; -1: nobody has come. */
int player_accept(const struct player *player, const ko_deadline *deadline);
/* Takes one turn on the connection. False if the client said something else. */
bool player_turn(int fd, const struct turn *turn, const ko_deadline *deadline);

/* Plays these turns, of so many bytes in all, and connects a client to them. player_end closes it;
 * all of them must have been played. */
void player_begin(struct player *player, const struct turn *turns, size_t nbytes,
                  kolo_store **store);
void player_end(struct player *player, kolo_store *store);

#endif
