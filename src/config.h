/* SPDX-License-Identifier: MIT
 *
 * config.h: THE table of KOLO_* variables. README and kolo-info print from it. A variable is read
 * from the environment when it is asked for, so it can be set up to the call that uses it.
 */
#ifndef KO_CONFIG_H
#define KO_CONFIG_H

#include "clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(identifier, type, default, smallest, largest, help). SIZE takes K, M, G; bounds are for
 * numbers only. */
/* clang-format off */
#define KO_CONFIG_LIST(X) \
    X(DEBUG, TEXT, "WARN", 0, 0, "what to log: NONE ERROR WARN INFO DEBUG TRACE") \
    X(DEBUG_FILE, TEXT, "", 0, 0, "log to this file instead of stderr; %h host, %p process, %r rank") \
    X(TIMEOUT_MS, INT, "300000", 1, 2147483647, "limit of each call, and of joining, in milliseconds") \
    X(RANK, TEXT, "", 0, 0, "number of this process in its job, before what any launcher says; needs KOLO_SIZE and, of more than one, KOLO_MASTER or MASTER_ADDR and MASTER_PORT") \
    X(SIZE, TEXT, "", 0, 0, "number of processes in the job, with KOLO_RANK") \
    X(MASTER, TEXT, "", 0, 0, "host:port where rank 0 serves the store, before what any launcher says; under srun a host alone will do") \
    X(TRANSPORT, TEXT, "", 0, 0, "use only these transports, comma separated: shm, rdma, tcp") \
    X(ALGO, TEXT, "", 0, 0, "algorithm of every collective that has it, or lists like all_reduce=ring,broadcast=direct; the same on all ranks") \
    X(TUNING, TEXT, "", 0, 0, "file of costs by which algorithms are chosen, made by kolo-perf --tune; rank 0's counts") \
    X(SLICE_BYTES, SIZE, "128K", 64, 16777216, "bytes that one slot of a link carries, and an eighth of a message between ranks that share no memory; the same on all ranks") \
    X(SLOTS, INT, "8", 2, 64, "slots of a link in each direction; the same on all ranks") \
    X(PROTO, TEXT, "inline,reference,try-cma", 0, 0, "ways of slices through shared memory besides its slots: inline (short ones beside their flag), reference (memory of kolo_mem_alloc stays where it is), try-cma (so does any other in all_gather, all_to_all, messages and, of two ranks, all_reduce, reduce, reduce_scatter and broadcasts of 512 KiB and more, for as long as its receiver is quick to read it, while its sender writes a part of it there, if all ranks say so and the system permits it, where that is sooner by some slices of each length and ranks do not take turns on the cores), cma (in every call, whatever it costs); simple: none") \
    X(EAGER_BYTES, SIZE, "4M", 0, 17179869184, "length up to which a message is taken in before its receive is posted; a longer one is laid aside till then; 0: no send is complete before its receive, and fails itself if its message does not fit") \
    X(UNEXPECTED_BYTES, SIZE, "256M", 4096, 1099511627776, "memory of a rank's, for each group, for messages that came before their receives; one longer than a slice that it has no room for stays with its sender; half as much again is for what cannot, beyond which the group fails") \
    X(IDLE_BYTES, SIZE, "128M", 0, 1099511627776, "memory of a process's for long slices that are on their way, of all groups; what those that are not in use have of more is given back") \
    X(SPIN_US, INT, "50", 0, 1000000, "time that a wait polls before it sleeps, in microseconds") \
    X(IFADDR, TEXT, "", 0, 0, "address on which tcp listens, or the interface that has it (eth0); default: that of the way to the store") \
    X(TCP_SOCKETS, INT, "1", 1, 16, "tcp connections between two ranks, for long messages in turns; the lower count of the two") \
    X(PORT_RANGE, TEXT, "", 0, 0, "ports on which to listen wherever any would do, like 30000-30999; default: the system's choice") \
    X(STORE_FD, INT, "-1", -1, 1048576, "descriptor of a listening socket, inherited, for the store that is to be served on its port") \
    X(STORE_BYTES, SIZE, "4G", 1048576, 1099511627776, "memory, where a store is served over TCP, for its keys and values; who needs more is cut off") \
    X(STORE_BUFFER_BYTES, SIZE, "1G", 134217728, 1099511627776, "memory there for what clients have half sent or not yet read; when three quarters are in use, who holds most is cut off") \
    X(AUTH_TOKEN_FILE, TEXT, "", 0, 0, "file with the job's token, for its owner alone: both ends of each connection prove that they have the same; kolorun makes one") \
    X(AUTH_TOKEN, SECRET, "", 0, 0, "the token itself, 16 to 4096 bytes; processes of the same user can read it") \
    X(AUTH, TEXT, "token", 0, 0, "token: connections to other machines need a token; none: nobody does, the network is trusted") \
    X(AUTH_STORE, TEXT, "token", 0, 0, "token: the store asks for the token if there is one; none: it does not, as PyTorch's clients and servers cannot, and that of torchrun's agent on another machine may be joined so") \
    X(ENCRYPT, BOOL, "0", 0, 1, "encrypt what ranks say to each other over tcp; takes a token, and the same on all ranks") \
    X(HOST, TEXT, "", 0, 0, "name of this host: ranks of another name are taken to be on another one") \
    X(CUDA, BOOL, "1", 0, 1, "use NVIDIA's driver where a program uses it too") \
    X(CUDA_IPC, TEXT, "all", 0, 0, "ways in which the processes of a group reach a GPU's memory that they share: all, legacy (handles), vmm (descriptors), off (by way of host memory)") \
    X(CUDA_PIECE_BYTES, SIZE, "4M", 64, 1073741824, "length of the pieces in which long calls of GPU memory go by way of the host, one crossing while others are copied, of messages in quarters; from a quarter of it on, the ranks of each host divide calls between hosts; the same on all ranks") \
    X(CUDA_PEERS, BOOL, "1", 0, 1, "let GPUs of one host touch each other's memory, where they can; 0: collectives of ranks on several of them go whole by way of host memory") \
    X(GPUDIRECT, TEXT, "auto", 0, 0, "auto: rdma reads and writes long messages, and what collectives pass from host to host, in GPU memory itself, where GPU, adapter and their drivers can; 0: they go by way of host memory") \
    X(IB, BOOL, "1", 0, 1, "open libibverbs where rdma may be used") \
    X(IB_HCA, TEXT, "", 0, 0, "adapters that rdma may use, comma separated: mlx5_0 or mlx5_0:1 with its port; of several, up to 4, the nearest first, long messages go by all at once; ^ first: all but these; default: the nearest with an active port") \
    X(IB_QPS_PER_CONNECTION, INT, "1", 1, 8, "queue pairs on each adapter for two ranks, over which long messages are spread; the end that connects decides") \
    X(IB_GID_INDEX, INT, "-1", -1, 255, "entry of the port's GID table; -1: the first of RoCE v2 that belongs to the address on which tcp listens, else the first of RoCE v2, link-local ones last") \
    X(IB_PKEY, INT, "0", 0, 65535, "index of the partition key") \
    X(IB_TC, INT, "0", 0, 255, "traffic class of RoCE packets") \
    X(IB_SL, INT, "0", 0, 15, "service level of InfiniBand packets") \
    X(IB_TIMEOUT, INT, "18", 1, 31, "time that an adapter waits for an answer, 4.096 us times 2 to this power") \
    X(IB_RETRY, INT, "7", 0, 7, "times that it then sends again before the connection is given up") \
    X(CHECK, BOOL, "0", 0, 1, "compare the arguments of every collective on all ranks before it starts, but for lists of counts, and the lists of new groups; the same on all ranks") \
    X(DETERMINISTIC, BOOL, "0", 0, 1, "reduce in the order of the ranks, whatever the size, the links and the hosts; the same on all ranks")

/* Of the texts, those that are one of a few words: X(identifier, the words). */
#define KO_CONFIG_WORD_LIST(X) \
    X(AUTH, "token", "none") \
    X(AUTH_STORE, "token", "none") \
    X(CUDA_IPC, "all", "legacy", "vmm", "off") \
    X(GPUDIRECT, "auto", "0")
/* clang-format on */

enum ko_config_id {
#define KO_CONFIG_ID(id, type, standard, low, high, help) KO_CONFIG_##id,
    KO_CONFIG_LIST(KO_CONFIG_ID)
#undef KO_CONFIG_ID
        KO_CONFIG_COUNT
};

enum ko_config_type {
    KO_CONFIG_TYPE_TEXT,
    KO_CONFIG_TYPE_SECRET, /* text that is not to be shown */
    KO_CONFIG_TYPE_INT,
    KO_CONFIG_TYPE_SIZE,
    KO_CONFIG_TYPE_BOOL
};

struct ko_config_entry {
    const char *name; /* "KOLO_DEBUG" */
    enum ko_config_type type;
    const char *standard; /* the default, as text */
    int64_t low, high;    /* bounds of numbers, inclusive */
    const char *help;
};

/* KO_CONFIG_COUNT rows, indexed by ko_config_id. */
extern const struct ko_config_entry ko_config_table[];

/* True if the value is a number. */
static inline bool ko_config_is_number(enum ko_config_id id)
{
    return ko_config_table[id].type > KO_CONFIG_TYPE_SECRET;
}

/* "INT", "SIZE", ... */
const char *ko_config_type_name(enum ko_config_type type);

/* The value as text: the environment's, else the default. Never NULL. */
const char *ko_config_text(enum ko_config_id id);

/* True if the environment sets it. */
bool ko_config_is_set(enum ko_config_id id);

/* The value as a number. KOLO_E_INVALID names the variable, its value and its bounds. */
int ko_config_number(enum ko_config_id id, int64_t *value);

/* The same of a text that is its value somewhere. */
int ko_config_parse(enum ko_config_id id, const char *text, int64_t *value);

/* Puts KOLO_TIMEOUT_MS in place of a negative time-out. */
int ko_config_timeout(int *timeout_ms);
/* The same, and the deadline that it makes from now on. */
int ko_config_deadline(int *timeout_ms, ko_deadline *deadline);

/* The value of one that takes a few words. KOLO_E_INVALID names the variable, its value and them.
 */
int ko_config_word(enum ko_config_id id, const char **word);

/* KOLO_E_INVALID if it is a number, or one of a few words, and malformed. */
int ko_config_check_one(enum ko_config_id id);

/* text as a whole number from low to high; KOLO_E_INVALID names what it was meant to be. */
int ko_config_whole(const char *name, const char *text, long low, long high, int *number);

/* The ports that a value of KOLO_PORT_RANGE says; those that stand there if it is empty. */
int ko_config_port_range(const char *text, int *low, int *high);

/* KOLO_E_INVALID if any variable of the environment is malformed as a number or word. Warns of
 * variables that begin with KOLO_ but are none of the table's: a typing error would otherwise pass
 * in silence. */
int ko_config_check(void);

#endif
