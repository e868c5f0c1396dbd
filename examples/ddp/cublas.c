/* SPDX-License-Identifier: MIT */
#include "cublas.h"

#include "failure.h"

#include <dlfcn.h>

static void *open_library(void)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12"};
    void *library = NULL;

    for (int i = 0; i < 2 && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

int cublas_open(struct cublas *cublas)
{
    static const char *const names[] = {
#define NAME(member, name, parameters) #name,
        CUBLAS_LIST(NAME)
#undef NAME
    };
    void **const functions = (void **)cublas; /* the struct is made of pointers, in that order */
    void *library = open_library();

    _Static_assert(sizeof *cublas == sizeof names / sizeof *names * sizeof(void *), "pointers");
    if (!library)
        return train_fail("--device cuda needs cuBLAS, libcublas.so.13 or .12: %s", dlerror());
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        functions[i] = dlsym(library, names[i]);
        if (!functions[i])
            return train_fail("this cuBLAS has no %s", names[i]);
    }
    return TRAIN_OK;
}
