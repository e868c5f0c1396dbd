/* SPDX-License-Identifier: MIT
 *
 * Compares src/ib_abi_cm.h with rdma-core's header, as ib_abi.c does with another.
 */
#include "ib_abi_cm.h"

#include <rdma/rdma_cma.h>

#define SAME(ours, theirs) _Static_assert((long)(ours) == (long)(theirs), #theirs);
#define PLACE(ours, member, theirs, other)                              \
    SAME(offsetof(struct ours, member), offsetof(struct theirs, other)) \
    SAME(sizeof(((struct ours *)0)->member), sizeof(((struct theirs *)0)->other))

SAME(sizeof(struct ko_ib_cm_param), sizeof(struct rdma_conn_param))
PLACE(ko_ib_cm_channel, fd, rdma_event_channel, fd)
PLACE(ko_ib_cm_id, verbs, rdma_cm_id, verbs)
PLACE(ko_ib_cm_param, data, rdma_conn_param, private_data)
PLACE(ko_ib_cm_param, data_nbytes, rdma_conn_param, private_data_len)
PLACE(ko_ib_cm_param, reads_in, rdma_conn_param, responder_resources)
PLACE(ko_ib_cm_param, reads, rdma_conn_param, initiator_depth)
PLACE(ko_ib_cm_param, srq, rdma_conn_param, srq)
PLACE(ko_ib_cm_param, qp_number, rdma_conn_param, qp_num)
PLACE(ko_ib_cm_event, id, rdma_cm_event, id)
PLACE(ko_ib_cm_event, listener, rdma_cm_event, listen_id)
PLACE(ko_ib_cm_event, type, rdma_cm_event, event)
PLACE(ko_ib_cm_event, status, rdma_cm_event, status)
PLACE(ko_ib_cm_event, param, rdma_cm_event, param.conn)
SAME(KO_IB_CM_TCP, RDMA_PS_TCP)
SAME(KO_IB_CM_ADDRESS_RESOLVED, RDMA_CM_EVENT_ADDR_RESOLVED)
SAME(KO_IB_CM_ROUTE_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED)
SAME(KO_IB_CM_REQUEST, RDMA_CM_EVENT_CONNECT_REQUEST)
SAME(KO_IB_CM_REJECTED, RDMA_CM_EVENT_REJECTED)
SAME(KO_IB_CM_ESTABLISHED, RDMA_CM_EVENT_ESTABLISHED)
