/* SPDX-License-Identifier: MIT
 *
 * The driver is one per process, like the process's memory; so is what was found of it. It is asked
 * for each function by name and version, which gives the same form of it whatever the driver's age.
 */
#include "cuda_driver.h"

#include "config.h"
#include "numa.h"
#include "once.h"
#include "status.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

static struct {
    struct ko_once once;
    struct ko_cuda functions;
    uint64_t process;
} driver = {.once.first = PTHREAD_ONCE_INIT};

#define ONE(member, name, version, parameters) +1
enum { NEEDED = KO_CUDA_LIST(ONE) }; /* the first of the functions */
#undef ONE

static int find_functions(ko_cu_finder find, struct ko_cuda *cuda)
{
    static const struct {
        const char *name;
        int version;
    } rows[] = {
#define ROW(member, name, version, parameters) {#name, version},
        KO_CUDA_LIST(ROW) KO_CUDA_OPTIONAL_LIST(ROW)
#undef ROW
    };
    void **const functions = (void **)cuda; /* the struct is made of pointers, in the same order */
    int found;

    _Static_assert(sizeof *cuda == sizeof rows / sizeof *rows * sizeof(void *), "pointers alone");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ko_cu_result result = find(rows[i].name, &functions[i], rows[i].version, 0, &found);

        if (result == KO_CU_STUB_LIBRARY)
            return ko_fail(KOLO_E_UNSUPPORTED,
                           "libcuda.so.1 is the CUDA toolkit's stub, not a driver");
        if (!result && found == KO_CU_SYMBOL_FOUND && functions[i])
            continue;
        functions[i] = NULL;
        if (i < NEEDED)
            return ko_fail(KOLO_E_UNSUPPORTED,
                           "the driver has no %s of CUDA %d.%d; it is too old for kolo",
                           rows[i].name, rows[i].version / 1000, rows[i].version % 1000 / 10);
    }
    return KOLO_OK;
}

/* Gets the driver going, and makes sure that there is something to drive. */
static int start(const struct ko_cuda *cuda)
{
    int count = 0;
    ko_cu_result result = cuda->init(0);

    if (result == KO_CU_STUB_LIBRARY)
        return ko_fail(KOLO_E_UNSUPPORTED, "libcuda.so.1 is the CUDA toolkit's stub, not a driver");
    if (!result)
        result = cuda->device_count(&count);
    if (result == KO_CU_NO_DEVICE || (!result && !count))
        return ko_fail(KOLO_E_UNSUPPORTED,
                       "the driver finds no GPU (is CUDA_VISIBLE_DEVICES set?)");
    return ko_cuda_check(cuda, result, "the driver does not start");
}

static int open_driver(void)
{
    struct ko_cuda *const cuda = &driver.functions;
    int64_t is_wanted;
    void *library;
    ko_cu_finder find;
    int err = ko_config_number(KO_CONFIG_CUDA, &is_wanted);

    if (err)
        return err;
    if (!is_wanted)
        return ko_fail(KOLO_E_UNSUPPORTED, "KOLO_CUDA is 0");
    if (getrandom(&driver.process, sizeof driver.process, 0) != sizeof driver.process)
        return ko_fail_errno(errno, "getrandom");
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return ko_fail(KOLO_E_UNSUPPORTED, "there is no driver: %s", dlerror());
    *(void **)&find = dlsym(library, KO_CU_FINDER); /* POSIX's way to a function */
    err = find ? find_functions(find, cuda)
               : ko_fail(KOLO_E_UNSUPPORTED, "the driver is older than CUDA 12.0 (it has no %s)",
                         KO_CU_FINDER);
    return err ? err : start(cuda);
}

int ko_cuda_open(const struct ko_cuda **cuda)
{
    int err = ko_once(&driver.once, open_driver);

    if (!err)
        *cuda = &driver.functions;
    return err;
}

uint64_t ko_cuda_process(void)
{
    return driver.process;
}

int ko_cuda_check(const struct ko_cuda *cuda, ko_cu_result result, const char *what)
{
    const char *name = NULL;

    if (result == KO_CU_SUCCESS)
        return KOLO_OK;
    if (cuda->error_name(result, &name) || !name)
        name = "unknown";
    return ko_fail(result == KO_CU_OUT_OF_MEMORY ? KOLO_E_NOMEM
                   : result == KO_CU_NOT_SUPPORTED || result == KO_CU_NOT_PERMITTED
                       ? KOLO_E_UNSUPPORTED
                       : KOLO_E_SYSTEM,
                   "%s: %s (%d)", what, name, result);
}

ko_cu_result ko_cuda_name(const struct ko_cuda *cuda, ko_cu_device device, char *name, size_t cap)
{
    ko_cu_result result;

    memset(name, 0, cap);
    result = cuda->device_name(name, (int)cap - 1, device);
    if (result)
        return result;
    if (!*name)
        snprintf(name, cap, "unknown");
    for (char *c = name; *c; c++)
        if (iscntrl((unsigned char)*c))
            *c = '?';
    return KO_CU_SUCCESS;
}

/* Before CUDA 12.4, a question that only a loaded kernel answers loads it. */
ko_cu_result ko_cuda_preload(const struct ko_cuda *cuda, ko_cu_kernel kernel)
{
    ko_cu_kernel function;
    int most;
    ko_cu_result result = cuda->kernel_function(&function, kernel);

    if (result)
        return result;
    return cuda->function_load ? cuda->function_load(function)
                               : cuda->function_attribute(&most, KO_CU_MOST_THREADS, function);
}

ko_cu_result ko_cuda_try_words(const struct ko_cuda *cuda, ko_cu_stream stream, ko_cu_ptr at)
{
    const ko_cu_result result = cuda->stream_put_word(stream, at, 1, 0);

    return result ? result : cuda->stream_await_word(stream, at, 1, KO_CU_WAIT_GEQ);
}

/* ---- places ---------------------------------------------------------------------------------- */

/* Whether the program uses a GPU in this thread: a driver that it has loaded, and not started, is
 * not started by the question. */
static bool has_context(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *current = NULL;
    ko_cu_result (*context_current)(ko_cu_context * context);
    ko_cu_context context = NULL;
    ko_cu_finder find;
    int found;

    if (!library)
        return false;
    *(void **)&find = dlsym(library, KO_CU_FINDER);
    if (find && !find("cuCtxGetCurrent", &current, 4000, 0, &found) && current) {
        *(void **)&context_current = current;
        if (context_current(&context))
            context = NULL;
    }
    dlclose(library);
    return context;
}

int ko_cuda_numa_node(void)
{
    const struct ko_cuda *cuda;
    ko_cu_context context = NULL;
    ko_cu_device device;
    char id[32], folder[64];

    if (!has_context() || ko_cuda_open(&cuda) || cuda->context_current(&context) || !context ||
        cuda->context_device(&device) || cuda->device_pci(id, sizeof id, device))
        return -1;
    for (char *digit = id; *digit; digit++)
        *digit = (char)tolower((unsigned char)*digit);
    snprintf(folder, sizeof folder, "/sys/bus/pci/devices/%s", id);
    return ko_numa_of_device(folder);
}

static ko_cu_result enter(const struct ko_cuda *cuda, struct ko_cuda_place *place)
{
    ko_cu_context context;
    ko_cu_result result = cuda->device(&place->device, place->ordinal);

    if (!result)
        result = cuda->context_retain(&context, place->device);
    if (result)
        return result;
    result = cuda->context_push(context);
    if (result)
        (void)cuda->context_release(place->device);
    return result;
}

int ko_cuda_enter(const struct ko_cuda *cuda, int number, struct ko_cuda_place *place)
{
    int count;
    ko_cu_result result = cuda->device_count(&count);
    struct ko_cuda_place entered = {.is_entered = true};

    if (!result) {
        entered.ordinal = number % count; /* there is one, or the driver had not been opened */
        result = enter(cuda, &entered);
    }
    if (!result)
        *place = entered;
    return ko_cuda_check(cuda, result, "a GPU cannot be entered");
}

void ko_cuda_leave(const struct ko_cuda *cuda, struct ko_cuda_place *place)
{
    ko_cu_context ours;

    if (!place->is_entered)
        return;
    place->is_entered = false;
    (void)cuda->context_pop(&ours);
    (void)cuda->context_release(place->device);
}
