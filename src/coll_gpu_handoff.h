/* SPDX-License-Identifier: MIT
 *
 * coll_gpu_handoff.h: an asynchronous collective on its way into the stream of its caller, who
 * waits for that: a stream that waited for a call to be carried out would stand still while the
 * driver has a thread of the process wait for all streams, and lets no other start a kernel (as to
 * free memory, or to load a kernel that is used for the first time), and so for good. Only a caller
 * whose peers do not come goes on after a while, and leaves his stream waiting.
 */
#ifndef KO_COLL_GPU_HANDOFF_H
#define KO_COLL_GPU_HANDOFF_H

#include "gpu.h"

#include <pthread.h>
#include <stdatomic.h>

struct ko_handoff {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_taken;            /* the call is going into the stream */
    atomic_bool is_over;      /* it is there, or has failed, or been carried out */
    struct ko_gpu_mark *mark; /* the caller has gone on: behind it his stream waits */
};

/* is_patient: the caller waits for his peers as long as it takes. No memory but the struct's. */
void ko_handoff_init(struct ko_handoff *handoff, bool is_patient);

/* Of the engine's thread: takes the call into the caller's stream; false: he has gone on. And at
 * the end of its part: whom that ends the wait of. */
bool ko_handoff_take(struct ko_handoff *handoff);
void ko_handoff_end(struct ko_handoff *handoff, struct ko_gpu *gpu);

/* Of the caller: true if the call is in his stream, or has come to its end. Else the stream waits
 * for that. */
bool ko_handoff_await(struct ko_handoff *handoff, struct ko_gpu *gpu);

#endif
