/* SPDX-License-Identifier: MIT
 *
 * epilogue.cuh: what training does with gradients before and after they are reduced, in one pass:
 * cast and scale into or out of a bucket, looking for numbers that are not finite on the way;
 * reduce them and take an optimizer's step. All is computed in float32. C++.
 */
#ifndef KO_EPILOGUE_CUH
#define KO_EPILOGUE_CUH

#include "fold.cuh"

/* ---- some elements of an array, as floats ---------------------------------------------------- */

/* N elements, as many as packs hold: 16 bytes at a time. */
template <class E, int N> struct ko_some {
    typedef typename E::bits bits;
    enum { PACKS = N * sizeof(bits) / sizeof(ko_pack) };

    static KO_MEMBER void load(uint64_t array, uint64_t i, float *x)
    {
        bits in[N];

        for (int k = 0; k < PACKS; k++) {
            const ko_pack pack = ko_load_pack((const ko_pack *)(array + i * sizeof(bits)) + k);

            memcpy((unsigned char *)in + k * sizeof pack, &pack, sizeof pack);
        }
        for (int k = 0; k < N; k++)
            x[k] = E::widen(in[k]);
    }
    static KO_MEMBER void store(uint64_t array, uint64_t i, const float *x)
    {
        bits out[N];

        for (int k = 0; k < N; k++)
            out[k] = E::narrow(x[k]);
        for (int k = 0; k < PACKS; k++) {
            ko_pack pack;

            memcpy(&pack, (const unsigned char *)out + k * sizeof pack, sizeof pack);
            ko_store_pack((ko_pack *)(array + i * sizeof(bits)) + k, pack);
        }
    }
};

template <class E> struct ko_some<E, 1> {
    typedef typename E::bits bits;

    static KO_MEMBER void load(uint64_t array, uint64_t i, float *x)
    {
        *x = E::widen(ko_load_one((const bits *)array + i));
    }
    static KO_MEMBER void store(uint64_t array, uint64_t i, const float *x)
    {
        ko_store_one((bits *)array + i, E::narrow(*x));
    }
};

/* How many elements of both types fill packs. */
template <class A, class B> struct ko_pack_of {
    enum {
        A_SIZE = sizeof(typename A::bits),
        B_SIZE = sizeof(typename B::bits),
        N = sizeof(ko_pack) / (A_SIZE < B_SIZE ? A_SIZE : B_SIZE)
    };
};

KO_DEVICE float ko_load_factor(uint64_t at)
{
    return at ? ko_float_of_bits(ko_load_one((const uint32_t *)at)) : 1;
}

/* ---- cast and scale -------------------------------------------------------------------------- */

KO_DEVICE bool ko_is_finite(float x)
{
    return (ko_float_bits(x) & 0x7f800000) != 0x7f800000;
}

/* Elements first up to end, N at a time, as far as that goes; returns where it ended. */
template <class From, class To, int N>
KO_DEVICE uint64_t ko_scale_some(const ko_scale &scale, uint32_t array, uint64_t first,
                                 uint64_t end, float factor, bool *is_good)
{
    const uint64_t turn = (uint64_t)N * ko_nthreads();
    const uint64_t whole = first + (end - first) / N * N;

    KO_ROLLED
    for (uint64_t i = first + (uint64_t)N * ko_thread(); i < whole; i += turn) {
        float x[N];

        ko_some<From, N>::load(scale.from[array], i, x);
        for (int k = 0; k < N; k++) {
            *is_good &= ko_is_finite(x[k]);
            x[k] *= factor;
        }
        ko_some<To, N>::store(scale.to[array], i, x);
    }
    return whole;
}

template <class From, class To> KO_DEVICE void ko_scale_arrays(const ko_scale &scale)
{
    const float factor = scale.factor * ko_load_factor(scale.factor_at);
    bool is_good = true;

    KO_ROLLED
    for (uint32_t array = 0; array < scale.n; array++) {
        const bool is_even = (scale.from[array] | scale.to[array]) % sizeof(ko_pack) == 0;
        uint64_t first, end;

        ko_share(scale.counts[array], KO_LINE, &first, &end);
        if (first >= end)
            continue;
        if (is_even)
            first = ko_scale_some<From, To, ko_pack_of<From, To>::N>(scale, array, first, end,
                                                                     factor, &is_good);
        ko_scale_some<From, To, 1>(scale, array, first, end, factor, &is_good);
    }
    if (!is_good && scale.found_at) /* any thread that finds one writes the same */
        ko_release_word((uint32_t *)scale.found_at, ko_float_bits(1));
}

/* ---- gradients that travel as a smaller float --------------------------------------------- */

/* A float32 that is rounded to Wire when it is read, and when it is written: what a fold of Wire's
 * numbers gives between two casts. */
template <class Wire> struct ko_rounded {
    typedef ko_float32::bits bits;
    typedef float wide;
    static KO_MEMBER float widen(bits x)
    {
        return Wire::widen(Wire::narrow(ko_float32::widen(x)));
    }
    static KO_MEMBER bits narrow(float x)
    {
        return ko_float32::narrow(Wire::widen(Wire::narrow(x)));
    }
    static KO_MEMBER float over(float x, uint32_t n)
    {
        return x / (float)n;
    }
};
typedef ko_rounded<ko_float16> ko_float32_as_float16;
typedef ko_rounded<ko_bfloat16> ko_float32_as_bfloat16;

/* ---- steps ----------------------------------------------------------------------------------- */

struct ko_sgd {
    static KO_MEMBER int count_states(const ko_rule &rule)
    {
        return rule.momentum != 0;
    }
    static KO_MEMBER float move(const ko_rule &rule, float p, float g, float *s, float *)
    {
        return ko_sgd_move(&rule, p, g, s);
    }
};

struct ko_adam {
    static KO_MEMBER int count_states(const ko_rule &)
    {
        return 2;
    }
    static KO_MEMBER float move(const ko_rule &rule, float p, float g, float *s, float *v)
    {
        return ko_adam_move(&rule, p, g, s, v);
    }
};

/* As an all_reduce leaves them, times the factor. */
template <class E, int N>
KO_DEVICE void ko_sum_gradients(const ko_step &step, uint64_t i, float factor, float *sum)
{
    ko_some<E, N>::load(step.parts[0], i, sum);
    KO_ROLLED
    for (uint32_t p = 1; p < step.nparts; p++) {
        float x[N];

        ko_some<E, N>::load(step.parts[p], i, x);
        for (int k = 0; k < N; k++)
            sum[k] += x[k];
    }
    for (int k = 0; k < N; k++)
        sum[k] = E::widen(E::narrow(step.divisor > 1 ? E::over(sum[k], step.divisor) : sum[k])) *
                 factor;
}

/* N parameters, from the i-th on. */
template <class Rule, class E, int N>
KO_DEVICE void ko_step_of(const ko_step &step, uint64_t i, float factor)
{
    const int nstates = Rule::count_states(step.rule);
    float g[N], p[N], states[2][N] = {};

    ko_sum_gradients<E, N>(step, i, factor, g);
    ko_some<ko_float32, N>::load(step.outs[0], i, p);
    for (int s = 0; s < nstates && !step.rule.is_first; s++)
        ko_some<ko_float32, N>::load(step.states[s][0], i, states[s]);
    for (int k = 0; k < N; k++)
        p[k] = Rule::move(step.rule, p[k], g[k], &states[0][k], &states[1][k]);
    KO_ROLLED
    for (uint32_t o = 0; o < step.nouts; o++) {
        ko_some<ko_float32, N>::store(step.outs[o], i, p);
        for (int s = 0; s < nstates; s++)
            ko_some<ko_float32, N>::store(step.states[s][o], i, states[s]);
    }
}

KO_DEVICE bool ko_step_is_even(const ko_step &step, int nstates)
{
    uint64_t all = 0;

    KO_ROLLED
    for (uint32_t p = 0; p < step.nparts; p++)
        all |= step.parts[p];
    KO_ROLLED
    for (uint32_t o = 0; o < step.nouts; o++) {
        all |= step.outs[o];
        for (int s = 0; s < nstates; s++)
            all |= step.states[s][o];
    }
    return all % sizeof(ko_pack) == 0;
}

template <class Rule, class E> KO_DEVICE void ko_take_step(const ko_step &step)
{
    enum { N = ko_pack_of<E, ko_float32>::N };
    const float factor = step.rule.factor * ko_load_factor(step.factor_at);
    uint64_t first, end, whole;

    if (step.skip_at && ko_load_factor(step.skip_at) != 0)
        return;
    ko_share(step.count, KO_LINE, &first, &end);
    if (first >= end)
        return;
    whole = ko_step_is_even(step, Rule::count_states(step.rule)) ? first + (end - first) / N * N
                                                                 : first;
    KO_ROLLED
    for (uint64_t i = first + (uint64_t)N * ko_thread(); i < whole; i += N * ko_nthreads())
        ko_step_of<Rule, E, N>(step, i, factor);
    KO_ROLLED
    for (uint64_t i = whole + ko_thread(); i < end; i += ko_nthreads())
        ko_step_of<Rule, E, 1>(step, i, factor);
}

#endif
