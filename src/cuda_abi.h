/* SPDX-License-Identifier: MIT
 *
 * cuda_abi.h: what kolo uses of NVIDIA's driver interface, declared here so that no CUDA header is
 * needed to build: types, constants, and one row for each function. Names and numbers are those of
 * the CUDA Driver API reference (cuda.h); tests/cuda_abi.cc compares them with a toolkit's
 * where there is one.
 */
#ifndef KO_CUDA_ABI_H
#define KO_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int ko_cu_result;             /* CUresult */
typedef int ko_cu_device;             /* CUdevice */
typedef unsigned long long ko_cu_ptr; /* CUdeviceptr */
typedef struct ko_cuda_context *ko_cu_context;
typedef struct ko_cuda_stream *ko_cu_stream;
typedef struct ko_cuda_event *ko_cu_event;
typedef struct ko_cuda_library *ko_cu_library;
typedef struct ko_cuda_graph *ko_cu_graph;
typedef struct ko_cuda_graph_exec *ko_cu_graph_exec;
typedef struct ko_cuda_kernel *ko_cu_kernel; /* CUkernel, which serves as a CUfunction */

enum {
    KO_CU_SUCCESS = 0,
    KO_CU_INVALID_VALUE = 1,
    KO_CU_OUT_OF_MEMORY = 2,
    KO_CU_NOT_INITIALIZED = 3,
    KO_CU_STUB_LIBRARY = 34,
    KO_CU_DEVICE_UNAVAILABLE = 46, /* another process has it to itself */
    KO_CU_NO_DEVICE = 100,
    KO_CU_INVALID_DEVICE = 101,
    KO_CU_INVALID_CONTEXT = 201,
    KO_CU_ALREADY_MAPPED = 208,
    KO_CU_NO_BINARY = 209, /* NO_BINARY_FOR_GPU */
    KO_CU_PEER_UNSUPPORTED = 217,
    KO_CU_TEXT_TOO_NEW = 222, /* UNSUPPORTED_PTX_VERSION */
    KO_CU_INVALID_HANDLE = 400,
    KO_CU_NOT_FOUND = 500,
    KO_CU_NOT_READY = 600,
    KO_CU_PEER_ENABLED = 704, /* already */
    KO_CU_NOT_PERMITTED = 800,
    KO_CU_NOT_SUPPORTED = 801,
    KO_CU_CAPTURE_FORBIDS = 900,  /* STREAM_CAPTURE_UNSUPPORTED */
    KO_CU_CAPTURE_BROKEN = 901,   /* STREAM_CAPTURE_INVALIDATED */
    KO_CU_CAPTURE_IMPLICIT = 906, /* by a stream that waits for the legacy one */
    KO_CU_CAPTURE_WRONG_THREAD = 908
};

/* CUdevice_attribute */
enum {
    KO_CU_MULTIPROCESSORS = 16,
    KO_CU_L2_BYTES = 38,
    KO_CU_CAPABILITY_MAJOR = 75,
    KO_CU_CAPABILITY_MINOR = 76,
    KO_CU_FLUSHES = 117,  /* bits: KO_CU_FLUSH_BY_HOST */
    KO_CU_ORDERING = 118, /* up to whom: KO_CU_ORDERED_OWNER */
    KO_CU_HAS_DMA_BUF = 124
};

/* CUpointer_attribute. Those that say yes or no have four bytes' room, of which a driver may write
 * one: its reference does not say how many. */
enum {
    KO_CU_POINTER_CONTEXT = 1,
    KO_CU_POINTER_MEMORY_TYPE = 2,
    KO_CU_POINTER_BUFFER_ID = 7,
    KO_CU_POINTER_IS_MANAGED = 8,
    KO_CU_POINTER_DEVICE = 9,
    KO_CU_POINTER_HAS_LEGACY_IPC = 10
};

enum { KO_CU_MEMORY_HOST = 1, KO_CU_MEMORY_DEVICE = 2 }; /* CUmemorytype */

typedef struct {
    unsigned char bytes[16];
} ko_cu_uuid;

typedef struct {
    unsigned char bytes[64];
} ko_cu_ipc_handle; /* CUipcMemHandle */

enum { KO_CU_IPC_LAZY_PEER_ACCESS = 1 };

typedef unsigned long long ko_cu_piece; /* CUmemGenericAllocationHandle */

typedef struct {
    int type, id;
} ko_cu_location; /* CUmemLocation */

typedef struct {
    int type, handle_types;
    ko_cu_location location;
    void *unused;
    unsigned char flags[8];
} ko_cu_piece_kind; /* CUmemAllocationProp */

typedef struct {
    ko_cu_location location;
    int flags;
} ko_cu_access; /* CUmemAccessDesc */

/* CUstreamBatchMemOpParams, of words: its forms for waiting and for writing are alike as far. */
typedef struct {
    unsigned what; /* KO_CU_AWAIT_WORD, KO_CU_PUT_WORD */
    ko_cu_ptr at;
    uint64_t value; /* 32 bits of it */
    unsigned flags;
    uint64_t unused[2];
} ko_cu_word_step;

enum { KO_CU_LOCATION_DEVICE = 1 };       /* CUmemLocationType */
enum { KO_CU_PIECE_PINNED = 1 };          /* CUmemAllocationType */
enum { KO_CU_HANDLE_DESCRIPTOR = 1 };     /* CUmemAllocationHandleType */
enum { KO_CU_GRAIN_LEAST = 0 };           /* CUmemAllocationGranularity_flags */
enum { KO_CU_ACCESS_READ_AND_WRITE = 3 }; /* CUmemAccess_flags */

/* What adapters write into a GPU's memory: whom it has reached when they say so, and what makes it.
 */
enum { KO_CU_FLUSH_BY_HOST = 1 };                          /* CUflushGPUDirectRDMAWritesOptions */
enum { KO_CU_ORDERED_OWNER = 100 };                        /* CUGPUDirectRDMAWritesOrdering */
enum { KO_CU_FLUSH_CONTEXT = 0, KO_CU_FLUSH_OWNER = 100 }; /* CUflushGPUDirectRDMAWrites... */
enum { KO_CU_RANGE_DMA_BUF = 1 };                          /* CUmemRangeHandleType */

enum { KO_CU_MOST_THREADS = 0 };                         /* CUfunction_attribute */
enum { KO_CU_STREAM_NON_BLOCKING = 1 };                  /* CUstream_flags */
enum { KO_CU_STREAM_LEGACY = 1 };                        /* a handle; NULL is another */
enum { KO_CU_STREAM_PER_THREAD = 2 };                    /* a handle */
enum { KO_CU_EVENT_DISABLE_TIMING = 2 };                 /* CUevent_flags */
enum { KO_CU_WAIT_GEQ = 0, KO_CU_WAIT_EQ = 1 };          /* CUstreamWaitValue_flags */
enum { KO_CU_AWAIT_WORD = 1, KO_CU_PUT_WORD = 2 };       /* CUstreamBatchMemOpType */
enum { KO_CU_HOST_PORTABLE = 1, KO_CU_HOST_MAPPED = 2 }; /* CU_MEMHOSTREGISTER_ */

/* CUstreamCaptureMode */
enum { KO_CU_CAPTURE_GLOBAL = 0, KO_CU_CAPTURE_THREAD_LOCAL = 1, KO_CU_CAPTURE_RELAXED = 2 };
enum { KO_CU_CAPTURE_NONE = 0, KO_CU_CAPTURE_ACTIVE = 1 }; /* CUstreamCaptureStatus */

/* CUdriverProcAddressQueryResult */
enum { KO_CU_SYMBOL_FOUND = 0, KO_CU_SYMBOL_MISSING = 1, KO_CU_SYMBOL_TOO_NEW = 2 };

/* The one function that is looked up by dlsym: it finds the others. From CUDA 12.0 on. */
#define KO_CU_FINDER "cuGetProcAddress_v2"
typedef ko_cu_result (*ko_cu_finder)(const char *name, void **function, int version, uint64_t flags,
                                     int *found);

/* X(member of struct ko_cuda, name, version of the interface, parameters). Versions are those in
 * which the form of the function that is meant came: 1000 times the major one, 10 times the minor.
 */
/* clang-format off */
#define KO_CUDA_LIST(X) \
    X(init, cuInit, 2000, (unsigned flags)) \
    X(driver_version, cuDriverGetVersion, 2020, (int *version)) \
    X(error_name, cuGetErrorName, 6000, (ko_cu_result error, const char **name)) \
    X(device_count, cuDeviceGetCount, 2000, (int *count)) \
    X(device, cuDeviceGet, 2000, (ko_cu_device *device, int ordinal)) \
    X(device_name, cuDeviceGetName, 2000, (char *name, int nbytes, ko_cu_device device)) \
    X(device_attribute, cuDeviceGetAttribute, 2000, (int *value, int attribute, ko_cu_device device)) \
    X(device_bytes, cuDeviceTotalMem, 3020, (size_t *nbytes, ko_cu_device device)) \
    X(device_uuid, cuDeviceGetUuid, 11040, (ko_cu_uuid *uuid, ko_cu_device device)) \
    X(device_pci, cuDeviceGetPCIBusId, 4010, (char *id, int nbytes, ko_cu_device device)) \
    X(context_retain, cuDevicePrimaryCtxRetain, 7000, (ko_cu_context *context, ko_cu_device device)) \
    X(context_release, cuDevicePrimaryCtxRelease, 11000, (ko_cu_device device)) \
    X(context_current, cuCtxGetCurrent, 4000, (ko_cu_context *context)) \
    X(context_push, cuCtxPushCurrent, 4000, (ko_cu_context context)) \
    X(context_pop, cuCtxPopCurrent, 4000, (ko_cu_context *context)) \
    X(context_device, cuCtxGetDevice, 2000, (ko_cu_device *device)) \
    X(device_reaches, cuDeviceCanAccessPeer, 4000, (int *does, ko_cu_device device, ko_cu_device peer)) \
    X(context_reach, cuCtxEnablePeerAccess, 4000, (ko_cu_context peer, unsigned flags)) \
    X(pointer_attribute, cuPointerGetAttribute, 4000, (void *value, int attribute, ko_cu_ptr at)) \
    X(address_range, cuMemGetAddressRange, 3020, (ko_cu_ptr *base, size_t *nbytes, ko_cu_ptr at)) \
    X(alloc, cuMemAlloc, 3020, (ko_cu_ptr *memory, size_t nbytes)) \
    X(free, cuMemFree, 3020, (ko_cu_ptr memory)) \
    X(host_register, cuMemHostRegister, 6050, (void *memory, size_t nbytes, unsigned flags)) \
    X(host_unregister, cuMemHostUnregister, 4000, (void *memory)) \
    X(host_address, cuMemHostGetDevicePointer, 3020, (ko_cu_ptr *at, void *memory, unsigned flags)) \
    X(copy, cuMemcpyAsync, 4000, (ko_cu_ptr to, ko_cu_ptr from, size_t nbytes, ko_cu_stream stream)) \
    X(fill, cuMemsetD8Async, 3020, (ko_cu_ptr to, unsigned char byte, size_t nbytes, ko_cu_stream stream)) \
    X(ipc_export, cuIpcGetMemHandle, 4010, (ko_cu_ipc_handle *handle, ko_cu_ptr memory)) \
    X(ipc_open, cuIpcOpenMemHandle, 11000, (ko_cu_ptr *memory, ko_cu_ipc_handle handle, unsigned flags)) \
    X(ipc_close, cuIpcCloseMemHandle, 4010, (ko_cu_ptr memory)) \
    X(piece_grain, cuMemGetAllocationGranularity, 10020, (size_t *nbytes, const ko_cu_piece_kind *kind, int which)) \
    X(piece_create, cuMemCreate, 10020, (ko_cu_piece *piece, size_t nbytes, const ko_cu_piece_kind *kind, unsigned long long flags)) \
    X(piece_release, cuMemRelease, 10020, (ko_cu_piece piece)) \
    X(piece_retain, cuMemRetainAllocationHandle, 11000, (ko_cu_piece *piece, void *at)) \
    X(piece_export, cuMemExportToShareableHandle, 10020, (void *handle, ko_cu_piece piece, int type, unsigned long long flags)) \
    X(piece_import, cuMemImportFromShareableHandle, 10020, (ko_cu_piece *piece, void *handle, int type)) \
    X(addresses_reserve, cuMemAddressReserve, 10020, (ko_cu_ptr *at, size_t nbytes, size_t alignment, ko_cu_ptr wish, unsigned long long flags)) \
    X(addresses_free, cuMemAddressFree, 10020, (ko_cu_ptr at, size_t nbytes)) \
    X(piece_map, cuMemMap, 10020, (ko_cu_ptr at, size_t nbytes, size_t offset, ko_cu_piece piece, unsigned long long flags)) \
    X(piece_unmap, cuMemUnmap, 10020, (ko_cu_ptr at, size_t nbytes)) \
    X(piece_access, cuMemSetAccess, 10020, (ko_cu_ptr at, size_t nbytes, const ko_cu_access *access, size_t count)) \
    X(stream_create, cuStreamCreate, 2000, (ko_cu_stream *stream, unsigned flags)) \
    X(stream_create_urgent, cuStreamCreateWithPriority, 5050, (ko_cu_stream *stream, unsigned flags, int priority)) \
    X(stream_priorities, cuCtxGetStreamPriorityRange, 5050, (int *least, int *most)) \
    X(stream_destroy, cuStreamDestroy, 4000, (ko_cu_stream stream)) \
    X(stream_sync, cuStreamSynchronize, 2000, (ko_cu_stream stream)) \
    X(stream_query, cuStreamQuery, 2000, (ko_cu_stream stream)) \
    X(stream_context, cuStreamGetCtx, 9020, (ko_cu_stream stream, ko_cu_context *context)) \
    X(stream_flags, cuStreamGetFlags, 5050, (ko_cu_stream stream, unsigned *flags)) \
    X(stream_await_event, cuStreamWaitEvent, 3020, (ko_cu_stream stream, ko_cu_event event, unsigned flags)) \
    X(stream_await_word, cuStreamWaitValue32, 11070, (ko_cu_stream stream, ko_cu_ptr at, uint32_t value, unsigned flags)) \
    X(stream_put_word, cuStreamWriteValue32, 11070, (ko_cu_stream stream, ko_cu_ptr at, uint32_t value, unsigned flags)) \
    X(stream_step, cuStreamBatchMemOp, 11070, (ko_cu_stream stream, unsigned n, ko_cu_word_step *steps, unsigned flags)) \
    X(capture_begin, cuStreamBeginCapture, 10010, (ko_cu_stream stream, int mode)) \
    X(capture_end, cuStreamEndCapture, 10000, (ko_cu_stream stream, ko_cu_graph *graph)) \
    X(capture_status, cuStreamIsCapturing, 10000, (ko_cu_stream stream, int *status)) \
    X(capture_mode, cuThreadExchangeStreamCaptureMode, 10010, (int *mode)) \
    X(graph_prepare, cuGraphInstantiateWithFlags, 11040, (ko_cu_graph_exec *exec, ko_cu_graph graph, unsigned long long flags)) \
    X(graph_launch, cuGraphLaunch, 10000, (ko_cu_graph_exec exec, ko_cu_stream stream)) \
    X(graph_destroy, cuGraphDestroy, 10000, (ko_cu_graph graph)) \
    X(graph_exec_destroy, cuGraphExecDestroy, 10000, (ko_cu_graph_exec exec)) \
    X(event_create, cuEventCreate, 2000, (ko_cu_event *event, unsigned flags)) \
    X(event_destroy, cuEventDestroy, 4000, (ko_cu_event event)) \
    X(event_record, cuEventRecord, 2000, (ko_cu_event event, ko_cu_stream stream)) \
    X(event_query, cuEventQuery, 2000, (ko_cu_event event)) \
    X(event_sync, cuEventSynchronize, 2000, (ko_cu_event event)) \
    X(event_elapsed, cuEventElapsedTime, 2000, (float *ms, ko_cu_event from, ko_cu_event to)) \
    X(library_load, cuLibraryLoadData, 12000, \
      (ko_cu_library *library, const void *code, int *jit_options, void **jit_values, \
       unsigned njit, int *options, void **values, unsigned noptions)) \
    X(library_unload, cuLibraryUnload, 12000, (ko_cu_library library)) \
    X(library_kernel, cuLibraryGetKernel, 12000, (ko_cu_kernel *kernel, ko_cu_library library, const char *name)) \
    X(kernel_function, cuKernelGetFunction, 12000, (ko_cu_kernel *function, ko_cu_kernel kernel)) \
    X(function_attribute, cuFuncGetAttribute, 2020, (int *value, int attribute, ko_cu_kernel function)) \
    X(launch, cuLaunchKernel, 4000, \
      (ko_cu_kernel kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, ko_cu_stream stream, \
       void **arguments, void **extra))

/* Likewise functions that kolo goes without where a driver lacks them: NULL in struct ko_cuda. */
#define KO_CUDA_OPTIONAL_LIST(X) \
    X(range_export, cuMemGetHandleForAddressRange, 11070, (void *handle, ko_cu_ptr at, size_t nbytes, int type, unsigned long long flags)) \
    X(flush_writes, cuFlushGPUDirectRDMAWrites, 11030, (int target, int scope)) \
    X(function_load, cuFuncLoad, 12040, (ko_cu_kernel function))
/* clang-format on */

#endif
