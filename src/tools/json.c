/* SPDX-License-Identifier: MIT
 *
 * A variable of the environment can hold any bytes; a document must parse all the same.
 */
#include "json.h"

#include "utf8.h"

void ko_json_string(FILE *file, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;

    putc('"', file);
    while (*s) {
        int length = ko_utf8_length((const char *)s);

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
