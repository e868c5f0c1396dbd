/* SPDX-License-Identifier: MIT
 *
 * Going on without a rank. A group that has lost one stays failed; those that are left make
 * another. They meet in a store that ends with none of them, here a file: each takes a number, the
 * first closes the list when all that can come have come, or nobody has for a while, and these join
 * a group of their own. (kolorun ends all ranks with one that fails: so the last one leaves here
 * without a word, as one that is killed does, but with the exit code 0.)
 *
 *     kolorun -n 4 build/bin/13_survivors
 */
#include <kolo.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, kolo_last_error());
    return 1;
}

/* Says how many there are. Who comes later has a number not below that, and joins nothing. */
static int close_list(kolo_store *store, int most)
{
    const struct timespec pause = {0, 50000000}; /* 50 ms */
    int64_t now = 1;

    for (int quiet = 0; now < most && quiet < 100; quiet++) {
        const int64_t before = now;

        nanosleep(&pause, NULL);
        if (kolo_store_add(store, "members", 0, &now))
            return 1;
        quiet = now > before ? 0 : quiet;
    }
    return kolo_store_add(store, "size", now, NULL);
}

/* A group of those that come here, most at most. Another loss takes a prefix of another name. */
static int gather_again(kolo_store *base, int most, kolo_group **group)
{
    static const char *const closed[] = {"size"};
    kolo_store *store;
    int64_t number, size;

    if (kolo_store_open_prefix(base, "loss 1", &store) ||
        kolo_store_add(store, "members", 1, &number) || (number == 1 && close_list(store, most)) ||
        kolo_store_wait(store, closed, 1, -1) || kolo_store_add(store, "size", 0, &size) ||
        kolo_group_join_store(store, (int)number - 1, (int)size, -1, group))
        return 1;
    kolo_store_close(store);
    return 0;
}

int main(void)
{
    const char *job = getenv("TORCHELASTIC_RUN_ID");
    char path[200];
    int one = 1, sum, size;
    kolo_store *base;
    kolo_group *world, *rest;

    if (kolo_group_join("env://", -1, &world))
        return fail("joining");
    size = kolo_group_size(world);
    if (kolo_group_rank(world) == size - 1)
        _Exit(0);
    if (!kolo_all_reduce(world, &one, &sum, 1, KOLO_INT32, KOLO_SUM))
        return 1; /* nobody was missed */
    kolo_group_free(world);
    snprintf(path, sizeof path, "/tmp/kolo-lesson.%s", job ? job : "0");
    if (kolo_store_open_file(path, size - 1, -1, &base) || gather_again(base, size - 1, &rest) ||
        kolo_all_reduce(rest, &one, &sum, 1, KOLO_INT32, KOLO_SUM))
        return fail("going on");
    printf("%d ranks of %d go on\n", sum, size);
    kolo_group_free(rest);
    kolo_store_close(base);
    return 0;
}
