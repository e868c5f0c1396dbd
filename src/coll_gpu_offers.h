/* SPDX-License-Identifier: MIT
 *
 * coll_gpu_offers.h: what the ranks of a group that shares GPU memory tell each other, by host
 * memory, before they touch each other's buffers, and behind that. For whoever has the engine's
 * turn.
 */
#ifndef KO_COLL_GPU_OFFERS_H
#define KO_COLL_GPU_OFFERS_H

#include "coll.h"
#include "gpu_share.h"

/* How a rank wants its part in a call: the call waits for it; it goes into the stream, which all
 * ranks' do then; or into a graph. */
enum ko_offer_way { KO_OFFER_WAITED, KO_OFFER_STREAMED, KO_OFFER_CAPTURED };

/* What a rank says of its part in a call. */
struct ko_offer {
    struct ko_stamp stamp;
    uint32_t way;       /* enum ko_offer_way */
    uint32_t is_direct; /* see ko_coll_meet */
    double factor;      /* of the input, if the op has one */
    int64_t ready_ns;   /* when its input was, by the clock that all ranks of a machine share */
    struct ko_gpu_place in, out;
    struct ko_gpu_order order; /* of its stream */
};

/* A collective of bytes among all ranks, over the links that calls of host memory go by. */
int ko_coll_exchange(kolo_group *group, enum ko_collective what, const void *in, void *out,
                     size_t nbytes, int root);

/* Waits until the call's input is ready. */
int ko_coll_await_input(kolo_group *group, const struct ko_call *call);

/* Whether every buffer of a call is reached by those who are to; or may be by another call. */
enum ko_reach { KO_UNREACHED, KO_NOT_YET_REACHED, KO_REACHED };

/* The ranks tell each other where buffers of theirs are, for a call of one tensor: all[] by rank,
 * and how they reach them; the same on all ranks. is_direct: what this rank has to say to its being
 * so. */
int ko_coll_meet(kolo_group *group, const struct ko_call *call, bool is_direct,
                 struct ko_offer *all, enum ko_reach *reach);

#endif
