/* SPDX-License-Identifier: MIT
 *
 * The double's door: its one exported function, by which all others are found. Each is found as a
 * wrapper of its own, made from its row in cuda_abi.h, that goes by double_enter first: none can be
 * without.
 */
extern "C" {
#include "double.h"
}

#include <stdlib.h>
#include <string.h>

enum {
#define NUMBER(member, name, version, parameters) row_##member,
    KO_CUDA_LIST(NUMBER) KO_CUDA_OPTIONAL_LIST(NUMBER)
#undef NUMBER
        nrows
};

static const char *const names[nrows] = {
#define NAME(member, name, version, parameters) #name,
    KO_CUDA_LIST(NAME) KO_CUDA_OPTIONAL_LIST(NAME)
#undef NAME
};

template <auto function, int row> struct wrapper;

template <typename... types, ko_cu_result (*function)(types...), int row>
struct wrapper<function, row> {
    static ko_cu_result call(types... arguments)
    {
        static const double_trait trait = double_trait_of(names[row]);
        const ko_cu_result result = double_enter(names[row], &trait);
        const ko_cu_result fault = result ? (ko_cu_result)KO_CU_SUCCESS : double_fault(&trait);

        if (result || (fault && !trait.is_end))
            return result ? result : fault;
        const ko_cu_result own = function(arguments...);
        return fault ? fault : own;
    }
};

static const struct {
    int version;
    void *function;
} rows[nrows] = {
#define ROW(member, name, version, parameters)                                                     \
    {version, (void *)wrapper<double_##member, row_##member>::call},
    KO_CUDA_LIST(ROW) KO_CUDA_OPTIONAL_LIST(ROW)
#undef ROW
};

static int row_of(const char *name, size_t length)
{
    int row = 0;

    while (row < nrows && (strncmp(names[row], name, length) || names[row][length]))
        row++;
    return row;
}

bool double_knows(const char *name, size_t length)
{
    return row_of(name, length) < nrows;
}

extern "C" __attribute__((visibility("default"))) ko_cu_result
cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t, int *found)
{
    const int own = double_number("FAKECUDA_VERSION", 13000), row = row_of(name, strlen(name));

    double_check_names();
    *function = NULL;
    *found = KO_CU_SYMBOL_MISSING;
    if (row == nrows || double_lists("FAKECUDA_WITHOUT", name))
        return KO_CU_NOT_FOUND;
    *found = rows[row].version > own ? KO_CU_SYMBOL_TOO_NEW : KO_CU_SYMBOL_FOUND;
    if (rows[row].version > own || version < rows[row].version)
        return KO_CU_NOT_FOUND;
    *function = rows[row].function;
    return KO_CU_SUCCESS;
}
