/* SPDX-License-Identifier: MIT
 *
 * ib_abi_cm.h: what kolo uses of librdmacm (rdma-core), which joins queue pairs of iWARP: like
 * ib_abi.h, and compared in the same way with <rdma/rdma_cma.h>.
 */
#ifndef KO_IB_ABI_CM_H
#define KO_IB_ABI_CM_H

#include <stdint.h>

enum { KO_IB_CM_TCP = 0x0106 }; /* rdma_port_space */

/* rdma_cm_event_type */
enum {
    KO_IB_CM_ADDRESS_RESOLVED = 0,
    KO_IB_CM_ROUTE_RESOLVED = 2,
    KO_IB_CM_REQUEST = 4,
    KO_IB_CM_REJECTED = 8,
    KO_IB_CM_ESTABLISHED = 9
};

struct ko_ib_context;
struct sockaddr;

struct ko_ib_cm_channel { /* rdma_event_channel */
    int fd;
};

struct ko_ib_cm_id { /* rdma_cm_id, its beginning */
    struct ko_ib_context *verbs;
};

struct ko_ib_cm_param { /* rdma_conn_param */
    const void *data;
    uint8_t data_nbytes, reads_in, reads, flow_control, retries, rnr_retries, srq;
    uint32_t qp_number;
};

struct ko_ib_cm_event { /* rdma_cm_event, its beginning */
    struct ko_ib_cm_id *id, *listener;
    int type, status;
    struct ko_ib_cm_param param;
};

/* As KO_IB_LIST. All ints are 0, or -1 with errno set. */
/* clang-format off */
#define KO_IB_CM_LIST(X) \
    X(create_channel, rdma_create_event_channel, struct ko_ib_cm_channel *, (void)) \
    X(destroy_channel, rdma_destroy_event_channel, void, (struct ko_ib_cm_channel *channel)) \
    X(create_id, rdma_create_id, int, (struct ko_ib_cm_channel *channel, struct ko_ib_cm_id **id, void *owner, int port_space)) \
    X(destroy_id, rdma_destroy_id, int, (struct ko_ib_cm_id *id)) \
    X(bind, rdma_bind_addr, int, (struct ko_ib_cm_id *id, struct sockaddr *address)) \
    X(listen, rdma_listen, int, (struct ko_ib_cm_id *id, int backlog)) \
    X(get_port, rdma_get_src_port, uint16_t, (struct ko_ib_cm_id *id)) \
    X(resolve_address, rdma_resolve_addr, int, (struct ko_ib_cm_id *id, struct sockaddr *from, struct sockaddr *to, int timeout_ms)) \
    X(resolve_route, rdma_resolve_route, int, (struct ko_ib_cm_id *id, int timeout_ms)) \
    X(connect, rdma_connect, int, (struct ko_ib_cm_id *id, struct ko_ib_cm_param *param)) \
    X(accept, rdma_accept, int, (struct ko_ib_cm_id *id, struct ko_ib_cm_param *param)) \
    X(get_event, rdma_get_cm_event, int, (struct ko_ib_cm_channel *channel, struct ko_ib_cm_event **event)) \
    X(ack_event, rdma_ack_cm_event, int, (struct ko_ib_cm_event *event)) \
    X(event_name, rdma_event_str, const char *, (int event))
/* clang-format on */

#endif
