/* SPDX-License-Identifier: MIT
 *
 * Tasks for whoever is free. Rank 0 has numbers and wants to know which are primes; the others ask
 * it for work. It cannot know who will be done first, so it receives from any rank, and the message
 * says whose it was: that is where the next task goes. The tag says whether a rank is READY or has
 * an ANSWER; what one rank sends arrives in order, whatever the others do. An empty message sends a
 * rank home: a receive may get less than it has room for, and learns how much from the message.
 *
 *     kolorun -n 4 build/bin/04_any_source
 */
#include <kolo.h>

#include <stdio.h>

enum { READY, ANSWER, TASK, LAST = 1000 };

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, kolo_last_error());
    return 1;
}

static int is_prime(int number)
{
    for (int i = 2; i * i <= number; i++)
        if (number % i == 0)
            return 0;
    return number > 1;
}

/* Rank 0: an answer is counted; who is ready gets the next number, or is sent home. */
static int hand_out(kolo_group *world)
{
    int answer, next = 0, primes = 0, workers = kolo_group_size(world) - 1;
    kolo_message from;

    while (workers > 0) {
        if (kolo_recv_message(world, &answer, 1, KOLO_INT32, KOLO_ANY_RANK, KOLO_ANY_TAG, &from))
            return fail("receiving from anybody");
        if (from.tag == ANSWER) {
            primes += answer;
            continue;
        }
        if (kolo_send(world, &next, next < LAST, KOLO_INT32, from.from, TASK))
            return fail("sending a task");
        workers -= next == LAST;
        next += next < LAST;
    }
    printf("%d of the numbers below %d are primes\n", primes, next);
    return 0;
}

static int work(kolo_group *world)
{
    kolo_message task;
    int number, answer;

    for (;;) {
        if (kolo_send(world, NULL, 0, KOLO_INT32, 0, READY) ||
            kolo_recv_message(world, &number, 1, KOLO_INT32, 0, TASK, &task))
            return fail("asking for a task");
        if (task.count == 0)
            return 0;
        answer = is_prime(number);
        if (kolo_send(world, &answer, 1, KOLO_INT32, 0, ANSWER))
            return fail("answering");
    }
}

int main(void)
{
    kolo_group *world;
    int failed;

    if (kolo_group_join("env://", -1, &world))
        return fail("joining");
    failed = kolo_group_rank(world) == 0 ? hand_out(world) : work(world);
    kolo_group_free(world);
    return failed;
}
