/* SPDX-License-Identifier: MIT
 *
 * paper_play.h: the board on which paper_play.c plays a call, and its memory (paper_memory.c).
 */
#ifndef KO_PAPER_PLAY_H
#define KO_PAPER_PLAY_H

#include "paper.h"
#include "status.h"

#include <stdint.h>

/* What one element holds: the reduction of element `index` of the inputs of `ranks`. */
struct ko_paper_value {
    uint64_t ranks; /* a bit for each contribution; 0: nothing was written here */
    uint64_t shape; /* the same for the same reductions, of the same operands in the same order */
    uint32_t index;
    bool is_final; /* AVG has divided */
};

/* Shapes: of a rank's contribution, and of the reduction of two values. */
static inline uint64_t ko_paper_leaf(int rank)
{
    return 0x9e3779b97f4a7c15U * (uint64_t)(rank + 1);
}

static inline uint64_t ko_paper_join(uint64_t a, uint64_t b)
{
    const uint64_t mixed = (3 * a + b) * 0xff51afd7ed558ccdU;

    return mixed ^ mixed >> 31;
}

/* A part that was sent by reference: until the receiver has it, it may not be overwritten. */
struct ko_paper_loan {
    struct ko_part where; /* of the owner's memory */
    struct ko_part back;  /* where the receiver may write; empty, if it may not */
    int to;
    uint32_t received_at; /* number of the receiver's action; 0: not yet */
    struct ko_paper_loan *next;
};

struct ko_paper_message {
    size_t count, step;
    struct ko_paper_loan *loan;    /* NULL: it was copied */
    struct ko_paper_value *values; /* up to a slice */
    uint32_t *clock;               /* what the sender knew: how many actions of each rank */
};

/* A ring of slots, made at the first message. */
struct ko_paper_link {
    struct ko_paper_message *slots;
    uint64_t sent, received;
};

struct ko_paper_player {
    struct ko_paper_list list;
    size_t done;                   /* actions */
    struct ko_paper_value *memory; /* of IN and OUT, which may overlap, and TMP */
    size_t memory_count;
    struct ko_part places[3];    /* where the buffers lie in it */
    uint32_t *clock;             /* how many actions of each rank have surely been before this */
    struct ko_paper_loan *loans; /* live ones */
    struct ko_paper_loan *pool;  /* one for each send */
    size_t pool_used, step;
};

struct ko_paper_board {
    const struct ko_paper_call *call;
    struct ko_paper_player players[KO_PAPER_MOST_RANKS];
    struct ko_paper_link *links; /* n x n: from * n + to */
    struct ko_paper_report report;
    uint64_t ordered; /* the shape of a sum in the order of the ranks */
};

/* Writes the lists and lays the buffers out. Close it in any case. */
int ko_paper_board_open(struct ko_paper_board *board, const struct ko_paper_call *call);
void ko_paper_board_close(struct ko_paper_board *board);

/* An error in words: the call, the rank, its action, and what is wrong. */
int ko_paper_wrong(const struct ko_paper_board *board, int rank, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define ko_paper_wrong(...) ko_failed((ko_paper_wrong)(__VA_ARGS__))

/* The values of a part of a buffer, which must lie within it. */
int ko_paper_at(struct ko_paper_board *board, int rank, enum buffer buffer, struct ko_part part,
                struct ko_paper_value **values);

/* The same to be read: none may be empty. */
int ko_paper_read(struct ko_paper_board *board, int rank, enum buffer buffer, struct ko_part part,
                  struct ko_paper_value **values);

/* The same to be written: nothing of it is lent. */
int ko_paper_write_at(struct ko_paper_board *board, int rank, enum buffer buffer,
                      struct ko_part part, struct ko_paper_value **values);

/* Writes values there. They may be the buffer's own. */
int ko_paper_put(struct ko_paper_board *board, int rank, enum buffer buffer, struct ko_part part,
                 const struct ko_paper_value *values);

/* Lends to a rank what the action sends there. */
struct ko_paper_loan *ko_paper_lend(struct ko_paper_board *board, int rank,
                                    const struct ko_paper_action *action);

/* Compares every output with what it should hold. */
int ko_paper_check_outputs(struct ko_paper_board *board);

#endif
