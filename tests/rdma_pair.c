/* SPDX-License-Identifier: MIT */
#include "rdma_pair.h"

#include "clock.h"
#include "kolo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dlfcn.h>

static struct ko_hello hello_of(const struct rdma_pair *pair, int from, int to)
{
    return (struct ko_hello){.magic = KO_HELLO_MAGIC,
                             .version = KO_HELLO_VERSION,
                             .from = from,
                             .to = to,
                             .channel = pair->channel,
                             .slots = 2,
                             .slice_bytes = RDMA_SLICE};
}

struct ko_rdma_wire *rdma_pair_of(struct ko_wire *wire)
{
    return (struct ko_rdma_wire *)wire;
}

static void settle(struct ko_wire *wire, int *err)
{
    if (!*err && wire)
        *err = wire->transport->drive(wire);
    if (!*err && wire && wire->transport->arm)
        (void)wire->transport->arm(wire);
}

int rdma_pair_begin(struct rdma_pair *pair)
{
    unsigned char address[KO_ADDRESS_BYTES];
    const size_t nbytes = rdma->address(pair->right, address);
    const struct ko_hello hello = hello_of(pair, 1, 2);

    pair->has_answered = false;
    return rdma->connect(pair->left, address, nbytes, &hello, &pair->from);
}

int rdma_pair_step(struct rdma_pair *pair)
{
    const struct ko_hello answer = hello_of(pair, 2, 1);
    int err = KOLO_OK;

    if (!pair->to)
        (void)rdma->accept(pair->right, &pair->to);
    settle(pair->from, &err);
    settle(pair->to, &err);
    if (err || !pair->to || !pair->to->has_hello || pair->has_answered)
        return err;
    pair->has_answered = true;
    return rdma->answer(pair->to, &answer);
}

int rdma_pair_end(struct rdma_pair *pair)
{
    const ko_deadline deadline = ko_deadline_in(RDMA_LIMIT_MS);
    int err = KOLO_OK;

    while (!err &&
           (pair->from->state != KO_WIRE_OPEN || !pair->to || pair->to->state != KO_WIRE_OPEN)) {
        assert_false(ko_deadline_passed(&deadline));
        err = rdma_pair_step(pair);
    }
    return err;
}

int rdma_pair_open_wire(struct rdma_pair *pair)
{
    int err = rdma_pair_begin(pair);

    return err ? err : rdma_pair_end(pair);
}

int rdma_pair_open_devices(struct rdma_pair *pair)
{
    int err;

    *pair = (struct rdma_pair){.left = NULL};
    err = rdma->open(&rdma_pair_site, &pair->left);
    return err ? err : rdma->open(&rdma_pair_site, &pair->right);
}

void rdma_pair_close(struct rdma_pair *pair)
{
    rdma->hangup(pair->from); /* which knows wires without queue pairs, too */
    rdma->hangup(pair->to);
    rdma->close(pair->left);
    rdma->close(pair->right);
    *pair = (struct rdma_pair){.left = NULL};
}

struct rdma_pair rdma_pair_new(void)
{
    struct rdma_pair pair;

    assert_int_equal(rdma_pair_open_devices(&pair), KOLO_OK);
    assert_int_equal(rdma_pair_open_wire(&pair), KOLO_OK);
    return pair;
}

void *rdma_pair_find(const char *name)
{
    void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD), *function;

    assert_non_null(library);
    function = dlsym(library, name);
    assert_non_null(function);
    dlclose(library);
    return function;
}

void rdma_pair_fill(unsigned char *bytes, size_t nbytes, unsigned key)
{
    for (size_t i = 0; i < nbytes; i++)
        bytes[i] = (unsigned char)(i * 7 + key * 31 + (i >> 9));
}

void rdma_pair_pass_bytes(struct ko_wire *from, struct ko_wire *to, const unsigned char *body,
                          unsigned char *got, size_t nbytes)
{
    struct ko_post post = {
        .frame = {.kind = KO_FRAME_DATA, .nbytes = (uint32_t)nbytes, .stamp = {.seq = nbytes}},
        .body = body};
    const ko_deadline deadline = ko_deadline_in(RDMA_LIMIT_MS);
    const struct ko_frame *frame;
    int err;

    memset(got, 0, nbytes);
    assert_int_equal(from->transport->send(from, &post), KOLO_OK);
    while ((err = to->transport->next(to, &frame)) == KO_AGAIN) {
        assert_false(ko_deadline_passed(&deadline));
        assert_int_equal(from->transport->drive(from), KOLO_OK);
    }
    assert_int_equal(err, KOLO_OK);
    assert_int_equal(frame->nbytes, nbytes);
    while ((err = to->transport->land(to, got)) == KO_AGAIN) {
        assert_false(ko_deadline_passed(&deadline));
        assert_int_equal(from->transport->drive(from), KOLO_OK);
    }
    assert_int_equal(err, KOLO_OK);
    assert_memory_equal(got, body, nbytes);
    while (post.is_queued) {
        assert_false(ko_deadline_passed(&deadline));
        assert_int_equal(from->transport->drive(from), KOLO_OK);
    }
    assert_false(to->is_written_to);
}

void rdma_pair_pass(struct rdma_pair *pair, size_t nbytes)
{
    unsigned char *body = malloc(nbytes + 1), *got = malloc(nbytes + 1);

    rdma_pair_fill(body, nbytes, (unsigned)nbytes);
    rdma_pair_pass_bytes(pair->from, pair->to, body, got, nbytes);
    rdma_pair_pass_bytes(pair->to, pair->from, body, got, nbytes);
    free(body);
    free(got);
}

void rdma_pair_announce(struct rdma_pair *pair, struct ko_post *post)
{
    const ko_deadline deadline = ko_deadline_in(RDMA_LIMIT_MS);
    const struct ko_frame *frame;
    int err;

    assert_int_equal(rdma->send(pair->from, post), KOLO_OK);
    while ((err = rdma->next(pair->to, &frame)) == KO_AGAIN)
        assert_false(ko_deadline_passed(&deadline));
    assert_int_equal(err, KOLO_OK);
}

int rdma_pair_count_lines(const char *path, const char *words)
{
    char line[1024];
    FILE *file = fopen(path, "re");
    int n = 0;

    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        n += strstr(line, words) != NULL;
    fclose(file);
    return n;
}

static void break_one(const char *call, int at)
{
    struct rdma_pair pair;
    char wish[64];
    int err;

    snprintf(wish, sizeof wish, "%s@%d=12", call, at);
    setenv("FAKEVERBS_BREAK", wish, 1);
    err = rdma_pair_open_devices(&pair);
    if (!err)
        err = rdma_pair_open_wire(&pair);
    if (at == 1)
        assert_int_not_equal(err, KOLO_OK);
    if (err)
        assert_true(strlen(kolo_last_error()) > 0);
    rdma_pair_close(&pair);
    unsetenv("FAKEVERBS_BREAK");
}

void rdma_pair_break(const char *const *calls, size_t ncalls, int last)
{
    for (size_t i = 0; i < ncalls; i++)
        for (int at = 1; at <= last; at++)
            break_one(calls[i], at);
}

void rdma_pair_expect(struct ko_wire *wire, int status, const char *const *words)
{
    const ko_deadline deadline = ko_deadline_in(RDMA_LIMIT_MS);
    const struct ko_frame *frame;
    int err;

    while ((err = rdma->next(wire, &frame)) == KO_AGAIN) {
        assert_false(ko_deadline_passed(&deadline));
        (void)rdma->arm(wire);
    }
    assert_int_equal(err, status);
    for (; *words; words++)
        if (!strstr(kolo_last_error(), *words))
            fail_msg("\"%s\" lacks \"%s\"", kolo_last_error(), *words);
    assert_int_equal(rdma->next(wire, &frame), status); /* for good */
    assert_int_equal(wire->wanted, 0);
    assert_false(rdma->arm(wire)); /* it has been told: nobody is kept awake */
}
