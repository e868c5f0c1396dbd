/* SPDX-License-Identifier: MIT
 *
 * agree.h: does every rank bring the same parameters? Each describes its own in a text; if the
 * texts are not the same, every rank gets the same sentence about the first difference.
 */
#ifndef KO_AGREE_H
#define KO_AGREE_H

#include "kolo.h"

/* Entries that each end in NUL: one of the bucket sizes, then "float32[10] fc.bias" per parameter.
 */
struct ko_description {
    char *text;
    size_t nbytes;
};

int ko_description_make(struct ko_description *description, const kolo_param *params,
                        size_t nparams, const kolo_ddp_options *options);
/* Points the names of params, which it was made from, into the description. */
void ko_description_names(const struct ko_description *description, kolo_param *params,
                          size_t nparams);
void ko_description_free(struct ko_description *description);

/* A collective call. KOLO_E_MISMATCH names the first parameter that differs and the lowest rank on
 * which it is not as on rank 0. */
int ko_description_agree(kolo_group *group, const struct ko_description *description);
/* What a rank calls instead that has failed already, so that the others need not wait for it: they
 * get its error text. Returns status, with the calling thread's error text as it was. */
int ko_description_refuse(kolo_group *group, int status);

#endif
