/* SPDX-License-Identifier: MIT
 *
 * UCX itself, messages with tags between two ranks; UCX_TLS in the environment says over what.
 */
#include "peer_meet.h"

#include <ucp/api/ucp.h>

enum { ADDRESS_BYTES = 32 << 10, DATA_TAG = 1, ANSWER_TAG = 2 };

static ucp_worker_h worker;
static ucp_ep_h endpoint;
static int rank;

static void check(ucs_status_t status)
{
    if (status != UCS_OK)
        peer_die("ucx", ucs_status_string(status));
}

static void finish(ucs_status_ptr_t request)
{
    ucs_status_t status;

    if (!UCS_PTR_IS_PTR(request)) {
        check(UCS_PTR_STATUS(request));
        return;
    }
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS)
        ucp_worker_progress(worker);
    check(status);
    ucp_request_free(request);
}

static ucs_status_ptr_t begin_send(const float *buffer, size_t count, ucp_tag_t tag)
{
    ucp_request_param_t how = {0};

    return ucp_tag_send_nbx(endpoint, buffer, count * sizeof *buffer, tag, &how);
}

static ucs_status_ptr_t begin_receive(float *buffer, size_t count, ucp_tag_t tag)
{
    ucp_request_param_t how = {0};

    return ucp_tag_recv_nbx(worker, buffer, count * sizeof *buffer, tag, (ucp_tag_t)-1, &how);
}

static void ping_pong(float *in, float *out, size_t count)
{
    if (rank == 0) {
        finish(begin_send(in, count, DATA_TAG));
        finish(begin_receive(out, count, DATA_TAG));
    } else {
        finish(begin_receive(out, count, DATA_TAG));
        finish(begin_send(in, count, DATA_TAG));
    }
}

static void one_way(float *in, float *out, size_t count)
{
    const int window = peer_window(count);
    ucs_status_ptr_t requests[PEER_WINDOW];

    for (int i = 0; i < window; i++)
        requests[i] =
            rank == 0 ? begin_send(in, count, DATA_TAG) : begin_receive(out, count, DATA_TAG);
    for (int i = 0; i < window; i++)
        finish(requests[i]);
    finish(rank == 0 ? begin_receive(in, 1, ANSWER_TAG) : begin_send(out, 1, ANSWER_TAG));
}

/* peer.h agrees on the number of samples by a broadcast of rank 0's. */
static void run(enum peer_operation what, float *in, float *out, size_t count, int root)
{
    if (what == PING_PONG)
        ping_pong(in, out, count);
    else if (what == ONE_WAY)
        one_way(in, out, count);
    else if (what == BROADCAST)
        finish(rank == root ? begin_send(out, count, DATA_TAG)
                            : begin_receive(out, count, DATA_TAG));
    else
        ping_pong(in, out, 1); /* the barrier of dirty inputs */
}

static int can(enum peer_operation what, size_t nbytes)
{
    (void)nbytes;
    return peer_is_pair(what);
}

static void open_worker(void)
{
    ucp_params_t wishes = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t how = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                               .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_config_t *config;
    ucp_context_h context;

    check(ucp_config_read(NULL, NULL, &config));
    check(ucp_init(&wishes, config, &context));
    ucp_config_release(config);
    check(ucp_worker_create(context, &how, &worker));
}

static void connect_ranks(void)
{
    static char mine[ADDRESS_BYTES], all[2][ADDRESS_BYTES];
    ucp_ep_params_t whom = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_address_t *address;
    size_t length;

    check(ucp_worker_get_address(worker, &address, &length));
    if (length > sizeof mine)
        peer_die("ucx", "its address is too long");
    memcpy(mine, address, length);
    peer_meet_gather(mine, all, sizeof mine);
    whom.address = (ucp_address_t *)(void *)all[1 - rank];
    check(ucp_ep_create(worker, &whom, &endpoint));
}

int main(int argc, char **argv)
{
    struct peer_plan plan = peer_read_plan(argc, argv);
    struct peer peer = {.name = "ucx", .run = run, .can = can};

    peer_meet(&peer);
    if (peer.size != 2)
        return 0;
    rank = peer.rank;
    open_worker();
    connect_ranks();
    peer_part();
    peer_pin(peer.rank);
    peer_measure(&peer, &plan);
    _exit(0); /* how it takes itself apart is not measured */
}
