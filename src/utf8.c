/* SPDX-License-Identifier: MIT */
#include "utf8.h"

#include <stdint.h>

int ko_utf8_length(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
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
