/* SPDX-License-Identifier: MIT
 *
 * A test double of libibverbs: a libibverbs.so.1 whose adapters are one thread of each process, and
 * whose cables are Unix sockets, so that queue pairs of any processes of this machine reach each
 * other. It stands where the loader finds it (LD_LIBRARY_PATH, a program's rpath); kolo itself has
 * no door for it. Each function has the name and the meaning of the library's, for reliable
 * connections. It is strict where an adapter would be patient or silent: a message without a
 * receive posted for it is an error at once, and a completion queue that overflows aborts, as does
 * what is destroyed before that which depends on it.
 *
 *   FAKEVERBS_DEVICES=NAME[:KIND[@ADDRESS]],...  adapters of kind roce, ib, iwarp, or plain: roce
 *                            that has no write with immediate ("fake0:roce@127.0.0.1"); iwarp, too,
 *                            has none, and is joined by the functions of librdmacm. An address
 *                            reaches those that begin with the same three numbers. Each post to
 *                            one named siw... raises SIGPIPE, as that does if the peer has closed
 *   FAKEVERBS_DOWN=NAME,...  adapters whose port is down
 *   FAKEVERBS_SLOW=NAME,...  adapters of 25 Gb/s, the others have 100
 *   FAKEVERBS_GIDS=N         entries of each port's GID table, an even number; 4 unless it says so
 *   FAKEVERBS_MTU=CODE       of all ports' packets: 1, 256 bytes, to 5, 4096; 3 unless it says so
 *   FAKEVERBS_BREAK=FUNCTION[@N[-M]]=ERRNO,...  the function fails, from its N-th call to the M-th;
 *                            "request": the N-th to the M-th request to send, wherever in a list
 *                            it is, is refused; by iwarp without a word but bad_wr, as libsiw does
 *   FAKEVERBS_MEMLOCK=BYTES  so much can be registered in all
 *   FAKEVERBS_LOST=INDEX,... what leaves by these entries of the GID table never arrives
 *   FAKEVERBS_STATUS=N=STATUS/VENDOR  so ends the N-th request posted to send
 *   FAKEVERBS_RECV_STATUS=N=STATUS/VENDOR  so ends the N-th receive
 *   FAKEVERBS_EVENT=N=TYPE[/PORT]  the asynchronous event comes with the N-th request
 *   FAKEVERBS_JITTER=US      completions are seen up to so much later; in order are those of one
 *                            queue pair's sends, and those of its receives
 *   FAKEVERBS_HELD=NAME,...  what leaves by these adapters waits until they are named no more
 *   FAKEVERBS_ONLY=NAME      EVENT, STATUS, JITTER and BREAK of ibv_reg_mr are of this one alone
 *
 * fakeverbs_sent (dlsym) says how many bytes this process has written by an adapter,
 * fakeverbs_joined what the last queue pair has been told by ibv_modify_qp, fakeverbs_fork_inits
 * how often ibv_fork_init was called, fakeverbs_registrations how often ibv_reg_mr, fakeverbs_posts
 * how often requests to send were posted, and how many in all, fakeverbs_dmabufs how many dma-bufs
 * are registered now, and fakeverbs_dmabufs_ever have been. Any descriptor that can be mapped is
 * taken for a dma-buf, from the file's offset to its end, as are several in one (double_dmabuf.h);
 * of one without libibverbs' function for it (old/libibverbs.so.1) the program takes hold first.
 *
 * N counts in one process from where the variable was last changed.
 */
#ifndef DOUBLE_H
#define DOUBLE_H

#include "../double_lists.h"
#include "ib_abi.h"

#include <pthread.h>
#include <stdbool.h>

enum { DOUBLE_DEVICES = 32, DOUBLE_GIDS = 4, DOUBLE_PACKET = 16384 };

enum double_kind { DOUBLE_ROCE, DOUBLE_IB, DOUBLE_IWARP, DOUBLE_PLAIN };

struct double_device {
    struct ko_ib_device base;
    char name[32];
    enum double_kind kind;
    ko_ib_gid address;
    uint64_t sent; /* bytes written */
};

struct double_context {
    struct ko_ib_context base;
    int async_write;
    unsigned generation; /* of the process, counted by forks */
    int nusers;          /* domains, channels and queues that have not been destroyed */
};

struct ko_ib_pd {
    struct double_context *context;
    int nusers; /* regions and queue pairs */
};

struct double_mr {
    struct ko_ib_mr base;
    int access;
    unsigned char *mapped; /* a dma-buf, which is elsewhere in this process; else NULL */
    struct double_mr *next;
};

struct double_completion {
    struct ko_ib_wc wc;
    int64_t due_ns;
};

struct double_cq {
    struct ko_ib_cq base;
    int nusers; /* queue pairs */
    int cap, count;
    struct double_completion *list;
    bool is_armed;
    int64_t armed_ns; /* since then */
    struct double_cq *next;
};

/* A request on its way. */
struct double_send {
    struct ko_ib_send wr;
    struct ko_ib_sge sges[4];
    unsigned char *copy; /* of an inline one */
    uint32_t number;
    size_t nbytes, done;
    struct double_send *next;
};

struct double_recv {
    uint64_t wr_id;
    struct ko_ib_sge sges[2];
    int nsges;
    struct double_recv *next;
};

struct double_qp {
    struct ko_ib_qp base;
    struct ko_ib_qp_cap cap;
    int fd, state, sgid_index;
    bool is_waiting_out, is_second, is_cut; /* the peer's address is of another network */
    uint32_t numbers;                       /* given to requests so far */
    struct double_send *sends;              /* posted, not acknowledged */
    struct double_send *going;              /* of those the first that has not left altogether */
    struct double_recv *recvs;
    int nsends, nrecvs;
    uint32_t got;       /* bytes of the message that is coming in */
    int64_t last_ns[2]; /* when the last completion of a send, and of a receive, may be seen */
    struct double_packet *acks;
    int nacks, acks_cap;
    struct double_qp *next;
};

/* What goes over a socket, before up to DOUBLE_PACKET bytes. */
enum double_type { DOUBLE_SEND, DOUBLE_WRITE, DOUBLE_ACK, DOUBLE_PING };

struct double_packet {
    uint32_t type, is_last, has_imm, imm, number, status, rkey, nbytes;
    uint64_t to;
};

/* Aborts, and says why, if something still uses what is being destroyed. */
void double_expect_unused(const char *what, int nusers);
/* So many more, or fewer, users. */
void double_count(int *nusers, int change);

/* ---- script.c: what the environment wishes --------------------------------------------------- */

/* The errno with which this call of a function fails, or 0. */
int double_break(const char *function);
/* True if this is the passage for which "N=A/B" of a variable is meant. */
bool double_is_due(const char *variable, int *a, int *b);
long double_number(const char *variable, long standard);
/* True unless the wishes are for another adapter. */
bool double_is_meant(const struct ko_ib_context *context);

/* ---- nic.c: the thread that is all adapters ----------------------------------------------- */

/* Everything below is its own, under this lock. */
extern pthread_mutex_t double_lock;
extern struct double_mr *double_mrs;
extern struct double_cq *double_cqs;
extern unsigned double_generation;

uint64_t fakeverbs_sent(const char *device);
void fakeverbs_joined(struct ko_ib_qp_attr *attr);
int fakeverbs_fork_inits(void);
int fakeverbs_registrations(void);
void fakeverbs_posts(int *ncalls, int *nrequests);
int fakeverbs_dmabufs(void);
int fakeverbs_dmabufs_ever(void);

/* Each open context keeps the thread. Called with the lock held. */
int double_start(void);
void double_stop(void);

/* Gives the queue pair its socket and its number; takes them away. */
int double_attach(struct double_qp *qp);
void double_detach(struct double_qp *qp);
int double_connect(struct double_qp *qp, uint32_t peer);
/* What librdmacm does with queue pairs, by their numbers. The one that has been gone to (is_second)
 * is not to send before it has received. */
int double_join(uint32_t number, uint32_t peer, bool is_second);
/* Sends what can be sent now. */
void double_transmit(struct double_qp *qp);
/* Fails the first request with a status and flushes all others. */
void double_fail(struct double_qp *qp, int status, int vendor);

/* ---- queue.c ------------------------------------------------------------------------------ */

void double_complete(struct double_qp *qp, struct double_cq *cq, struct ko_ib_wc wc);
/* Tells of completions whose time has come. */
void double_notify(struct double_cq *cq);
/* The request at the head has ended. */
void double_end_send(struct double_qp *qp, int status, int vendor);
/* The first receive is over. */
void double_end_recv(struct double_qp *qp, const struct ko_ib_wc *wc);
/* NULL unless the key is of a region with all nbytes and such access. */
struct double_mr *double_find_mr(uint32_t key, uint64_t at, size_t nbytes, int access);
/* Where that is in this process; NULL unless there is such a region. */
unsigned char *double_find(uint32_t key, uint64_t at, size_t nbytes, int access);
/* An event of an object or, without one, of a port: 0 is 1. */
void double_tell_async(struct double_context *context, int type, void *object, int port);

#endif
