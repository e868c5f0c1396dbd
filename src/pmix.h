/* SPDX-License-Identifier: MIT
 *
 * pmix.h: what is needed of PMIx, by which Open MPI's mpirun and srun --mpi=pmix tell processes of
 * each other. Its library, libpmix.so.2, comes with these launchers; it is opened when it is needed
 * and stays loaded.
 */
#ifndef KO_PMIX_H
#define KO_PMIX_H

#include "clock.h"

#include <stddef.h>
#include <stdint.h>

/* The types and numbers are those of the PMIx standard, versions 2 to 5, as far as they are needed:
 * of a value only its beginning is looked at. */
enum { KO_PMIX_SUCCESS = 0, KO_PMIX_STRING = 3 };

struct ko_pmix_process {
    char job[256];
    uint32_t rank;
};

struct ko_pmix_value {
    uint16_t type;
    union {
        char *string;
        uint64_t room[4];
    } data;
};

typedef void (*ko_pmix_on_done)(int status, void *call);
typedef void (*ko_pmix_on_value)(int status, struct ko_pmix_value *value, void *call);

/* The library's functions, by their names there without PMIx_; fence and get are those that end in
 * _nb and call back, maybe from a thread of the library's. */
struct ko_pmix {
    int (*init)(struct ko_pmix_process *self, void *info, size_t ninfo);
    int (*put)(uint8_t scope, const char *key, struct ko_pmix_value *value);
    int (*commit)(void);
    int (*fence)(const struct ko_pmix_process *of, size_t nof, const void *info, size_t ninfo,
                 ko_pmix_on_done done, void *call);
    int (*get)(const struct ko_pmix_process *of, const char *key, const void *info, size_t ninfo,
               ko_pmix_on_value got, void *call);
    int (*finalize)(const void *info, size_t ninfo);
    const char *(*error_string)(int status);
};

/* KOLO_E_UNSUPPORTED: there is no such library. */
int ko_pmix_load(struct ko_pmix *library);

/* Gives rank 0's text, of at most cap bytes with its NUL, to all ranks: all of them call it with
 * one key, new each time, and it returns by the deadline or a little later. text is read on rank 0
 * and written on the others. */
int ko_pmix_share(const struct ko_pmix *library, int rank, const char *key, char *text, size_t cap,
                  const ko_deadline *deadline);

#endif
