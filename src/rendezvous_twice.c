/* SPDX-License-Identifier: MIT
 *
 * The worlds that this process has joined and not left. Joining once more at the same place, where
 * rank 0 serves its store already and each rank is taken, fails in ways that speak of another
 * process: the list says that it was this one.
 */
#include "rendezvous_parts.h"
#include "status.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ko_world *first; /* under the lock */

void ko_world_enroll(struct ko_world *world)
{
    pthread_mutex_lock(&lock);
    world->process = getpid();
    world->next = first;
    first = world;
    pthread_mutex_unlock(&lock);
}

void ko_world_strike_off(struct ko_world *world)
{
    struct ko_world **link;

    pthread_mutex_lock(&lock);
    for (link = &first; *link && *link != world; link = &(*link)->next)
        continue;
    if (*link)
        *link = world->next;
    pthread_mutex_unlock(&lock);
}

/* Over a store that outlives groups a world is no obstacle to the next. */
static bool is_there(const struct ko_world *world, const struct ko_place *place)
{
    return world->process == getpid() && !world->has_rounds && world->rank == place->rank &&
           world->place.store == place->store && !strcmp(world->place.address, place->address);
}

int ko_world_blame_twin(const struct ko_place *place, int err)
{
    const struct ko_world *world;
    char text[KO_ERROR_TEXT];

    if (!err)
        return KOLO_OK;
    pthread_mutex_lock(&lock);
    for (world = first; world && !is_there(world, place); world = world->next)
        continue;
    pthread_mutex_unlock(&lock);
    if (!world)
        return err;
    ko_error_keep(text);
    return ko_fail(err,
                   "%.300s. This process has joined there as rank %d already, and not freed that "
                   "group: kolo_group_duplicate makes another of it",
                   text, place->rank);
}
