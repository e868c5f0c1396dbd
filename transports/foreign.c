/* SPDX-License-Identifier: MIT */
#include "foreign.h"

#include "clock.h"
#include "foreign_share.h"
#include "protocols.h"
#include "status.h"
#include "window_pieces.h"
#include "window_slots.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    TRIES = 16,     /* slices of each way that decide on a class, */
    SETTLING = 16,  /* and that are not counted before, since they find caches as the other way left
                       them: half of a turn (foreign_out.c) */
    LOOKS = 64,     /* at slices of a class that is decided, for one at the time; */
    SOON_MS = 5,    /* it is tried again after so long, */
    LATER = 4,      /* so many times as long the next time, */
    AGAIN_MS = 100, /* and at last so */
    RUN_BYTES = 1 << 20 /* by one call */
};

/* Of so many slices the times for 1 MiB, as far as they are kept. */
struct times {
    unsigned n;
    uint32_t ns[TRIES];
};

struct trial {
    struct times copies, longer; /* of slices through slots: what both take, the longer one */
    struct times in_row;         /* of some of these, with the time since the one before */
    struct times reading, reading_in_row;
    bool was_copied; /* the one before that counts was */
    bool was_read;   /* the one before */
    unsigned nalike; /* slices that went the same way as the one before them */
    unsigned looks;
    int64_t decided_ns;
    int again_ms; /* since then: soon at first, when nothing was in the caches */
};

struct ko_foreign {
    uint64_t word; /* ours, for the peer to find */
    bool is_tried;
    struct ko_foreign_process process;

    const char *read_to; /* slices that follow have been read there, so many bytes */
    size_t read_ahead;
    uint32_t nrun; /* slices read by the last call, or 0: the last one had been read before; */
    size_t run_bytes;

    struct trial
        *trials[KO_FOREIGN_CLASSES]; /* made at first use: most links have no long slices */
    uint64_t reading;                /* as in our window */
    int64_t ended_ns;                /* of the slice that was watched last */
    struct ko_moment began;          /* of one that is watched until it is released; 0: none is */
    bool is_read;                    /* that one */
};

int ko_foreign_class(const struct ko_link *link, size_t nbytes)
{
    int found = 0;

    while (found < KO_FOREIGN_LENGTHS - 1 && nbytes >= (size_t)KO_FOREIGN_LEAST << (found + 1))
        found++;
    if (link->flow >= KO_MUTUAL)
        found += (int)(link->flow - KO_MUTUAL + 1) * KO_FOREIGN_LENGTHS;
    return found;
}

void ko_foreign_free(struct ko_foreign *foreign)
{
    for (int i = 0; foreign && i < KO_FOREIGN_CLASSES; i++)
        free(foreign->trials[i]);
    free(foreign);
}

int ko_foreign_invite(struct ko_link *link)
{
    if (!(link->protocols & (KO_PROTO_CMA | KO_PROTO_TRY_CMA)))
        return KOLO_OK;
    link->foreign = ko_alloc(sizeof *link->foreign, "reading of a peer's memory");
    if (!link->foreign)
        return KOLO_E_NOMEM;
    if (getrandom(&link->foreign->word, sizeof link->foreign->word, 0) < 0)
        return ko_fail_errno(errno, "getrandom");
    link->inbox->word = link->foreign->word;
    ko_store_release(&link->inbox->word_at, (uintptr_t)&link->foreign->word);
    return KOLO_OK;
}

static void say(struct ko_link *link, uint64_t reading)
{
    link->foreign->reading = reading;
    ko_store_release(&link->inbox->reading, reading);
}

bool ko_foreign_is_here(const struct ko_link *link)
{
    return ko_foreign_pid(link) == getpid();
}

void ko_foreign_try(struct ko_link *link)
{
    struct ko_foreign *foreign = link->foreign;
    uint64_t word_at;

    if (!foreign || foreign->is_tried)
        return;
    word_at = ko_load_acquire(&link->outbox->word_at);
    foreign->is_tried = word_at != 0;
    if (!foreign->is_tried)
        return;
    ko_foreign_process_find(&foreign->process, ko_foreign_pid(link), link->outbox->word, word_at);
    if (foreign->process.pid)
        say(link, KO_FOREIGN_READS);
}

/* ---- trials -------------------------------------------------------------------------------- */

struct ko_moment ko_moment_now(void)
{
    struct rusage usage = {0};

    (void)getrusage(RUSAGE_THREAD, &usage);
    return (struct ko_moment){ko_now_ns(), usage.ru_minflt + usage.ru_majflt};
}

int64_t ko_moment_since(const struct ko_moment *began)
{
    const int64_t ns = ko_now_ns() - began->ns;

    return ko_moment_now().faults == began->faults ? ns + !ns : 0;
}

static uint64_t bits_of(int class)
{
    return (UINT64_C(1) << KO_FOREIGN_KNOWN | UINT64_C(1) << KO_FOREIGN_SOONER |
            UINT64_C(1) << KO_FOREIGN_FASTER)
           << class;
}

/* NULL where there is no memory: nothing is found out then. */
static struct trial *trial_of(struct ko_foreign *foreign, int class)
{
    if (!foreign->trials[class])
        foreign->trials[class] = calloc(1, sizeof *foreign->trials[class]);
    return foreign->trials[class];
}

/* Whether a class is not decided, or that is so long ago that it is tried again. */
static bool is_open(struct ko_link *link, int class)
{
    struct trial *trial = trial_of(link->foreign, class);

    if (!trial)
        return false;
    if (!ko_foreign_says(link->foreign->reading, KO_FOREIGN_KNOWN, class))
        return true;
    if (++trial->looks % LOOKS ||
        ko_now_ns() - trial->decided_ns < trial->again_ms * INT64_C(1000000))
        return false;
    *trial = (struct trial){.again_ms = trial->again_ms};
    say(link, link->foreign->reading & ~bits_of(class));
    return true;
}

bool ko_foreign_is_measured(const struct ko_link *link)
{
    return link->next_in->placed.copy_ns != 0;
}

bool ko_foreign_is_watched(struct ko_link *link)
{
    return link->foreign && link->foreign->reading && link->protocols & KO_PROTO_TRY_CMA &&
           link->frame.nbytes >= KO_FOREIGN_LEAST &&
           (link->frame.kind == KO_FRAME_DATA || link->frame.kind == KO_FRAME_FOREIGN) &&
           is_open(link, ko_foreign_class(link, link->frame.nbytes)) &&
           (link->frame.kind == KO_FRAME_FOREIGN || ko_foreign_is_measured(link));
}

static void add(struct times *times, int64_t ns, uint32_t nbytes)
{
    const int64_t ns_of_1m = (ns << 20) / nbytes;

    times->ns[times->n++ % TRIES] = ns_of_1m < UINT32_MAX ? (uint32_t)ns_of_1m : UINT32_MAX;
}

/* The time that as many take longer as do not: the least may be of a slice that was in a cache by
 * chance, and half of that of all others. */
static uint32_t median(const struct times *times)
{
    const unsigned n = times->n < TRIES ? times->n : TRIES;
    uint32_t sorted[TRIES] = {0};

    for (unsigned i = 0, k; i < n; i++) {
        for (k = i; k && sorted[k - 1] > times->ns[i]; k--)
            sorted[k] = sorted[k - 1];
        sorted[k] = times->ns[i];
    }
    return sorted[n / 2];
}

/* What slices take that follow each other, of which as many have been seen as will do. */
static uint32_t of_each(const struct times *alone, const struct times *in_row)
{
    const uint32_t one = median(alone), each = median(in_row);

    return in_row->n >= TRIES / 2 && each > one ? each : one;
}

static void decide(struct ko_link *link, int class)
{
    struct trial *trial = link->foreign->trials[class];
    uint64_t reading = link->foreign->reading | UINT64_C(1) << (KO_FOREIGN_KNOWN + class);

    if (median(&trial->reading) < median(&trial->copies))
        reading |= UINT64_C(1) << (KO_FOREIGN_SOONER + class);
    if (of_each(&trial->reading, &trial->reading_in_row) < of_each(&trial->longer, &trial->in_row))
        reading |= UINT64_C(1) << (KO_FOREIGN_FASTER + class);
    trial->decided_ns = ko_now_ns();
    trial->again_ms = trial->again_ms ? trial->again_ms * LATER : SOON_MS;
    if (trial->again_ms > AGAIN_MS)
        trial->again_ms = AGAIN_MS;
    say(link, reading);
}

/* What both copies of a slice take for who waits for it: the longer one and that of the first piece
 * (window_pieces.h), or where both ends copy one in before they copy one out, both. Also both of
 * one that is added as it comes: of cores that are far from each other either waits for the
 * other's lines, in pieces or not, by measurement, and near ones read for longer than both. */
static int64_t of_both(int64_t longer, int64_t shorter, int class, uint32_t nbytes)
{
    const bool is_in_pieces = class < KO_FOREIGN_LENGTHS;

    return longer + (is_in_pieces ? shorter * (int64_t)ko_window_piece(nbytes) / nbytes : shorter);
}

static void judge_copied(struct trial *trial, const struct ko_foreign_sample *sample, int class,
                         uint32_t nbytes)
{
    const int64_t ns = sample->ns, copy_ns = sample->copy_ns;
    const int64_t longer = ns < copy_ns ? copy_ns : ns, shorter = ns + copy_ns - longer;

    add(&trial->copies, of_both(longer, shorter, class, nbytes), nbytes);
    add(&trial->longer, longer, nbytes);
    if (trial->was_copied && sample->gap_ns < copy_ns + copy_ns / 2)
        add(&trial->in_row, ns + sample->gap_ns, nbytes);
}

static void judge_read(struct trial *trial, const struct ko_foreign_sample *sample, uint32_t nbytes)
{
    add(&trial->reading, sample->ns, nbytes);
    if (!trial->was_copied && sample->gap_ns < sample->ns / 2)
        add(&trial->reading_in_row, sample->ns + sample->gap_ns, nbytes);
}

/* Whether both its times are known, and the ones before have settled what it finds. */
static bool counts(struct trial *trial, const struct ko_foreign_sample *sample)
{
    if (!sample->is_read && (sample->copy_ns <= 0 || sample->copy_ns >= INT32_MAX)) {
        trial->nalike += trial->was_read; /* it was left, and taken back */
        return false;
    }
    trial->nalike = sample->is_read == trial->was_read ? trial->nalike + 1 : 0;
    trial->was_read = sample->is_read;
    return sample->ns && trial->nalike >= SETTLING;
}

/* Of a slice that comes soon after another its sender copies all the time: what there is between
 * the two is part of what it takes, since either copy may be in the other's way. */
void ko_foreign_judge(struct ko_link *link, const struct ko_foreign_sample *sample)
{
    const uint32_t nbytes = link->frame.nbytes;
    const int class = ko_foreign_class(link, nbytes);
    struct trial *trial = trial_of(link->foreign, class);

    if (!trial || !counts(trial, sample))
        return;
    if (sample->is_read)
        judge_read(trial, sample, nbytes);
    else
        judge_copied(trial, sample, class, nbytes);
    trial->was_copied = !sample->is_read;
    if (trial->copies.n >= TRIES && trial->reading.n >= TRIES)
        decide(link, class);
}

/* Each slice of a run took its part of the time. */
static void judge_run(struct ko_link *link, struct ko_foreign_sample sample)
{
    const struct ko_foreign *foreign = link->foreign;

    if (foreign->nrun > 1) {
        sample.ns = sample.ns * (int64_t)link->frame.nbytes / (int64_t)foreign->run_bytes;
        sample.gap_ns = sample.gap_ns * (int64_t)link->frame.nbytes / (int64_t)foreign->run_bytes;
    }
    for (uint32_t i = 0; i < foreign->nrun; i++)
        ko_foreign_judge(link, &sample);
}

/* Two moments, without which slices would follow each other by so much sooner: short ones take no
 * longer. */
static int64_t measuring_ns(void)
{
    static uint64_t known; /* by whoever comes first, or by several */
    uint64_t least = ko_load_relaxed(&known);

    for (int i = 0; i < TRIES && !ko_load_relaxed(&known); i++) {
        const struct ko_moment began = ko_moment_now();
        uint64_t ns;

        (void)ko_moment_since(&began);
        ns = (uint64_t)(ko_now_ns() - began.ns);
        least = i && least < ns ? least : ns;
    }
    ko_store_relaxed(&known, least);
    return (int64_t)least;
}

/* Since a process may have stood still for days, and what lies between no slice and the first one
 * is all the time that the machine has run: as long as can be multiplied by bytes. */
static int64_t bounded(int64_t ns)
{
    return ns < INT32_MAX ? ns : INT32_MAX;
}

static int64_t gap_ns(const struct ko_foreign *foreign, const struct ko_moment *began)
{
    const int64_t gap = began->ns - foreign->ended_ns - measuring_ns();

    return gap > 0 ? bounded(gap) : 0;
}

void ko_foreign_watched(struct ko_link *link, const struct ko_moment *began, bool is_read)
{
    const struct ko_foreign_sample sample = {
        .is_read = is_read,
        .ns = bounded(ko_moment_since(began)),
        .copy_ns = link->frame.kind == KO_FRAME_DATA ? (int64_t)link->next_in->placed.copy_ns : 0,
        .gap_ns = gap_ns(link->foreign, began)};

    link->foreign->ended_ns = ko_now_ns();
    if (!is_read)
        ko_foreign_judge(link, &sample);
    else
        judge_run(link, sample);
}

void ko_foreign_peeked(struct ko_link *link, const struct ko_moment *began, bool is_read)
{
    link->foreign->began = *began;
    link->foreign->is_read = is_read;
}

void ko_foreign_released(struct ko_link *link)
{
    if (link->foreign && link->foreign->began.ns)
        ko_foreign_watched(link, &link->foreign->began, link->foreign->is_read);
    if (link->foreign)
        link->foreign->began.ns = 0;
}

/* ---- reading ------------------------------------------------------------------------------- */

struct ko_foreign_process *ko_foreign_process_of(struct ko_link *link)
{
    ko_foreign_try(link);
    return link->foreign && link->foreign->process.pid ? &link->foreign->process : NULL;
}

/* Leaves it to the sender, who may sleep until this slice has been read. */
static void decline(struct ko_link *link, struct ko_foreign_slice *slice)
{
    ko_store_ordered(&slice->state, KO_FOREIGN_UNREADABLE);
    ko_window_wake_sender(link);
}

/* Slices one behind the other, here and there. */
struct run {
    struct ko_foreign_slice *slices[KO_MOST_SLOTS];
    uint32_t bytes_of[KO_MOST_SLOTS];
    uint32_t n;
    uint64_t address;
    size_t nbytes;
};

static bool begin(struct run *run, struct ko_foreign_slice *slice, uint32_t nbytes)
{
    if (!ko_swap(&slice->state, KO_FOREIGN_FREE, KO_FOREIGN_READING) &&
        !ko_swap(&slice->state, KO_FOREIGN_READ, KO_FOREIGN_READING))
        return false;
    run->slices[run->n] = slice;
    run->bytes_of[run->n++] = nbytes;
    run->nbytes += nbytes;
    return true;
}

/* Bytes of the slot if it holds what lies behind the run, in the same message, and there is room
 * for them; else 0. */
static uint32_t following(const struct ko_link *link, const struct run *run,
                          const struct ko_slot *slot)
{
    const size_t room = link->frame.nbytes + link->ahead - run->nbytes;
    uint32_t nbytes;

    if (ko_load_acquire(&slot->step) != link->received + 1 + run->n)
        return 0;
    nbytes = slot->frame.nbytes; /* once: what is checked is what is used */
    return slot->frame.kind == KO_FRAME_FOREIGN && nbytes <= room &&
                   run->nbytes + nbytes <= RUN_BYTES &&
                   slot->foreign.address == run->address + run->nbytes &&
                   ko_stamps_equal(&slot->frame.stamp, &link->frame.stamp)
               ? nbytes
               : 0;
}

/* No more than half of many slots, so that others are filled meanwhile, and who waits for the rest
 * sees that something moves; and no more than gains by it. */
static void add_following(struct ko_link *link, struct run *run)
{
    const uint32_t most = link->slots < 4 ? link->slots : link->slots / 2;
    struct ko_slot *slot = link->next_in;
    uint32_t nbytes;

    while (run->n < most) {
        slot = ko_window_following(link->inbox, link->end_in, slot);
        nbytes = following(link, run, slot);
        if (!nbytes || !begin(run, &slot->foreign, nbytes))
            return;
    }
}

/* All of it has been read; what was withdrawn meanwhile may not be what was sent. */
static int end(struct ko_foreign *foreign, const struct run *run, const char *to)
{
    uint32_t nread = 0;

    for (uint32_t i = 0; i < run->n; i++)
        if (ko_swap(&run->slices[i]->state, KO_FOREIGN_READING, KO_FOREIGN_READ))
            nread += nread == i;
    foreign->read_to = to + run->bytes_of[0];
    foreign->read_ahead = 0;
    for (uint32_t i = 1; i < nread; i++)
        foreign->read_ahead += run->bytes_of[i];
    foreign->nrun = run->n;
    foreign->run_bytes = run->nbytes;
    return nread ? KOLO_OK : KO_AGAIN;
}

/* Only the first is read, since one of them cannot be. */
static void shorten(struct run *run)
{
    for (; run->n > 1; run->n--)
        (void)ko_swap(&run->slices[run->n - 1]->state, KO_FOREIGN_READING, KO_FOREIGN_FREE);
    run->nbytes = run->bytes_of[0];
}

static int read_run(struct ko_link *link, void *to)
{
    struct ko_foreign_slice *slice = &link->next_in->foreign;
    struct ko_foreign_process *process = &link->foreign->process;
    struct run run = {.n = 0};
    int err;

    run.address = slice->address;
    if (!begin(&run, slice, link->frame.nbytes))
        return KO_AGAIN;
    if (link->ahead)
        add_following(link, &run);
    err = ko_foreign_share_read(link, process, run.address, to, run.nbytes);
    if (err == KO_AGAIN && run.n > 1) {
        shorten(&run);
        err = ko_foreign_share_read(link, process, run.address, to, run.nbytes);
    }
    if (err == KO_AGAIN)
        decline(link, slice);
    return err ? err : end(link->foreign, &run, to);
}

bool ko_foreign_reads_ahead(const struct ko_link *link)
{
    return link->foreign->read_ahead != 0;
}

/* Whether the next slice was read with one before it. */
static bool was_read(struct ko_foreign *foreign, const struct ko_foreign_slice *slice,
                     const void *to, uint32_t nbytes)
{
    const bool was = foreign->read_ahead >= nbytes && foreign->read_to == to &&
                     ko_load_acquire(&slice->state) == KO_FOREIGN_READ;

    foreign->read_to += was ? nbytes : 0;
    foreign->read_ahead -= was ? nbytes : foreign->read_ahead;
    foreign->nrun = was ? 0 : foreign->nrun;
    return was;
}

int ko_foreign_take(struct ko_link *link, void *to, const void **body)
{
    struct ko_foreign_slice *slice = &link->next_in->foreign;
    const uint64_t state = ko_load_ordered(&slice->state); /* a sleeper's look, too */
    int err = KOLO_OK;

    if (!link->foreign || !link->foreign->process.pid || state > KO_FOREIGN_WITHDRAWN)
        return ko_fail(KOLO_E_PROTOCOL, "rank %d refers to memory that is not read here",
                       link->peer);
    if (state == KO_FOREIGN_MOVED) {
        link->foreign->read_ahead = 0;
        *body = ko_window_place_of(link, slice->at);
        return *body ? KOLO_OK : KOLO_E_PROTOCOL;
    }
    if (!was_read(link->foreign, slice, to, link->frame.nbytes))
        err = read_run(link, to);
    if (!err)
        *body = to;
    return err;
}
