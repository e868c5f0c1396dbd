/* SPDX-License-Identifier: MIT
 *
 * store_floods.h: of tests/bench/store.c, hostile clients that are let in and make work: each sends
 * one long row of requests over and over, and reads the answers. It is included behind what they
 * connect with (check, enter, HELLO).
 */
#ifndef STORE_FLOODS_H
#define STORE_FLOODS_H

enum { LISTED = 131072, KEY_NBYTES = 8, LARGE = 4 << 20, FLOOD = 64 << 20 };

static char *put_u64(char *at, uint64_t number)
{
    for (int i = 0; i < 8; i++)
        *at++ = (char)(number >> (8 * i));
    return at;
}

/* The i-th of a list's keys, which all are of one length. */
static char *put_key(char *at, const char *name, size_t i)
{
    at = put_u64(at, KEY_NBYTES);
    return at + sprintf(at, "/%s%06zu", name, i);
}

/* A list with a value of no bytes behind each key, or without. */
static char *put_list(char *at, char opcode, const char *name, bool has_values)
{
    *at++ = opcode;
    at = put_u64(at, LISTED);
    for (size_t i = 0; i < LISTED; i++) {
        at = put_key(at, name, i);
        at = has_values ? put_u64(at, 0) : at;
    }
    return at;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Sends all of it over and over, and reads what comes. It does so in pieces, and gives its core
 * away between them: a client of another machine would take none of the two that the server and the
 * honest client have, while here one call that moves megabytes keeps either of them off its core
 * for a millisecond, whatever the server does. */
static void flood(int port, const char *bytes, size_t nbytes)
{
    int fd = enter(port);
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN | POLLOUT};
    char heard[16384];
    size_t at = 0;
    ssize_t n;

    (void)!send(fd, HELLO, sizeof HELLO - 1, MSG_NOSIGNAL);
    while (poll(&poll_fd, 1, -1) > 0) {
        if (poll_fd.revents & POLLIN && recv(fd, heard, sizeof heard, MSG_DONTWAIT) == 0)
            break;
        n = send(fd, bytes + at, least(nbytes - at, sizeof heard), MSG_NOSIGNAL | MSG_DONTWAIT);
        at = n > 0 ? (at + (size_t)n) % nbytes : at;
        sched_yield();
    }
    check(false, "a hostile client's connection");
}

static char *new_flood(void)
{
    char *bytes = malloc(FLOOD);

    check(bytes != NULL, "memory");
    return bytes;
}

static void be_many_sets(int port)
{
    char *bytes = new_flood();
    char *at = bytes;

    for (size_t i = 0; i < LISTED; i++) {
        *at++ = 1;
        at = put_u64(put_key(at, "s", i % 100), 0);
    }
    flood(port, bytes, (size_t)(at - bytes));
}

/* Stores a large value under a key, or at its queue's end. */
static char *put_large(char *at, char opcode, const char *name)
{
    *at++ = opcode;
    at = put_u64(put_key(at, name, 0), LARGE);
    memset(at, 'x', LARGE);
    return at + LARGE;
}

/* A large value, and bytes one by one behind it. */
static void be_many_appends(int port)
{
    char *bytes = new_flood();
    char *at = put_large(bytes, 1, "a");

    for (size_t i = 0; i < LISTED; i++) {
        *at++ = 9;
        at = put_u64(put_key(at, "a", 0), 1);
        *at++ = 'y';
    }
    flood(port, bytes, (size_t)(at - bytes));
}

/* A large value, asked for over and over. */
static void be_many_gets(int port)
{
    char *bytes = new_flood();
    char *at = put_large(bytes, 1, "g");

    for (size_t i = 0; i < 100; i++) {
        *at++ = 3;
        at = put_key(at, "g", 0);
    }
    flood(port, bytes, (size_t)(at - bytes));
}

/* Large values, into a queue and out of it. */
static void be_queue(int port)
{
    char *bytes = new_flood();
    char *at = put_large(bytes, 14, "q");

    *at++ = 15;
    at = put_key(at, "q", 0);
    flood(port, bytes, (size_t)(at - bytes));
}

static void be_multi_set(int port)
{
    char *bytes = new_flood();

    flood(port, bytes, (size_t)(put_list(bytes, 11, "m", true) - bytes));
}

/* Of keys that are there, which it sets first. */
static void be_check(int port)
{
    char *bytes = new_flood();
    char *at = put_list(bytes, 11, "c", true);

    for (int i = 0; i < 8; i++)
        at = put_list(at, 5, "c", false);
    flood(port, bytes, (size_t)(at - bytes));
}

/* Of all keys, which it sets first. */
static void be_list(int port)
{
    char *bytes = new_flood();
    char *at = put_list(bytes, 11, "l", true);

    memset(at, 17, LISTED);
    flood(port, bytes, (size_t)(at - bytes) + LISTED);
}

/* Two connections of a client of 1.13: the first one says nothing, the second one watches. */
static int enter_watching(int port, const char *name)
{
    char bytes[64], heard;
    int fd;

    enter(port);
    nap_ms(20); /* the server may see the one before the other */
    fd = enter(port);
    bytes[0] = 7;
    check(send(fd, bytes, (size_t)(put_key(bytes + 1, name, 0) - bytes), MSG_NOSIGNAL) > 0 &&
              recv(fd, &heard, 1, 0) == 1,
          "a watch");
    return fd;
}

static void hear(int fd, size_t nbytes)
{
    char heard[65536];
    ssize_t n;

    for (; nbytes > 0; nbytes -= (size_t)n) {
        n = recv(fd, heard, nbytes < sizeof heard ? nbytes : sizeof heard, 0);
        check(n > 0, "an update");
    }
}

/* A large value that is watched, and bytes one by one behind it: each is told with what was before
 * and is, and read before the next. */
static void be_watched_appends(int port)
{
    const int watcher = enter_watching(port, "u");
    const int writer = enter(port);
    char *bytes = new_flood();
    char one[64], *at = put_large(bytes, 1, "u");
    size_t length = LARGE;

    check(send(writer, HELLO, sizeof HELLO - 1, 0) > 0, "a writer");
    for (size_t sent = 0, nbytes = (size_t)(at - bytes); sent < nbytes;)
        sent += (size_t)send(writer, bytes + sent, nbytes - sent, MSG_NOSIGNAL);
    hear(watcher, 25 + KEY_NBYTES + length);
    at = one;
    *at++ = 9;
    at = put_u64(put_key(at, "u", 0), 1);
    *at++ = 'y';
    for (; length < 2 * LARGE - 1; length++) {
        check(send(writer, one, (size_t)(at - one), MSG_NOSIGNAL) > 0, "an append");
        hear(watcher, 25 + KEY_NBYTES + 2 * length + 1);
    }
}

/* Ever new clients that watch very many keys and go. */
static void be_watchers_that_go(int port)
{
    char *bytes = new_flood();
    char *at = bytes;

    for (size_t i = 0; i < LISTED; i++) {
        *at++ = 7;
        at = put_key(at, "v", i);
    }
    for (;;) {
        const int fd = enter_watching(port, "v");
        size_t nsent = 0, nheard = 0;
        const size_t nbytes = (size_t)(at - bytes);
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN | POLLOUT};
        char heard[65536];
        ssize_t n;

        while (nheard < LISTED && poll(&poll_fd, 1, -1) > 0) {
            n = recv(fd, heard, sizeof heard, MSG_DONTWAIT);
            nheard += n > 0 ? (size_t)n : 0;
            n = nsent < nbytes ? send(fd, bytes + nsent, nbytes - nsent, MSG_DONTWAIT) : 0;
            nsent += n > 0 ? (size_t)n : 0;
            poll_fd.events = nsent < nbytes ? POLLIN | POLLOUT : POLLIN;
        }
        close(fd);
    }
}

/* A queue of very many values, deleted. */
static void be_queue_deletes(int port)
{
    char *bytes = new_flood();
    char *at = bytes;

    for (size_t i = 0; i < 8 * LISTED; i++) {
        *at++ = 14;
        at = put_u64(put_key(at, "d", 0), 1);
        *at++ = 'x';
    }
    *at++ = 8;
    at = put_key(at, "d", 0);
    flood(port, bytes, (size_t)(at - bytes));
}

/* For keys that never come, taken back each time. */
static void be_wait(int port)
{
    char *bytes = new_flood();
    char *at = put_list(bytes, 6, "w", false);

    *at++ = 12;
    flood(port, bytes, (size_t)(at - bytes));
}

#endif
