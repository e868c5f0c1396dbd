/* SPDX-License-Identifier: MIT
 *
 * fold.cuh: reductions of n arrays in one pass: every input is read once, every output written
 * once, and nothing is rounded on the way. The same bits as src/reduce.h's `many`, but for which
 * NaN a NaN is. C++.
 */
#ifndef KO_FOLD_CUH
#define KO_FOLD_CUH

#include "device.cuh"
#include "elements.h"
#include "kernel_args.h"

/* ---- element types: `bits` is what lies in memory, `wide` what is computed in ---------------- */

/* Integers wrap, and are divided towards zero. */
template <class Bits, class Wide, class Longest> struct ko_integer {
    typedef Bits bits;
    typedef Wide wide;
    static KO_MEMBER wide widen(bits x)
    {
        return (wide)x;
    }
    static KO_MEMBER bits narrow(wide x)
    {
        return (bits)x;
    }
    static KO_MEMBER wide over(wide x, uint32_t n)
    {
        return (wide)((Longest)(bits)x / (Longest)n);
    }
    static KO_MEMBER bits smaller(bits x, bits y)
    {
        return y < x ? y : x;
    }
    static KO_MEMBER bits larger(bits x, bits y)
    {
        return y > x ? y : x;
    }
};

struct ko_float32_bits {
    static KO_MEMBER float widen(int32_t x)
    {
        return ko_float_of_bits((uint32_t)x);
    }
    static KO_MEMBER int32_t narrow(float x)
    {
        return (int32_t)ko_float_bits(x);
    }
};

struct ko_float64_bits {
    static KO_MEMBER double widen(int64_t x)
    {
        double value;

        memcpy(&value, &x, sizeof value);
        return value;
    }
    static KO_MEMBER int64_t narrow(double x)
    {
        int64_t bits;

        memcpy(&bits, &x, sizeof bits);
        return bits;
    }
};

#define KO_SIGNED_ELEMENT(name, type, work)              \
    struct ko_##name : ko_integer<type, work, int64_t> { \
    };
#define KO_UNSIGNED_ELEMENT(name, type, work)             \
    struct ko_##name : ko_integer<type, work, uint64_t> { \
    };
#define KO_BOOL_ELEMENT(name, type, work)    \
    struct ko_##name {                       \
        typedef type bits;                   \
        typedef work wide;                   \
        static KO_MEMBER wide widen(bits x)  \
        {                                    \
            return (wide)(x != 0);           \
        }                                    \
        static KO_MEMBER bits narrow(wide x) \
        {                                    \
            return x;                        \
        }                                    \
    };
#define KO_FLOAT_ELEMENT(name, type, work) \
    KO_ANY_FLOAT(name, work, ko_##name##_bits::widen, ko_##name##_bits::narrow)
#define KO_SMALL_ELEMENT(name, type, work) \
    KO_ANY_FLOAT(name, work, ko_float_of_##name, ko_##name##_of_float)
#define KO_HALF_ELEMENT(name, type, work) KO_SMALL_ELEMENT(name, type, work)
#define KO_BYTE_ELEMENT(name, type, work) KO_SMALL_ELEMENT(name, type, work)
#define KO_ANY_FLOAT(name, work, from, to)                \
    struct ko_##name {                                    \
        typedef decltype(ko_##name##_smaller(0, 0)) bits; \
        typedef work wide;                                \
        static KO_MEMBER wide widen(bits x)               \
        {                                                 \
            return from(x);                               \
        }                                                 \
        static KO_MEMBER bits narrow(wide x)              \
        {                                                 \
            return (bits)to(x);                           \
        }                                                 \
        static KO_MEMBER wide over(wide x, uint32_t n)    \
        {                                                 \
            return x / (wide)n;                           \
        }                                                 \
        static KO_MEMBER bits smaller(bits x, bits y)     \
        {                                                 \
            return ko_##name##_smaller(x, y);             \
        }                                                 \
        static KO_MEMBER bits larger(bits x, bits y)      \
        {                                                 \
            return ko_##name##_larger(x, y);              \
        }                                                 \
    };
#define KO_ELEMENT_OF(id, name, type, kind, work) KO_##kind##_ELEMENT(name, type, work)
KO_DTYPE_LIST(KO_ELEMENT_OF)

/* ---- operations: `state` is what has been computed of the parts so far -------------------- */

/* Those that compute in the wide type. */
#define KO_WIDE_OP(name, x_op_y)                                    \
    template <class E> struct ko_op_##name {                        \
        typedef E element;                                          \
        typedef typename E::wide state;                             \
        static KO_MEMBER state begin(typename E::bits x)            \
        {                                                           \
            return E::widen(x);                                     \
        }                                                           \
        static KO_MEMBER state join(state x, typename E::bits part) \
        {                                                           \
            const state y = E::widen(part);                         \
                                                                    \
            return (state)(x_op_y);                                 \
        }                                                           \
        static KO_MEMBER typename E::bits end(state x, uint32_t)    \
        {                                                           \
            return E::narrow(x);                                    \
        }                                                           \
    };
KO_WIDE_OP(add, x + y)
KO_WIDE_OP(prod, x *y)
KO_WIDE_OP(band, x &y)
KO_WIDE_OP(bor, x | y)
KO_WIDE_OP(bxor, x ^ y)

template <class E> struct ko_op_sum : ko_op_add<E> {
    typedef E element;
    typedef typename E::wide state;
    static KO_MEMBER typename E::bits end(state x, uint32_t divisor)
    {
        return E::narrow(divisor > 1 ? E::over(x, divisor) : x);
    }
};

#define KO_CHOOSING_OP(name, chosen)                             \
    template <class E> struct ko_op_##name {                     \
        typedef E element;                                       \
        typedef typename E::bits state;                          \
        static KO_MEMBER state begin(typename E::bits x)         \
        {                                                        \
            return x;                                            \
        }                                                        \
        static KO_MEMBER state join(state x, typename E::bits y) \
        {                                                        \
            return E::chosen(x, y);                              \
        }                                                        \
        static KO_MEMBER typename E::bits end(state x, uint32_t) \
        {                                                        \
            return x;                                            \
        }                                                        \
    };
KO_CHOOSING_OP(min, smaller)
KO_CHOOSING_OP(max, larger)

/* ---- factors: what becomes of an element of a part before anything else ------------------- */

template <class E> struct ko_as_it_is {
    KO_MEMBER typename E::bits of(typename E::bits x, uint32_t) const
    {
        return x;
    }
};

/* The product is rounded, as if it had been stored. */
template <class E> struct ko_times {
    const uint64_t *factors; /* by part */

    KO_MEMBER typename E::bits of(typename E::bits x, uint32_t part) const
    {
        typename E::wide factor;

        memcpy(&factor, &factors[part], sizeof factor);
        return E::narrow((typename E::wide)(E::widen(x) * factor));
    }
};

/* ---- loops -------------------------------------------------------------------------------- */

/* The elements from first up to end but for the `nskipped` from `skipped` on, one by one, by the
 * threads of a block. */
template <class Op, class Factor>
KO_DEVICE void ko_fold_ones(const ko_fold &fold, const Factor &factor, uint64_t first, uint64_t end,
                            uint64_t skipped, uint64_t nskipped)
{
    typedef typename Op::element::bits bits;

    KO_ROLLED
    for (uint64_t one = first + ko_thread(); one < end - nskipped; one += ko_nthreads()) {
        const uint64_t i = one < skipped ? one : one + nskipped;
        typename Op::state state =
            Op::begin(factor.of(ko_load_one((const bits *)fold.parts[0] + i), 0));

        KO_ROLLED
        for (uint32_t p = 1; p < fold.nparts; p++)
            state = Op::join(state, factor.of(ko_load_one((const bits *)fold.parts[p] + i), p));
        KO_ROLLED
        for (uint32_t o = 0; o < fold.nouts; o++)
            ko_store_one((bits *)fold.outs[o] + i, Op::end(state, fold.divisor));
    }
}

/* One pack of each part, as far as it has been folded. */
template <class Op> struct ko_folding {
    typedef typename Op::element::bits bits;
    enum { N = sizeof(ko_pack) / sizeof(bits) };
    typename Op::state states[N];

    template <class Factor> KO_MEMBER void begin(const ko_pack &pack, const Factor &factor)
    {
        bits in[N];

        memcpy(in, &pack, sizeof pack);
        KO_UNROLLED
        for (int k = 0; k < N; k++)
            states[k] = Op::begin(factor.of(in[k], 0));
    }
    template <class Factor>
    KO_MEMBER void join(const ko_pack &pack, const Factor &factor, uint32_t part)
    {
        bits in[N];

        memcpy(in, &pack, sizeof pack);
        KO_UNROLLED
        for (int k = 0; k < N; k++)
            states[k] = Op::join(states[k], factor.of(in[k], part));
    }
    KO_MEMBER ko_pack end(uint32_t divisor) const
    {
        bits out[N];
        ko_pack pack;

        KO_UNROLLED
        for (int k = 0; k < N; k++)
            out[k] = Op::end(states[k], divisor);
        memcpy(&pack, out, sizeof pack);
        return pack;
    }
};

/* The pack that is `at` bytes behind a part's begin, or whatever if there is no such part. */
KO_DEVICE ko_pack ko_load_part(const ko_fold &fold, uint32_t part, uint64_t at)
{
    return ko_load_pack_if(part < fold.nparts,
                           (const ko_pack *)(fold.parts[part % KO_FOLD_MOST] + at));
}

/* Packs of each array, whose pack 0 begins at byte `base`, by the threads of all blocks in turns:
 * as what lies side by side is touched at about the same time, the GPU's memory is faster than
 * where each block has a part of its own (by a tenth, measured on an H200). Two parts are on their
 * way at a time, to registers of their own: a copy from one to the other would wait for what it
 * copies. */
template <class Op, class Factor>
KO_DEVICE void ko_fold_packs(const ko_fold &fold, const Factor &factor, uint64_t base,
                             uint64_t npacks)
{
    const uint64_t turn = (uint64_t)ko_nblocks() * ko_nthreads();

    KO_ROLLED
    for (uint64_t i = (uint64_t)ko_block() * ko_nthreads() + ko_thread(); i < npacks; i += turn) {
        const uint64_t at = base + i * sizeof(ko_pack);
        ko_pack even = ko_load_part(fold, 0, at), odd = ko_load_part(fold, 1, at), pack;
        ko_folding<Op> folding;

        folding.begin(even, factor);
        KO_ROLLED
        for (uint32_t p = 1; p < fold.nparts; p += 2) {
            even = ko_load_part(fold, p + 1, at);
            folding.join(odd, factor, p);
            if (p + 1 == fold.nparts)
                break;
            odd = ko_load_part(fold, p + 2, at);
            folding.join(even, factor, p + 1);
        }
        pack = folding.end(fold.divisor);
        KO_ROLLED
        for (uint32_t o = 0; o < fold.nouts; o++)
            ko_store_pack((ko_pack *)(fold.outs[o] + at), pack);
    }
}

/* How far element 0 of all arrays is beyond a whole pack; no number of elements if they differ in
 * that. */
template <class Bits> KO_DEVICE uint64_t ko_fold_shift(const ko_fold &fold)
{
    const uint64_t shift = fold.parts[0] % sizeof(ko_pack);
    bool is_alike = true;

    KO_ROLLED
    for (uint32_t p = 1; p < fold.nparts; p++)
        is_alike &= fold.parts[p] % sizeof(ko_pack) == shift;
    KO_ROLLED
    for (uint32_t o = 0; o < fold.nouts; o++)
        is_alike &= fold.outs[o] % sizeof(ko_pack) == shift;
    return is_alike && shift % sizeof(Bits) == 0 ? shift : sizeof(ko_pack);
}

enum { KO_LINE = 128 }; /* bytes */

/* The calling block's share of count things: as equal as can be, and whole lines of so many. */
KO_DEVICE void ko_share(uint64_t count, uint64_t line, uint64_t *first, uint64_t *end)
{
    const uint64_t lines = (count + line - 1) / line;

    *first = lines * ko_block() / ko_nblocks() * line;
    *end = lines * (ko_block() + 1) / ko_nblocks() * line;
    *end = *end < count ? *end : count;
    *first = *first < *end ? *first : *end;
}

/* All of it: by packs, where all arrays have theirs at the same elements, which leaves less than
 * one at either end of the arrays to the first block; else by elements. */
template <class Op, class Factor>
KO_DEVICE void ko_fold_all(const ko_fold &fold, const Factor &factor)
{
    typedef typename Op::element::bits bits;
    enum { N = sizeof(ko_pack) / sizeof(bits) };
    const uint64_t shift = ko_fold_shift<bits>(fold);
    const uint64_t ahead = (sizeof(ko_pack) - shift) % sizeof(ko_pack) / sizeof(bits);
    const uint64_t start = ahead < fold.count ? ahead : fold.count;
    const uint64_t npacks = (fold.count - start) / N;
    uint64_t first = 0, end = fold.count, nskipped = 0;

    if (shift == sizeof(ko_pack)) {
        ko_share(fold.count, KO_LINE / sizeof(bits), &first, &end);
    } else {
        ko_fold_packs<Op>(fold, factor, start * sizeof(bits), npacks);
        if (ko_block() != 0)
            return;
        nskipped = npacks * N;
    }
    ko_fold_ones<Op>(fold, factor, first, end, start, nskipped);
}

#endif
