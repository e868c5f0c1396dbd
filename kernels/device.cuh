/* SPDX-License-Identifier: MIT
 *
 * device.cuh: what kernels know of the machine they run on: an NVIDIA GPU, or, for tests, this host
 * (tests/fakecuda), where a block is a thread or several. C++. Rules that make one text serve both:
 * loops go through a block's elements by the block's number of threads, whatever it is (1 too); no
 * warp's threads know of each other; the one argument is a plain struct; words and bytes that
 * another rank may write are touched through these functions only.
 */
#ifndef KO_DEVICE_CUH
#define KO_DEVICE_CUH

#include "portable.h"

/* 16 bytes, the most that one instruction loads or stores. */
struct alignas(16) ko_pack {
    uint32_t words[4];
};

/* As much, each half of which comes at once. */
struct alignas(16) ko_line {
    uint64_t halves[2];
};

#if defined(__CUDACC__)

#define KO_DEVICE static __device__ __forceinline__
#define KO_ROLLED _Pragma("unroll 1")        /* of the loop behind it one turn is enough text */
#define KO_UNROLLED _Pragma("unroll")        /* so that what it indexes lies in registers */
#define KO_MEMBER __device__ __forceinline__ /* of a class, after `static` */
/* With room for so many blocks on a multiprocessor at a time, which has registers for that. */
#define KO_KERNEL_OF(nblocks, name, type, argument) \
    extern "C" __global__ void __launch_bounds__(512, nblocks) name(const type argument)

KO_DEVICE unsigned ko_thread()
{
    return threadIdx.x;
}
KO_DEVICE unsigned ko_nthreads()
{
    return blockDim.x;
}
KO_DEVICE unsigned ko_block()
{
    return blockIdx.x;
}
KO_DEVICE unsigned ko_nblocks()
{
    return gridDim.x;
}
KO_DEVICE void ko_sync_block()
{
    __syncthreads();
}

/* Of memory that a peer may have written while this kernel runs: never by a path that keeps stale
 * copies (L1, the read-only cache). */
KO_DEVICE ko_pack ko_load_pack(const ko_pack *from)
{
    ko_pack pack;

    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pack.words[0]), "=r"(pack.words[1]), "=r"(pack.words[2]),
                   "=r"(pack.words[3])
                 : "l"(from)
                 : "memory");
    return pack;
}

/* The same, or whatever is in its registers if there is none. No branch comes between loads that
 * follow each other: the compiler puts before it what needs the first, and so waits for that before
 * the second is on its way. */
KO_DEVICE ko_pack ko_load_pack_if(bool is_there, const ko_pack *from)
{
    ko_pack pack;

    asm volatile("{\n"
                 ".reg .pred there;\n"
                 "setp.ne.u32 there, %5, 0;\n"
                 "@there ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];\n"
                 "}"
                 : "=r"(pack.words[0]), "=r"(pack.words[1]), "=r"(pack.words[2]),
                   "=r"(pack.words[3])
                 : "l"(from), "r"((uint32_t)is_there)
                 : "memory");
    return pack;
}

KO_DEVICE void ko_store_pack(ko_pack *to, ko_pack pack)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(to), "r"(pack.words[0]), "r"(pack.words[1]), "r"(pack.words[2]),
                   "r"(pack.words[3])
                 : "memory");
}

template <class T> KO_DEVICE T ko_load_one(const T *from)
{
    return *(const volatile T *)from;
}

template <class T> KO_DEVICE void ko_store_one(T *to, T value)
{
    *to = value;
}

/* Ordered behind all that the thread has done, among all GPUs and the host. */
KO_DEVICE void ko_release_word(uint32_t *word, uint32_t value)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
}

/* What was ordered before it is there. */
KO_DEVICE uint32_t ko_acquire_word(const uint32_t *word)
{
    uint32_t value;

    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

KO_DEVICE uint32_t ko_load_word(const uint32_t *word)
{
    uint32_t value;

    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

KO_DEVICE void ko_send_line(ko_line *to, ko_line line)
{
    asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};"
                 :
                 : "l"(to), "l"(line.halves[0]), "l"(line.halves[1])
                 : "memory");
}

KO_DEVICE ko_line ko_look_at_line(const ko_line *from)
{
    ko_line line;

    asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];"
                 : "=l"(line.halves[0]), "=l"(line.halves[1])
                 : "l"(from)
                 : "memory");
    return line;
}

/* One turn of a loop that waits. */
KO_DEVICE void ko_rest()
{
}

#else

#include <pthread.h>

#define KO_DEVICE static inline __attribute__((unused))
#define KO_ROLLED
#define KO_UNROLLED
#define KO_MEMBER inline
/* A kernel without an argument says how long that is. */
#define KO_KERNEL_OF(nblocks, name, type, argument)                                   \
    static void name##_text(const type &argument);                                    \
    extern "C" __attribute__((visibility("default"))) size_t name(const void *passed) \
    {                                                                                 \
        if (passed)                                                                   \
            name##_text(*(const type *)passed);                                       \
        return sizeof(type);                                                          \
    }                                                                                 \
    static void name##_text(const type &argument)

/* Which thread of which block the calling one plays; tests/fakecuda sets it before a kernel. */
struct ko_player {
    unsigned thread, nthreads, block, nblocks;
    pthread_barrier_t *threads; /* of the block; NULL if it has one */
};
extern thread_local ko_player ko_played;

/* tests/fakecuda's, too: counts bytes, and sees to it that the GPU has access to them. */
void ko_touch(const void *at, size_t nbytes, bool is_write);
/* And this: one turn of a loop that waits. */
void ko_rest();

KO_DEVICE unsigned ko_thread()
{
    return ko_played.thread;
}
KO_DEVICE unsigned ko_nthreads()
{
    return ko_played.nthreads;
}
KO_DEVICE unsigned ko_block()
{
    return ko_played.block;
}
KO_DEVICE unsigned ko_nblocks()
{
    return ko_played.nblocks;
}

KO_DEVICE void ko_sync_block()
{
    if (ko_played.threads)
        pthread_barrier_wait(ko_played.threads);
}

KO_DEVICE ko_pack ko_load_pack(const ko_pack *from)
{
    ko_touch(from, sizeof *from, false);
    return *from;
}
KO_DEVICE ko_pack ko_load_pack_if(bool is_there, const ko_pack *from)
{
    return is_there ? ko_load_pack(from) : ko_pack();
}
KO_DEVICE void ko_store_pack(ko_pack *to, ko_pack pack)
{
    ko_touch(to, sizeof *to, true);
    *to = pack;
}
template <class T> KO_DEVICE T ko_load_one(const T *from)
{
    ko_touch(from, sizeof *from, false);
    return *from;
}
template <class T> KO_DEVICE void ko_store_one(T *to, T value)
{
    ko_touch(to, sizeof *to, true);
    *to = value;
}

KO_DEVICE void ko_release_word(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

KO_DEVICE uint32_t ko_acquire_word(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

KO_DEVICE uint32_t ko_load_word(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

KO_DEVICE void ko_send_line(ko_line *to, ko_line line)
{
    ko_touch(to, sizeof *to, true);
    for (int i = 0; i < 2; i++)
        __atomic_store_n(&to->halves[i], line.halves[i], __ATOMIC_RELAXED);
}

KO_DEVICE ko_line ko_look_at_line(const ko_line *from)
{
    ko_line line;

    for (int i = 0; i < 2; i++)
        line.halves[i] = __atomic_load_n(&from->halves[i], __ATOMIC_RELAXED);
    return line;
}

#endif

#define KO_KERNEL(name, type, argument) KO_KERNEL_OF(2, name, type, argument)

#endif
