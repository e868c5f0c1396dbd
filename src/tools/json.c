/* SPDX-License-Identifier: MIT
 *
 * A variable of the environment can hold any bytes; a document must parse all the same.
 */
#include "json.h"

#include <stdint.h>

/* Length of the well-formed UTF-8 sequence at s, 0 if there is none. */
static int sequence_length(const unsigned char *s)
{
    uint32_t code;
    int length = *s < 0x80 ? 1 : *s < 0xc2 ? 0 : *s < 0xe0 ? 2 : *s < 0xf0 ? 3 : *s < 0xf5 ? 4 : 0;

    if (length < 2)
        return length;
    code = *s & (0x7fU >> length);
    for (int i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (s[i] & 0x3fU);
    }
    /* overlong forms, surrogates and what lies beyond Unicode */
    if ((length == 3 && (code < 0x800 || (code >= 0xd800 && code < 0xe000))) ||
        (length == 4 && (code < 0x10000 || code > 0x10ffff)))
        return 0;
    return length;
}

void ko_json_string(FILE *file, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;

    putc('"', file);
    while (*s) {
        int length = sequence_length(s);

        if (length == 0)
            fputs("\\ufffd", file);
        else if (*s == '"' || *s == '\\')
            fprintf(file, "\\%c", *s);
        else if (*s < 0x20 || *s == 0x7f)
            fprintf(file, "\\u%04x", *s);
        else
            fwrite(s, 1, (size_t)length, file);
        s += length ? length : 1;
    }
    putc('"', file);
}
