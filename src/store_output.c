/* SPDX-License-Identifier: MIT */
#include "store_output.h"

#include "status.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* So much may be left to be given back to the system at once. */
enum { GIVEN_AT_ONCE = 1 << 20 };

struct ko_piece {
    STAILQ_ENTRY(ko_piece) link;
    struct ko_buffer bytes;
};

/* From now on its last piece is another one, and empty. */
static int set_aside(struct ko_session *session)
{
    struct ko_piece *piece = ko_alloc(sizeof *piece, "what a store's client is to read");

    if (!piece)
        return KOLO_E_NOMEM;
    piece->bytes = session->out;
    STAILQ_INSERT_TAIL(&session->aside.list, piece, link);
    session->aside.nbytes += ko_buffer_fill(&piece->bytes);
    session->aside.room += piece->bytes.cap;
    session->aside.paid += ko_buffer_paid(&piece->bytes);
    session->out = (struct ko_buffer){.budget = piece->bytes.budget};
    piece->bytes.budget = NULL; /* the session pays for it */
    return KOLO_OK;
}

/* One that comes behind another will be as long as that. */
int ko_output_reserve(struct ko_session *session, size_t nbytes)
{
    const size_t fill = ko_buffer_fill(&session->out);
    int err = KOLO_OK;

    if (fill > 0 && fill + nbytes > KO_OUTPUT_PIECE)
        err = set_aside(session);
    if (!STAILQ_EMPTY(&session->aside.list) && session->out.cap == 0 && nbytes < KO_OUTPUT_PIECE)
        nbytes = KO_OUTPUT_PIECE;
    return err ? err : ko_buffer_reserve(&session->out, nbytes);
}

size_t ko_output_nbytes(const struct ko_session *session)
{
    return session->aside.nbytes + ko_buffer_fill(&session->out);
}

size_t ko_output_room(const struct ko_session *session)
{
    return session->aside.room + session->out.cap;
}

const struct ko_buffer *ko_output_first(const struct ko_session *session)
{
    const struct ko_piece *piece = STAILQ_FIRST(&session->aside.list);

    return piece ? &piece->bytes : &session->out;
}

static void unpay(struct ko_session *session, size_t nbytes)
{
    session->aside.paid -= nbytes;
    session->out.budget->used -= nbytes;
}

/* Pieces that are freed one by one glibc gives back all at once when the last of them is, 5 ms of
 * 60 MiB: so their pages go before. Where that cannot be they stay for glibc. */
static void give_back_pages(const struct ko_buffer *bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t before = (page - (uintptr_t)bytes->data % page) % page;

    if (bytes->cap > before)
        (void)madvise(bytes->data + before, (bytes->cap - before) / page * page, MADV_DONTNEED);
}

static void drop_first(struct ko_session *session)
{
    struct ko_piece *piece = STAILQ_FIRST(&session->aside.list);

    if (session->aside.room > GIVEN_AT_ONCE)
        give_back_pages(&piece->bytes);
    STAILQ_REMOVE_HEAD(&session->aside.list, link);
    session->aside.nbytes -= ko_buffer_fill(&piece->bytes);
    session->aside.room -= piece->bytes.cap;
    if (session->aside.paid > 0)
        unpay(session, ko_buffer_paid(&piece->bytes));
    ko_buffer_free(&piece->bytes);
    free(piece);
}

void ko_output_consume(struct ko_session *session, size_t nbytes)
{
    struct ko_piece *piece = STAILQ_FIRST(&session->aside.list);

    if (!piece) {
        ko_buffer_consume(&session->out, nbytes);
    } else if (nbytes == ko_buffer_fill(&piece->bytes)) {
        drop_first(session);
    } else {
        ko_buffer_consume(&piece->bytes, nbytes);
        session->aside.nbytes -= nbytes;
    }
}

bool ko_output_free_some(struct ko_session *session)
{
    unpay(session, session->aside.paid);
    ko_buffer_free(&session->out);
    while (session->left > 0 && !STAILQ_EMPTY(&session->aside.list)) {
        ko_session_spend(session, STAILQ_FIRST(&session->aside.list)->bytes.cap);
        drop_first(session);
    }
    return STAILQ_EMPTY(&session->aside.list);
}
