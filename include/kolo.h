/* SPDX-License-Identifier: MIT
 *
 * kolo.h: the whole public API. Collective and point-to-point communication between the ranks of
 * a group, a key-value store for their rendezvous, and the pieces of data-parallel training.
 *
 * Errors. Every function that can fail returns 0 (KOLO_OK) or a positive KOLO_E_ code, and leaves
 * one sentence in kolo_last_error(), which is the calling thread's own. Outputs are set on success
 * only, but for data: what a buffer holds that a failed collective or receive was to fill is
 * undefined. A group in which a call had begun and met an error (a lost peer, a time-out,
 * collectives that differ, an abort) stays failed: every later call on it returns the same code and
 * sentence. An argument that is refused does not fail it, nor does a message that does not fit its
 * receive.
 *
 * Threads. Different groups may be used by different threads at once. Calls on one group may come
 * from any thread; its collectives run one after another in the order in which they were made, and
 * that order must be the same on every rank.
 *
 * What has been freed or closed, a group, a work or a store, is no argument any more: no call finds
 * that out, and most crash. NULL is refused, or allowed where a function says so.
 *
 * Buffers stay the caller's. A blocking call is done with them when it returns; an asynchronous one
 * when its work has completed. in == out is allowed where a function says so; any other overlap of
 * the two is not, and KOLO_E_INVALID where a call's blocks are all of one length. Counts are
 * numbers of elements, never bytes.
 */
#ifndef KOLO_H
#define KOLO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define KOLO_API __attribute__((visibility("default")))
#else
#define KOLO_API
#endif

#define KOLO_VERSION_MAJOR 0
#define KOLO_VERSION_MINOR 1
#define KOLO_VERSION_PATCH 0

/* "0.1.0", the version of the library at run time. */
KOLO_API const char *kolo_version(void);

/* ---- errors ---------------------------------------------------------------------------------- */

enum {
    KOLO_OK = 0,
    KOLO_E_INVALID = 1,     /* an argument, a variable of the environment or a file is wrong */
    KOLO_E_NOMEM = 2,       /* no memory, or a shared segment could not be made */
    KOLO_E_SYSTEM = 3,      /* a system call failed; the text has its errno */
    KOLO_E_TIMEOUT = 4,     /* the deadline passed; the text says who was waited for */
    KOLO_E_PEER_LOST = 5,   /* a rank died or its connection broke; the text names it */
    KOLO_E_ABORTED = 6,     /* kolo_group_abort() was called, here or by another rank */
    KOLO_E_MISMATCH = 7,    /* ranks made different calls; the text has both sides */
    KOLO_E_UNSUPPORTED = 8, /* not possible with this build, machine or combination */
    KOLO_E_PROTOCOL = 9,    /* a peer or a stranger sent something that is not kolo's protocol */
    KOLO_E_TRUNCATED = 10,  /* a message was longer than the buffer given for it */
    KOLO_E_INTERNAL = 11    /* a fault of kolo's own */
};

/* "KOLO_E_TIMEOUT" and so on; "unknown" for a number that is no code. */
KOLO_API const char *kolo_status_name(int status);

/* The sentence of the calling thread's last failed call; "" before the first. Valid until the next
 * failing call of the same thread. kolo_group_free keeps it. */
KOLO_API const char *kolo_last_error(void);

/* Frees what a function of this header says is to be freed with it. NULL is allowed. */
KOLO_API void kolo_free(void *memory);

/* ---- store: a key-value service that all ranks can reach ---------------------------------- */

/* A store maps keys (strings of 1 to 8192 bytes) to values (0 to 8 MiB of any bytes; a server keeps
 * 4 GiB). All functions may be called from any thread; calls on one TCP store wait for one another,
 * so a thread that blocks in wait keeps others out: open a second one for it. A call that has gone
 * on for the store's time-out is KOLO_E_TIMEOUT; KOLO_E_PEER_LOST: the server has gone. Each later
 * call looks for 5 s, or its time-out, whether it is back; one that finds that nobody listens there
 * any more is KOLO_E_PEER_LOST, too. A list has up to 131072 keys, of any length together. Over TCP
 * what is longer than 16 MiB, the values of a multi_set included, goes in parts, and a list of more
 * than some dozens of keys is gone through in turns, between which the server serves others. A key
 * has a slash before it there: a server of PyTorch's by libuv takes 8 KiB, and so keys of up to
 * 8191 bytes. */
typedef struct kolo_store kolo_store;

typedef struct kolo_bytes {
    const void *data;
    size_t nbytes;
} kolo_bytes;

/* A store inside this process, for ranks that are threads. Its time-out is KOLO_TIMEOUT_MS, as of
 * the next two with timeout_ms < 0. */
KOLO_API int kolo_store_open_local(kolo_store **store);

/* The store at host:port. With is_server this process also serves it (port 0: any free port, see
 * kolo_store_port), for as long as the handle lives. Retries until timeout_ms has passed, which is
 * also the store's time-out from then on. Speaks the wire format of PyTorch's TCPStore: a server
 * serves clients of PyTorch 1.13 and 2.x alike, and the server may be one of either. 1.13 and 2.0
 * number a delete as 2.1 does an append; the server tells their clients apart by the number of
 * their connections, two or one, so both of a client's are to come from one address: else a delete
 * of 1.13's is not guessed at, but the connection closed, with a warning in the log. (A silent or
 * old connection from that address counts as the second: a client of 2.1 beside one should not
 * begin with a delete.) */
KOLO_API int kolo_store_open_tcp(const char *host, int port, int is_server, int timeout_ms,
                                 kolo_store **store);

/* Counts this client of a TCP store among the workers that its server waits for, and says how many
 * there are now (count may be NULL). Whoever makes a TCPStore of PyTorch's with is_master=True, a
 * world_size and wait_for_workers, the default, waits until as many clients have been counted, that
 * process's own among them, and fails after its time-out (1.13 goes on then). PyTorch's clients
 * count themselves if they are given a world_size. Here it is to be asked for, once for each
 * process that is waited for, since no client can see whether it is. With a server of ours, and
 * with wait_for_workers=False, nothing but that number changes. A group joined by env:// under
 * torchrun needs none of it: torchrun's agents have counted themselves before they start workers.
 * KOLO_E_UNSUPPORTED: it is no TCP store, or one under a prefix. */
KOLO_API int kolo_store_count_in(kolo_store *store, int64_t *count);

/* The store in a file at path, which is made if need be and which all processes can open: on one
 * host, or a file system that has locks (flock). The format is that of PyTorch's FileStore. When as
 * many as nprocesses have closed it and no other has it open, the last removes the file; nprocesses
 * < 0: it stays. A file that an earlier job has left behind is not for a new one. Its folder must
 * be there: what time does not cure is KOLO_E_SYSTEM at once. A file that does not begin with a
 * record is KOLO_E_PROTOCOL, and left as it is. Waiting looks at the file every 10 ms. */
KOLO_API int kolo_store_open_file(const char *path, int nprocesses, int timeout_ms,
                                  kolo_store **store);

/* base with "prefix/" put before every key, and a time-out of its own, base's at first. Keeps base
 * alive: close both, in any order. */
KOLO_API int kolo_store_open_prefix(kolo_store *base, const char *prefix, kolo_store **store);

/* The port on which a TCP store is served, also by another process; 0 for another store. */
KOLO_API int kolo_store_port(const kolo_store *store);

/* The time-out, in milliseconds, of this handle's calls that are not given one of their own. */
KOLO_API void kolo_store_set_timeout(kolo_store *store, int timeout_ms);

/* From now on key holds a copy of value. */
KOLO_API int kolo_store_set(kolo_store *store, const char *key, kolo_bytes value);
/* Waits until key exists. *value is the caller's, to be freed by kolo_free; one NUL byte follows
 * its *nbytes bytes. */
KOLO_API int kolo_store_get(kolo_store *store, const char *key, void **value, size_t *nbytes);
/* Adds delta to the decimal number under key (0 if absent); *result (may be NULL) is the sum.
 * KOLO_E_INVALID: there is no number of at most 4096 digits, or the sum has more than 64 bits. */
KOLO_API int kolo_store_add(kolo_store *store, const char *key, int64_t delta, int64_t *result);
/* Waits until all keys exist; timeout_ms < 0 means the store's. The time-out's text lists the keys
 * that were missing. A server is asked for them afterwards, for as long again at most, or for a
 * second if that is longer; what it has not told by then the text does not know. */
KOLO_API int kolo_store_wait(kolo_store *store, const char *const *keys, size_t nkeys,
                             int timeout_ms);
/* *all_exist = 1 if all keys exist now, else 0. */
KOLO_API int kolo_store_check(kolo_store *store, const char *const *keys, size_t nkeys,
                              int *all_exist);
/* If key holds expected, or is absent and expected is empty, stores desired. *value is what key
 * holds afterwards (expected, if key is absent and expected was not empty), to be freed. */
KOLO_API int kolo_store_compare_set(kolo_store *store, const char *key, kolo_bytes expected,
                                    kolo_bytes desired, void **value, size_t *nbytes);
/* *was_there (may be NULL) = 1 if the key existed, else 0; neither is an error. */
KOLO_API int kolo_store_delete(kolo_store *store, const char *key, int *was_there);
/* *count: the store's keys; of a prefix store those of its base, of a file store one or two that it
 * needs itself, too. */
KOLO_API int kolo_store_num_keys(kolo_store *store, int64_t *count);

/* Earlier servers of PyTorch's, and a file store, lack some of the following: queues and, of the
 * servers, list_keys are KOLO_E_UNSUPPORTED there, and barrier makes a key "<key>/open". Of a
 * server of 1.13 or 2.0 append takes a lock under the key "<key>/append", and the other two are one
 * call for each key. 1.13's watches of keys are served to its clients, and offered by no call here.
 */

/* Puts value behind what key holds, nothing if it is absent. */
KOLO_API int kolo_store_append(kolo_store *store, const char *key, kolo_bytes value);
/* Waits until all keys exist; values[i] and nbytes[i] are as kolo_store_get gives them for keys[i],
 * each to be freed. */
KOLO_API int kolo_store_multi_get(kolo_store *store, const char *const *keys, size_t nkeys,
                                  void **values, size_t *nbytes);
/* keys[i] holds values[i] from now on. */
KOLO_API int kolo_store_multi_set(kolo_store *store, const char *const *keys,
                                  const kolo_bytes *values, size_t nkeys);
/* Puts value at the end of a queue, which is first in, first out. While it is not empty its key
 * exists for wait and check; delete empties it; the other calls, num_keys and list_keys do not see
 * it. A value wakes all who wait for the key but do not pop, and of those who pop the one that came
 * first; the next one, if that dies before it has taken the value. Over TCP a wait for one key
 * alone may be a pop's: whoever stands behind one gets the value when the caller of that wait uses
 * its handle next, or after a second. */
KOLO_API int kolo_store_queue_push(kolo_store *store, const char *key, kolo_bytes value);
/* Takes the first value out, waiting for one; timeout_ms < 0 means the store's. *value is to be
 * freed. */
KOLO_API int kolo_store_queue_pop(kolo_store *store, const char *key, int timeout_ms, void **value,
                                  size_t *nbytes);
/* *length: the values in it; 0 for one that does not exist. */
KOLO_API int kolo_store_queue_len(kolo_store *store, const char *key, int64_t *length);
/* *keys are *nkeys strings in no order, of a prefix store those under its prefix, without it. All
 * are one piece of memory, to be freed with kolo_free(*keys). A server lists up to 512 MiB of
 * them, in turns with what others ask: a key that comes or goes meanwhile may be among them. */
KOLO_API int kolo_store_list_keys(kolo_store *store, char ***keys, size_t *nkeys);
/* Returns when size callers have come to the barrier of this name; timeout_ms < 0 means the
 * store's. A name is good for one barrier. */
KOLO_API int kolo_store_barrier(kolo_store *store, const char *key, int size, int timeout_ms);

/* Ends the handle, and the service if it has one; other threads' calls on it return KOLO_E_ABORTED.
 * NULL is allowed. */
KOLO_API void kolo_store_close(kolo_store *store);

/* ---- memory ------------------------------------------------------------------------------- */

/* Memory that ranks on the same host can read without a copy: messages and collectives whose
 * buffers lie inside, anywhere, move from there straight to where they are needed. Elsewhere it is
 * as good as any other. A send out of it is complete when its receiver has taken it. nbytes are
 * rounded up to whole pages, which are zero and take a file descriptor for each allocation: few
 * large ones are better than many small. What is left of the machine's memory, and of a limit of
 * the process's control group (version 2), is looked at after each 64 MiB that the process has been
 * given in all, sooner where there is little: with less than 64 MiB to be left it is KOLO_E_NOMEM.
 * Any thread.
 *
 * Copied as in other memory are parts of up to 1 KiB, which travel beside their flag; a broadcast
 * among two of less than 512 KiB, whose root need not wait then; and what an algorithm gathers
 * before it sends it (bruck, binomial gather and scatter, short tensors of coalesced calls).
 *
 * Of an all_reduce whose buffers both lie in such memory, the other ranks of the host may write the
 * result there themselves, as a sender may help to copy a long message into any memory. After a
 * call has failed, one that was late may still do so, until it learns of the failure or its process
 * ends: a buffer of a call that has failed is best freed with the group.
 *
 * After a fork the memory is shared by parent and child. The child's groups take it for ordinary
 * memory. kolo_mem_free, of either, gives up its own access only; what was allocated before a fork
 * goes back to the machine when the last process that has it mapped, a peer too, has let it go. */
KOLO_API int kolo_mem_alloc(size_t nbytes, void **memory);
/* memory is what kolo_mem_alloc gave, and no call that uses it is under way. NULL is allowed. */
KOLO_API int kolo_mem_free(void *memory);

/* ---- groups ------------------------------------------------------------------------------- */

/* After a fork calls on the parent's groups, and waits for its works, are KOLO_E_INVALID in the
 * child; to free these there changes nothing. It leaves the parent's stores alone, and may join as
 * a rank of its own. It has none of the groups' connections, so that others hear of the parent's
 * end while the child lives on. */
typedef struct kolo_group kolo_group;

/* Joins the world group, blocking until all its ranks have come; after timeout_ms (< 0:
 * KOLO_TIMEOUT_MS) the error names those that have not. Where rank 0 serves the store it is
 * KOLO_E_PEER_LOST on all as soon as one that had come has ended; on rank 0 once the others have
 * heard it, or after 10 s. Under torchrun they wait, for its agents to start all ranks again.
 * method is one of
 *   "env://" or NULL                        as the launcher's environment says: kolorun, torchrun,
 *                                           mpirun of Open MPI, mpiexec of MPICH, srun, or
 *                                           KOLO_RANK, KOLO_SIZE and KOLO_MASTER; without any of
 *                                           them a group of one rank
 *   "tcp://host:port?rank=R&world_size=N"   rank 0 serves the store there; as in PyTorch there may
 *                                           be a "/" before the "?", and use_libuv=, which here
 *                                           means nothing; a host of IPv6 stands in brackets
 *   "file:///path?rank=R&world_size=N"      the store is a file, see kolo_store_open_file
 * A world has up to 1048576 ranks. timeout_ms is from then on the limit of each call on the group.
 * When it has freed the group, and not before, a process can join again, but under mpirun, mpiexec
 * and srun --mpi only with KOLO_MASTER, or while MPI runs in the process, too. MPI, if its library
 * is loaded before kolo joins, may begin before or after, and takes leave of the launcher; a
 * process in which it never begins does so when it ends by exit or a return from main. Meanwhile
 * kolo_group_duplicate makes another group of the same ranks. */
KOLO_API int kolo_group_join(const char *method, int timeout_ms, kolo_group **world);

/* The same over a store that the caller hands in and keeps open until the group is freed. Ranks
 * may be threads of one process: give all of them one local store. Where kolorun or torchrun starts
 * the job again, nothing that an earlier attempt left there is met. */
KOLO_API int kolo_group_join_store(kolo_store *store, int rank, int size, int timeout_ms,
                                   kolo_group **world);

/* A group of some of parent's ranks, in the order listed; this rank becomes the position of its
 * own number in the list. Every rank of parent calls it, in the same order among such calls, and
 * no message is sent for it: of lists that differ, be it in their order, come groups that have
 * nothing to do with each other, and calls there wait for ranks that never connect, until their
 * time-out. KOLO_CHECK=1 compares lists through the store; then it is KOLO_E_MISMATCH with both,
 * here or in the first call on the new group. *group is NULL on ranks that are not listed. The new
 * group begins with parent's time-out and has, from then on, one of its own. An idle group costs
 * next to nothing. One that has been used costs a rank, for each other that its collectives have
 * exchanged bytes with, and once more for each that its messages have, one descriptor; on one host
 * 6 to 10 KiB, and 4 KiB of shared memory, which become 20 KiB by the eighth slice, and up to 2 MiB
 * (2 KOLO_SLOTS slices of KOLO_SLICE_BYTES) by messages or blocks of more than 2 KiB; over TCP 10
 * to 35 KiB, more by long ones, and over RDMA about 400. What long ones have taken, groups that are
 * not in use give back where a process has more than KOLO_IDLE_BYTES of it. kolo raises the
 * process's soft limit of open files when it comes near it; the hard one (ulimit -Hn) is the end:
 * of 1024 files two ranks have 970 groups with collectives, and eight 130. */
KOLO_API int kolo_group_new(kolo_group *parent, const int *ranks, int nranks, kolo_group **group);

/* The same, called by the listed ranks alone: the others need not know of it. Members make the
 * groups of one list and tag (any number, mostly 0) in the same order; those of different ones in
 * any order, and in several threads at once. So lists that differ by mistake are two groups, which
 * nothing can tell from two that are meant: calls on them end in time-outs. */
KOLO_API int kolo_group_new_local(kolo_group *parent, const int *ranks, int nranks, int tag,
                                  kolo_group **group);

/* A group of all ranks of parent, whose calls have nothing to do with parent's: for a library that
 * is handed one, or another thread. Called as kolo_group_new is. */
KOLO_API int kolo_group_duplicate(kolo_group *parent, kolo_group **group);

/* Splits parent: ranks that give the same color >= 0 form a group, ordered by key, then by parent
 * rank. color < 0: *group is NULL. A collective call. */
KOLO_API int kolo_group_split(kolo_group *parent, int color, int key, kolo_group **group);

/* 0 <= rank < size, both fixed; of NULL -1 and 0. */
KOLO_API int kolo_group_rank(const kolo_group *group);
KOLO_API int kolo_group_size(const kolo_group *group);
/* The limit of each call on the group, in milliseconds, 1 at least; this rank's, for calls that
 * begin from now on. The time-out's text names the rank that was waited for and, if that one waits
 * too, for what, or who of the collective does not. */
KOLO_API int kolo_group_timeout(const kolo_group *group);
KOLO_API int kolo_group_set_timeout(kolo_group *group, int timeout_ms);

/* Lets the group's collectives have buffers in GPU memory, all of a call's or none, and its
 * messages, whatever the other end has. stream is a CUDA stream (a CUstream or cudaStream_t), NULL
 * or cudaStreamLegacy the legacy stream of the calling thread's GPU; cudaStreamPerThread, another
 * one in each thread, is KOLO_E_INVALID. What the caller has put into it before a call comes before
 * the call; a blocking call, and the wait for an asynchronous one, return when the result is there.
 * What he puts into it after an asynchronous call comes after it, and so does the next call: the
 * stream waits, until the result is there and what was sent may be overwritten, and he need not.
 *
 * But an asynchronous collective whose buffers stay on GPUs, as below, returns when all ranks have
 * made it, and is in their streams then, with no part of the host's; who is alone for a second goes
 * on all the same. A stream waits for 240 calls of a group at most whose end the host brings about:
 * one more returns when there are fewer. It waits so, after that second, for a message, or for what
 * goes by way of host memory, and does so for good if the process frees GPU memory meanwhile, or
 * uses a kernel for the first time (unless CUDA_MODULE_LOADING is EAGER): the driver has that wait
 * for all streams, and lets no other thread start anything. So messages that wait for each other,
 * as those of two ranks that both receive first, belong in one kolo_batch_async or
 * kolo_sendrecv_async. Messages of host memory wait for no stream, but behind one of GPU memory
 * that is to or from the same rank, with the same tag. If the group fails, its streams go on, and
 * kolo_group_error says why.
 *
 * Among up to 16 ranks, threads or processes, that all use one GPU the buffers of collectives stay
 * there; if they use several of one host that have access to each other's memory, also such as
 * CUDA_VISIBLE_DEVICES hides from a rank, what has to goes from GPU to GPU; and a message of more
 * than 128 bytes goes by one copy of the receiver's, for which its sender waits. Among as many on
 * each of several hosts, where all of each host can do that, or where each is alone on its host and
 * all have RDMA adapters that may reach GPU memory, each takes only its share of a long all_reduce,
 * all_gather or reduce_scatter, and between two hosts of a reduce or broadcast, through host
 * memory: what a host's GPUs have they reduce first, and what comes back they pass on; messages
 * inside a host go as above. Over RDMA adapters that reach GPU memory such shares, and long
 * messages, go past the host's. Else all travels by way of host memory.
 *
 * Memory in pieces (cuMemCreate) is handed to other processes by the first call that needs it.
 * Memory that its owner cannot hand to another process is managed, or that of a pool
 * (cudaMallocAsync), and more than 256 pieces in a row: collectives of one host work on copies of
 * it, of up to 32 MiB of each buffer, in other memory of the GPU; with blocks of different lengths,
 * or the step of an optimizer, in the host's, as do messages.
 *
 * Where ranks that are threads share a GPU, set CUDA_DEVICE_MAX_CONNECTIONS to 32 before the
 * process first uses CUDA: the GPU has 8 queues for a process's streams else, of which each rank
 * has up to four, this one and three of the library's, and a stream may stand behind another's that
 * waits, or that has other work.
 *
 * A group's first call of this is a collective one, which a rank without a GPU makes too; any rank
 * may have another GPU, or none. Another stream may be set later, of the same GPU, where calls come
 * behind those before; until then calls use this one, barriers too, so set another before
 * destroying it, or free the group.
 * KOLO_E_UNSUPPORTED says why no GPU can be used here.
 *
 * A buffer that the driver knows to end before the call's last byte, or whose address is no
 * multiple of an element's length, is KOLO_E_INVALID, since the GPU would not survive it.
 *
 * While the stream is captured for a CUDA graph, as one that has joined by an event too, on all
 * ranks, a collective becomes part of the graph, a barrier too, unless it goes by way of host
 * memory (KOLO_E_UNSUPPORTED): it returns at once, with a work that is done, and happens each time
 * that all ranks launch their graphs, in any stream, with no part of the host's; on one GPU the
 * work of all is in the first rank's graph. So does a message of GPU memory, or of no elements, in
 * a group of one host whose ranks share it as above, by one copy: its two ends find each other
 * while both are captured, so that a call waits until the other rank captures its own, and a
 * receive may be longer, or take any rank or tag. A batch in a graph sends at once and receives in
 * the order of its operations; at most 64 of it go to one rank. Memory in pieces its sender hands
 * to the other process while both capture, once for each allocation. A message from memory that
 * cannot be handed to another process, as above, is KOLO_E_UNSUPPORTED in a graph, on both ranks,
 * and a collective of such on all; so is a batch that has some in host memory. A message that only
 * one of the two ranks captures is KOLO_E_MISMATCH. A graph that waits for a rank longer than the
 * group's limit, or for one whose process has ended, fails the group with an error that names the
 * rank. Then, as after kolo_group_abort, its stream goes on, and so do those of later launches,
 * which may leave anything in any rank's buffers of their calls; a stream that has come to its end
 * while kolo_group_error says nothing has the right results. Free the group when no graph of it is
 * under way. Other streams may be captured, in any mode and by any thread, while calls are under
 * way, but where this one is the legacy stream: while one is captured that waits for that, as all
 * do which are made without cudaStreamNonBlocking, a call of GPU memory is KOLO_E_UNSUPPORTED, and
 * one that is under way may fail the group.
 *
 * An asynchronous collective that is in the ranks' streams, and a graph, wait for other ranks
 * there, and GPU memory that the process frees meanwhile (as by cuMemFree or cudaFree) goes no
 * earlier than those have come. If one does not come, neither the group's limit nor
 * kolo_group_abort may get the driver to end the wait, since to do that is to call the driver,
 * which the free may have to itself: free what a graph or call under way leaves no need of when its
 * stream has passed it.
 *
 * A collective that has failed on a rank is carried out on its buffers no more when a late rank
 * comes. One that was under way on GPUs when it failed, by its limit, an abort or a lost rank,
 * returns its error when they are done with its buffers on this rank, or, as the log says then, two
 * seconds later if they are not. So does the wait for an asynchronous one; and where that stays on
 * GPUs, the stream goes past it no earlier either. But a stream that waits for the host, as above,
 * goes on at once, and a launched graph may go on: what lies in the buffers of a graph's calls is
 * anybody's guess until the group has been freed on all ranks.
 *
 * Two launched graphs of a group, and two captured calls, are in no order of their own: a rank lets
 * a graph of the group begin when the one before has ended, as in one stream or behind an event,
 * and captures the group's calls one behind another, never in two branches that have been forked,
 * since both would wait for the same words. A graph may be under way beside calls. But while it has
 * not been launched on all ranks, none of them frees memory of earlier calls and makes others
 * there: what another rank has open of that is closed first, by the driver, which waits for a graph
 * that has been launched there and not yet come to its first call, and so for the rank that comes
 * late.
 *
 * A process of many streams, of its own or of several groups, sets CUDA_DEVICE_MAX_CONNECTIONS as
 * above, too: what looks who is waited for, and what ends a wait after a failure, may stand behind
 * another stream's work else. The look is given up after a second, and the error of a wait that is
 * too long does not name the ranks then; the ending of a wait is given up after two seconds.
 *
 * Managed memory (cudaMallocManaged) counts as the GPU's, wherever its pages are: the stream's
 * order says when the processor may touch it. Where the streams of a rank's GPU cannot wait for
 * words in memory (CUDA_ERROR_NOT_SUPPORTED, as with some drivers and virtual GPUs), collectives of
 * all ranks go by way of host memory, and that rank's asynchronous calls return when they are done.
 * An instance of a GPU that MIG divides is a GPU of its own: ranks on several reach each other's
 * memory where the driver opens it, and go by way of host memory else. In compute mode
 * EXCLUSIVE_PROCESS a GPU is one process's (KOLO_E_UNSUPPORTED in others): ranks that share it are
 * its threads, or clients of MPS, under which calls go as they do without it.
 *
 * Ranks that are threads and share a GPU take a stream each, which, where another's is the legacy
 * one, is non-blocking: else one's part in an asynchronous collective could only come behind
 * another's that waits for it, so that such a call is KOLO_E_INVALID, and ends the group. */
KOLO_API int kolo_group_set_stream(kolo_group *group, void *stream);

/* 0, or the code of the error that ended this group; *text (may be NULL) is its sentence, valid
 * until the group is freed. */
KOLO_API int kolo_group_error(const kolo_group *group, const char **text);

/* Ends the group from any thread: calls in flight on this rank return KOLO_E_ABORTED with reason,
 * other ranks get the same at their next or current call. Needs no peer's help. */
KOLO_API void kolo_group_abort(kolo_group *group, const char *reason);

/* A barrier for finding out who is missing. timeout_ms (< 0: the group's) counts from when rank 0
 * calls it. The others give rank 0 as long to come; then they wait until it has found who is
 * missing, as long again and two seconds at most. If not all come the group fails on every rank,
 * also on those that are in another call or come later, with a sentence that names the first rank
 * that rank 0 missed; with wait_all all of them, and which of their processes have ended (else that
 * is told as soon as it is seen). The store carries it, so the state of links is no matter, and
 * works under way go on; it is slower than kolo_barrier. A missing rank that comes when rank 0 has
 * gone, and with it the store that rank 0 serves, is told that, and that the others may have given
 * it up. */
KOLO_API int kolo_monitored_barrier(kolo_group *group, int timeout_ms, int wait_all);

/* A program frees its groups before it ends, also where all its calls have succeeded: others may
 * still be in the call that this rank has finished, and a process that ends without is a lost rank
 * to them, whose death fails that call with KOLO_E_PEER_LOST: within some seconds, whomever they
 * wait for there, where rank 0 serves the store, or where one of them runs on the machine of the
 * lost one and sees its process, as in the same container; else when they have to do with it. Of
 * one that has freed its group they know that it was done.
 *
 * Waits for this rank's own unfinished works, which fail, and until what finished calls have sent
 * has reached the other ranks' machines, at most the group's time-out: who sends to a rank that
 * neither receives nor frees its group may wait that long. Over RDMA up to five seconds more pass
 * for each rank whose host has stopped answering, as without power, while something was on its way
 * there; so they do in a call that fails, before it returns. No other thread is in a call on the
 * group then; threads that wait for its works are woken. Free groups made from a world before the
 * world. NULL is allowed.
 *
 * Where rank 0 serves the store of a world, as with "tcp://" and wherever a launcher's agent does
 * not, its kolo_group_free also waits until the others have freed theirs, or those that have not
 * have ended on its machine: 30 s at most, of a group that has failed 3 s, and half a second when
 * but one is missing after a time-out or the loss of a rank. The log (WARN) says after two seconds
 * for whom. Unless it has other groups, it cannot be reached meanwhile: who waits for it, or would
 * open a link to it, hears that it has gone. Then the store ends under those that go on: calls over
 * links that are open may pass still, but what opens a link, a monitored barrier, and a collective
 * that waits in a group that rank 0 is in fail with rank 0 as the lost one, and freeing takes a
 * second or so. */
KOLO_API void kolo_group_free(kolo_group *group);

/* ---- asynchronous requests ---------------------------------------------------------------- */

/* One call under way. Owned by the caller, to be freed whether it succeeded or not. Any threads may
 * wait for it and test it; none does when it is freed. */
typedef struct kolo_work kolo_work;

/* Waits until the work has completed and returns its status. timeout_ms < 0: no limit but that of
 * the call itself. KOLO_E_TIMEOUT from timeout_ms leaves the work running. */
KOLO_API int kolo_work_wait(kolo_work *work, int timeout_ms);
/* Waits until any of works[nworks] has completed, which may be of any groups; NULL among them are
 * passed over. *index is the place in the list of the first that has, whose status is returned, as
 * kolo_work_wait gives it: free it, and put NULL there. *index is nworks if all are NULL (KOLO_OK),
 * or if none has completed within timeout_ms (KOLO_E_TIMEOUT; < 0: no limit but those of the calls;
 * 0: looks once). The ends of messages of one group, or of its collectives, wake the caller; works
 * of both, of several groups, batches, and what is in a stream, he looks at every millisecond. */
KOLO_API int kolo_work_wait_any(kolo_work *const *works, size_t nworks, int timeout_ms,
                                size_t *index);
/* *done = 1 if completed; then the work's status is returned, else KOLO_OK. */
KOLO_API int kolo_work_test(kolo_work *work, int *done);
/* The sentence of a failed work, "" otherwise; valid until it is freed. */
KOLO_API const char *kolo_work_error(const kolo_work *work);
/* Waits for completion first, since the call's buffers are in use till then. NULL is allowed. */
KOLO_API void kolo_work_free(kolo_work *work);

/* ---- elements and reductions -------------------------------------------------------------- */

typedef enum kolo_dtype {
    KOLO_INT8,
    KOLO_UINT8,
    KOLO_INT32,
    KOLO_UINT32,
    KOLO_INT64,
    KOLO_UINT64,
    KOLO_FLOAT16,
    KOLO_BFLOAT16,
    KOLO_FLOAT32,
    KOLO_FLOAT64,
    KOLO_BOOL,        /* one byte; what is not 0 is true, a result is 0 or 1 */
    KOLO_FLOAT8_E4M3, /* finite up to 448, beyond which it rounds to NaN; PyTorch's float8_e4m3fn */
    KOLO_FLOAT8_E5M2, /* up to 57344, then infinity */
    KOLO_NDTYPES
} kolo_dtype;

/* Integers wrap. AVG is the sum divided by the number of ranks, integers truncated towards zero.
 * MIN and MAX of floats give NaN if any operand is NaN. BAND, BOR, BXOR are not for floats, AVG not
 * for bool, of which SUM and MAX are BOR, PROD and MIN are BAND. Floats of 16 and 8 bits are summed
 * in float32 and rounded once per hop. */
typedef enum kolo_op {
    KOLO_SUM,
    KOLO_PROD,
    KOLO_MIN,
    KOLO_MAX,
    KOLO_AVG,
    KOLO_BAND,
    KOLO_BOR,
    KOLO_BXOR,
    KOLO_NOPS
} kolo_op;

KOLO_API size_t kolo_dtype_size(kolo_dtype dtype); /* bytes of one element; 0 if no dtype */
/* "float32", "sum"; "unknown" for what is none. */
KOLO_API const char *kolo_dtype_name(kolo_dtype dtype);
KOLO_API const char *kolo_op_name(kolo_op op);

/* An op of this group, for its all_reduce, reduce and reduce_scatter: each rank's elements times
 * the factor that this rank gives, summed. The factor is made a number of the dtype (of smaller
 * floats, float32; of integers truncated towards zero). Nothing is sent, the op is this rank's
 * alone: in a call that takes one, each rank gives an op that it has made. A rank has up to 64 at a
 * time in a group. */
KOLO_API int kolo_op_premul_sum(kolo_group *group, double factor, kolo_op *op);
/* Calls that were begun with it keep it. */
KOLO_API int kolo_op_free(kolo_group *group, kolo_op op);

/* ---- collectives: every rank of the group makes the same call ----------------------------- */

/* Each has a blocking form, which runs in the calling thread, and an _async form, which returns at
 * once with a work that the group's own thread carries out. All ranks must agree on everything but
 * the buffers; if they do not, the error names both sides. A rank that only sends in a call, as a
 * broadcast's root, returns without an answer: that others take it for another call is then told by
 * a later one, or in the log when the group is freed; with KOLO_CHECK=1 by this call, before it
 * moves anything. (Of the lists of counts in the calls below in _v it compares the sums of
 * all_gather_v's and reduce_scatter_v's alone.) n is the group's size. */

/* out[count] = reduction of every rank's in[count]; the same bits on all ranks. in == out allowed.
 */
KOLO_API int kolo_all_reduce(kolo_group *group, const void *in, void *out, size_t count,
                             kolo_dtype dtype, kolo_op op);
/* The same, but only root's out is written (others may pass NULL). */
KOLO_API int kolo_reduce(kolo_group *group, const void *in, void *out, size_t count,
                         kolo_dtype dtype, kolo_op op, int root);
/* buffer[count] of root to everybody's buffer. */
KOLO_API int kolo_broadcast(kolo_group *group, void *buffer, size_t count, kolo_dtype dtype,
                            int root);
/* out[n*count] = in[count] of rank 0, 1, ... in == out + rank*count allowed. */
KOLO_API int kolo_all_gather(kolo_group *group, const void *in, void *out, size_t count,
                             kolo_dtype dtype);
/* out[count] = elements rank*count... of the reduction of in[n*count]. out == in + rank*count
 * allowed. */
KOLO_API int kolo_reduce_scatter(kolo_group *group, const void *in, void *out, size_t count,
                                 kolo_dtype dtype, kolo_op op);
/* root's out[n*count] = in[count] of rank 0, 1, ...; others may pass out NULL. On root
 * in == out + root*count allowed. */
KOLO_API int kolo_gather(kolo_group *group, const void *in, void *out, size_t count,
                         kolo_dtype dtype, int root);
/* out[count] = elements rank*count... of root's in[n*count]; others may pass in NULL. On root
 * out == in + root*count allowed. */
KOLO_API int kolo_scatter(kolo_group *group, const void *in, void *out, size_t count,
                          kolo_dtype dtype, int root);
/* Block r of in[n*count] goes to rank r, where it becomes block (this rank) of out[n*count].
 * in == out is not allowed. */
KOLO_API int kolo_all_to_all(kolo_group *group, const void *in, void *out, size_t count,
                             kolo_dtype dtype);
/* Returns when every rank has called it. */
KOLO_API int kolo_barrier(kolo_group *group);

/* One of several tensors: in and out as the collective wants them for count elements. */
typedef struct kolo_tensor {
    const void *in;
    void *out;
    size_t count;
} kolo_tensor;

/* The same for several tensors of one type at the price of few calls: short ones travel together,
 * through memory of the library's own, long ones by themselves. All ranks list as many, perhaps
 * none, of the same counts; the list is no longer needed when the call returns. broadcast looks at
 * out only. */
KOLO_API int kolo_all_reduce_coalesced(kolo_group *group, const kolo_tensor *tensors,
                                       size_t ntensors, kolo_dtype dtype, kolo_op op);
KOLO_API int kolo_reduce_coalesced(kolo_group *group, const kolo_tensor *tensors, size_t ntensors,
                                   kolo_dtype dtype, kolo_op op, int root);
KOLO_API int kolo_broadcast_coalesced(kolo_group *group, const kolo_tensor *tensors,
                                      size_t ntensors, kolo_dtype dtype, int root);
KOLO_API int kolo_all_gather_coalesced(kolo_group *group, const kolo_tensor *tensors,
                                       size_t ntensors, kolo_dtype dtype);
KOLO_API int kolo_reduce_scatter_coalesced(kolo_group *group, const kolo_tensor *tensors,
                                           size_t ntensors, kolo_dtype dtype, kolo_op op);
KOLO_API int kolo_all_reduce_coalesced_async(kolo_group *group, const kolo_tensor *tensors,
                                             size_t ntensors, kolo_dtype dtype, kolo_op op,
                                             kolo_work **work);
KOLO_API int kolo_reduce_coalesced_async(kolo_group *group, const kolo_tensor *tensors,
                                         size_t ntensors, kolo_dtype dtype, kolo_op op, int root,
                                         kolo_work **work);
KOLO_API int kolo_broadcast_coalesced_async(kolo_group *group, const kolo_tensor *tensors,
                                            size_t ntensors, kolo_dtype dtype, int root,
                                            kolo_work **work);
KOLO_API int kolo_all_gather_coalesced_async(kolo_group *group, const kolo_tensor *tensors,
                                             size_t ntensors, kolo_dtype dtype, kolo_work **work);
KOLO_API int kolo_reduce_scatter_coalesced_async(kolo_group *group, const kolo_tensor *tensors,
                                                 size_t ntensors, kolo_dtype dtype, kolo_op op,
                                                 kolo_work **work);

/* Where the ranks' blocks lie in a buffer, when they are not all of one length. Both lists have an
 * entry for each rank of the group and are no longer needed when the call returns. */
typedef struct kolo_blocks {
    const size_t *counts; /* elements */
    const size_t *starts; /* the element at which each begins; NULL: one behind the other */
} kolo_blocks;

/* The calls above for blocks of different lengths, which may be 0. What one rank says of a block's
 * length must be what the others say of it: else it is KOLO_E_MISMATCH, on the rank that the block
 * goes to at least, and the group fails; a rank that was done by then has returned KOLO_OK, with
 * KOLO_CHECK=1 too, and hears of it by a later call. A rank's own block is as long in one buffer as
 * in the other, or it is KOLO_E_INVALID there. */

/* out's block r = in of rank r; this rank's in has the count of its own block, and may be that
 * block. All ranks give the same counts. */
KOLO_API int kolo_all_gather_v(kolo_group *group, const void *in, void *out,
                               const kolo_blocks *blocks, kolo_dtype dtype);
/* out = this rank's block of the reduction of in, and may be that block of in. All ranks give the
 * same counts. */
KOLO_API int kolo_reduce_scatter_v(kolo_group *group, const void *in, const kolo_blocks *blocks,
                                   void *out, kolo_dtype dtype, kolo_op op);
/* root's out's block r = in[count] of rank r; others may pass out and blocks NULL. On root in may
 * be its own block of out. */
KOLO_API int kolo_gather_v(kolo_group *group, const void *in, size_t count, void *out,
                           const kolo_blocks *blocks, kolo_dtype dtype, int root);
/* out[count] = this rank's block of root's in; others may pass in and blocks NULL. On root out may
 * be its own block of in. */
KOLO_API int kolo_scatter_v(kolo_group *group, const void *in, const kolo_blocks *blocks, void *out,
                            size_t count, kolo_dtype dtype, int root);
/* Block r of in goes to rank r, where it becomes the block of this rank in out. in == out is not
 * allowed. */
KOLO_API int kolo_all_to_all_v(kolo_group *group, const void *in, const kolo_blocks *in_blocks,
                               void *out, const kolo_blocks *out_blocks, kolo_dtype dtype);

KOLO_API int kolo_all_gather_v_async(kolo_group *group, const void *in, void *out,
                                     const kolo_blocks *blocks, kolo_dtype dtype, kolo_work **work);
KOLO_API int kolo_reduce_scatter_v_async(kolo_group *group, const void *in,
                                         const kolo_blocks *blocks, void *out, kolo_dtype dtype,
                                         kolo_op op, kolo_work **work);
KOLO_API int kolo_gather_v_async(kolo_group *group, const void *in, size_t count, void *out,
                                 const kolo_blocks *blocks, kolo_dtype dtype, int root,
                                 kolo_work **work);
KOLO_API int kolo_scatter_v_async(kolo_group *group, const void *in, const kolo_blocks *blocks,
                                  void *out, size_t count, kolo_dtype dtype, int root,
                                  kolo_work **work);
KOLO_API int kolo_all_to_all_v_async(kolo_group *group, const void *in,
                                     const kolo_blocks *in_blocks, void *out,
                                     const kolo_blocks *out_blocks, kolo_dtype dtype,
                                     kolo_work **work);

KOLO_API int kolo_all_reduce_async(kolo_group *group, const void *in, void *out, size_t count,
                                   kolo_dtype dtype, kolo_op op, kolo_work **work);
KOLO_API int kolo_reduce_async(kolo_group *group, const void *in, void *out, size_t count,
                               kolo_dtype dtype, kolo_op op, int root, kolo_work **work);
KOLO_API int kolo_broadcast_async(kolo_group *group, void *buffer, size_t count, kolo_dtype dtype,
                                  int root, kolo_work **work);
KOLO_API int kolo_all_gather_async(kolo_group *group, const void *in, void *out, size_t count,
                                   kolo_dtype dtype, kolo_work **work);
KOLO_API int kolo_reduce_scatter_async(kolo_group *group, const void *in, void *out, size_t count,
                                       kolo_dtype dtype, kolo_op op, kolo_work **work);
KOLO_API int kolo_gather_async(kolo_group *group, const void *in, void *out, size_t count,
                               kolo_dtype dtype, int root, kolo_work **work);
KOLO_API int kolo_scatter_async(kolo_group *group, const void *in, void *out, size_t count,
                                kolo_dtype dtype, int root, kolo_work **work);
KOLO_API int kolo_all_to_all_async(kolo_group *group, const void *in, void *out, size_t count,
                                   kolo_dtype dtype, kolo_work **work);
KOLO_API int kolo_barrier_async(kolo_group *group, kolo_work **work);

/* Blobs of any bytes, such as serialised objects, of which the others do not know how long they
 * are. Each is two collectives: while it runs, other threads of this rank begin none on the group.
 * What comes is the caller's, to be freed by kolo_free. */

/* *all: n blobs, of rank 0, 1, ..., in one piece of memory: one kolo_free frees all. */
KOLO_API int kolo_all_gather_bytes(kolo_group *group, kolo_bytes in, kolo_bytes **all);
/* The same on root; NULL on others. */
KOLO_API int kolo_gather_bytes(kolo_group *group, kolo_bytes in, kolo_bytes **all, int root);
/* *out: what root has in `in`, on root too; others' in is not looked at. One NUL byte follows its
 * *nbytes bytes. */
KOLO_API int kolo_broadcast_bytes(kolo_group *group, kolo_bytes in, void **out, size_t *nbytes,
                                  int root);
/* *out: the blob that root has for this rank: its in[n] is one for each; others may pass in NULL.
 * One NUL byte follows its *nbytes bytes. */
KOLO_API int kolo_scatter_bytes(kolo_group *group, const kolo_bytes *in, void **out, size_t *nbytes,
                                int root);

/* ---- gradients: collectives that do what training does next, in the same pass ------------- */

/* Gradients are float32, float16 or bfloat16, parameters and states float32; all of a call's
 * arrays, and the numbers that it points to, are in host memory, or all in GPU memory. Both give
 * the same bits: those of an all_reduce, whose order of additions is its algorithm's, followed by
 * the formula, computed in float32 without fused multiply-adds. Where all ranks share a GPU, or
 * reach each other's, one kernel reads each gradient once and writes each parameter once, and the
 * call can be captured for a CUDA graph with the options it has then; between GPUs, elements that
 * travel as smaller ones are cast before. Between hosts it is an all_reduce, of which each rank
 * stages its share, and the step follows on the GPU. */

typedef enum kolo_optimizer { KOLO_SGD, KOLO_ADAM } kolo_optimizer;

/* One step of an optimizer, for a parameter p with the gradient g and the states s and v; the same
 * on all ranks. The formulas are those of PyTorch's optimizers.
 *
 * KOLO_SGD: g += weight_decay p; s = momentum s + (1 - dampening) g, at step 1 s = g; p -= rate s,
 * with nesterov rate (g + momentum s). With momentum 0 there is no state and p -= rate g.
 * KOLO_ADAM (Kingma and Ba, 2015): g += weight_decay p, or with decoupled (AdamW) p -= rate
 * weight_decay p; s = beta1 s + (1 - beta1) g; v = beta2 v + (1 - beta2) g g; p -= rate / (1 -
 * beta1^number) s / (sqrt(v) / sqrt(1 - beta2^number) + epsilon). */
typedef struct kolo_step {
    kolo_optimizer optimizer;
    uint64_t number; /* of the step: 1 at first, when states are taken to be 0, whatever they are */
    float rate, weight_decay;
    float momentum, dampening;   /* SGD */
    int nesterov;                /* SGD: 1 or 0 */
    float beta1, beta2, epsilon; /* Adam */
    int decoupled;               /* Adam: 1 or 0 */
    float factor;                /* what the reduced gradient is multiplied by first; 0: 1 */
    const float *factor_at;      /* and by the number there; NULL: 1 */
    const float *skip_at; /* the step is left out if the number there is not 0; NULL: never */
    kolo_dtype wire;      /* 0, or, of float32, what kolo_all_reduce_compressed takes */
} kolo_step;

/* What a step changes. */
typedef struct kolo_update {
    void *grad;       /* [count] of the call's dtype; kolo's to change: its content is lost */
    float *param;     /* [count], the same on all ranks */
    float *states[2]; /* [count] each, the same on all ranks: s; v; NULL where there is none */
    size_t count;
} kolo_update;

/* Reduces every rank's grad (op: KOLO_SUM or KOLO_AVG), and by the result, rounded to dtype, takes
 * the step: all ranks have the same parameters and states afterwards. update and step are no longer
 * needed when the call returns; what they point to is. */
KOLO_API int kolo_all_reduce_step(kolo_group *group, const kolo_update *update, kolo_dtype dtype,
                                  kolo_op op, const kolo_step *step);
KOLO_API int kolo_all_reduce_step_async(kolo_group *group, const kolo_update *update,
                                        kolo_dtype dtype, kolo_op op, const kolo_step *step,
                                        kolo_work **work);

/* out[count] = what an all_reduce of in[count] cast to wire, KOLO_FLOAT16 or KOLO_BFLOAT16, gives,
 * cast back: half the bytes travel. op: KOLO_SUM or KOLO_AVG. in == out allowed. */
KOLO_API int kolo_all_reduce_compressed(kolo_group *group, const float *in, float *out,
                                        size_t count, kolo_dtype wire, kolo_op op);
KOLO_API int kolo_all_reduce_compressed_async(kolo_group *group, const float *in, float *out,
                                              size_t count, kolo_dtype wire, kolo_op op,
                                              kolo_work **work);

/* A cast with a factor, both of them in the same memory as what is cast. */
typedef struct kolo_cast {
    kolo_dtype from, to;
    float factor;
    const float *factor_at; /* by the number there, too; NULL: 1 */
} kolo_cast;

/* For mixed precision: each element of each tensor's out, of cast->to, becomes that of in, of
 * cast->from, times the factor, in float32 before it is rounded; in == out is allowed if the types
 * are the same. *found_inf becomes 1 on all ranks if an element of any in, on any rank, is infinite
 * or no number, else the largest that a rank has there: 0, if all have set it so. Tensors need not
 * be alike on the ranks. The lists are no longer needed when the call returns. */
KOLO_API int kolo_unscale(kolo_group *group, const kolo_tensor *tensors, size_t ntensors,
                          const kolo_cast *cast, float *found_inf);
KOLO_API int kolo_unscale_async(kolo_group *group, const kolo_tensor *tensors, size_t ntensors,
                                const kolo_cast *cast, float *found_inf, kolo_work **work);

/* ---- point to point ----------------------------------------------------------------------- */

/* A message has a sender, a receiver, a tag >= 0 and a length, which may be 0. A rank may send to
 * itself. The dtypes of both sides must be equal, or it is KOLO_E_MISMATCH. A message longer than
 * the receive's count is KOLO_E_TRUNCATED. In both cases the receive's buffer is left alone, and a
 * send that is still under way fails too. Of one that was complete before, the sender's rank hears
 * at once over shared memory, else with what the receiver sends it next, or when that frees its
 * group: the send or receive between the two that ends next does what it was to do and returns the
 * error all the same, which says "an earlier message"; one that is in vain, since the receiver has
 * freed its group, gives it as the reason. Of several that have been refused by then the first is
 * told. In a group that has a stream, and where no such call follows, it is logged when the
 * sender's rank frees the group, if that has not failed and the word has come by then: nobody waits
 * for it. With KOLO_EAGER_BYTES=0 on the sender's rank no send is complete before, of whatever
 * length: it ends when a receive has the message, or has refused it. Of a shorter message the rest
 * of the buffer is left alone. None of this fails the group.
 *
 * A receive names a sender or takes any (KOLO_ANY_RANK, this rank too), and names a tag or takes
 * any (KOLO_ANY_TAG). Of the receives that match a message the one posted first gets it. Of the
 * messages that match a receive it gets, from one sender, the one sent first, and among senders the
 * one that came first. The first receive or probe of any rank opens links to all ranks of the
 * group. To wait for it fails with KOLO_E_PEER_LOST when all others have freed their groups.
 *
 * A send is complete when its buffer may be used again. For a message of up to KOLO_EAGER_BYTES the
 * receiver need not have asked by then: it waits in the receiver's memory, of which
 * KOLO_UNEXPECTED_BYTES may be taken, by all messages of one group together; each group has as much
 * of its own, since one whose receives are late must neither hold up nor fail another: with
 * hundreds of groups set it lower. One that there is no room for stays
 * with its sender until its receive is posted, if it is longer than a slice (KOLO_SLICE_BYTES; over
 * tcp and rdma four of these); what is not, and what was on its way when the sender heard, may take
 * half as much again; beyond that the group fails. Do not rely on a message longer than
 * KOLO_EAGER_BYTES to be complete before its receive has been posted. Others overtake what stays
 * with its sender. Long messages go on only while both ranks are in a call of this section, or by a
 * thread of the library's. Who frees its group may wait up to half a second for a receiver to say
 * that it has room for what was sent last. Short ones that are sent one right after another may be
 * held back for a moment to go together: the next call that waits sends them; if none comes, a
 * thread of the library's does, within about a millisecond. */
enum { KOLO_ANY_RANK = -1, KOLO_ANY_TAG = -1 };

/* in[count] goes to rank `to`; up to count elements come into out. */
KOLO_API int kolo_send(kolo_group *group, const void *in, size_t count, kolo_dtype dtype, int to,
                       int tag);
KOLO_API int kolo_recv(kolo_group *group, void *out, size_t count, kolo_dtype dtype, int from,
                       int tag);
KOLO_API int kolo_isend(kolo_group *group, const void *in, size_t count, kolo_dtype dtype, int to,
                        int tag, kolo_work **work);
KOLO_API int kolo_irecv(kolo_group *group, void *out, size_t count, kolo_dtype dtype, int from,
                        int tag, kolo_work **work);

/* What a message says of itself. */
typedef struct kolo_message {
    int from; /* rank of the group */
    int tag;
    kolo_dtype dtype;
    size_t count; /* elements */
} kolo_message;

/* The same as kolo_recv and kolo_irecv; *message is what was received. Like out, it is the
 * library's until the work has completed. */
KOLO_API int kolo_recv_message(kolo_group *group, void *out, size_t count, kolo_dtype dtype,
                               int from, int tag, kolo_message *message);
KOLO_API int kolo_irecv_message(kolo_group *group, void *out, size_t count, kolo_dtype dtype,
                                int from, int tag, kolo_message *message, kolo_work **work);

/* *found = 1 and *message is what a receive of (from, tag) would get; it stays where it is. Else,
 * when none has come within timeout_ms (0: looks once; < 0: the group's limit, past which the group
 * fails), *found = 0. A receive that is to get this very message names message's rank and tag. */
KOLO_API int kolo_probe(kolo_group *group, int from, int tag, int timeout_ms, int *found,
                        kolo_message *message);

typedef struct kolo_p2p {
    int is_send; /* 1: send buffer to peer, 0: receive into it from peer */
    int peer;    /* receiving: perhaps KOLO_ANY_RANK, and KOLO_ANY_TAG */
    int tag;
    kolo_dtype dtype;
    size_t count;
    void *buffer;          /* only read when sending */
    kolo_message *message; /* receiving: where to put what was received, or NULL */
} kolo_p2p;

/* Posts all of ops and waits for all of them, in whatever order they complete: no order of the list
 * can deadlock. If an argument of any is wrong, none is posted. */
KOLO_API int kolo_batch(kolo_group *group, const kolo_p2p *ops, size_t nops);
/* The same as one work; ops is no longer needed when the call returns, buffers and messages are. */
KOLO_API int kolo_batch_async(kolo_group *group, const kolo_p2p *ops, size_t nops,
                              kolo_work **work);

/* Sends in[in_count] to one rank and receives up to out_count elements from one, which may be the
 * same, at once. */
KOLO_API int kolo_sendrecv(kolo_group *group, const void *in, size_t in_count, int to, void *out,
                           size_t out_count, int from, kolo_dtype dtype, int tag);
KOLO_API int kolo_sendrecv_async(kolo_group *group, const void *in, size_t in_count, int to,
                                 void *out, size_t out_count, int from, kolo_dtype dtype, int tag,
                                 kolo_work **work);

/* ---- data-parallel training --------------------------------------------------------------- */

/* One trainable tensor. The name is copied; data and grad hold count elements, stay where they are,
 * and outlive the ddp. Each array is in host memory or, if the group has a stream by the time the
 * ddp is created, in its GPU's. */
typedef struct kolo_param {
    const char *name;
    void *data;
    void *grad;
    size_t count;
    kolo_dtype dtype; /* a float type */
    float *states[2]; /* for kolo_ddp_set_step; NULL where there is none */
} kolo_param;

typedef struct kolo_ddp_options {
    size_t first_bucket_bytes; /* 0: 1 MiB. Parameters fill buckets from the last to the first, */
    size_t bucket_bytes;       /* 0: 25 MiB. and a bucket closes when it has reached its size. */
    int no_overlap;            /* 1: reduce everything in kolo_ddp_wait, for comparison */
    kolo_dtype wire; /* 0, or how float32 gradients travel, as kolo_all_reduce_compressed has it */
} kolo_ddp_options;

typedef struct kolo_ddp kolo_ddp;

/* Seconds, and early buckets, summed over all steps since creation. */
typedef struct kolo_ddp_stats {
    uint64_t steps;
    uint64_t buckets;       /* buckets a step reduces */
    uint64_t early_buckets; /* begun while gradients were still to come */
    double communication_s; /* from each bucket's submission to its completion */
    double exposed_s;       /* all that kolo_ddp_wait took, copies and steps of its own included: on
                             * a busy machine perhaps more than communication_s */
} kolo_ddp_stats;

/* Checks that every rank brings the same parameters (number, names, counts, dtypes) and bucket
 * sizes; the error, KOLO_E_MISMATCH, names the rank and the parameter. Then broadcasts rank 0's
 * data. A collective call. options NULL: all 0. The list is no longer needed when the call returns;
 * the group is until the ddp has been freed.
 *
 * Gradients of a bucket that lie side by side are reduced where they are; others are copied into a
 * bucket of the ddp's, and back. It is on the GPU if any array of its parameters is, and then it is
 * the group's stream that copies: behind what the caller has put there before he says that a
 * gradient is ready. Steps may be captured for a graph as collectives may, creation may not, and
 * the ddp is freed when no such graph is under way. */
KOLO_API int kolo_ddp_create(kolo_group *group, const kolo_param *params, size_t nparams,
                             const kolo_ddp_options *options, kolo_ddp **ddp);
/* Backward has finished the gradient of params[index]. When a bucket's last gradient is ready and
 * every earlier bucket has been submitted, its all_reduce starts in the background. Each parameter
 * once per step, in any order; the calling thread is always the same. */
KOLO_API int kolo_ddp_ready(kolo_ddp *ddp, size_t index);
/* Waits until every gradient is the average over all ranks, which ends the step. KOLO_E_INVALID if
 * a parameter was not ready. */
KOLO_API int kolo_ddp_wait(kolo_ddp *ddp);
/* From now on buckets are not averaged only: each takes this step, as kolo_all_reduce_step does
 * (which says what becomes of the gradients), and kolo_ddp_wait waits for the parameters. So a
 * parameter is ready when its gradient is final and backward needs it no more itself. All
 * parameters have to be float32, and to have the states that the step needs. Where those of a
 * bucket, their gradients and their states lie side by side, each in an arena, the step is taken
 * in the pass that reduces, on GPU memory too; on a GPU others are copied side by side for it, and
 * back, in memory that the first such call takes. Between two steps of training; all ranks alike.
 * The step's wire is that of the options. NULL: averages again. */
KOLO_API int kolo_ddp_set_step(kolo_ddp *ddp, const kolo_step *step);
/* All 0 if ddp is NULL. */
KOLO_API void kolo_ddp_get_stats(const kolo_ddp *ddp, kolo_ddp_stats *stats);
/* Waits for buckets under way; the group is still there. NULL is allowed. */
KOLO_API void kolo_ddp_free(kolo_ddp *ddp);

typedef struct kolo_sampler_options {
    int rank, size; /* this rank, and the number of ranks that share the data set */
    int shuffle;    /* 1: a permutation that depends on seed and epoch only */
    int drop_last;  /* 1: drop the tail that does not divide by size; 0: repeat from the start */
    uint64_t seed;
} kolo_sampler_options;

/* Which samples this rank draws in an epoch: the rule and, bit for bit, the permutation of
 * PyTorch's DistributedSampler. kolo_sampler_indices writes kolo_sampler_length() numbers <
 * nsamples, which is below 2^32. Wrong options, and more samples, have length 0, and
 * kolo_last_error() says why. Any thread; nothing is sent. */
KOLO_API size_t kolo_sampler_length(size_t nsamples, const kolo_sampler_options *options);
KOLO_API int kolo_sampler_indices(size_t nsamples, const kolo_sampler_options *options,
                                  uint64_t epoch, uint32_t *indices);

#ifdef __cplusplus
}
#endif
#endif
