/* SPDX-License-Identifier: MIT
 *
 * rdma_wire.h: a part of rdma.h, which includes it: a wire.
 */
#ifndef KO_RDMA_WIRE_H
#define KO_RDMA_WIRE_H

enum ko_rdma_stage {
    KO_RDMA_GREETING, /* hellos */
    KO_RDMA_MEETING,  /* iWARP: librdmacm joins the queue pairs */
    KO_RDMA_READYING, /* our queue pair is joined, theirs is not known to be */
    KO_RDMA_PROBING,  /* a first write is on its way */
    KO_RDMA_OPEN,
    KO_RDMA_PLAIN /* without queue pairs, and without all of the stages between */
};

/* A queue pair. */
struct ko_rdma_rail {
    struct ko_rdma_wire *wire;
    struct ko_rdma_adapter *adapter;
    struct ko_ib_qp *qp;
    struct ko_rdma_cq *cq;
    uint32_t seat; /* there */
    int room;      /* that it needs there */
    uint64_t id;   /* of all its requests and receives, but for what they are */
    bool has_imm;  /* writes can carry an immediate */
    atomic_int
        fatal_event; /* 1 more than the one that ended it, set by whoever reads it; 0: none */
};

/* Requests to send of the first rail, in order, that are posted together. */
struct ko_rdma_list {
    struct ko_ib_send requests[KO_RDMA_LIST];
    struct ko_ib_sge pieces[KO_RDMA_LIST][KO_RDMA_PIECES];
    int n;
};

/* What the first rail has besides. */
struct ko_rdma_slots {
    struct ko_ib_mr *mr; /* KO_RDMA_SLOTS to receive in, as many to send from, and lines to send */
    unsigned char *memory; /* of them; lines that come lie behind */
    uint32_t inline_bytes;
    unsigned next; /* slot to send from */
    int nsends;    /* of those that have not completed */
};

struct ko_rdma_lines {
    struct ko_ib_mr *mr;
    const struct ko_rdma_line *come; /* KO_RDMA_LINES that the peer writes, at any time */
    struct ko_rdma_line *go;         /* what is written into the peer's */
    int nwrites;                     /* that have not completed */
};

/* What joins queue pairs of iWARP. */
struct ko_rdma_meeting {
    struct ko_ib_cm_channel *channel;
    struct ko_ib_cm_id *listener, *id;
    int tries;          /* ports that were taken */
    struct ko_post met; /* over tcp: the end that listened can take in what the other sends */
    bool has_met;       /* that has come */
};

/* The message that goes out: the first of the posts. */
enum ko_rdma_out_state { KO_RDMA_OUT_NEW, KO_RDMA_OUT_ASKED, KO_RDMA_OUT_PARTS };

struct ko_rdma_out {
    struct ko_post *first, *last;
    enum ko_rdma_out_state state;
    size_t done;    /* of the first's body */
    bool has_begun; /* the frame of the first has left */
    size_t held;    /* bytes of posts that nothing but may_wait keeps here */
    int credits;
    size_t filled;                /* bytes of the slot that is being put together; 0: none is */
    struct ko_rdma_region region; /* of the first's body */
    struct {                      /* messages on their way, in order */
        struct ko_post *post;
        struct ko_rdma_region region;
        int stripes; /* that have not completed; 0: the post has been given back */
    } flying[KO_RDMA_FLYING];
    unsigned begun, ended; /* counts of them */
    uint32_t asked;        /* messages that have been announced */
    bool tells_line;       /* what is to be told as soon as there is room */
    struct ko_rdma_line line;
    int tells_done;
};

/* What comes in. */
struct ko_rdma_in {
    uint8_t order[KO_RDMA_CREDITS]; /* slots with parts of messages, in the order of their coming */
    uint16_t nbytes[KO_RDMA_SLOTS];
    unsigned come, taken; /* counts */
    size_t at;            /* in the slot in front: bytes that have been taken */
    struct ko_frame frame;
    bool has_frame;
    bool holds_first; /* the record in front has its beginning */
    bool is_asked;    /* it will be written, not come in slots */
    bool is_landing, is_clear;
    uint32_t asked;   /* messages that have been announced */
    unsigned awaited; /* rails whose stripes have not come yet, a bit each */
    size_t done;
    struct ko_held *held; /* it is to be written there */
    struct ko_rdma_region region;
    uint8_t empty[KO_RDMA_REPOST]; /* slots that are to be posted again together */
    int nempty;
    int owed; /* credits to give back */
    bool has_ready, has_bye;
};

struct ko_rdma_wire {
    struct ko_wire base;
    struct ko_rdma_device *device;
    struct ko_rdma_owner owner;
    struct ko_wire *tcp;
    struct ko_poller poller; /* of all that may tell something */
    int polled;              /* bits with which tcp is there */
    enum ko_rdma_stage stage;
    struct ko_rdma_card card, theirs;
    bool is_connecting; /* it is this end that began */
    struct ko_rdma_rail rails[KO_RDMA_RAILS];
    int nrails;
    int nprobed; /* of them, whose first write has arrived */
    struct ko_rdma_slots slots;
    struct ko_rdma_lines lines;
    struct ko_rdma_list list;
    struct ko_rdma_meeting meeting;
    struct ko_rdma_out out;
    struct ko_rdma_in in;
    bool has_gained;                   /* others have taken in something for it */
    bool is_touched;                   /* it is in the list of those for whom somebody does: */
    struct ko_rdma_wire *next_touched; /* that */
    int64_t ended_ns; /* when the connection over tcp was found to have ended; 0: it has not */
    int status;       /* what has failed for good, to be told behind what has come */
    bool has_told;    /* it has been */
    char why[KO_ERROR_TEXT];
};

#include "rdma_calls.h"

#endif
