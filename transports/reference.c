/* SPDX-License-Identifier: MIT
 *
 * Each end has a table of what it has lent and one of what it has borrowed, with the same numbers.
 * A number is used again when its segment was freed and every slice in it was released: the new
 * announcement then makes the borrower drop the old segment. While there is no free number, or
 * while an announcement has not left, slices in further segments are copied.
 */
#include "reference.h"

#include "memory.h"
#include "status.h"
#include "window.h"
#include "window_memory.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct lent {
    struct ko_segment *segment; /* held */
    uint64_t last;              /* slices sent, up to the last one in it */
};

struct borrowed {
    struct ko_segment *segment;
    uint64_t id; /* the lender's */
};

struct ko_references {
    struct lent lent[KO_ANNOUNCED];
    size_t nlent;  /* numbers that were ever used */
    size_t recent; /* the number used last */
    struct ko_post post;
    struct ko_announcement announcement; /* of post */

    struct borrowed borrowed[KO_ANNOUNCED];
    size_t in_use[2]; /* 1 + the numbers in which the next slice, and what it is to become, have
                         been found; 0: none */
};

static struct ko_references *references_of(struct ko_link *link)
{
    if (!link->references)
        link->references = ko_alloc(sizeof *link->references, "references to memory");
    return link->references;
}

void ko_references_free(struct ko_references *references)
{
    if (!references)
        return;
    for (size_t i = 0; i < KO_ANNOUNCED; i++) {
        ko_segment_release(references->lent[i].segment);
        ko_segment_release(references->borrowed[i].segment);
    }
    free(references);
}

/* ---- lending ----------------------------------------------------------------------------- */

static bool lies_in(const struct ko_segment *segment, const void *from, size_t nbytes)
{
    const uintptr_t begin = segment ? (uintptr_t)segment->memory : 0, at = (uintptr_t)from;

    return segment && at >= begin && at - begin < segment->nbytes &&
           nbytes <= segment->nbytes - (at - begin);
}

/* A number for one more segment; KO_ANNOUNCED if there is none. */
static size_t free_number(struct ko_link *link, struct ko_references *references)
{
    ko_window_take_credit(link);
    for (size_t i = 0; i < references->nlent; i++)
        if (!references->lent[i].segment || (atomic_load(&references->lent[i].segment->is_freed) &&
                                             references->lent[i].last <= link->credit))
            return i;
    return references->nlent < KO_ANNOUNCED ? references->nlent++ : KO_ANNOUNCED;
}

/* Announces a segment, whose user becomes the table. */
static int lend(struct ko_link *link, struct ko_segment *segment, size_t number)
{
    struct ko_references *references = link->references;

    ko_segment_release(references->lent[number].segment);
    references->lent[number] = (struct lent){.segment = segment};
    references->announcement =
        (struct ko_announcement){.id = segment->id, .nbytes = segment->nbytes, .index = number};
    references->post = (struct ko_post){
        .frame = {.kind = KO_FRAME_MEMORY, .nbytes = sizeof(struct ko_announcement)},
        .body = &references->announcement,
        .has_fd = true,
        .fd = segment->fd};
    return link->wire->transport->send(link->wire, &references->post);
}

/* The number of a segment that is lent and has the slice in it, or KO_ANNOUNCED. */
static size_t number_of(const struct ko_references *references, const void *from, size_t nbytes)
{
    const size_t recent = references->recent;

    if (recent < references->nlent && lies_in(references->lent[recent].segment, from, nbytes))
        return recent;
    for (size_t i = 0; i < references->nlent; i++)
        if (lies_in(references->lent[i].segment, from, nbytes))
            return i;
    return KO_ANNOUNCED;
}

/* The number under which a slice's memory is lent from now on; KO_ANNOUNCED if it cannot be. */
static int new_number(struct ko_link *link, const void *from, size_t nbytes, size_t *number)
{
    struct ko_segment *segment = ko_memory_find(from, nbytes);
    struct ko_references *references = segment ? references_of(link) : NULL;

    *number = KO_ANNOUNCED;
    if (references && !references->post.is_queued)
        *number = free_number(link, references);
    if (*number < KO_ANNOUNCED)
        return lend(link, segment, *number);
    ko_segment_release(segment);
    return segment && !references ? KOLO_E_NOMEM : KOLO_OK;
}

/* A slice's memory has mostly been lent before. */
bool ko_reference_may_be_made(const struct ko_link *link, const void *from, size_t nbytes)
{
    return nbytes >= KO_REFERENCE_LEAST &&
           ((link->references && number_of(link->references, from, nbytes) < KO_ANNOUNCED) ||
            ko_memory_is_found(from, nbytes));
}

int ko_reference_make(struct ko_link *link, const void *from, size_t nbytes,
                      struct ko_reference *reference, bool *is_made)
{
    size_t number = KO_ANNOUNCED;
    struct lent *lent;
    int err;

    *is_made = false;
    if (nbytes < KO_REFERENCE_LEAST || !link->wire->transport->take_fd)
        return KOLO_OK;
    if (link->references)
        number = number_of(link->references, from, nbytes);
    if (number == KO_ANNOUNCED) {
        err = new_number(link, from, nbytes, &number);
        if (err || number == KO_ANNOUNCED)
            return err;
    }
    link->references->recent = number;
    lent = &link->references->lent[number];
    lent->last = link->sent + 1;
    *reference =
        (struct ko_reference){.id = lent->segment->id,
                              .index = number,
                              .offset = (uintptr_t)from - (uintptr_t)lent->segment->memory};
    *is_made = true;
    return KOLO_OK;
}

/* ---- borrowing --------------------------------------------------------------------------- */

static bool is_known(const struct ko_link *link, const struct ko_reference *reference)
{
    return link->references && link->references->borrowed[reference->index].segment &&
           link->references->borrowed[reference->index].id == reference->id;
}

static int find(struct ko_link *link, const struct ko_reference *reference, size_t nbytes,
                int which, struct ko_segment **segment_out)
{
    struct ko_segment *segment;

    if (reference->index >= KO_ANNOUNCED)
        return ko_fail(KOLO_E_PROTOCOL, "rank %d refers to memory number %llu, of at most %d",
                       link->peer, (unsigned long long)reference->index, KO_ANNOUNCED);
    link->awaits_memory = !is_known(link, reference);
    if (link->awaits_memory)
        return KO_AGAIN;
    segment = link->references->borrowed[reference->index].segment;
    if (reference->offset > segment->nbytes || nbytes > segment->nbytes - reference->offset)
        return ko_fail(KOLO_E_PROTOCOL, "rank %d refers to %zu bytes at %llu of a segment of %zu",
                       link->peer, nbytes, (unsigned long long)reference->offset, segment->nbytes);
    link->references->in_use[which] = reference->index + 1;
    *segment_out = segment;
    return KOLO_OK;
}

int ko_reference_find(struct ko_link *link, const struct ko_reference *reference, size_t nbytes,
                      const void **body)
{
    struct ko_segment *segment;
    int err = find(link, reference, nbytes, 0, &segment);

    if (!err)
        *body = (const unsigned char *)segment->memory + reference->offset;
    return err;
}

int ko_reference_find_back(struct ko_link *link, const struct ko_reference *reference,
                           size_t nbytes, void **back)
{
    struct ko_segment *segment;
    int err = find(link, reference, nbytes, 1, &segment);

    if (!err)
        err = ko_segment_open(segment);
    if (!err)
        *back = (unsigned char *)segment->memory + reference->offset;
    return err;
}

void ko_reference_release(struct ko_link *link)
{
    memset(link->references->in_use, 0, sizeof link->references->in_use);
}

static bool is_in_use(const struct ko_references *references, size_t number)
{
    return references->in_use[0] == number + 1 || references->in_use[1] == number + 1;
}

/* Maps it, or finds it here. Takes fd over. */
static int borrow(const struct ko_announcement *announcement, int fd, struct ko_segment **segment)
{
    *segment = ko_segment_find(announcement->id);
    if (!*segment)
        return ko_segment_view(fd, announcement->nbytes, segment);
    close(fd);
    if ((*segment)->nbytes == announcement->nbytes)
        return KOLO_OK;
    ko_segment_release(*segment);
    return ko_fail(KOLO_E_PROTOCOL, "a segment of this process was announced with %llu bytes",
                   (unsigned long long)announcement->nbytes);
}

int ko_reference_hear(struct ko_link *link, const void *body, size_t nbytes)
{
    const struct ko_transport *transport = link->wire->transport;
    const int fd = transport->take_fd ? transport->take_fd(link->wire) : -1;
    struct ko_references *references = references_of(link);
    struct ko_announcement announcement;
    struct ko_segment *segment;
    int err = references ? KOLO_OK : KOLO_E_NOMEM;

    if (!err && nbytes == sizeof announcement)
        memcpy(&announcement, body, sizeof announcement);
    if (!err && (fd < 0 || nbytes != sizeof announcement || announcement.index >= KO_ANNOUNCED ||
                 is_in_use(references, announcement.index)))
        err = ko_fail(KOLO_E_PROTOCOL,
                      "rank %d announced memory in %zu bytes that cannot be used%s", link->peer,
                      nbytes, fd < 0 ? ": no descriptor came (has this process run out?)" : "");
    if (err) {
        if (fd >= 0)
            close(fd);
        return err;
    }
    err = borrow(&announcement, fd, &segment);
    if (err)
        return err;
    ko_segment_release(references->borrowed[announcement.index].segment);
    references->borrowed[announcement.index] = (struct borrowed){segment, announcement.id};
    return KOLO_OK;
}
