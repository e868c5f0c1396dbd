/* SPDX-License-Identifier: MIT */
#include "clock.h"

#include <limits.h>
#include <time.h>

int64_t ko_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

ko_deadline ko_deadline_in(int timeout_ms)
{
    int32_t ms = timeout_ms < 0 ? 0 : timeout_ms;

    return (ko_deadline){.at_ns = ko_now_ns() + (int64_t)ms * 1000000, .timeout_ms = ms};
}

bool ko_deadline_passed(const ko_deadline *deadline)
{
    return ko_now_ns() >= deadline->at_ns;
}

int ko_deadline_left_ms(const ko_deadline *deadline)
{
    int64_t left = deadline->at_ns - ko_now_ns();

    if (left <= 0)
        return 0;
    left = (left + 999999) / 1000000;
    return left > INT_MAX ? INT_MAX : (int)left;
}

ko_deadline ko_deadline_within(const ko_deadline *deadline, int timeout_ms)
{
    ko_deadline sooner = ko_deadline_in(timeout_ms);

    return sooner.at_ns < deadline->at_ns ? sooner : *deadline;
}

struct timespec ko_deadline_timespec(const ko_deadline *deadline)
{
    return (struct timespec){.tv_sec = deadline->at_ns / 1000000000,
                             .tv_nsec = deadline->at_ns % 1000000000};
}
