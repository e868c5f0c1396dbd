/* SPDX-License-Identifier: MIT
 *
 * Queues of the GPU that streams share (FAKECUDA_QUEUES): what a stream has to do waits for all
 * that came before it in its queue, also where another stream stands still there.
 */
#include "streams.h"

#include <time.h>

unsigned double_queue_choose(const struct ko_cuda_stream *stream)
{
    static unsigned made[2];
    const int n = double_number("FAKECUDA_QUEUES", 0);

    return n ? made[stream->is_urgent]++ % (unsigned)n + 1 : 0;
}

/* Whether something that came before is still to be done there. */
static bool is_behind(ko_cu_stream stream, uint64_t number)
{
    bool is;

    pthread_mutex_lock(&stream->lock);
    is = (stream->under_way && stream->under_way < number) ||
         (stream->first && stream->first->number < number);
    pthread_mutex_unlock(&stream->lock);
    return is;
}

static bool is_next_of_queue(const struct ko_cuda_stream *stream, uint64_t number)
{
    bool is = true;

    pthread_mutex_lock(&double_streams_lock);
    for (struct ko_cuda_stream *other = double_streams; other && is; other = other->next)
        is = other == stream || other->context != stream->context ||
             other->is_urgent != stream->is_urgent || other->queue != stream->queue ||
             !is_behind(other, number);
    pthread_mutex_unlock(&double_streams_lock);
    return is;
}

void double_queue_await(const struct ko_cuda_stream *stream, const struct double_task *task)
{
    const struct timespec nap = {.tv_nsec = 5000};

    while (stream->queue && !is_next_of_queue(stream, task->number))
        nanosleep(&nap, NULL);
}
