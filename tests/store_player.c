/* SPDX-License-Identifier: MIT */
#include "store_player.h"

#include "poller.h"
#include "socket.h"
#include "status.h"
#include "wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <unistd.h>

enum { NONCE = 4 };

const struct turn player_handshake = {"00 cef7853c 0d ffffffff", "ffffffff", false};

bool player_turn(int fd, const struct turn *turn, const ko_deadline *deadline)
{
    uint8_t expected[WIRE_LONGEST], got[WIRE_LONGEST];
    size_t n = wire_unhex(turn->hear, expected);

    if (ko_socket_recv_all(fd, got, n, deadline) || memcmp(got, expected, n) != 0)
        return false;
    if (turn->is_pinged && (ko_socket_recv_all(fd, got, NONCE, deadline) ||
                            ko_socket_send_all(fd, got, NONCE, deadline)))
        return false;
    if (turn->say == HANG_UP)
        return true;
    n = wire_unhex(turn->say, expected);
    return !ko_socket_send_all(fd, expected, n, deadline);
}

int player_accept(const struct player *player, const ko_deadline *deadline)
{
    int fd;

    while (ko_socket_accept(player->listen_fd, &fd) != KOLO_OK)
        if (ko_socket_wait(player->listen_fd, KO_POLL_IN, deadline))
            return -1;
    return fd;
}

static void *play(void *argument)
{
    struct player *player = argument;
    ko_deadline deadline = ko_deadline_in(PLAYER_PATIENCE_MS);
    const struct turn *turn = player->turns;
    int fd = player_accept(player, &deadline);

    for (; player->nplayed < player->nturns && player_turn(fd, turn, &deadline); turn++) {
        player->nplayed++;
        if (turn->say == HANG_UP) {
            close(fd);
            fd = player_accept(player, &deadline);
        }
    }
    close(fd);
    return NULL;
}

int player_open(void **state)
{
    static struct player player;

    player = (struct player){0};
    *state = &player;
    return ko_socket_listen("127.0.0.1", 0, &player.listen_fd, &player.port);
}

int player_close(void **state)
{
    struct player *player = *state;

    close(player->listen_fd);
    return 0;
}

void player_begin(struct player *player, const struct turn *turns, size_t nbytes,
                  kolo_store **store)
{
    player->turns = turns;
    player->nturns = (int)(nbytes / sizeof *turns);
    player->nplayed = 0;
    assert_int_equal(pthread_create(&player->thread, NULL, play, player), 0);
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", player->port, 0, PLAYER_PATIENCE_MS, store),
                     KOLO_OK);
}

void player_end(struct player *player, kolo_store *store)
{
    kolo_store_close(store);
    pthread_join(player->thread, NULL);
    assert_int_equal(player->nplayed, player->nturns);
}
