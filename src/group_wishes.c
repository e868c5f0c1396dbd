/* SPDX-License-Identifier: MIT */
#include "group_wishes.h"

#include "status.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char *const collectives[] = {
#define COLLECTIVE_NAME(id, name) #name,
    KO_COLLECTIVE_LIST(COLLECTIVE_NAME)
#undef COLLECTIVE_NAME
};

struct row {
    enum ko_collective what;
    const char *name;
};

static const struct row rows_of_table[] = {
#define ROW(what, name, text, flags, why) {KO_##what, name},
    KO_ALGORITHM_LIST(ROW)
#undef ROW
};

enum { NROWS = sizeof rows_of_table / sizeof *rows_of_table };

static bool is_word(const char *text, size_t length, const char *word)
{
    return strlen(word) == length && !memcmp(text, word, length);
}

/* "all_reduce" of so many bytes; -1: none. */
static int find_collective(const char *text, size_t length)
{
    for (int i = 0; i < KO_NCOLLECTIVES; i++)
        if (is_word(text, length, collectives[i]))
            return i;
    return -1;
}

/* An algorithm for one collective, or for all (what < 0). */
static int read_name(const char *text, size_t length, int what, short rows[KO_NCOLLECTIVES])
{
    bool is_known = false;

    for (int i = 0; i < NROWS; i++)
        if ((what < 0 || (int)rows_of_table[i].what == what) &&
            is_word(text, length, rows_of_table[i].name)) {
            rows[rows_of_table[i].what] = (short)i;
            is_known = true;
        }
    if (is_known)
        return KOLO_OK;
    return ko_fail(KOLO_E_INVALID,
                   "KOLO_ALGO is \"%.*s\", which %s; kolo-info lists the algorithms",
                   (int)(length < 64 ? length : 64), text,
                   what < 0 ? "no collective has" : "this collective does not have");
}

static int read_wish(const char *text, size_t length, short rows[KO_NCOLLECTIVES])
{
    const char *equals = memchr(text, '=', length);
    const size_t before = equals ? (size_t)(equals - text) : 0;
    int what;

    if (!equals)
        return read_name(text, length, -1, rows);
    what = find_collective(text, before);
    if (what < 0)
        return ko_fail(KOLO_E_INVALID, "KOLO_ALGO names \"%.*s\", which is no collective",
                       (int)(before < 64 ? before : 64), text);
    return read_name(equals + 1, length - before - 1, what, rows);
}

int ko_wishes_read(const char *text, short rows[KO_NCOLLECTIVES])
{
    int err = KOLO_OK;

    for (int i = 0; i < KO_NCOLLECTIVES; i++)
        rows[i] = -1;
    while (*text && !err) {
        const size_t length = strcspn(text, ",");

        err = read_wish(text, length, rows);
        text += length + (text[length] == ',');
    }
    return err;
}
