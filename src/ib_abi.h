/* SPDX-License-Identifier: MIT
 *
 * ib_abi.h: what kolo uses of libibverbs (rdma-core), declared here so that none of its headers is
 * needed to build, and every build is the same: types, constants, and one row for each function.
 * Members that kolo does not touch are there for their room. Names and numbers are those of
 * <infiniband/verbs.h>; tests/rdma/ib_abi.c compares them with that header where there is one.
 */
#ifndef KO_IB_ABI_H
#define KO_IB_ABI_H

#include <stddef.h>
#include <stdint.h>

enum { KO_IB_TRANSPORT_IB = 0, KO_IB_TRANSPORT_IWARP = 1 };              /* ibv_transport_type */
enum { KO_IB_LINK_INFINIBAND = 1, KO_IB_LINK_ETHERNET = 2 };             /* IBV_LINK_LAYER_ */
enum { KO_IB_PORT_DOWN = 1, KO_IB_PORT_ACTIVE = 4 };                     /* ibv_port_state */
enum { KO_IB_GID_IB, KO_IB_GID_ROCE_V1, KO_IB_GID_ROCE_V2 };             /* ibv_gid_type */
enum { KO_IB_LOCAL_WRITE = 1, KO_IB_REMOTE_WRITE = 2 };                  /* ibv_access_flags */
enum { KO_IB_RC = 2 };                                                   /* ibv_qp_type */
enum { KO_IB_RESET, KO_IB_INIT, KO_IB_RTR, KO_IB_RTS, KO_IB_ERROR = 6 }; /* ibv_qp_state */
enum { KO_IB_WRITE = 0, KO_IB_WRITE_IMM = 1, KO_IB_SEND = 2 };           /* ibv_wr_opcode */
enum { KO_IB_SIGNALED = 2, KO_IB_INLINE = 8 };                           /* ibv_send_flags */

/* ibv_qp_attr_mask */
enum {
    KO_IB_QP_STATE = 1 << 0,
    KO_IB_QP_ACCESS = 1 << 3,
    KO_IB_QP_PKEY = 1 << 4,
    KO_IB_QP_PORT = 1 << 5,
    KO_IB_QP_PATH = 1 << 7,
    KO_IB_QP_MTU = 1 << 8,
    KO_IB_QP_TIMEOUT = 1 << 9,
    KO_IB_QP_RETRY = 1 << 10,
    KO_IB_QP_RNR_RETRY = 1 << 11,
    KO_IB_QP_RQ_PSN = 1 << 12,
    KO_IB_QP_READS = 1 << 13,
    KO_IB_QP_RNR_TIMER = 1 << 15,
    KO_IB_QP_SQ_PSN = 1 << 16,
    KO_IB_QP_READS_IN = 1 << 17,
    KO_IB_QP_PEER = 1 << 20
};

/* ibv_wc_status */
#define KO_IB_STATUS_LIST(X) \
    X(SUCCESS)               \
    X(LOC_LEN_ERR)           \
    X(LOC_QP_OP_ERR)         \
    X(LOC_EEC_OP_ERR)        \
    X(LOC_PROT_ERR)          \
    X(WR_FLUSH_ERR)          \
    X(MW_BIND_ERR)           \
    X(BAD_RESP_ERR)          \
    X(LOC_ACCESS_ERR)        \
    X(REM_INV_REQ_ERR)       \
    X(REM_ACCESS_ERR)        \
    X(REM_OP_ERR)            \
    X(RETRY_EXC_ERR)         \
    X(RNR_RETRY_EXC_ERR)     \
    X(LOC_RDD_VIOL_ERR)      \
    X(REM_INV_RD_REQ_ERR)    \
    X(REM_ABORT_ERR)         \
    X(INV_EECN_ERR)          \
    X(INV_EEC_STATE_ERR)     \
    X(FATAL_ERR)             \
    X(RESP_TIMEOUT_ERR)      \
    X(GENERAL_ERR)

enum {
#define KO_IB_STATUS(name) KO_IB_WC_##name,
    KO_IB_STATUS_LIST(KO_IB_STATUS) KO_IB_NSTATUS
#undef KO_IB_STATUS
};

/* ibv_wc_opcode: what has come has this bit. */
enum { KO_IB_WC_RECV = 128, KO_IB_WC_RECV_IMM = 129 };

/* ibv_event_type */
enum {
    KO_IB_EVENT_CQ_ERR = 0,
    KO_IB_EVENT_QP_FATAL = 1,
    KO_IB_EVENT_COMM_EST = 4,
    KO_IB_EVENT_DEVICE_FATAL = 8,
    KO_IB_EVENT_PORT_ACTIVE = 9,
    KO_IB_EVENT_PORT_ERR = 10,
    KO_IB_EVENT_LID_CHANGE = 11,
    KO_IB_EVENT_PKEY_CHANGE = 12,
    KO_IB_EVENT_SM_CHANGE = 13,
    KO_IB_EVENT_CLIENT_REREGISTER = 17,
    KO_IB_EVENT_GID_CHANGE = 18
};

struct ko_ib_device { /* ibv_device; its name by device_name */
    void *ops[2];
    int node_type, transport_type;
};

struct ko_ib_context;
struct ko_ib_cq;
struct ko_ib_qp;
struct ko_ib_pd;
struct ko_ib_wc;
struct ko_ib_send;
struct ko_ib_recv;

struct ko_ib_ops { /* ibv_context_ops: what the header calls inline */
    void *before[11];
    int (*poll_cq)(struct ko_ib_cq *cq, int cap, struct ko_ib_wc *wc);
    int (*req_notify_cq)(struct ko_ib_cq *cq, int solicited_only);
    void *between[12];
    int (*post_send)(struct ko_ib_qp *qp, struct ko_ib_send *send, struct ko_ib_send **bad);
    int (*post_recv)(struct ko_ib_qp *qp, struct ko_ib_recv *recv, struct ko_ib_recv **bad);
    void *after[5];
};

struct ko_ib_context { /* ibv_context */
    struct ko_ib_device *device;
    struct ko_ib_ops ops;
    int cmd_fd, async_fd;
};

typedef union {
    uint8_t raw[16];
    uint64_t words[2];
} ko_ib_gid; /* ibv_gid */

struct ko_ib_gid_entry { /* ibv_gid_entry */
    ko_ib_gid gid;
    uint32_t gid_index, port_num, gid_type, ndev_ifindex;
};

struct ko_ib_port_attr { /* ibv_port_attr */
    int state, max_mtu, active_mtu, gid_tbl_len;
    uint32_t port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr;
    uint16_t pkey_tbl_len, lid, sm_lid;
    uint8_t lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width, active_speed;
    uint8_t phys_state, link_layer, flags;
    uint16_t port_cap_flags2;
};

struct ko_ib_comp_channel { /* ibv_comp_channel */
    struct ko_ib_context *context;
    int fd, refcnt;
};

struct ko_ib_mr { /* ibv_mr */
    struct ko_ib_context *context;
    struct ko_ib_pd *pd;
    void *addr;
    size_t length;
    uint32_t handle, lkey, rkey;
};

struct ko_ib_qp { /* ibv_qp, its beginning */
    struct ko_ib_context *context;
    void *qp_context;
    struct ko_ib_pd *pd;
    struct ko_ib_cq *send_cq, *recv_cq;
    void *srq;
    uint32_t handle, qp_num;
};

struct ko_ib_cq { /* ibv_cq, its beginning */
    struct ko_ib_context *context;
    struct ko_ib_comp_channel *channel;
    void *cq_context;
};

#include "ib_abi_work.h"

#endif
