/* SPDX-License-Identifier: MIT
 *
 * One word says what is still to be copied: the step of the first slice (its lower half), the first
 * page that nobody has taken, and the end of these. Who swaps it for one with fewer has taken them.
 */
#include "foreign_share.h"

#include "clock.h"
#include "link.h"
#include "status.h"
#include "window.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <time.h>

enum {
    PAGE = 4096,
    LEAST_SHARED = 12, /* pages: fewer are copied sooner than both ends have agreed */
    LEAST_TAKEN = 8,   /* which take a few times as long as the call that copies them */
    LOOKS = 2048,      /* at a peer that is still writing, then */
    NAP_NS = 100000,   /* between two looks */
    LIMIT_MS = 10000   /* of the wait for it, if the link's owner sets none */
};

struct offer {
    uint32_t step;
    uint16_t first, end;
};

static struct offer offer_of(uint64_t word)
{
    return (struct offer){(uint32_t)(word >> 32), (uint16_t)(word >> 16), (uint16_t)word};
}

static uint64_t word_of(struct offer offer)
{
    return (uint64_t)offer.step << 32 | (uint64_t)offer.first << 16 | offer.end;
}

static unsigned pages_of(struct offer offer)
{
    return offer.first < offer.end ? (unsigned)(offer.end - offer.first) : 0;
}

/* What one end takes of so many pages, if `wanted` would do. */
static unsigned worth_it(unsigned wanted, unsigned npages)
{
    const unsigned least = npages < LEAST_TAKEN ? npages : LEAST_TAKEN;

    return wanted > least ? wanted : least;
}

/* ---- the receiver ---------------------------------------------------------------------------- */

/* The pages from there to the end are ours now; the same as the end: there were none. `is_alone`:
 * all of them. */
static unsigned take_last(uint64_t *word, bool is_alone)
{
    while (true) {
        const uint64_t found = ko_load_acquire(word);
        struct offer offer = offer_of(found);
        const unsigned npages = pages_of(offer);
        const bool is_all = is_alone && !offer.first;

        offer.end = (uint16_t)(offer.end - (is_all ? npages : worth_it(npages / 2, npages)));
        if (!npages || ko_swap(word, found, word_of(offer)))
            return offer.end;
    }
}

static ko_deadline limit_of(const struct ko_link *link)
{
    return ko_deadline_in(link->limit_ms ? atomic_load(link->limit_ms) : LIMIT_MS);
}

static bool is_in_vain(const struct ko_link *link)
{
    return link->failed && atomic_load(link->failed);
}

/* For a peer that is writing. Who has hung up writes no more. */
static int nap(const struct ko_link *link, const ko_deadline *limit)
{
    struct pollfd wire = {.fd = link->wire->fd, .events = POLLRDHUP};

    if (poll(&wire, 1, 0) > 0 && wire.revents & (POLLRDHUP | POLLHUP | POLLERR))
        return ko_fail(KOLO_E_PEER_LOST,
                       "rank %d has ended while it wrote into memory of this rank's", link->peer);
    if (is_in_vain(link) || ko_deadline_passed(limit))
        return ko_fail(KOLO_E_TIMEOUT,
                       "rank %d stood still for %d ms while it wrote into memory of this rank's: "
                       "is it stopped? KOLO_TIMEOUT_MS or kolo_group_set_timeout sets the limit",
                       link->peer, limit->timeout_ms - ko_deadline_left_ms(limit));
    nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    return KOLO_OK;
}

/* Until the peer has written the pages that it has taken, or given them back. */
static int await_writer(const struct ko_link *link, uint64_t before)
{
    const struct ko_window *inbox = link->inbox;
    ko_deadline limit;
    int err = KOLO_OK;

    for (int looks = 0; !err; looks++) {
        const struct offer offer = offer_of(ko_load_acquire(&inbox->share));

        if (pages_of(offer) || ko_load_acquire(&inbox->written) - before == offer.first)
            return KOLO_OK;
        if (looks < LOOKS)
            ko_pause();
        else if (looks < 2 * LOOKS)
            sched_yield();
        else {
            if (looks == 2 * LOOKS)
                limit = limit_of(link);
            err = nap(link, &limit);
        }
    }
    return err;
}

/* Nobody takes any more, and who has taken some is done. */
static int withdraw(struct ko_link *link, uint64_t before)
{
    int err = KOLO_OK;

    do {
        struct offer offer;
        uint64_t found;

        do {
            found = ko_load_acquire(&link->inbox->share);
            offer = offer_of(found);
            offer.end = offer.first;
        } while (!ko_swap(&link->inbox->share, found, word_of(offer)));
        err = await_writer(link, before);
    } while (!err && pages_of(offer_of(ko_load_acquire(&link->inbox->share))));
    return err;
}

/* KO_AGAIN: the system does not let us. */
static int status_of(const struct ko_link *link, int error)
{
    if (error == ESRCH)
        return ko_fail(KOLO_E_PEER_LOST, "rank %d has ended while its memory was read", link->peer);
    return error ? KO_AGAIN : KOLO_OK;
}

static int read_offered(struct ko_link *link, struct ko_foreign_process *process, uint64_t address,
                        char *to, size_t nbytes)
{
    uint64_t *const word = &link->inbox->share;
    const uint64_t before = ko_load_relaxed(&link->inbox->written);
    struct offer offer = {(uint32_t)link->received + 1, 0, (uint16_t)(nbytes / PAGE)};
    size_t end = nbytes;
    bool is_alone = false;
    int error = 0, err = KOLO_OK;

    ko_store_relaxed(&link->inbox->share_to, (uintptr_t)to);
    ko_store_release(word, word_of(offer));
    while (!error && !err) {
        const size_t first = (size_t)take_last(word, is_alone) * PAGE;

        if (first > end)
            return ko_fail(KOLO_E_PROTOCOL, "rank %d shares what was not on offer", link->peer);
        if (first < end) {
            error = ko_foreign_process_read(process, address + first, to + first, end - first);
            end = first;
            is_alone = true; /* unless the other has come meanwhile */
        } else {
            err = await_writer(link, before);
            offer = offer_of(ko_load_acquire(word));
            if (!pages_of(offer))
                return err;
        }
    }
    if (!err && error)
        err = withdraw(link, before);
    return err ? err : status_of(link, error);
}

/* Not to who reads as much itself, sleeps, or may have no core just now; nor of what is reduced
 * then, for which what the other has written would have to be fetched from its core. */
static bool is_to_be_shared(const struct ko_link *link, size_t nbytes)
{
    return link->flow < KO_MUTUAL && nbytes / PAGE >= LEAST_SHARED && nbytes / PAGE <= UINT16_MAX &&
           !link->is_crowded && !ko_load_relaxed(&link->inbox->sender_sleeps);
}

int ko_foreign_share_read(struct ko_link *link, struct ko_foreign_process *process,
                          uint64_t address, void *to, size_t nbytes)
{
    if (is_to_be_shared(link, nbytes))
        return read_offered(link, process, address, to, nbytes);
    return status_of(link, ko_foreign_process_read(process, address, to, nbytes));
}

/* ---- the sender ------------------------------------------------------------------------------ */

uint64_t ko_foreign_share_asked(const struct ko_link *link)
{
    const struct offer offer = offer_of(ko_load_acquire(&link->outbox->share));

    return pages_of(offer) ? link->sent - (uint32_t)((uint32_t)link->sent - offer.step) : 0;
}

/* Pages of what is asked for from that step on, as long as that is it: the peer may offer another
 * slice at any time. *to is where the first one is to lie. The peer has begun with its half before
 * we come. */
static unsigned take_first(struct ko_window *outbox, uint64_t step, size_t most, unsigned *first,
                           uint64_t *to)
{
    const uint64_t found = ko_load_acquire(&outbox->share);
    struct offer offer = offer_of(found);
    const unsigned npages = pages_of(offer), n = worth_it(npages - npages / 4, npages);

    *to = ko_load_relaxed(&outbox->share_to);
    *first = offer.first;
    offer.first = (uint16_t)(offer.first + n);
    return n && offer.step == (uint32_t)step && offer.first <= most &&
                   ko_swap(&outbox->share, found, word_of(offer))
               ? n
               : 0;
}

/* Only this end moves the front. */
static void give_back(struct ko_window *outbox, unsigned n)
{
    struct offer offer;
    uint64_t found;

    do {
        found = ko_load_acquire(&outbox->share);
        offer = offer_of(found);
        offer.first = (uint16_t)(offer.first - n);
    } while (!ko_swap(&outbox->share, found, word_of(offer)));
}

bool ko_foreign_share_help(struct ko_link *link, struct ko_foreign_process *process, uint64_t step,
                           const void *from, size_t nbytes)
{
    unsigned first, n;
    uint64_t to;

    while ((n = take_first(link->outbox, step, nbytes / PAGE, &first, &to))) {
        const size_t at = (size_t)first * PAGE;

        if (ko_foreign_process_write(process, to + at, (const char *)from + at, (size_t)n * PAGE)) {
            give_back(link->outbox, n);
            return false;
        }
        ko_store_release(&link->outbox->written, ko_load_relaxed(&link->outbox->written) + n);
    }
    return true;
}
