/* SPDX-License-Identifier: MIT
 *
 * rdma_cq.h: a part of rdma.h, which includes it: a completion queue. On each adapter the wires of
 * one channel of a group have one; a group has two channels, its collectives' and its messages',
 * which different threads may use at once, so a group has two queues on each adapter that it uses
 * in both ways. A channel has one thread at a time (transport.h), and so has its queue. One for
 * which there are more wires than fit has another behind it.
 *
 * Whoever looks for completions takes in those of other wires, too, and has these wires do what
 * follows. A wire for which others have taken in something says so when it is armed next.
 */
#ifndef KO_RDMA_CQ_H
#define KO_RDMA_CQ_H

#include "ib_driver.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ko_rdma_adapter;
struct ko_rdma_device;
struct ko_rdma_rail;
struct ko_rdma_wire;

/* Who shares a queue. */
struct ko_rdma_owner {
    uint64_t group;
    uint32_t channel;
};

/* A rail's place in its queue. What completes bears its number and its generation: what a queue
 * pair has left behind is of none that is there now. */
struct ko_rdma_seat {
    struct ko_rdma_rail *rail; /* NULL: free */
    uint32_t generation;
};

/* A wr_id: what it is of (8 bits), generation (24), seat (24), a number of that work's (8). */
static inline uint64_t ko_rdma_id(uint32_t seat, uint32_t generation)
{
    return (uint64_t)(generation & 0xffffff) << 32 | (uint64_t)seat << 8;
}

struct ko_rdma_cq {
    struct ko_rdma_cq *next; /* of the device's, under its lock */
    struct ko_rdma_adapter *adapter;
    struct ko_rdma_owner owner;
    struct ko_ib_comp_channel *channel; /* its descriptor is in all wires' pollers */
    struct ko_ib_cq *cq;
    int room;      /* completions that may come besides those of the rails here */
    int leaving;   /* those of rails that have gone, until the queue has been seen empty */
    bool is_armed; /* the channel will tell of the next completion, or has */
    bool has_failed;
    atomic_int
        fatal_event; /* 1 more than the one that ended it, set by whoever reads it; 0: none */
    struct ko_rdma_seat *seats;
    uint32_t nseats;
    int nrails; /* seats that are taken */
};

/* Finds a queue that has room for the rail, or makes one; of all the wire's rails it is known what
 * adapter they are on, and how much room they need. */
int ko_rdma_cq_join(struct ko_rdma_wire *wire, struct ko_rdma_rail *rail);
/* The rail's queue pair has been destroyed. The last one closes the queue. */
void ko_rdma_cq_leave(struct ko_rdma_wire *wire, struct ko_rdma_rail *rail);

/* Takes in completions, for all wires; returns how many there were. */
int ko_rdma_gather(struct ko_rdma_wire *wire);
/* From now on completions make the channels readable. */
void ko_rdma_arm(struct ko_rdma_wire *wire);
/* The channel may be readable. */
void ko_rdma_take_event(struct ko_rdma_device *device, struct ko_rdma_cq *cq);
/* Whether no rail before this one of the wire's has the same queue. */
bool ko_rdma_is_first_of_cq(const struct ko_rdma_wire *wire, int rail);
/* Whether one of the queue's wires is open and has not failed: it takes events when it is armed. */
bool ko_rdma_cq_has_open(const struct ko_rdma_cq *cq);

#endif
