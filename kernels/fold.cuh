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

/* The elements from first up to end, this thread's among those of a block. */
template <class Op, class Factor>
KO_DEVICE void ko_fold_ones(const ko_fold &fold, const Factor &factor, uint64_t first, uint64_t end)
{
    typedef typename Op::element::bits bits;

    KO_ROLLED
    for (uint64_t i = first + ko_thread(); i < end; i += ko_nthreads()) {
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

/* U packs of an array, one of each turn of the block's threads. */
template <int U> struct ko_packs {
    ko_pack packs[U];

    KO_MEMBER void load(uint64_t at)
    {
        KO_UNROLLED
        for (int u = 0; u < U; u++)
            packs[u] = ko_load_pack((const ko_pack *)at + (uint64_t)u * ko_nthreads());
    }
};

/* Packs first, first + 1, ... below end, as many as make whole turns of U packs for each thread.
 * Pack 0 begins at byte `base` of each array. Returns the first that is not done. The next part is
 * being loaded while one is folded. */
template <class Op, int U, class Factor>
KO_DEVICE uint64_t ko_fold_packs(const ko_fold &fold, const Factor &factor, uint64_t base,
                                 uint64_t first, uint64_t end)
{
    const uint64_t turn = (uint64_t)U * ko_nthreads();

    KO_ROLLED
    for (; first + turn <= end; first += turn) {
        const uint64_t at = base + (first + ko_thread()) * sizeof(ko_pack);
        ko_folding<Op> folding[U];
        ko_packs<U> here, next;

        here.load(fold.parts[0] + at);
        next = here;
        if (fold.nparts > 1)
            next.load(fold.parts[1] + at);
        KO_UNROLLED
        for (int u = 0; u < U; u++)
            folding[u].begin(here.packs[u], factor);
        KO_ROLLED
        for (uint32_t p = 1; p < fold.nparts; p++) {
            here = next;
            if (p + 1 < fold.nparts)
                next.load(fold.parts[p + 1] + at);
            KO_UNROLLED
            for (int u = 0; u < U; u++)
                folding[u].join(here.packs[u], factor, p);
        }
        KO_UNROLLED
        for (int u = 0; u < U; u++) {
            const ko_pack pack = folding[u].end(fold.divisor);

            KO_ROLLED
            for (uint32_t o = 0; o < fold.nouts; o++)
                ko_store_pack((ko_pack *)(fold.outs[o] + at) + (uint64_t)u * ko_nthreads(), pack);
        }
    }
    return first;
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

/* The elements from first up to end, by all threads of the calling block. */
template <class Op, class Factor>
KO_DEVICE void ko_fold_range(const ko_fold &fold, const Factor &factor, uint64_t first,
                             uint64_t end)
{
    typedef typename Op::element::bits bits;
    enum { N = sizeof(ko_pack) / sizeof(bits), U = N > 8 ? 1 : 2 };
    const uint64_t shift = ko_fold_shift<bits>(fold);
    uint64_t start, packs, done;

    if (shift == sizeof(ko_pack) || end - first < N) {
        ko_fold_ones<Op>(fold, factor, first, end);
        return;
    }
    /* the first element that begins a pack */
    start = first + (N - (first + shift / sizeof(bits)) % N) % N;
    packs = end > start ? (end - start) / N : 0;
    ko_fold_ones<Op>(fold, factor, first, start < end ? start : end);
    done = ko_fold_packs<Op, U>(fold, factor, start * sizeof(bits), 0, packs);
    done = ko_fold_packs<Op, 1>(fold, factor, start * sizeof(bits), done, packs);
    ko_fold_ones<Op>(fold, factor, start + done * N, end);
}

/* The share of a block: as equal as can be, and whole lines of 128 bytes. */
template <class Op, class Factor>
KO_DEVICE void ko_fold_share(const ko_fold &fold, const Factor &factor, unsigned block,
                             unsigned nblocks)
{
    const uint64_t line = 128 / sizeof(typename Op::element::bits);
    const uint64_t lines = (fold.count + line - 1) / line;
    const uint64_t first = lines * block / nblocks * line;
    const uint64_t end = lines * (block + 1) / nblocks * line;

    if (first < fold.count)
        ko_fold_range<Op>(fold, factor, first, end < fold.count ? end : fold.count);
}

#endif
