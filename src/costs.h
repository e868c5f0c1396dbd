/* SPDX-License-Identifier: MIT
 *
 * costs.h: what moving and reducing costs, as a few numbers. A message costs its sender a fixed
 * time and a time per byte, crosses, and costs its receiver the same (LogGP, Alexandrov et al.
 * 1995, with the copies told apart). All times are in microseconds.
 */
#ifndef KO_COSTS_H
#define KO_COSTS_H

/* A time per byte depends on how much memory a call touches: all buffers of the ranks of a host, in
 * halves, which is what each of two ranks has. Costs are for 128 KiB, 512 KiB, 2, 8, 32 and 128
 * MiB, and in proportion between them; what a rank has just touched costs the least whatever the
 * call. */
enum { KO_FOOTPRINTS = 6, KO_LEAST_FOOTPRINT = 17 /* log2 of the first */ };

/* Of a kind of link. Between ranks that share a core slices do not cross: they cost copy_byte. */
struct ko_link_costs {
    double latency;                     /* from when it left the sender to when it can be seen */
    double send, receive;               /* of each end, for each message */
    double send_byte[KO_FOOTPRINTS];    /* into a slot, or into the kernel */
    double receive_byte[KO_FOOTPRINTS]; /* out of one, of a rank that sends as well */
    double waiting_byte[KO_FOOTPRINTS]; /* of one that does not: while its peer copies in others */
    double wire_byte;                   /* of what all ranks of a host share; 0: nothing */
};

enum { KO_LOCAL, KO_REMOTE, KO_NLINKS };

/* Of slices that their receiver reads out of its peer's process, by one copy, in the stead of two
 * through a slot (foreign.h): where that is sooner, as links find out. */
struct ko_reading_costs {
    double call; /* of the system, for each slice */
    double byte[KO_FOOTPRINTS];
    double helped_byte[KO_FOOTPRINTS]; /* where the sender has nothing to do but write a part */
    double cache; /* bytes that each rank has of the last level; 0: nothing is read */
};

struct ko_costs {
    struct ko_link_costs links[KO_NLINKS]; /* of two ranks of one host, and of two hosts */
    double reduce_byte[KO_FOOTPRINTS];     /* of a part that is reduced with another */
    double copy_byte[KO_FOOTPRINTS];       /* of its own block by each rank, */
    double lone_copy_byte[KO_FOOTPRINTS];  /* and by a root, while the others copy none */
    struct ko_reading_costs reading;       /* between ranks of one host */
    double cores;                          /* of a host */
    double change; /* of a core from one rank to the next of those that share it */
    double spin;   /* after which who waits sleeps */
    double wake;   /* then to be woken */
    double call;   /* of every call */
};

/* What holds where nothing was measured: a server with shared memory and a fast network. */
extern const struct ko_costs ko_default_costs;

/* The time per byte for a footprint, in bytes. */
double ko_cost_at(const double costs[KO_FOOTPRINTS], double footprint);

#endif
