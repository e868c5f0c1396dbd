/* SPDX-License-Identifier: MIT
 *
 * store_model.h: what a store holds, as plain arrays, and what each of its clients is to get. Who
 * stores what others wait for may be done with them only after some turns, between which others
 * act. One thread; what is wrong ends the test.
 */
#ifndef STORE_MODEL_H
#define STORE_MODEL_H

#include "store_session.h"

enum { CLIENTS = 16, WATCHERS = 3, KEYS = 5, QUEUE = 8, LONGEST = 300, SAID = 8192 };

struct text {
    size_t nbytes;
    char bytes[LONGEST];
};

struct key {
    bool has_value;
    struct text value;
    int nqueued;
    struct text queue[QUEUE];
    int nclaims;
    int nwaits, npops, nmeets; /* clients, those who came first in front */
    int waits[CLIENTS], pops[CLIENTS], meets[CLIENTS];
};

/* One whom something that has come concerns. */
struct coming {
    int client;
    int key; /* -1: a barrier's end */
};

struct client {
    struct ko_session session; /* first, so that a session is its client */
    bool is_ready;
    enum ko_wire_numbering numbering;
    enum ko_store_op waits_in; /* PING: in nothing */
    unsigned wanted;           /* keys of that request, as bits, in rising order */
    unsigned missing;
    unsigned watched;
    int claim; /* the key whose queue's value has woken it, until it says something; -1: none */
    int will;  /* the key that it is appended to; -1: it has none */
    bool has_listed;                   /* in this step, and nothing else */
    struct coming coming[2 * CLIENTS]; /* by what it has stored, and in this order */
    int ncoming;
    size_t nexpected;
    uint8_t expected[SAID]; /* what it is to get */
};

struct model {
    struct ko_service service;
    uint64_t random;
    struct key keys[KEYS];
    struct client clients[CLIENTS];
    int actor; /* whose request, or end, it is */
    int busy;  /* whose turn was over before all had been woken, or told; -1: nobody's */
    long nunwoken, nuntold; /* how often others acted meanwhile */
    int woken[CLIENTS];     /* to be answered when the operation is over */
    int nwoken;
    long counts[KO_STORE_NOPS]; /* requests of each kind so far */
    size_t nsaid;
    bool says_much;     /* in one turn */
    uint8_t said[SAID]; /* the request that is put together */
};

/* A number below that; always the same ones. */
uint32_t draw(struct model *model, uint32_t below);

/* The client is to get these next. */
void expect_bytes(struct client *client, const void *data, size_t nbytes);
void expect_byte(struct client *client, uint8_t byte);
void expect_i64(struct client *client, int64_t number);
void expect_text(struct client *client, const struct text *text);

bool is_there(const struct key *key);

/* Client c waits for nothing any more. */
void stop_waiting(struct model *model, int c);
/* Answers its WAIT, GET or MULTI_GET of the wanted keys, or lists it under those that are missing.
 */
void wait_or_answer(struct model *model, int c);
/* Those whom a value that has been put into the queue of key k concerns are to be woken. */
void come_into_queue(struct model *model, int k);
/* Client c has had a turn, or more: those who are to be woken have been, up to one of them. */
void wake_so_far(struct model *model, int c);
/* Client c takes no value that has woken it: another one may. */
void end_claim(struct model *model, int c);
/* Runs the sessions of those who have been woken, and answers them. */
void answer_woken(struct model *model);

/* Key k gets that value: those who watch are told, those who wait are to be woken. */
void store(struct model *model, int k, const struct text *value);
/* It has neither a value nor a queue any more. */
void drop(struct model *model, int k);
/* Client c comes to the barrier that is key k, at which n have been before it. */
void meet(struct model *model, int c, int k, int64_t n, int64_t size);

#endif
