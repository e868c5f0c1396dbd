/* SPDX-License-Identifier: MIT
 *
 * store_text.h: keys and values of a store as C strings.
 */
#ifndef STORE_TEXT_H
#define STORE_TEXT_H

#include "kolo.h"

#include <string.h>

static inline kolo_bytes text(const char *s)
{
    return (kolo_bytes){s, strlen(s)};
}

#endif
