/* SPDX-License-Identifier: MIT
 *
 * ib_abi_work.h: the second half of ib_abi.h, which includes it: queue pairs' attributes, work
 * requests and completions, and the functions of libibverbs.
 */
#ifndef KO_IB_ABI_WORK_H
#define KO_IB_ABI_WORK_H

struct ko_ib_qp_cap { /* ibv_qp_cap */
    uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
};

struct ko_ib_qp_init { /* ibv_qp_init_attr */
    void *qp_context;
    struct ko_ib_cq *send_cq, *recv_cq;
    void *srq;
    struct ko_ib_qp_cap cap;
    int qp_type, sq_sig_all;
};

struct ko_ib_path { /* ibv_ah_attr, its global route first */
    ko_ib_gid dgid;
    uint32_t flow_label;
    uint8_t sgid_index, hop_limit, traffic_class;
    uint16_t dlid;
    uint8_t sl, src_path_bits, static_rate, is_global, port_num;
};

struct ko_ib_qp_attr { /* ibv_qp_attr */
    int qp_state, cur_qp_state, path_mtu, path_mig_state;
    uint32_t qkey, rq_psn, sq_psn, dest_qp_num;
    unsigned qp_access_flags;
    struct ko_ib_qp_cap cap;
    struct ko_ib_path path, alternative;
    uint16_t pkey_index, alt_pkey_index;
    uint8_t en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer;
    uint8_t port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout;
    uint32_t rate_limit;
};

struct ko_ib_sge { /* ibv_sge */
    uint64_t addr;
    uint32_t length, lkey;
};

struct ko_ib_send { /* ibv_send_wr */
    uint64_t wr_id;
    struct ko_ib_send *next;
    struct ko_ib_sge *sg_list;
    int num_sge;
    int opcode;
    unsigned send_flags;
    uint32_t imm_data;
    uint64_t remote_addr;
    uint32_t rkey;
    uint32_t others[19];
};

struct ko_ib_recv { /* ibv_recv_wr */
    uint64_t wr_id;
    struct ko_ib_recv *next;
    struct ko_ib_sge *sg_list;
    int num_sge;
};

struct ko_ib_wc { /* ibv_wc */
    uint64_t wr_id;
    int status, opcode;
    uint32_t vendor_err, byte_len, imm_data, qp_num, src_qp;
    unsigned wc_flags;
    uint16_t pkey_index, slid;
    uint8_t sl, dlid_path_bits;
};

struct ko_ib_async { /* ibv_async_event */
    union {
        void *object;
        int port_num;
    } element;
    int event_type;
};

/* X(member of struct ko_ib, name, what it returns, parameters). A function that returns an int
 * returns 0, or an errno, or -1 with errno set. */
/* clang-format off */
#define KO_IB_LIST(X) \
    X(fork_init, ibv_fork_init, int, (void)) \
    X(get_devices, ibv_get_device_list, struct ko_ib_device **, (int *count)) \
    X(free_devices, ibv_free_device_list, void, (struct ko_ib_device **list)) \
    X(device_name, ibv_get_device_name, const char *, (struct ko_ib_device *device)) \
    X(open_device, ibv_open_device, struct ko_ib_context *, (struct ko_ib_device *device)) \
    X(close_device, ibv_close_device, int, (struct ko_ib_context *context)) \
    X(query_port, ibv_query_port, int, (struct ko_ib_context *context, uint8_t port, struct ko_ib_port_attr *attr)) \
    X(query_gid, _ibv_query_gid_ex, int, (struct ko_ib_context *context, uint32_t port, uint32_t index, struct ko_ib_gid_entry *entry, uint32_t flags, size_t nbytes)) \
    X(query_pkey, ibv_query_pkey, int, (struct ko_ib_context *context, uint8_t port, int index, uint16_t *pkey)) \
    X(get_async, ibv_get_async_event, int, (struct ko_ib_context *context, struct ko_ib_async *event)) \
    X(ack_async, ibv_ack_async_event, void, (struct ko_ib_async *event)) \
    X(event_name, ibv_event_type_str, const char *, (int event)) \
    X(alloc_pd, ibv_alloc_pd, struct ko_ib_pd *, (struct ko_ib_context *context)) \
    X(free_pd, ibv_dealloc_pd, int, (struct ko_ib_pd *pd)) \
    X(reg_mr, ibv_reg_mr, struct ko_ib_mr *, (struct ko_ib_pd *pd, void *at, size_t nbytes, int access)) \
    X(dereg_mr, ibv_dereg_mr, int, (struct ko_ib_mr *mr)) \
    X(create_channel, ibv_create_comp_channel, struct ko_ib_comp_channel *, (struct ko_ib_context *context)) \
    X(destroy_channel, ibv_destroy_comp_channel, int, (struct ko_ib_comp_channel *channel)) \
    X(create_cq, ibv_create_cq, struct ko_ib_cq *, (struct ko_ib_context *context, int cqe, void *owner, struct ko_ib_comp_channel *channel, int vector)) \
    X(destroy_cq, ibv_destroy_cq, int, (struct ko_ib_cq *cq)) \
    X(get_event, ibv_get_cq_event, int, (struct ko_ib_comp_channel *channel, struct ko_ib_cq **cq, void **owner)) \
    X(ack_events, ibv_ack_cq_events, void, (struct ko_ib_cq *cq, unsigned count)) \
    X(create_qp, ibv_create_qp, struct ko_ib_qp *, (struct ko_ib_pd *pd, struct ko_ib_qp_init *init)) \
    X(modify_qp, ibv_modify_qp, int, (struct ko_ib_qp *qp, struct ko_ib_qp_attr *attr, int mask)) \
    X(destroy_qp, ibv_destroy_qp, int, (struct ko_ib_qp *qp))

/* Likewise functions that kolo goes without where the library is too old for them (rdma-core 34):
 * NULL in struct ko_ib. */
#define KO_IB_OPTIONAL_LIST(X) \
    X(reg_dmabuf, ibv_reg_dmabuf_mr, struct ko_ib_mr *, (struct ko_ib_pd *pd, uint64_t offset, size_t nbytes, uint64_t at, int fd, int access))
/* clang-format on */

#endif
