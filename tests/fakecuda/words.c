/* SPDX-License-Identifier: MIT
 *
 * Words that the double's streams wait for, and write.
 */
#include "double.h"

#include <stdatomic.h>

struct word {
    struct double_task task;
    _Atomic uint32_t *at;
    uint32_t value;
    unsigned flags;
};

static bool is_word_there(struct double_task *task)
{
    const struct word *word = (const struct word *)task;
    const uint32_t value = atomic_load(word->at);

    return word->flags == KO_CU_WAIT_EQ ? value == word->value
                                        : (int32_t)(value - word->value) >= 0;
}

static void put_word(struct double_task *task)
{
    const struct word *word = (const struct word *)task;

    atomic_store(word->at, word->value);
}

static bool is_right(ko_cu_ptr at)
{
    return at % 4 == 0 && !double_is_managed(at);
}

ko_cu_result double_stream_await_word(ko_cu_stream stream, ko_cu_ptr at, uint32_t value,
                                      unsigned flags)
{
    const struct word word = {{.run = double_do_nothing, .is_ready = is_word_there},
                              (_Atomic uint32_t *)(uintptr_t)at,
                              value,
                              flags};

    if (!is_right(at) || flags > KO_CU_WAIT_EQ)
        return KO_CU_INVALID_VALUE;
    return double_enqueue(stream, &word.task, sizeof word);
}

ko_cu_result double_stream_put_word(ko_cu_stream stream, ko_cu_ptr at, uint32_t value,
                                    unsigned flags)
{
    const struct word word = {{.run = put_word}, (_Atomic uint32_t *)(uintptr_t)at, value, flags};

    if (!is_right(at) || flags)
        return KO_CU_INVALID_VALUE;
    return double_enqueue(stream, &word.task, sizeof word);
}

enum { MOST_STEPS = 255 };

/* The real one's are one node of a graph; the double's are as many as there are steps. */
ko_cu_result double_stream_step(ko_cu_stream stream, unsigned n, ko_cu_word_step *steps,
                                unsigned flags)
{
    ko_cu_result result = n && n <= MOST_STEPS && !flags ? KO_CU_SUCCESS : KO_CU_INVALID_VALUE;

    for (unsigned i = 0; i < n && !result; i++) {
        const uint32_t value = (uint32_t)steps[i].value;

        if (steps[i].what == KO_CU_AWAIT_WORD)
            result = double_stream_await_word(stream, steps[i].at, value, steps[i].flags);
        else if (steps[i].what == KO_CU_PUT_WORD)
            result = double_stream_put_word(stream, steps[i].at, value, steps[i].flags);
        else
            result = KO_CU_INVALID_VALUE;
    }
    return result;
}
