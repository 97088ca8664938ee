/* SPDX-License-Identifier: MIT
 *
 * The experiments of bench/fragments and their inputs: which kernel of fragments.h runs on which numbers, and how near
 * the device has to come to the emulator.
 */
#ifndef HS_BENCH_FRAGMENT_INPUTS_H
#define HS_BENCH_FRAGMENT_INPUTS_H

#include <math.h>
#include <string.h>

#include "bench/fragments.h"

typedef enum Rule {
    EXACT,    /* the same words; any NaN for a NaN */
    SUMS,     /* sums of terms of magnitude 1: each addition may lose a unit in the last place of their number */
    RELATIVE, /* approximate functions: 2^-21 */
    REPORTED
} Rule;
static const char *const rule_names[] = { "exact", "sums", "relative", "reported" };

/* How the numbers of a product are made. */
typedef enum Numbers {
    WORDS,     /* any bits */
    INTEGERS,  /* small: every sum is exact, so only the layout matters */
    UNIFORM,   /* in [-1, 1) */
    SPECIAL,   /* infinities, NaNs and the largest numbers among ones */
    SUBNORMAL, /* a below the normal range */
    ROUNDING,  /* ones next to 2^24: what the adder drops */
    LOW_BITS,  /* tf32 operands with bits below its mantissa */
    FLOATS,    /* ties, limits, and any bits */
    EXPONENTS, /* in [-150, 150) */
    POSITIVE,
    TINY /* f32 around the smallest normal number, zeros among them */
} Numbers;

typedef struct Experiment {
    const char *name;
    FragmentKernel kernel;
    HsDtype operands; /* of a product; else what the words are, where that matters */
    Numbers numbers;
    Rule rule;
} Experiment;

static const Experiment experiments[] = {
    { "mma bf16 layout", FRAGMENT_MMA_BF16, HS_BF16, INTEGERS, EXACT },
    { "mma f16 layout", FRAGMENT_MMA_F16, HS_F16, INTEGERS, EXACT },
    { "mma tf32 layout", FRAGMENT_MMA_TF32, HS_F32, INTEGERS, EXACT },
    { "mma bf16 sums", FRAGMENT_MMA_BF16, HS_BF16, UNIFORM, SUMS },
    { "mma f16 sums", FRAGMENT_MMA_F16, HS_F16, UNIFORM, SUMS },
    { "mma tf32 sums", FRAGMENT_MMA_TF32, HS_F32, UNIFORM, SUMS },
    { "mma bf16 infinities and NaN", FRAGMENT_MMA_BF16, HS_BF16, SPECIAL, EXACT },
    { "mma f16 infinities and NaN", FRAGMENT_MMA_F16, HS_F16, SPECIAL, EXACT },
    { "mma tf32 infinities and NaN", FRAGMENT_MMA_TF32, HS_F32, SPECIAL, EXACT },
    { "mma f16 subnormal", FRAGMENT_MMA_F16, HS_F16, SUBNORMAL, EXACT },
    { "mma bf16 subnormal", FRAGMENT_MMA_BF16, HS_BF16, SUBNORMAL, REPORTED },
    { "mma bf16 adder's rounding", FRAGMENT_MMA_BF16, HS_BF16, ROUNDING, REPORTED },
    { "mma f16 adder's rounding", FRAGMENT_MMA_F16, HS_F16, ROUNDING, REPORTED },
    { "mma tf32 low bits", FRAGMENT_MMA_TF32, HS_F32, LOW_BITS, REPORTED },
    { "mma e4m3 layout", FRAGMENT_MMA_E4M3, HS_E4M3, INTEGERS, EXACT },
    { "mma e5m2 layout", FRAGMENT_MMA_E5M2, HS_E5M2, INTEGERS, EXACT },
    { "mma e4m3 sums", FRAGMENT_MMA_E4M3, HS_E4M3, UNIFORM, REPORTED },
    { "ldmatrix x4", FRAGMENT_LOAD_MATRIX_X4, HS_F32, WORDS, EXACT },
    { "ldmatrix x4 transposed", FRAGMENT_LOAD_MATRIX_X4_TRANSPOSED, HS_F32, WORDS, EXACT },
    { "cp.async of 0 to 16 bytes", FRAGMENT_COPY_ASYNC_16, HS_F32, WORDS, EXACT },
    { "cp.async of 0 to 4 bytes", FRAGMENT_COPY_ASYNC_4, HS_F32, WORDS, EXACT },
    { "two f32 to bf16", FRAGMENT_PACK_BF16, HS_BF16, FLOATS, EXACT },
    { "two f32 to f16", FRAGMENT_PACK_F16, HS_F16, FLOATS, EXACT },
    { "two f32 to e4m3", FRAGMENT_PACK_E4M3, HS_E4M3, FLOATS, EXACT },
    { "two f32 to e5m2", FRAGMENT_PACK_E5M2, HS_E5M2, FLOATS, EXACT },
    { "f32 to tf32", FRAGMENT_ENCODE_TF32, HS_F32, FLOATS, EXACT },
    { "f16 to f32", FRAGMENT_DECODE_F16, HS_F32, WORDS, EXACT },
    { "2^x", FRAGMENT_EXP2_APPROXIMATE, HS_F32, EXPONENTS, RELATIVE },
    { "1/sqrt(x)", FRAGMENT_RSQRT, HS_F32, POSITIVE, RELATIVE },
    { "1/x", FRAGMENT_RECIPROCAL_APPROXIMATE, HS_F32, POSITIVE, RELATIVE },
    { "clamp", FRAGMENT_CLAMP, HS_F32, FLOATS, EXACT },
    { "shuffle", FRAGMENT_SHUFFLE_XOR, HS_F32, WORDS, EXACT },
    { "ballot", FRAGMENT_BALLOT, HS_F32, WORDS, EXACT },
    { "named barriers", FRAGMENT_NAMED_BARRIERS, HS_F32, WORDS, EXACT },
    { "tensor load, no swizzle", FRAGMENT_TMA_LOAD_PLAIN, HS_F32, WORDS, EXACT },
    { "tensor load, swizzle of 32", FRAGMENT_TMA_LOAD_32, HS_F32, WORDS, EXACT },
    { "tensor load, swizzle of 64", FRAGMENT_TMA_LOAD_64, HS_F32, WORDS, EXACT },
    { "tensor load, swizzle of 128", FRAGMENT_TMA_LOAD_128, HS_F32, WORDS, EXACT },
    { "tensor load, 3 dimensions", FRAGMENT_TMA_LOAD_3D, HS_F32, WORDS, EXACT },
    { "tensor load, 4 dimensions", FRAGMENT_TMA_LOAD_4D, HS_F32, WORDS, EXACT },
    { "tensor load from before the tensor", FRAGMENT_TMA_LOAD_BEFORE, HS_F32, WORDS, REPORTED },
    { "tensor load from between 16 bytes", FRAGMENT_TMA_LOAD_UNALIGNED, HS_F32, WORDS, REPORTED },
    { "tensor store, no swizzle", FRAGMENT_TMA_STORE_PLAIN, HS_F32, WORDS, EXACT },
    { "tensor store, swizzle of 128", FRAGMENT_TMA_STORE_128, HS_F32, WORDS, EXACT },
    { "tensor store, 4 dimensions", FRAGMENT_TMA_STORE_4D, HS_F32, WORDS, EXACT },
    { "tensor store, 3 dimensions", FRAGMENT_TMA_STORE_3D, HS_F32, WORDS, EXACT },
    { "tensor addition", FRAGMENT_TMA_ADD_PLAIN, HS_F32, INTEGERS, EXACT },
    { "tensor addition of subnormal numbers", FRAGMENT_TMA_ADD_PLAIN, HS_F32, TINY, EXACT },
    { "tensor addition, 3 dimensions", FRAGMENT_TMA_ADD_3D, HS_F32, INTEGERS, EXACT },
    { "a turn between two blocks", FRAGMENT_TURN, HS_F32, UNIFORM, EXACT },
    { "multicast to a cluster of two", FRAGMENT_TMA_MULTICAST, HS_F32, WORDS, EXACT },
    { "a ring of stages in a cluster", FRAGMENT_RING, HS_F32, WORDS, EXACT },
    { "phases of an mbarrier", FRAGMENT_MBARRIER_PARITY, HS_F32, WORDS, EXACT },
    { "offsets in another block", FRAGMENT_MAP_SHARED_OFFSETS, HS_F32, WORDS, EXACT },
    { "distance of two blocks", FRAGMENT_MAP_SHARED_BLOCKS, HS_F32, WORDS, REPORTED },
    { "stores to another block", FRAGMENT_STORE_CLUSTER, HS_F32, WORDS, EXACT },
    { "registers handed over", FRAGMENT_REGISTERS, HS_F32, WORDS, EXACT },
    { "a kernel that begins before the other ends", FRAGMENT_DEPENDENT, HS_F32, WORDS, EXACT },
    { "wgmma bf16 n64", FRAGMENT_WGMMA_64, HS_BF16, INTEGERS, EXACT },
    { "wgmma f16 n64", FRAGMENT_WGMMA_64_F16, HS_F16, INTEGERS, EXACT },
    { "wgmma n128, rows from 64 on", FRAGMENT_WGMMA_128, HS_BF16, INTEGERS, EXACT },
    { "wgmma n256, rows from 64 on", FRAGMENT_WGMMA_256, HS_BF16, INTEGERS, EXACT },
    { "wgmma n256, b across", FRAGMENT_WGMMA_256_B_ACROSS, HS_BF16, INTEGERS, EXACT },
    { "wgmma n256, both across", FRAGMENT_WGMMA_256_BOTH_ACROSS, HS_BF16, INTEGERS, EXACT },
    { "wgmma f16 n128, a across", FRAGMENT_WGMMA_128_A_ACROSS_F16, HS_F16, INTEGERS, EXACT },
    { "wgmma f16 n128, two boxes of k", FRAGMENT_WGMMA_128_DEEP_F16, HS_F16, INTEGERS, EXACT },
    { "wgmma n64, a in registers, b across", FRAGMENT_WGMMA_64_REGISTERS_B_ACROSS, HS_BF16, INTEGERS, EXACT },
    { "wgmma f16 n128, a in registers, b across", FRAGMENT_WGMMA_128_REGISTERS_B_ACROSS_F16, HS_F16, INTEGERS, EXACT },
    { "wgmma n128, a in registers", FRAGMENT_WGMMA_128_REGISTERS, HS_BF16, INTEGERS, EXACT },
    { "wgmma n64, both across", FRAGMENT_WGMMA_64_BOTH_ACROSS, HS_BF16, INTEGERS, EXACT },
    { "wgmma e4m3 n128", FRAGMENT_WGMMA_E4M3_128, HS_E4M3, INTEGERS, EXACT },
    { "wgmma e5m2 n256", FRAGMENT_WGMMA_E5M2_256, HS_E5M2, INTEGERS, EXACT },
    { "wgmma e4m3 sums", FRAGMENT_WGMMA_E4M3_128, HS_E4M3, UNIFORM, REPORTED },
    { "wgmma bf16 sums", FRAGMENT_WGMMA_64, HS_BF16, UNIFORM, SUMS },
    { "wgmma f16 sums", FRAGMENT_WGMMA_64_F16, HS_F16, UNIFORM, SUMS },
    { "wgmma bf16 infinities and NaN", FRAGMENT_WGMMA_64, HS_BF16, SPECIAL, EXACT },
    { "wgmma f16 infinities and NaN", FRAGMENT_WGMMA_64_F16, HS_F16, SPECIAL, EXACT },
    { "wgmma f16 subnormal", FRAGMENT_WGMMA_64_F16, HS_F16, SUBNORMAL, EXACT },
    { "wgmma bf16 subnormal", FRAGMENT_WGMMA_64, HS_BF16, SUBNORMAL, REPORTED },
    { "wgmma bf16 adder's rounding", FRAGMENT_WGMMA_64, HS_BF16, ROUNDING, REPORTED },
    { "wgmma f16 adder's rounding", FRAGMENT_WGMMA_64_F16, HS_F16, ROUNDING, REPORTED },
};

static bool is_mma(FragmentKernel kernel)
{
    return kernel <= FRAGMENT_MMA_E5M2;
}

static bool is_wgmma(FragmentKernel kernel)
{
    return kernel >= FRAGMENT_WGMMA_64;
}

/* Of a sum, the accumulator among them. */
static int sum_terms(FragmentKernel kernel)
{
    return is_wgmma(kernel) ? 65 : 17;
}

static uint32_t random_word(int index)
{
    const HsRng rng = { .seed = 3 };
    return hs_rng_draw(&rng, (uint64_t)index).word[0];
}

/* Bits of f32 that conversions get wrong first: signs of zero, ties of each format, its limits, its overflow. */
static const uint32_t hard_floats[] = {
    0x00000000, 0x80000000, 0x3f800000, 0x3f808000, 0x3f818000, 0x3f807fff, 0x3f808001, 0x3f801000,
    0x3f803000, 0x3f800fff, 0x3f801001, 0x3f802000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000,
    0x7f800001, 0x7fffffff, 0x7f7fffff, 0x7f7f8000, 0x7f7f7fff, 0x477fe000, 0x477fefff, 0x477ff000,
    0x47800000, 0x38800000, 0x387fffff, 0x387fe000, 0x33800000, 0x33000000, 0x33000001, 0x32ffffff,
    0x33c00000, 0x00000001, 0x007fffff, 0x00800000, 0x00008000, 0x00018000, 0x00007fff, 0x7f7ff000,
};

static uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Whether word `index` belongs to the left operand: of an mma, 4 of a lane's 10 registers; of the 64 x 64 x 64 product
 * by wgmma, the first half of shared memory; of codes, 64 rows of 128. */
static bool in_left(FragmentKernel kernel, int index)
{
    if (kernel == FRAGMENT_WGMMA_E4M3_128 || kernel == FRAGMENT_WGMMA_E5M2_256)
        return index < 64 * 128 / 4;
    return is_wgmma(kernel) ? index < fragment_shape(kernel)->inputs / 2 : index % 10 < 4;
}

/* Number `number` of word `index`. */
static float product_number(const Experiment *experiment, int index, int number)
{
    const uint32_t word = random_word(number);
    const HsDtypeInfo *info = hs_dtype_info(experiment->operands);
    const bool wgmma = is_wgmma(experiment->kernel);
    /* So that the longer sums do not all meet one. */
    const uint32_t rare = wgmma ? 509 : 61, largest = wgmma ? 499 : 59;
    switch (experiment->numbers) {
    case INTEGERS:
        return (float)((int)(word % 17) - 8);
    case SPECIAL:
        if (word % rare == 0)
            return word % 2 ? INFINITY : NAN;
        return word % largest == 0 ? (float)info->max : 1.0f;
    case SUBNORMAL: /* in the left operand only; the products are normal and their sums exact */
        return (float)((int)(word % 17) - 8) *
               (in_left(experiment->kernel, index) ? (float)info->smallest_subnormal : 1024.0f);
    case ROUNDING: /* an mma's 2^24 is in its accumulators */
        return wgmma && word % 64 == 0 ? 0x1p12f : 1.0f;
    default:
        return hs_rng_uniform(word) * 2.0f - 1.0f;
    }
}

/* Four codes; those on the right are E4M3 always. */
static uint32_t codes_word(const Experiment *experiment, int index)
{
    const HsDtype dtype = in_left(experiment->kernel, index) ? experiment->operands : HS_E4M3;
    uint8_t codes[4];
    uint32_t word;
    for (int i = 0; i < 4; i++)
        hs_dtype_store(dtype, codes, i, (double)product_number(experiment, index, 4 * index + i));
    memcpy(&word, codes, sizeof word);
    return word;
}

/* Two numbers of 16 bits, or one of 32. */
static uint32_t product_word(const Experiment *experiment, int index)
{
    if (experiment->operands == HS_F32) { /* exact in tf32, but where its lowest bits are the question */
        const float value = product_number(experiment, index, index);
        return float_bits(value) & (experiment->numbers == LOW_BITS || isnan(value) ? UINT32_MAX : 0xffffe000u);
    }
    if (experiment->operands == HS_E4M3 || experiment->operands == HS_E5M2)
        return codes_word(experiment, index);
    uint16_t halves[2];
    for (int i = 0; i < 2; i++)
        hs_dtype_store(experiment->operands, halves, i, (double)product_number(experiment, index, 2 * index + i));
    return (uint32_t)halves[0] | (uint32_t)halves[1] << 16;
}

static uint32_t accumulator_word(const Experiment *experiment, int index)
{
    switch (experiment->numbers) {
    case ROUNDING:
        return float_bits(0x1p24f + (float)(2 * (index % 5)));
    case SPECIAL:
        return float_bits(1.0f);
    case SUBNORMAL:
        return float_bits(0.0f);
    default:
        return float_bits(product_number(experiment, index, index));
    }
}

/* Exponents 0 (subnormal) to 2: sums become subnormal from both sides, and normal from subnormal ones. */
static uint32_t tiny_word(int index)
{
    const uint32_t word = random_word(index);
    return word % 7 == 0 ? word & 0x80000000u : (word & 0x807fffffu) | (word >> 23 & 0xffu) % 3 << 23;
}

static uint32_t input_word(const Experiment *experiment, int index)
{
    enum { HARD = sizeof hard_floats / sizeof *hard_floats, LANE_WORDS = 10, ACCUMULATORS = 6 };
    const uint32_t word = random_word(index);
    if (is_mma(experiment->kernel) && index % LANE_WORDS >= ACCUMULATORS)
        return accumulator_word(experiment, index);
    switch (experiment->numbers) {
    case WORDS:
        return word;
    case FLOATS:
        return index < HARD ? hard_floats[index] : word;
    case TINY:
        return tiny_word(index);
    case EXPONENTS:
        return float_bits((hs_rng_uniform(word) * 2.0f - 1.0f) * 150.0f);
    case POSITIVE:
        return float_bits(ldexpf(1.0f + hs_rng_uniform(word), (int)(word % 200) - 100));
    default:
        return product_word(experiment, index);
    }
}

/* What the device's results stand in before. */
static uint32_t initial_word(const Experiment *experiment, int index)
{
    return experiment->numbers == TINY ? tiny_word(100000 + index) : FRAGMENT_UNWRITTEN;
}

#endif
