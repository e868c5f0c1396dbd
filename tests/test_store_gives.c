/* SPDX-License-Identifier: MIT
 *
 * Memory that a store's server gives back to the system: never much of it in one turn, however much
 * a client drops, and in the end all. Measured by what of the process is in memory.
 */
#include "status.h"
#include "store_bench.h"
#include "store_output.h"
#include "store_words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SET = 1, DELETE = 8 };
enum { SMALL = 4096, SMALLS = 12000, LARGE = 8 << 20, LARGES = 6 };

/* MOST: may go in one turn, with what the system counts late. MOST_UNREAD: where that is left until
 * a MiB is, and malloc has kept some already. KEPT: may stay, of what malloc keeps for the next
 * one.
 */
enum { MOST = 2 << 20, MOST_UNREAD = 4 << 20, KEPT = 20 << 20 };

struct giver {
    struct store_bench bench;
    size_t before, most; /* in memory before the last step; that has gone in one step */
};

/* Without stdio, which would take memory behind what is looked at. */
static size_t in_memory(void)
{
    size_t all = 0, resident = 0;
    char text[128] = "";
    int fd = open("/proc/self/statm", O_RDONLY);

    if (fd < 0 || read(fd, text, sizeof text - 1) < 0 ||
        sscanf(text, "%zu %zu", &all, &resident) != 2)
        resident = 0;
    close(fd);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

static void open_wide(struct giver *giver)
{
    store_bench_open_two(&giver->bench);
    ko_table_free(giver->bench.service.table);
    ko_table_open(SIZE_MAX / 4, &giver->bench.service.table);
    ko_table_keep_apart(giver->bench.service.table);
    giver->bench.service.budget.cap = (size_t)256 << 20;
    store_asks(&giver->bench.clients[0], "0d 01020304"); /* what it needs to answer is there */
    store_gets(&giver->bench.clients[0], "01020304");
    giver->before = giver->most = 0;
}

static void begin_step(struct giver *giver)
{
    giver->before = in_memory();
}

static void end_step(struct giver *giver)
{
    const size_t after = in_memory();

    if (after < giver->before && giver->before - after > giver->most)
        giver->most = giver->before - after;
}

/* The client has all the turns that it needs, each of them a step. */
static int run(struct giver *giver, struct ko_session *client)
{
    int err;

    do {
        begin_step(giver);
        err = ko_session_run(client);
        ko_output_consume(client, ko_buffer_fill(ko_output_first(client)));
        end_step(giver);
    } while (!err && client->has_more);
    return err;
}

static int put(struct ko_session *client, const void *data, size_t nbytes)
{
    if (ko_buffer_reserve(&client->in, nbytes))
        return KOLO_E_NOMEM;
    memcpy(client->in.data + client->in.tail, data, nbytes);
    client->in.tail += nbytes;
    return KOLO_OK;
}

/* A message comes, as a server reads it. */
static int say(struct giver *giver, uint8_t opcode, int i, const char *value, size_t nbytes)
{
    struct ko_session *client = &giver->bench.clients[0];
    struct ko_buffer said = {0};
    char key[16];
    size_t part;
    int err = ko_buffer_reserve(&said, 1);

    snprintf(key, sizeof key, "/%d", i);
    ko_buffer_put_u8(&said, opcode);
    err = err ? err : ko_list_put(&said, (kolo_bytes){key, strlen(key)});
    if (!err && value)
        err = ko_list_put(&said, (kolo_bytes){value, nbytes});
    while (!err && ko_buffer_fill(&said) > 0) {
        part = ko_session_wants(client);
        part = part < ko_buffer_fill(&said) ? part : ko_buffer_fill(&said);
        err = put(client, ko_buffer_bytes(&said), part);
        ko_buffer_consume(&said, part);
        err = err ? err : run(giver, client);
    }
    ko_buffer_free(&said);
    return err;
}

static void tidy(struct giver *giver)
{
    while (ko_table_is_untidy(giver->bench.service.table)) {
        begin_step(giver);
        ko_table_tidy_some(giver->bench.service.table);
        end_step(giver);
    }
}

/* Sets, or deletes, so many small values. */
static int say_small(struct giver *giver, uint8_t opcode, int first, int end)
{
    static char value[SMALL];
    int err = KOLO_OK;

    for (int i = first; i < end && !err; i++)
        err = say(giver, opcode, i, opcode == SET ? value : NULL, SMALL);
    return err;
}

/* Each returns NULL, or what is wrong. */

static const char *many_small_values(struct giver *giver)
{
    const size_t begin = in_memory();

    if (say_small(giver, SET, 0, SMALLS) || say_small(giver, DELETE, 0, SMALLS))
        return kolo_last_error();
    tidy(giver);
    return in_memory() > begin + KEPT ? "it has not been given back" : NULL;
}

/* Behind which nothing of the others can go. */
static const char *all_but_the_last(struct giver *giver)
{
    const size_t begin = in_memory();

    if (say_small(giver, SET, 0, SMALLS) || say_small(giver, DELETE, 0, SMALLS - 1))
        return kolo_last_error();
    tidy(giver);
    if (say_small(giver, DELETE, SMALLS - 1, SMALLS))
        return kolo_last_error();
    tidy(giver);
    return in_memory() > begin + KEPT ? "it has not been given back" : NULL;
}

static const char *large_values(struct giver *giver)
{
    char *value = calloc(1, LARGE);
    const size_t begin = in_memory();
    int err = KOLO_OK;

    for (int i = 0; i < 2 * LARGES && !err; i++)
        err = say(giver, SET, i % LARGES, value, LARGE);
    for (int i = 0; i < LARGES && !err; i++)
        err = say(giver, DELETE, i, NULL, 0);
    free(value);
    if (err)
        return kolo_last_error();
    return in_memory() > begin + KEPT ? "it has not been given back" : NULL;
}

/* What a client reads late: each piece goes when it has. In a server that has had longer ones
 * malloc takes them all from one heap. */
static const char *unread_output(struct giver *giver)
{
    enum { UNREAD = 480 };
    struct ko_session *client = &giver->bench.clients[0];
    char *volatile longer = malloc(3 * KO_OUTPUT_PIECE); /* volatile: it is asked for indeed */
    size_t begin;

    free(longer);
    begin = in_memory();
    for (int i = 0; i < UNREAD; i++) {
        if (ko_output_reserve(client, KO_OUTPUT_PIECE))
            return kolo_last_error();
        memset(client->out.data + client->out.tail, 1, KO_OUTPUT_PIECE);
        client->out.tail += KO_OUTPUT_PIECE;
    }
    while (ko_output_nbytes(client) > 0) {
        begin_step(giver);
        ko_output_consume(client, ko_buffer_fill(ko_output_first(client)));
        end_step(giver);
    }
    return in_memory() > begin + KEPT ? "it has not been given back" : NULL;
}

static void *take_and_give(void *argument)
{
    enum { PIECES = 100, PIECE = LARGE / PIECES };
    size_t *gone = argument;
    char *volatile pieces[PIECES]; /* volatile: they are written indeed */
    size_t before;

    for (int i = 0; i < PIECES; i++) {
        pieces[i] = malloc(PIECE);
        memset(pieces[i], 1, PIECE);
    }
    before = in_memory();
    for (int i = 0; i < PIECES; i++)
        free(pieces[i]);
    *gone = before > in_memory() ? before - in_memory() : 0;
    return NULL;
}

/* Whether this malloc does at once. A sanitizer's does not. */
static bool gives_back(void)
{
    size_t gone = 0;
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, take_and_give, &gone), 0);
    pthread_join(thread, NULL);
    return gone > LARGE / 2;
}

typedef const char *(*dropper)(struct giver *giver);

struct step {
    dropper drop;
    const char *wrong;
    size_t most;
};

static void *drop(void *argument)
{
    struct step *step = argument;
    struct giver giver;

    open_wide(&giver);
    step->wrong = step->drop(&giver);
    step->most = giver.most;
    store_bench_close(&giver.bench);
    return NULL;
}

/* In a thread of its own, as a server's is, whose memory no other thread takes any of. */
static void goes_in_pieces(void **state)
{
    struct step step = {.drop = *(const dropper *)*state};
    pthread_t thread;

    if (!gives_back()) {
        print_message("this malloc gives nothing back at once\n");
        skip();
    }
    assert_int_equal(pthread_create(&thread, NULL, drop, &step), 0);
    pthread_join(thread, NULL);
    if (step.wrong)
        print_message("%s\n", step.wrong);
    assert_null(step.wrong);
    assert_in_range(step.most, 0, step.drop == unread_output ? MOST_UNREAD : MOST);
}

static dropper small = many_small_values, but_last = all_but_the_last, large = large_values,
               unread = unread_output;

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"many small values", goes_in_pieces, NULL, NULL, &small},
        {"all small values but the last, and that", goes_in_pieces, NULL, NULL, &but_last},
        {"what a client reads late", goes_in_pieces, NULL, NULL, &unread},
        {"large values", goes_in_pieces, NULL, NULL,
         &large}}; /* the last: malloc keeps more then */

    return cmocka_run_group_tests_name("store gives", tests, NULL, NULL);
}
