/* SPDX-License-Identifier: MIT */
#include "store_wire.h"

#include "fault.h"
#include "status.h"

#include <assert.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* CHEAP: so little is moved to a buffer's front before it becomes more. */
enum { SMALLEST = 256, CHEAP = 64 << 10 };

/* Of a buffer that stays where it is: what it takes, and gives back, at a time. */
enum { AT_ONCE = 64 << 10 };

/* ---- opcodes ------------------------------------------------------------------------------ */

/* By opcode. */
static const uint8_t modern[] = {
    KO_STORE_VALIDATE,    KO_STORE_SET,       KO_STORE_COMPARE_SET, KO_STORE_GET,
    KO_STORE_ADD,         KO_STORE_CHECK,     KO_STORE_WAIT,        KO_STORE_NUM_KEYS,
    KO_STORE_DELETE,      KO_STORE_APPEND,    KO_STORE_MULTI_GET,   KO_STORE_MULTI_SET,
    KO_STORE_CANCEL_WAIT, KO_STORE_PING,      KO_STORE_QUEUE_PUSH,  KO_STORE_QUEUE_POP,
    KO_STORE_QUEUE_LEN,   KO_STORE_LIST_KEYS, KO_STORE_BARRIER,
};
static const uint8_t of_1_13[] = {
    KO_STORE_SET,  KO_STORE_COMPARE_SET, KO_STORE_GET,   KO_STORE_ADD,    KO_STORE_CHECK,
    KO_STORE_WAIT, KO_STORE_NUM_KEYS,    KO_STORE_WATCH, KO_STORE_DELETE,
};

static const struct {
    const uint8_t *operations;
    int n;
} numberings[] = {
    [KO_WIRE_MODERN] = {modern, sizeof modern},
    [KO_WIRE_EARLY_2] = {modern, KO_STORE_PING},
    [KO_WIRE_OLD] = {modern + 1, KO_STORE_CANCEL_WAIT},
    [KO_WIRE_2_1] = {modern + 1, KO_STORE_CANCEL_WAIT},
    [KO_WIRE_1_13] = {of_1_13, sizeof of_1_13},
};

int ko_wire_operation(enum ko_wire_numbering numbering, uint8_t opcode)
{
    if (numbering == KO_WIRE_MODERN && opcode == KO_WIRE_WILL)
        return KO_STORE_WILL;
    return opcode < numberings[numbering].n ? numberings[numbering].operations[opcode] : -1;
}

int ko_wire_opcode(enum ko_wire_numbering numbering, enum ko_store_op op)
{
    if (numbering == KO_WIRE_MODERN && op == KO_STORE_WILL)
        return KO_WIRE_WILL;
    for (int opcode = 0; opcode < numberings[numbering].n; opcode++)
        if (numberings[numbering].operations[opcode] == op)
            return opcode;
    return -1;
}

/* In the older numberings VALIDATE would be a SET of a key of more than 1 GB. */
enum ko_wire_numbering ko_wire_guess(const uint8_t *bytes, size_t nbytes)
{
    static const uint8_t validate[] = {KO_STORE_VALIDATE, 0xCE, 0xF7, 0x85, 0x3C};
    size_t n = nbytes < sizeof validate ? nbytes : sizeof validate;

    if (n > 0 && memcmp(bytes, validate, n) != 0)
        return KO_WIRE_OLD;
    return n < sizeof validate ? KO_WIRE_UNKNOWN : KO_WIRE_MODERN;
}

/* ---- buffers ------------------------------------------------------------------------------ */

size_t ko_buffer_fill(const struct ko_buffer *buffer)
{
    return buffer->tail - buffer->head;
}

const uint8_t *ko_buffer_bytes(const struct ko_buffer *buffer)
{
    return buffer->data ? buffer->data + buffer->head : NULL;
}

/* The part of a capacity that the budget pays. */
static size_t paid_part(size_t cap)
{
    return cap > KO_BUFFER_FREE_PART ? cap - KO_BUFFER_FREE_PART : 0;
}

size_t ko_buffer_paid(const struct ko_buffer *buffer)
{
    return paid_part(buffer->cap);
}

static int pay(struct ko_buffer *buffer, size_t new_cap)
{
    struct ko_budget *budget = buffer->budget;
    size_t others;

    if (!budget)
        return KOLO_OK;
    others = budget->used - paid_part(buffer->cap);
    if (paid_part(new_cap) > budget->cap - others)
        return ko_fail(
            KOLO_E_NOMEM,
            "a message needs %zu bytes, of %zu for all (KOLO_STORE_BUFFER_BYTES) are %zu in use",
            new_cap, budget->cap, others);
    budget->used = others + paid_part(new_cap);
    return KOLO_OK;
}

static void unpay(struct ko_buffer *buffer)
{
    if (!buffer->budget)
        return;
    buffer->budget->used -= paid_part(buffer->cap);
    buffer->budget->expected -= buffer->expected;
}

static bool widen(struct ko_buffer *buffer, size_t room)
{
    uint8_t *wider = ko_fault(KO_FAULT_ALLOC) ? NULL : realloc(buffer->data, room);

    if (!wider)
        return false;
    buffer->data = wider;
    buffer->room = room;
    return true;
}

/* At least half as much again, so that many fields, one behind the other, seldom move it. */
void ko_buffer_expect(struct ko_buffer *buffer, size_t nbytes)
{
    struct ko_budget *budget = buffer->budget;
    const size_t wider = buffer->room + buffer->room / 2;
    size_t room = buffer->tail + nbytes, more;

    if (room <= buffer->room)
        return;
    room = room > wider ? room : wider;
    more = room - buffer->room;
    if (more > budget->cap - budget->expected || !widen(buffer, room))
        return;
    buffer->expected += more;
    budget->expected += more;
}

static void move_to_front(struct ko_buffer *buffer)
{
    const size_t fill = ko_buffer_fill(buffer);

    memmove(buffer->data, buffer->data + buffer->head, fill);
    buffer->head = 0;
    buffer->tail = fill;
}

/* The addresses are taken at once, and of memory the system gives what is touched. */
bool ko_buffer_stay(struct ko_buffer *buffer)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), fill = ko_buffer_fill(buffer);
    const size_t room = (buffer->budget->cap + KO_BUFFER_FREE_PART) / page * page + page;
    void *wide;

    if (buffer->touched > 0)
        return true;
    if (fill == 0 || room < buffer->cap || ko_fault(KO_FAULT_ALLOC))
        return false;
    wide = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                0);
    if (wide == MAP_FAILED)
        return false;
    memcpy(wide, ko_buffer_bytes(buffer), fill);
    free(buffer->data);
    buffer->data = wide;
    buffer->head = 0;
    buffer->tail = fill;
    buffer->room = room;
    buffer->touched = buffer->cap;
    buffer->budget->expected -= buffer->expected;
    buffer->expected = 0;
    return true;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* What a buffer that holds fill bytes is to have for nbytes more. */
static size_t cap_for(const struct ko_buffer *buffer, size_t fill, size_t nbytes)
{
    size_t cap = buffer->cap > 0 ? buffer->cap : SMALLEST;

    if (buffer->touched > 0 && fill + nbytes <= buffer->room)
        return smaller((fill + nbytes + AT_ONCE - 1) / AT_ONCE * AT_ONCE, buffer->room);
    while (cap < fill + fill / 2 + nbytes)
        cap *= 2;
    return cap > buffer->room && fill + nbytes <= buffer->room ? buffer->room : cap;
}

int ko_buffer_reserve(struct ko_buffer *buffer, size_t nbytes)
{
    const size_t fill = ko_buffer_fill(buffer);
    const size_t old_cap = buffer->cap;
    size_t cap;

    if (buffer->head > 0 && fill <= CHEAP)
        move_to_front(buffer);
    if (buffer->cap - buffer->tail >= nbytes)
        return KOLO_OK;
    if (buffer->head > 0)
        move_to_front(buffer);
    if (buffer->cap >= fill + fill / 2 + nbytes) /* moving is paid for by what was taken out */
        return KOLO_OK;
    cap = cap_for(buffer, fill, nbytes);
    if (pay(buffer, cap))
        return KOLO_E_NOMEM;
    buffer->cap = cap;
    if (buffer->touched > 0 && buffer->touched < cap)
        buffer->touched = cap;
    if (cap <= buffer->room || widen(buffer, cap))
        return KOLO_OK;
    pay(buffer, old_cap); /* which undoes it */
    buffer->cap = old_cap;
    return ko_fail(KOLO_E_NOMEM, "no memory for a store's message (%zu bytes)", cap);
}

void ko_buffer_free(struct ko_buffer *buffer)
{
    unpay(buffer);
    if (buffer->touched > 0)
        munmap(buffer->data, buffer->room);
    else
        free(buffer->data);
    *buffer = (struct ko_buffer){.budget = buffer->budget};
}

void ko_buffer_consume(struct ko_buffer *buffer, size_t nbytes)
{
    assert(nbytes <= ko_buffer_fill(buffer));
    buffer->head += nbytes;
    if (buffer->head < buffer->tail)
        return;
    buffer->head = buffer->tail = 0;
    if (buffer->touched > 0) {
        unpay(buffer);
        buffer->cap = 0;
    } else if (buffer->cap > KO_BUFFER_FREE_PART) {
        ko_buffer_free(buffer);
    }
}

bool ko_buffer_has_rest(const struct ko_buffer *buffer)
{
    return buffer->touched > 0 && buffer->cap == 0;
}

size_t ko_buffer_drop_some(struct ko_buffer *buffer)
{
    const size_t part = smaller(buffer->touched, AT_ONCE);
    const size_t kept = buffer->touched - part;

    if (kept > 0 && !madvise(buffer->data + kept, part, MADV_DONTNEED))
        buffer->touched = kept;
    else
        ko_buffer_free(buffer);
    return part;
}

static void put(struct ko_buffer *buffer, const void *data, size_t nbytes)
{
    assert(buffer->cap - buffer->tail >= nbytes);
    memcpy(buffer->data + buffer->tail, data, nbytes);
    buffer->tail += nbytes;
}

void ko_buffer_put_u8(struct ko_buffer *buffer, uint8_t value)
{
    put(buffer, &value, 1);
}

void ko_buffer_put_u32(struct ko_buffer *buffer, uint32_t value)
{
    uint32_t wire = htole32(value);

    put(buffer, &wire, sizeof wire);
}

void ko_buffer_put_u64(struct ko_buffer *buffer, uint64_t value)
{
    uint64_t wire = htole64(value);

    put(buffer, &wire, sizeof wire);
}

void ko_buffer_put_bytes(struct ko_buffer *buffer, kolo_bytes bytes)
{
    ko_buffer_put_u64(buffer, bytes.nbytes);
    if (bytes.nbytes > 0)
        put(buffer, bytes.data, bytes.nbytes);
}

uint32_t ko_wire_u32(const uint8_t *at)
{
    uint32_t wire;

    memcpy(&wire, at, sizeof wire);
    return le32toh(wire);
}

uint64_t ko_wire_u64(const uint8_t *at)
{
    uint64_t wire;

    memcpy(&wire, at, sizeof wire);
    return le64toh(wire);
}

/* ---- lists -------------------------------------------------------------------------------- */

int ko_list_put(struct ko_buffer *list, kolo_bytes item)
{
    int err = ko_buffer_reserve(list, 8 + item.nbytes);

    if (!err)
        ko_buffer_put_bytes(list, item);
    return err;
}

kolo_bytes ko_list_next(const uint8_t **at)
{
    kolo_bytes item = {*at + 8, (size_t)ko_wire_u64(*at)};

    *at += 8 + item.nbytes;
    return item;
}

size_t ko_list_strip(uint8_t *list, size_t nitems, kolo_bytes prefix, size_t *nbytes)
{
    struct ko_buffer kept = {.data = list, .cap = SIZE_MAX};
    const uint8_t *at = list;
    kolo_bytes item;
    size_t nkept = 0;

    for (size_t i = 0; i < nitems; i++) {
        item = ko_list_next(&at);
        if (item.nbytes < prefix.nbytes || memcmp(item.data, prefix.data, prefix.nbytes) != 0)
            continue;
        item.nbytes -= prefix.nbytes;
        ko_buffer_put_u64(&kept, item.nbytes);
        memmove(list + kept.tail, (const uint8_t *)item.data + prefix.nbytes, item.nbytes);
        kept.tail += item.nbytes;
        nkept++;
    }
    *nbytes = kept.tail;
    return nkept;
}
