/* SPDX-License-Identifier: MIT
 *
 * The double's devices, ports and memory regions.
 */
#include "../double_dmabuf.h"
#include "double.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#pragma GCC visibility push(default)
uint64_t fakeverbs_sent(const char *device);
int fakeverbs_fork_inits(void);
int fakeverbs_registrations(void);
int fakeverbs_dmabufs(void);
int fakeverbs_dmabufs_ever(void);
#define PROTOTYPE(member, name, result, parameters) result name parameters;
KO_IB_LIST(PROTOTYPE)
KO_IB_OPTIONAL_LIST(PROTOTYPE)
#pragma GCC visibility pop

/* All that there have been; what a device is does not change any more. */
static struct double_device devices[DOUBLE_DEVICES];
static int ndevices;

static int nfork_inits; /* atomic */

int fakeverbs_fork_inits(void)
{
    return __atomic_load_n(&nfork_inits, __ATOMIC_SEQ_CST);
}

int ibv_fork_init(void)
{
    __atomic_fetch_add(&nfork_inits, 1, __ATOMIC_SEQ_CST);
    return double_break("ibv_fork_init");
}

static enum double_kind kind_of(const char *text)
{
    return !strcmp(text, "ib")      ? DOUBLE_IB
           : !strcmp(text, "iwarp") ? DOUBLE_IWARP
           : !strcmp(text, "plain") ? DOUBLE_PLAIN
                                    : DOUBLE_ROCE;
}

static ko_ib_gid address_of(const char *text)
{
    ko_ib_gid address = {.raw = {[10] = 0xff, [11] = 0xff}};

    if (inet_pton(AF_INET, text, address.raw + 12) != 1 &&
        inet_pton(AF_INET6, text, address.raw) != 1)
        abort();
    return address;
}

static struct ko_ib_device *device_named(const char *name, enum double_kind kind,
                                         const ko_ib_gid *address)
{
    struct double_device *device = devices;

    while (device < devices + ndevices &&
           (strcmp(device->name, name) != 0 || device->kind != kind ||
            memcmp(&device->address, address, sizeof *address) != 0))
        device++;
    if (device < devices + ndevices)
        return &device->base;
    if (ndevices == DOUBLE_DEVICES)
        abort();
    ndevices++;
    snprintf(device->name, sizeof device->name, "%s", name);
    device->kind = kind;
    device->address = *address;
    device->base.node_type = 1;
    device->base.transport_type = kind == DOUBLE_IWARP ? KO_IB_TRANSPORT_IWARP : KO_IB_TRANSPORT_IB;
    return &device->base;
}

struct ko_ib_device **ibv_get_device_list(int *count)
{
    struct ko_ib_device **list = calloc(DOUBLE_DEVICES + 1, sizeof *list);
    const char *wish = getenv("FAKEVERBS_DEVICES");
    char text[256], *rest, *item;
    int n = 0;

    errno = double_break("ibv_get_device_list");
    if (errno) {
        free(list);
        return NULL;
    }
    snprintf(text, sizeof text, "%s", wish ? wish : "fake0:roce");
    pthread_mutex_lock(&double_lock);
    for (item = strtok_r(text, ",", &rest); item && n < DOUBLE_DEVICES;
         item = strtok_r(NULL, ",", &rest)) {
        char *kind = strchr(item, ':'), *at = strchr(item, '@');
        ko_ib_gid address;

        if (kind)
            *kind++ = 0;
        if (at)
            *at++ = 0;
        address = address_of(at ? at : "127.0.0.1");
        list[n++] = device_named(item, kind_of(kind ? kind : "roce"), &address);
    }
    pthread_mutex_unlock(&double_lock);
    *count = n;
    return list;
}

void ibv_free_device_list(struct ko_ib_device **list)
{
    free(list);
}

const char *ibv_get_device_name(struct ko_ib_device *device)
{
    return ((struct double_device *)device)->name;
}

static const struct double_device *device_of(const struct ko_ib_context *context)
{
    return (const struct double_device *)context->device;
}

static bool has_table(const struct double_device *device)
{
    return device->kind == DOUBLE_ROCE || device->kind == DOUBLE_PLAIN;
}

static int count_gids(const struct double_device *device)
{
    return has_table(device) ? (int)double_number("FAKEVERBS_GIDS", DOUBLE_GIDS) : 1;
}

extern int double_poll_cq(struct ko_ib_cq *base, int cap, struct ko_ib_wc *wc);
extern int double_req_notify_cq(struct ko_ib_cq *base, int solicited_only);
extern int double_post_send(struct ko_ib_qp *base, struct ko_ib_send *wr, struct ko_ib_send **bad);
extern int double_post_recv(struct ko_ib_qp *base, struct ko_ib_recv *wr, struct ko_ib_recv **bad);

struct ko_ib_context *ibv_open_device(struct ko_ib_device *device)
{
    struct double_context *context;
    int ends[2], error = double_break("ibv_open_device");

    if (!error && pipe2(ends, O_CLOEXEC))
        error = errno;
    if (error) {
        errno = error;
        return NULL;
    }
    context = calloc(1, sizeof *context);
    context->base.device = device;
    context->base.ops.poll_cq = double_poll_cq;
    context->base.ops.req_notify_cq = double_req_notify_cq;
    context->base.ops.post_send = double_post_send;
    context->base.ops.post_recv = double_post_recv;
    context->base.async_fd = ends[0];
    context->async_write = ends[1];
    pthread_mutex_lock(&double_lock);
    context->generation = double_generation;
    double_start();
    pthread_mutex_unlock(&double_lock);
    return &context->base;
}

int ibv_close_device(struct ko_ib_context *base)
{
    struct double_context *context = (struct double_context *)base;

    double_expect_unused("a device", context->nusers);
    pthread_mutex_lock(&double_lock);
    if (context->generation == double_generation)
        double_stop();
    pthread_mutex_unlock(&double_lock);
    close(base->async_fd);
    close(context->async_write);
    free(context);
    return double_break("ibv_close_device");
}

int ibv_query_port(struct ko_ib_context *context, uint8_t port, struct ko_ib_port_attr *attr)
{
    const struct double_device *device = device_of(context);
    int error = double_break("ibv_query_port");

    if (error || port != 1)
        return error ? error : EINVAL;
    *attr = (struct ko_ib_port_attr){
        .state = double_lists("FAKEVERBS_DOWN", device->name) ? KO_IB_PORT_DOWN : KO_IB_PORT_ACTIVE,
        .max_mtu = 5,
        .active_mtu = (int)double_number("FAKEVERBS_MTU", 3),
        .gid_tbl_len = count_gids(device),
        .pkey_tbl_len = 4,
        .lid = device->kind == DOUBLE_IB ? 17 : 0,
        .active_width = double_lists("FAKEVERBS_SLOW", device->name) ? 1 : 2, /* or 4 lanes */
        .active_speed = 32,
        .link_layer = device->kind == DOUBLE_IB ? KO_IB_LINK_INFINIBAND : KO_IB_LINK_ETHERNET};
    return 0;
}

uint64_t fakeverbs_sent(const char *device)
{
    uint64_t sent = 0;

    pthread_mutex_lock(&double_lock);
    for (int i = 0; i < ndevices; i++)
        sent += strcmp(devices[i].name, device) ? 0 : devices[i].sent;
    pthread_mutex_unlock(&double_lock);
    return sent;
}

/* Link-local first and its address last, each as RoCE v1 and v2; what lies between is empty. */
int _ibv_query_gid_ex(struct ko_ib_context *context, uint32_t port, uint32_t index,
                      struct ko_ib_gid_entry *entry, uint32_t flags, size_t nbytes)
{
    static const uint8_t local[16] = {0xfe, 0x80, [8] = 2, [15] = 1};
    const struct double_device *device = device_of(context);
    int error = double_break("ibv_query_gid");

    (void)flags;
    if (error || port != 1 || nbytes < sizeof *entry || index >= (uint32_t)count_gids(device))
        return error ? error : ENODATA;
    *entry = (struct ko_ib_gid_entry){.gid_index = index, .port_num = port};
    if (index < 2)
        memcpy(entry->gid.raw, local, 16);
    else if (index + 2 >= (uint32_t)count_gids(device))
        entry->gid = device->address;
    if (has_table(device))
        entry->gid_type = index % 2 ? KO_IB_GID_ROCE_V2 : KO_IB_GID_ROCE_V1;
    return 0;
}

/* Of four entries the third is empty. */
static const uint16_t pkeys[] = {0xffff, 0x8001, 0, 0x8003};
enum { NPKEYS = sizeof pkeys / sizeof *pkeys };

int ibv_query_pkey(struct ko_ib_context *context, uint8_t port, int index, uint16_t *pkey)
{
    (void)context;
    errno = double_break("ibv_query_pkey");
    if (!errno && (port != 1 || index < 0 || index >= NPKEYS))
        errno = EINVAL;
    if (errno)
        return -1;
    *pkey = htons(pkeys[index]);
    return 0;
}

/* ---- asynchronous events ------------------------------------------------------------------ */

void double_tell_async(struct double_context *context, int type, void *object, int port)
{
    struct ko_ib_async event = {.event_type = type};

    if (object)
        event.element.object = object;
    else
        event.element.port_num = port ? port : 1;
    (void)!write(context->async_write, &event, sizeof event);
}

int ibv_get_async_event(struct ko_ib_context *context, struct ko_ib_async *event)
{
    return read(context->async_fd, event, sizeof *event) == sizeof *event ? 0 : -1;
}

void ibv_ack_async_event(struct ko_ib_async *event)
{
    (void)event;
}

const char *ibv_event_type_str(int event)
{
    return event == KO_IB_EVENT_DEVICE_FATAL  ? "local catastrophic error"
           : event == KO_IB_EVENT_PORT_ERR    ? "port error"
           : event == KO_IB_EVENT_PORT_ACTIVE ? "port active"
                                              : "some event";
}

/* ---- what is destroyed in the wrong order ---------------------------------------------------- */

void double_expect_unused(const char *what, int nusers)
{
    if (!nusers)
        return;
    fprintf(stderr, "fakeverbs: %s is destroyed while %d others use it\n", what, nusers);
    abort();
}

void double_count(int *nusers, int change)
{
    __atomic_fetch_add(nusers, change, __ATOMIC_SEQ_CST);
}

/* ---- memory ------------------------------------------------------------------------------- */

struct ko_ib_pd *ibv_alloc_pd(struct ko_ib_context *context)
{
    struct ko_ib_pd *pd;

    errno = double_break("ibv_alloc_pd");
    pd = errno ? NULL : calloc(1, sizeof *pd);
    if (!pd)
        return NULL;
    pd->context = (struct double_context *)context;
    double_count(&pd->context->nusers, 1);
    return pd;
}

int ibv_dealloc_pd(struct ko_ib_pd *pd)
{
    double_expect_unused("a protection domain", pd->nusers);
    double_count(&pd->context->nusers, -1);
    free(pd);
    return double_break("ibv_dealloc_pd");
}

static struct ko_ib_mr *enter(struct ko_ib_pd *pd, void *at, size_t nbytes, int access,
                              unsigned char *mapped)
{
    static uint32_t keys = 1000;
    struct double_mr *mr;
    size_t registered = nbytes;

    pthread_mutex_lock(&double_lock);
    for (mr = double_mrs; mr; mr = mr->next)
        registered += mr->base.length;
    if (registered > (size_t)double_number("FAKEVERBS_MEMLOCK", 1L << 40)) {
        pthread_mutex_unlock(&double_lock);
        errno = ENOMEM;
        return NULL;
    }
    mr = calloc(1, sizeof *mr);
    keys += 7;
    mr->base = (struct ko_ib_mr){&pd->context->base, pd, at, nbytes, 0, keys, keys + 1};
    mr->access = access;
    mr->mapped = mapped;
    mr->next = double_mrs;
    double_mrs = mr;
    pthread_mutex_unlock(&double_lock);
    double_count(&pd->nusers, 1);
    return &mr->base;
}

static int nregistrations; /* atomic */

int fakeverbs_registrations(void)
{
    return __atomic_load_n(&nregistrations, __ATOMIC_SEQ_CST);
}

struct ko_ib_mr *ibv_reg_mr(struct ko_ib_pd *pd, void *at, size_t nbytes, int access)
{
    __atomic_fetch_add(&nregistrations, 1, __ATOMIC_SEQ_CST);
    errno = double_is_meant(&pd->context->base) ? double_break("ibv_reg_mr") : 0;
    return errno ? NULL : enter(pd, at, nbytes, access, NULL);
}

static int ndmabufs; /* ever registered; atomic */

/* Where the double of NVIDIA's driver has its dma-bufs begin, the file's offset says. at: NULL, or
 * addresses that are given up for it. */
static void *map_pages(int fd, uint64_t offset, size_t nbytes, void *at)
{
    const off_t begin = lseek(fd, 0, SEEK_CUR);
    struct stat file;
    void *mapped;

    if (begin < 0 || fstat(fd, &file) ||
        offset + nbytes > (uint64_t)(file.st_size - begin)) { /* no pages of it */
        errno = EINVAL;
        return NULL;
    }
    mapped = mmap(at, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | (at ? MAP_FIXED : 0), fd,
                  begin + (off_t)offset);
    return mapped == MAP_FAILED ? NULL : mapped;
}

static bool map_all(const struct double_run *run, unsigned char *at)
{
    for (int i = 0; i < run->n; at += run->nbytes[i++])
        if (!map_pages(run->fds[i], 0, run->nbytes[i], at))
            return false;
    return true;
}

/* Of several pieces: all of them. */
static void *map_run(const struct double_run *run, uint64_t offset, size_t nbytes)
{
    uint64_t total = 0;
    void *mapped;

    for (int i = 0; i < run->n; i++)
        total += run->nbytes[i];
    if (offset || nbytes != total) {
        errno = EINVAL;
        return NULL;
    }
    mapped = mmap(NULL, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED)
        return NULL;
    if (map_all(run, mapped))
        return mapped;
    munmap(mapped, nbytes);
    return NULL;
}

static void *map_dmabuf(int fd, uint64_t offset, size_t nbytes)
{
    struct double_run run;
    void *mapped;

    if (!double_run_look(fd, &run))
        return map_pages(fd, offset, nbytes, NULL);
    mapped = map_run(&run, offset, nbytes);
    double_run_close(&run);
    return mapped;
}

struct ko_ib_mr *ibv_reg_dmabuf_mr(struct ko_ib_pd *pd, uint64_t offset, size_t nbytes, uint64_t at,
                                   int fd, int access)
{
    struct ko_ib_mr *mr;
    void *mapped;

    errno = double_is_meant(&pd->context->base) ? double_break("ibv_reg_dmabuf_mr") : 0;
    if (!errno && (offset % 4096 != at % 4096 || !nbytes))
        errno = EINVAL;
    if (errno)
        return NULL;
    mapped = map_dmabuf(fd, offset, nbytes);
    if (!mapped)
        return NULL;
    mr = enter(pd, (void *)(uintptr_t)at, nbytes, access, mapped);
    if (!mr)
        munmap(mapped, nbytes);
    else
        __atomic_fetch_add(&ndmabufs, 1, __ATOMIC_SEQ_CST);
    return mr;
}

int fakeverbs_dmabufs_ever(void)
{
    return __atomic_load_n(&ndmabufs, __ATOMIC_SEQ_CST);
}

int fakeverbs_dmabufs(void)
{
    int n = 0;

    pthread_mutex_lock(&double_lock);
    for (const struct double_mr *mr = double_mrs; mr; mr = mr->next)
        n += mr->mapped != NULL;
    pthread_mutex_unlock(&double_lock);
    return n;
}

int ibv_dereg_mr(struct ko_ib_mr *base)
{
    unsigned char *mapped = ((struct double_mr *)base)->mapped;

    pthread_mutex_lock(&double_lock);
    for (struct double_mr **link = &double_mrs; *link; link = &(*link)->next)
        if (&(*link)->base == base) {
            *link = (*link)->next;
            break;
        }
    pthread_mutex_unlock(&double_lock);
    if (mapped)
        munmap(mapped, base->length);
    double_count(&base->pd->nusers, -1);
    free(base);
    return double_break("ibv_dereg_mr");
}

struct double_mr *double_find_mr(uint32_t key, uint64_t at, size_t nbytes, int access)
{
    for (struct double_mr *mr = double_mrs; mr; mr = mr->next) {
        const uint64_t base = (uintptr_t)mr->base.addr;

        if ((mr->base.lkey == key || mr->base.rkey == key) && at >= base &&
            at - base <= mr->base.length && nbytes <= mr->base.length - (at - base) &&
            (mr->access & access) == access)
            return mr;
    }
    return NULL;
}

unsigned char *double_find(uint32_t key, uint64_t at, size_t nbytes, int access)
{
    const struct double_mr *mr = double_find_mr(key, at, nbytes, access);

    if (!mr)
        return NULL;
    return mr->mapped ? mr->mapped + (at - (uintptr_t)mr->base.addr)
                      : (unsigned char *)(uintptr_t)at;
}
