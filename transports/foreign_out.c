/* SPDX-License-Identifier: MIT
 *
 * The sender keeps a record of his own of what he has left: what stands in the window the receiver
 * may change. Who has had to take slices back leaves fewer for a while, since he would wait in vain
 * again, and none any more to a peer who could not read several.
 */
#include "foreign_out.h"

#include "clock.h"
#include "copy.h"
#include "foreign.h"
#include "foreign_share.h"
#include "protocols.h"
#include "status.h"
#include "window_slots.h"

#include <sched.h>
#include <stdlib.h>

enum {
    PATIENCE_NS = 20000, /* with a peer that does not begin to read: some short slices, */
    BYTES_PER_NS = 4,    /* and as long as a copy of the slice may take */
    LOOKS = 8,           /* of so many one asks for the time */
    TURN = 32,
    MOST_COPIED = 63, /* slices in turn, after some were taken back */
    MOST_UNREADABLE = 4
};

struct left {
    uint64_t step; /* slices sent, with this one */
    const void *from;
    uint64_t at;
    size_t nbytes;
};

struct ko_foreign_out {
    uint64_t last;    /* slices sent, up to the last that was left */
    uint64_t settled; /* of those, up to the last before which none is read any more */
    int64_t since_ns; /* when the next one was first waited for; 0: not yet */
    unsigned looks;
    unsigned to_copy, copied; /* slices that are not to be left, and how many have not been */
    int nunreadable;
    bool is_refused;                         /* the peer's memory cannot be written */
    unsigned char turns[KO_FOREIGN_CLASSES]; /* while it is not known what reading costs */
    struct left left[KO_MOST_SLOTS];         /* by slot */
};

static struct ko_foreign_out *out_of(struct ko_link *link)
{
    if (!link->foreign_out)
        link->foreign_out = ko_alloc(sizeof *link->foreign_out, "slices for a peer to read");
    return link->foreign_out;
}

void ko_foreign_out_free(struct ko_foreign_out *out)
{
    free(out);
}

/* ---- leaving ------------------------------------------------------------------------------- */

/* What the peer says of reading; 0: nothing is left to it. */
static uint64_t reading_of(const struct ko_link *link, size_t nbytes)
{
    const struct ko_foreign_out *out = link->foreign_out;

    if (!link->foreign || nbytes < KO_FOREIGN_LEAST || (out && out->nunreadable >= MOST_UNREADABLE))
        return 0;
    return ko_load_acquire(&link->outbox->reading);
}

static bool is_tried(uint64_t reading, int class)
{
    return reading && !ko_foreign_says(reading, KO_FOREIGN_KNOWN, class);
}

/* Whether the peer gets it sooner by reading. */
static bool is_better(uint64_t reading, int class, enum ko_flow flow)
{
    if (flow >= KO_AWAITED && ko_foreign_says(reading, KO_FOREIGN_SOONER, class))
        return true;
    return flow >= KO_STREAM && flow != KO_AWAITED &&
           ko_foreign_says(reading, KO_FOREIGN_FASTER, class);
}

bool ko_foreign_may_be_due(const struct ko_link *link, size_t nbytes)
{
    const uint64_t reading = reading_of(link, nbytes);
    const int class = ko_foreign_class(link, nbytes);

    return reading && (link->protocols & KO_PROTO_CMA || is_tried(reading, class) ||
                       is_better(reading, class, KO_FOLDED));
}

bool ko_foreign_is_compared(const struct ko_link *link, size_t nbytes)
{
    return link->flow >= KO_STREAM && link->protocols & KO_PROTO_TRY_CMA &&
           is_tried(reading_of(link, nbytes), ko_foreign_class(link, nbytes));
}

/* Some slices one way, as many the other way. */
static bool is_turn(const struct ko_foreign_out *out, int class)
{
    return out && out->turns[class] / TURN & 1;
}

static bool takes_turn(struct ko_foreign_out *out, int class)
{
    const bool is = is_turn(out, class);

    if (out)
        out->turns[class]++;
    return is;
}

/* Each way is tried by itself: who copies one slice while the peer reads another slows it down. Not
 * where both ends do the same: each would wait for the other. */
bool ko_foreign_has_to_wait(struct ko_link *link, size_t nbytes)
{
    struct ko_foreign_out *out = link->foreign_out;
    const int class = ko_foreign_class(link, nbytes);

    return out && link->flow < KO_AWAITED && ko_foreign_is_compared(link, nbytes) &&
           !is_turn(out, class) && ko_foreign_settled(link) < out->last;
}

static bool is_to_be_copied(struct ko_foreign_out *out)
{
    if (!out || out->copied >= out->to_copy)
        return false;
    out->copied++;
    return true;
}

bool ko_foreign_is_due(struct ko_link *link, size_t nbytes)
{
    const uint64_t reading = reading_of(link, nbytes);
    const int class = ko_foreign_class(link, nbytes);

    if (!reading || link->protocols & KO_PROTO_CMA)
        return reading != 0;
    if (link->flow >= KO_STREAM && is_tried(reading, class))
        return takes_turn(out_of(link), class);
    return is_better(reading, class, link->flow) && !is_to_be_copied(link->foreign_out);
}

bool ko_foreign_goes_on(const struct ko_link *link, size_t nbytes)
{
    const struct ko_foreign_out *out = link->foreign_out;
    const uint64_t reading = reading_of(link, nbytes);

    return reading && out && out->last == link->sent && !out->to_copy &&
           (link->protocols & KO_PROTO_CMA ||
            is_better(reading, ko_foreign_class(link, nbytes), link->flow));
}

int ko_foreign_leave(struct ko_link *link, const void *from, size_t nbytes)
{
    const uint64_t at = link->places.at;
    struct ko_foreign_out *out = out_of(link);

    if (!out)
        return KOLO_E_NOMEM;
    if (out->settled >= out->last)
        out->since_ns = 0;
    out->last = link->sent + 1;
    out->left[link->sent % link->slots] = (struct left){out->last, from, at, nbytes};
    link->next_out->foreign = (struct ko_foreign_slice){(uintptr_t)from, at, KO_FOREIGN_FREE};
    return KOLO_OK;
}

/* ---- taking back --------------------------------------------------------------------------- */

/* After the peer came too late once more. */
static void leave_fewer(struct ko_foreign_out *out)
{
    out->copied = 0;
    out->to_copy = 2 * out->to_copy + 1;
    if (out->to_copy > MOST_COPIED)
        out->to_copy = MOST_COPIED;
}

/* Puts a slice into its place, since the peer cannot read it or comes too late; false: it reads it.
 */
static bool place(struct ko_link *link, struct ko_slot *slot, const struct left *left,
                  bool *is_late)
{
    uint64_t *state = &slot->foreign.state;

    if (ko_swap(state, KO_FOREIGN_UNREADABLE, KO_FOREIGN_MOVING))
        link->foreign_out->nunreadable++;
    else if (ko_swap(state, KO_FOREIGN_FREE, KO_FOREIGN_MOVING))
        *is_late = true;
    else
        return false;
    ko_copy(ko_window_body(link->outbox, link->slots, left->at), left->from, left->nbytes);
    ko_store_first(state, KO_FOREIGN_MOVED, link->is_split);
    if (ko_load_ordered(&link->outbox->receiver_sleeps)) /* a broken wire shows at the next wait */
        (void)ko_window_ring_receiver(link);
    return true;
}

/* Whether the slice lies in memory that the peer has mapped, and is not taken back. */
static bool is_lent(const struct ko_slot *slot)
{
    return slot->frame.kind == KO_FRAME_REFERENCE || slot->frame.kind == KO_FRAME_LENT;
}

static void settle_released(struct ko_link *link)
{
    struct ko_foreign_out *out = link->foreign_out;

    if (out->settled >= link->credit)
        return;
    if (out->settled < out->last) /* it has been read in time */
        out->to_copy = 0;
    out->settled = link->credit;
    out->since_ns = 0;
}

void ko_foreign_take_back(struct ko_link *link)
{
    struct ko_foreign_out *out = link->foreign_out;
    bool is_late = false;

    ko_window_take_credit(link);
    settle_released(link);
    for (; out->settled < out->last; out->settled++) {
        const uint32_t index = (uint32_t)(out->settled % link->slots);
        const struct left *left = &out->left[index];
        struct ko_slot *slot = ko_window_slot(link->outbox, index);

        if (left->step == out->settled + 1 ? !place(link, slot, left, &is_late) : is_lent(slot))
            break;
    }
    if (is_late)
        leave_fewer(out);
}

/* From a thread of this process, which could not be told that the memory has gone while it copies
 * out of it: that ends by itself. */
static void withdraw_here(uint64_t *state)
{
    uint64_t found = ko_load_acquire(state);

    while (found == KO_FOREIGN_READING || !ko_swap(state, found, KO_FOREIGN_WITHDRAWN)) {
        sched_yield();
        found = ko_load_acquire(state);
    }
}

/* Another process that reads in vain finds out afterwards. */
static void withdraw(uint64_t *state, bool is_here)
{
    if (ko_load_acquire(state) == KO_FOREIGN_MOVED) /* by us, for good */
        return;
    if (is_here)
        withdraw_here(state);
    else
        (void)ko_exchange_ordered(state, KO_FOREIGN_WITHDRAWN);
}

void ko_foreign_withdraw(struct ko_link *link)
{
    const struct left *left = link->foreign_out->left;
    const uint64_t credit = ko_load_acquire(&link->outbox->credit);
    const bool is_here = ko_foreign_is_here(link);

    for (uint32_t i = 0; i < link->slots; i++)
        if (left[i].step > credit)
            withdraw(&ko_window_slot(link->outbox, i)->foreign.state, is_here);
}

/* Bytes that lie side by side from a slice on that has been left; 0: none was at that step. */
static size_t bytes_left(const struct ko_link *link, uint64_t step)
{
    const struct left *first = &link->foreign_out->left[(step - 1) % link->slots], *left = first;
    size_t nbytes = 0;

    while (left->step == step && left->from == (const char *)first->from + nbytes) {
        nbytes += left->nbytes;
        left = &link->foreign_out->left[step++ % link->slots];
    }
    return nbytes;
}

/* Copies what the peer has not come to yet of what it reads. */
static void help(struct ko_link *link, uint64_t step)
{
    struct ko_foreign_out *out = link->foreign_out;
    struct ko_foreign_process *process = out->is_refused ? NULL : ko_foreign_process_of(link);
    const size_t nbytes = process ? bytes_left(link, step) : 0;

    if (nbytes && !ko_foreign_share_help(link, process, step,
                                         out->left[(step - 1) % link->slots].from, nbytes))
        out->is_refused = true;
}

void ko_foreign_help(struct ko_link *link)
{
    const uint64_t step = ko_foreign_share_asked(link);

    if (step && link->foreign_out)
        help(link, step);
}

/* The slice before the first that has not been settled is as long as that, as a rule. */
static int64_t patience_ns(const struct ko_link *link, const struct ko_foreign_out *out)
{
    return PATIENCE_NS + (int64_t)(out->left[out->settled % link->slots].nbytes / BYTES_PER_NS);
}

uint64_t ko_foreign_settled(struct ko_link *link)
{
    struct ko_foreign_out *out = link->foreign_out;
    int64_t now_ns;

    ko_foreign_help(link);
    ko_window_take_credit(link);
    settle_released(link);
    if (out->settled >= out->last || ++out->looks % LOOKS)
        return out->settled;
    now_ns = ko_now_ns();
    if (!out->since_ns)
        out->since_ns = now_ns;
    else if (now_ns - out->since_ns > patience_ns(link, out))
        ko_foreign_take_back(link);
    return out->settled;
}

bool ko_foreign_is_read(const struct ko_link *link)
{
    const uint64_t credit = ko_load_acquire(&link->outbox->credit);
    const uint32_t index = (uint32_t)(credit % link->slots);

    return link->foreign_out->left[index].step == credit + 1 &&
           ko_load_acquire(&ko_window_slot(link->outbox, index)->foreign.state) ==
               KO_FOREIGN_READING;
}
