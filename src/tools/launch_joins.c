/* SPDX-License-Identifier: MIT
 *
 * What ranks say of their joining (launcher_joins.h). A rank that has ended well is missed by those
 * that wait and have not joined less often: in a join that is complete everybody has come, and each
 * says that it is, before it can end.
 */
#include "launch_joins.h"

#include "launch.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

bool ko_joins_open(struct ko_joins *joins)
{
    if (pipe2(joins->fds, O_CLOEXEC | O_NONBLOCK)) {
        joins->fds[0] = joins->fds[1] = -1;
        return false;
    }
    ko_joins_path(joins->fds[1], joins->path);
    return true;
}

void ko_joins_close(struct ko_joins *joins)
{
    for (int i = 0; i < 2; i++)
        if (joins->fds[i] >= 0)
            close(joins->fds[i]);
}

/* A word of an earlier attempt, or of a smaller world than kolorun's, is none of these ranks'. */
static void take(const struct ko_join_word *word, struct ko_worker *workers, int nworkers,
                 int attempt, int size)
{
    if (word->local_rank < 0 || word->local_rank >= nworkers || word->attempt != attempt ||
        word->size != size || word->rank != workers[word->local_rank].rank)
        return;
    workers[word->local_rank].waits_to_join = word->what == KO_JOIN_WAITS;
    workers[word->local_rank].njoined += word->what == KO_JOIN_DONE;
}

void ko_joins_read(const struct ko_joins *joins, struct ko_worker *workers, int nworkers,
                   int attempt, int size)
{
    struct ko_join_word word;

    while (read(joins->fds[0], &word, sizeof word) == sizeof word)
        take(&word, workers, nworkers, attempt, size);
}

static bool has_ended_well(const struct ko_worker *worker)
{
    return worker->ended && worker->how == CLD_EXITED && worker->code == 0;
}

const struct ko_worker *ko_joins_find_missed(const struct ko_worker *workers, int nworkers,
                                             const struct ko_worker **waiting)
{
    const struct ko_worker *missed = NULL;

    *waiting = NULL;
    for (int i = 0; i < nworkers; i++) {
        const struct ko_worker *worker = &workers[i];

        if (has_ended_well(worker) && (!missed || worker->njoined < missed->njoined))
            missed = worker;
        if (!worker->ended && worker->waits_to_join &&
            (!*waiting || worker->njoined > (*waiting)->njoined))
            *waiting = worker;
    }
    return missed && *waiting && missed->njoined <= (*waiting)->njoined ? missed : NULL;
}
