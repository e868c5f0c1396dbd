/* SPDX-License-Identifier: MIT
 *
 * UCC: collectives over UCX, of which UCX_TLS in the environment says over what it goes.
 */
#include "peer_meet.h"

#include <ucc/api/ucc.h>

static ucc_context_h context;
static ucc_team_h team;
static int size, is_crowded;

static void check(ucc_status_t status)
{
    if (status < 0)
        peer_die("ucc", ucc_status_string(status));
}

static ucc_coll_type_t type_of(enum peer_operation what)
{
    switch (what) {
    case ALL_REDUCE:
        return UCC_COLL_TYPE_ALLREDUCE;
    case REDUCE:
        return UCC_COLL_TYPE_REDUCE;
    case BROADCAST:
        return UCC_COLL_TYPE_BCAST;
    case ALL_GATHER:
        return UCC_COLL_TYPE_ALLGATHER;
    case REDUCE_SCATTER:
        return UCC_COLL_TYPE_REDUCE_SCATTER;
    case ALL_TO_ALL:
        return UCC_COLL_TYPE_ALLTOALL;
    default:
        return UCC_COLL_TYPE_BARRIER;
    }
}

static ucc_coll_buffer_info_t buffer_of(float *memory, size_t count)
{
    return (ucc_coll_buffer_info_t){.buffer = memory,
                                    .count = count,
                                    .datatype = UCC_DT_FLOAT32,
                                    .mem_type = UCC_MEMORY_TYPE_HOST};
}

static void run(enum peer_operation what, float *in, float *out, size_t count, int root)
{
    const size_t all = count * (size_t)size;
    ucc_coll_args_t call = {.coll_type = type_of(what), .op = UCC_OP_SUM, .root = (uint64_t)root};
    ucc_coll_req_h request;
    ucc_status_t status;

    call.src.info = buffer_of(what == BROADCAST ? out : in,
                              what == REDUCE_SCATTER || what == ALL_TO_ALL ? all : count);
    call.dst.info = buffer_of(out, what == ALL_GATHER || what == ALL_TO_ALL ? all : count);
    check(ucc_collective_init(&call, &request, team));
    check(ucc_collective_post(request));
    while ((status = ucc_collective_test(request)) == UCC_INPROGRESS) {
        ucc_context_progress(context);
        if (is_crowded)
            sched_yield();
    }
    check(status);
    check(ucc_collective_finalize(request));
}

static int can(enum peer_operation what, size_t nbytes)
{
    (void)nbytes;
    return !peer_is_pair(what);
}

/* ---- setting up ------------------------------------------------------------------------------ */

static ucc_status_t gather(void *mine, void *all, size_t nbytes, void *unused, void **request)
{
    (void)unused;
    peer_meet_gather(mine, all, nbytes);
    *request = NULL;
    return UCC_OK;
}

static ucc_status_t is_done(void *request)
{
    (void)request;
    return UCC_OK;
}

static void open_context(ucc_oob_coll_t meeting)
{
    ucc_lib_params_t how = {.mask = UCC_LIB_PARAM_FIELD_THREAD_MODE,
                            .thread_mode = UCC_THREAD_SINGLE};
    ucc_context_params_t where = {.mask =
                                      UCC_CONTEXT_PARAM_FIELD_TYPE | UCC_CONTEXT_PARAM_FIELD_OOB,
                                  .type = UCC_CONTEXT_SHARED,
                                  .oob = meeting};
    ucc_lib_config_h lib_config;
    ucc_context_config_h config;
    ucc_lib_h lib;
    char ranks[16];

    check(ucc_lib_config_read(NULL, NULL, &lib_config));
    check(ucc_init(&how, lib_config, &lib));
    ucc_lib_config_release(lib_config);
    check(ucc_context_config_read(lib, NULL, &config));
    snprintf(ranks, sizeof ranks, "%d", size);
    check(ucc_context_config_modify(config, NULL, "ESTIMATED_NUM_EPS", ranks));
    check(ucc_context_config_modify(config, NULL, "ESTIMATED_NUM_PPN", ranks));
    check(ucc_context_create(lib, &where, config, &context));
    ucc_context_config_release(config);
}

static void open_team(ucc_oob_coll_t meeting)
{
    ucc_team_params_t who = {.mask = UCC_TEAM_PARAM_FIELD_EP | UCC_TEAM_PARAM_FIELD_EP_RANGE |
                                     UCC_TEAM_PARAM_FIELD_OOB,
                             .ep = meeting.oob_ep,
                             .ep_range = UCC_COLLECTIVE_EP_RANGE_CONTIG,
                             .oob = meeting};
    ucc_status_t status;

    check(ucc_team_create_post(&context, 1, &who, &team));
    while ((status = ucc_team_create_test(team)) == UCC_INPROGRESS)
        ucc_context_progress(context);
    check(status);
}

int main(int argc, char **argv)
{
    struct peer_plan plan = peer_read_plan(argc, argv);
    struct peer peer = {.name = "ucc", .run = run, .can = can};
    ucc_oob_coll_t meeting = {.allgather = gather, .req_test = is_done, .req_free = is_done};

    peer_meet(&peer);
    size = peer.size;
    is_crowded = size > sysconf(_SC_NPROCESSORS_ONLN);
    meeting.n_oob_eps = (uint32_t)size;
    meeting.oob_ep = (uint32_t)peer.rank;
    open_context(meeting);
    open_team(meeting);
    peer_part();
    peer_pin(peer.rank);
    peer_measure(&peer, &plan);
    fflush(stdout);
    _exit(0); /* how it takes itself apart is not measured */
}
