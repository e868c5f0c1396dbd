/* SPDX-License-Identifier: MIT
 *
 * rank_list.h: ranks as a text. No state; any thread.
 */
#ifndef KO_RANK_LIST_H
#define KO_RANK_LIST_H

#include <stdbool.h>
#include <stddef.h>

/* "1, 3-5, 9", of the n ranks those whose flag is set; and, where there is no room for all of them,
 * " and 7 more" at the end. "" for none. nbytes: at least 64. */
void ko_rank_list(const bool *is_listed, int n, char *text, size_t nbytes);

#endif
