/* SPDX-License-Identifier: MIT
 *
 * How a group is made and freed, and what all that use it ask of it.
 */
#include "group.h"

#include "config.h"
#include "gpu_writers.h"
#include "group_fork.h"
#include "group_let_go.h"
#include "group_streamed.h"
#include "group_waits.h"
#include "group_watch.h"
#include "group_wishes.h"
#include "layout.h"
#include "log.h"
#include "mailbox_gpu.h"
#include "protocols.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PARTING_NAP_NS = 50000 };

/* The variables that a group keeps to from its creation on. */
static int read_variables(kolo_group *group)
{
    int64_t checks = 0, is_ordered = 0;
    unsigned protocols; /* links read it again; an error is better told here */
    int err = ko_config_number(KO_CONFIG_CHECK, &checks);

    if (!err)
        err = ko_protocols_read(&protocols);

    if (!err)
        err = ko_config_number(KO_CONFIG_DETERMINISTIC, &is_ordered);
    group->checks_calls = checks != 0;
    group->is_ordered = is_ordered != 0;
    return err ? err : ko_wishes_read(ko_config_text(KO_CONFIG_ALGO), group->wishes);
}

static void init_group(kolo_group *group, struct ko_endpoint *endpoint, uint64_t id, int timeout_ms)
{
    group->endpoint = endpoint;
    group->id = id;
    atomic_init(&group->timeout_ms, timeout_ms);
    atomic_init(&group->failed, 0);
    pthread_mutex_init(&group->lock, NULL);
    pthread_mutex_init(&group->ordering, NULL);
    pthread_mutex_init(&group->listing, NULL);
    pthread_mutex_init(&group->streaming, NULL);
    pthread_mutex_init(&group->writing, NULL);
    pthread_cond_init(&group->fewer_behind, NULL);
    ko_engine_open(&group->engine, &endpoint->crew);
    ko_engine_open(&group->behind, &endpoint->crew);
    ko_work_init(&group->telling);
}

/* Lists of calls, one at a time, that have an entry for each rank. */
static int make_lists(kolo_group *group)
{
    const size_t n = (size_t)group->size;

    group->ranks = ko_alloc(n * sizeof *group->ranks, "a list of ranks");
    group->parts = ko_alloc(n * sizeof *group->parts, "a list of slices");
    group->outs = ko_alloc(n * sizeof *group->outs, "a list of results");
    group->links = ko_alloc(n * sizeof(struct ko_link *), "a list of links");
    return group->ranks && group->parts && group->outs && group->links ? KOLO_OK : KOLO_E_NOMEM;
}

/* From now on threads of other groups may come, to answer for it (ko_mailbox_answer_all). */
static void enroll(kolo_group *group)
{
    struct ko_endpoint *endpoint = group->endpoint;

    pthread_mutex_lock(&endpoint->groups_lock);
    group->link = &endpoint->groups;
    group->next = endpoint->groups;
    if (group->next)
        group->next->link = &group->next;
    endpoint->groups = group;
    pthread_mutex_unlock(&endpoint->groups_lock);
}

/* And no longer. Of a group that has not been enrolled there is nothing to do. */
static void leave_endpoint(kolo_group *group)
{
    struct ko_endpoint *endpoint = group->endpoint;

    pthread_mutex_lock(&endpoint->groups_lock);
    if (group->link)
        *group->link = group->next;
    if (group->next)
        group->next->link = group->link;
    pthread_mutex_unlock(&endpoint->groups_lock);
}

int ko_group_make(struct ko_endpoint *endpoint, uint64_t id, int *world_ranks, int rank, int size,
                  int timeout_ms, kolo_group **group_out)
{
    kolo_group *group = ko_alloc(sizeof *group, "a group");
    int err;

    if (!group) {
        free(world_ranks);
        ko_endpoint_release(endpoint);
        return KOLO_E_NOMEM;
    }
    init_group(group, endpoint, id, timeout_ms);
    ko_fork_watch(group);
    group->rank = rank;
    group->size = size;
    group->world_ranks = world_ranks;
    err = make_lists(group);
    if (!err)
        err = ko_channel_open(&group->collectives, group, KO_CHANNEL_COLLECTIVES);
    if (!err)
        err = read_variables(group);
    if (err) {
        kolo_group_free(group);
        return err;
    }
    enroll(group);
    ko_log(KO_LOG_DEBUG, "group %016llx: rank %d of %d", (unsigned long long)id, rank, size);
    *group_out = group;
    return KOLO_OK;
}

/* ---- memory of calls --------------------------------------------------------------------- */

/* What was there is not kept. */
static int ensure(kolo_group *group, struct ko_memory *memory, size_t nbytes, unsigned char **bytes)
{
    if (memory->nbytes < nbytes || !memory->bytes) {
        free(memory->bytes);
        memory->bytes = ko_alloc(nbytes, "an algorithm's intermediate results");
        memory->nbytes = memory->bytes ? nbytes : 0;
    }
    *bytes = memory->bytes;
    return memory->bytes ? KOLO_OK : ko_group_fail(group, KOLO_E_NOMEM, kolo_last_error());
}

int ko_group_scratch(kolo_group *group, size_t nbytes, unsigned char **memory)
{
    return ensure(group, &group->scratch, nbytes, memory);
}

int ko_group_scaled(kolo_group *group, size_t nbytes, unsigned char **memory)
{
    return ensure(group, &group->scaled, nbytes, memory);
}

int ko_group_packing(kolo_group *group, size_t nbytes, unsigned char **memory)
{
    return ensure(group, &group->packing, nbytes, memory);
}

/* ---- hosts ------------------------------------------------------------------------------- */

static int list_machines(kolo_group *group, const char **machines)
{
    const struct ko_contact *contact;
    int err = KOLO_OK;

    for (int r = 0; r < group->size && !err; r++) {
        err = ko_endpoint_contact(group->endpoint, group->world_ranks[r], &contact);
        if (!err)
            machines[r] = contact->machine;
    }
    return err;
}

/* Two ranks of one host with windows use them between each other. */
static bool has_windows(const kolo_group *group, const struct ko_hosts *hosts)
{
    for (int h = 0; h < hosts->n; h++) {
        int n = 0;

        for (int i = 0; i < host_size(hosts, h); i++)
            n += ko_contact_has_windows(
                ko_endpoint_known(group->endpoint, group->world_ranks[rank_at(hosts, h, i)]));
        if (n > 1)
            return true;
    }
    return false;
}

int ko_group_find_hosts(kolo_group *group)
{
    const char **machines = ko_alloc((size_t)group->size * sizeof *machines, "names of machines");
    struct ko_hosts *hosts = NULL, *none = NULL;
    const struct ko_contact *first; /* whose costs count */
    int err = machines ? list_machines(group, machines) : KOLO_E_NOMEM;

    if (!err)
        err = ko_endpoint_contact(group->endpoint, 0, &first);
    if (!err)
        err = ko_layout_make(machines, group->size, &hosts);
    free(machines);
    if (!err)
        hosts->has_windows = group->size == 1 || has_windows(group, hosts);
    if (err == KOLO_E_PEER_LOST)
        return ko_group_fail_lost(group, kolo_last_error());
    if (err)
        return ko_group_fail(group, err, kolo_last_error());
    if (!atomic_compare_exchange_strong(&group->hosts, &none, hosts))
        free(hosts); /* another thread was faster */
    ko_group_note_crowd(group);
    return KOLO_OK;
}

static int largest_host(const struct ko_hosts *hosts)
{
    int largest = 0;

    for (int h = 1; h < hosts->n; h++)
        largest = host_size(hosts, h) > host_size(hosts, largest) ? h : largest;
    return largest;
}

int ko_group_count_cores(const kolo_group *group, int host)
{
    const struct ko_hosts *hosts = group->hosts;
    uint64_t all[KO_CONTACT_CORES / 64] = {0};
    int n = 0;

    for (int i = 0; i < host_size(hosts, host); i++) {
        const int rank = group->world_ranks[rank_at(hosts, host, i)];

        for (size_t w = 0; w < KO_CONTACT_CORES / 64; w++)
            all[w] |= ko_endpoint_known(group->endpoint, rank)->cores[w];
    }
    for (size_t w = 0; w < KO_CONTACT_CORES / 64; w++)
        n += __builtin_popcountll(all[w]);
    return n ? n : host_size(hosts, host);
}

void ko_group_costs(const kolo_group *group, struct ko_costs *costs)
{
    *costs = ko_endpoint_known(group->endpoint, 0)->costs;
    if (!(costs->cores > 0))
        costs->cores = ko_group_count_cores(group, largest_host(group->hosts));
}

size_t ko_group_slice_bytes(const kolo_group *group)
{
    return ko_layout_slice_bytes(group->hosts, group->endpoint->own.slice_bytes);
}

/* ---- questions --------------------------------------------------------------------------- */

int ko_group_wrong_rank(const kolo_group *group, int rank, const char *what)
{
    return ko_fail(KOLO_E_INVALID, "%s is rank %d; the group has ranks 0 to %d", what, rank,
                   group->size - 1);
}

int kolo_group_rank(const kolo_group *group)
{
    return group ? group->rank : -1;
}

int kolo_group_size(const kolo_group *group)
{
    return group ? group->size : 0;
}

int kolo_group_timeout(const kolo_group *group)
{
    return group ? atomic_load(&group->timeout_ms) : 0;
}

int kolo_group_set_timeout(kolo_group *group, int timeout_ms)
{
    if (!group || timeout_ms < 1)
        return ko_fail(KOLO_E_INVALID, "kolo_group_set_timeout: %s",
                       group ? "the limit is at least 1 ms" : "group is NULL");
    atomic_store(&group->timeout_ms, timeout_ms);
    return KOLO_OK;
}

/* ---- end --------------------------------------------------------------------------------- */

/* The thread that runs them may still be on its way back from the last. */
static bool has_messages_behind(kolo_group *group)
{
    bool has;

    pthread_mutex_lock(&group->listing);
    has = group->first_behind;
    pthread_mutex_unlock(&group->listing);
    return has;
}

static bool has_unfinished(kolo_group *group)
{
    return ko_engine_is_busy(&group->engine) || has_messages_behind(group) ||
           ko_mailbox_is_busy(group) || ko_group_has_waiting_graph(group) || ko_streamed_any(group);
}

/* A call may return while its last slices stand in a queue. Messages and collectives leave
 * together: a peer may take in the ones only behind the others. */
static void part(kolo_group *group)
{
    const ko_deadline deadline = ko_deadline_in(kolo_group_timeout(group));
    const struct timespec nap = {.tv_nsec = PARTING_NAP_NS};
    char who[160];

    while (!ko_group_check(group)) {
        const int message = ko_mailbox_part(group);
        const int slice = ko_channel_part(&group->collectives);
        const int late = slice < 0 ? message : slice;

        if (late < 0)
            return;
        if (ko_deadline_passed(&deadline)) {
            ko_group_describe_rank(group, late, who, sizeof who);
            ko_log(KO_LOG_WARN,
                   "%s has not taken within %d ms what was sent to it, which is lost now that the "
                   "group is freed; KOLO_TIMEOUT_MS or kolo_group_set_timeout sets the limit",
                   who, deadline.timeout_ms);
            return;
        }
        nanosleep(&nap, NULL);
    }
}

static void leave_and_free(kolo_group *group)
{
    char text[KO_ERROR_TEXT];

    leave_endpoint(group);
    ko_group_write_failures(group->endpoint);
    ko_mailbox_push(group);
    if (has_unfinished(group)) {
        snprintf(text, sizeof text, "rank %d freed the group while works were unfinished",
                 group->rank);
        (void)ko_group_fail(group, KOLO_E_ABORTED, text);
    }
    ko_engine_close(&group->engine);
    ko_engine_close(&group->behind);
    ko_streamed_end(group);
    ko_group_watch_end(group);
    if (ko_group_has_failed(group))
        ko_channel_tell_failure(&group->collectives);
    part(group);
    ko_mailbox_free(group);
    ko_channel_close(&group->collectives);
    ko_waits_forget(group);
    ko_world_leave(group->world, group->endpoint, atomic_load(&group->failed));
    ko_endpoint_release(group->endpoint);
    ko_places_close(group->places, group->share);
    ko_gpu_share_close(group->share);
    ko_group_tell_last_progress(group);
    ko_gpu_writers_free(group->writers);
    ko_gpu_close(group->gpu);
    free(group->world_ranks);
    free(group->hosts);
    free(group->lists);
    free(group->scratch.bytes);
    free(group->ranks);
    free(group->parts);
    free(group->outs);
    free(group->links);
    free(group->verbs);
    free(group->packing.bytes);
    free(group->scaled.bytes);
    ko_work_clear(&group->telling);
    ko_engine_destroy(&group->engine);
    ko_engine_destroy(&group->behind);
    pthread_cond_destroy(&group->fewer_behind);
    pthread_mutex_destroy(&group->listing);
    pthread_mutex_destroy(&group->ordering);
    pthread_mutex_destroy(&group->streaming);
    pthread_mutex_destroy(&group->writing);
    pthread_mutex_destroy(&group->lock);
    free(group);
}

/* What fails on its way is no failed call of this thread's, which may have an error to tell. */
void kolo_group_free(kolo_group *group)
{
    char text[KO_ERROR_TEXT];

    if (!group || !ko_fork_forget(group))
        return;
    ko_error_keep(text);
    leave_and_free(group);
    (void)ko_fail_again(KOLO_OK, text);
}
