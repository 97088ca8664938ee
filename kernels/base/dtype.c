/* SPDX-License-Identifier: MIT
 *
 * Number formats: the table, and exact software encode and decode.
 *
 * One algorithm serves every small format.  A double is sign, exponent and a 53-bit significand s; the target keeps the
 * top bits of s and rounds by what it drops.  In (exponent | mantissa) read as one integer, the next larger magnitude
 * is the next larger integer, so rounding up is "+ 1" and carries by itself from mantissa into exponent, from
 * subnormal into normal and from the largest finite value into what lies above it.
 */
#include "kernels/base/dtype.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

static inline uint64_t bits_of_double(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* What a format does past its largest finite value. */
typedef struct Layout {
    int exponent_bits, mantissa_bits;
    uint32_t overflow; /* the first magnitude that is not finite: infinity, or E4M3's only NaN */
    uint32_t nan;      /* bits set in every NaN made here */
} Layout;

static const Layout f16_layout = { 5, 10, 0x7C00, 0x7E00 };
static const Layout bf16_layout = { 8, 7, 0x7F80, 0x7FC0 };
static const Layout e4m3_layout = { 4, 3, 0x7F, 0x7F };
static const Layout e5m2_layout = { 5, 2, 0x7C, 0x7E };

/* The one NaN that GPUs' saturating conversions make, of either sign and format. */
enum { FP8_NAN = 0x7F };

/* Round to nearest, ties to even; always inlined, so that each caller's layout is a constant. */
__attribute__((always_inline)) static inline uint32_t encode(Layout layout, double value, bool saturate)
{
    uint64_t bits = bits_of_double(value);
    int mantissa_bits = layout.mantissa_bits;
    uint32_t sign = (uint32_t)(bits >> 63) << (layout.exponent_bits + mantissa_bits);
    int exponent = (int)(bits >> 52 & 0x7FF);
    uint64_t fraction = bits & (((uint64_t)1 << 52) - 1);

    if (exponent == 0x7FF && fraction != 0) /* NaN: keep the payload's top bits, make it quiet */
        return sign | layout.nan | (uint32_t)(fraction >> (52 - mantissa_bits));
    if (exponent == 0x7FF)
        return sign | (saturate ? layout.overflow - 1 : layout.overflow);
    if (exponent == 0) /* zero, or a subnormal double: far below half of any target's smallest value */
        return sign;

    int target = exponent - 1023 + (1 << (layout.exponent_bits - 1)) - 1;
    int shift = 52 - mantissa_bits;
    if (target < 1) { /* subnormal: fewer bits are kept, and the exponent field stays 0 */
        shift += 1 - target;
        target = 1;
    }
    if (shift > 53)
        return sign;
    uint64_t significand = fraction | (uint64_t)1 << 52;
    uint64_t kept = significand >> shift;
    uint64_t dropped = significand & (((uint64_t)1 << shift) - 1);
    uint64_t half = (uint64_t)1 << (shift - 1);
    if (dropped > half || (dropped == half && (kept & 1)))
        kept++;
    /* `kept` includes the implicit bit of a normal number, which adds the 1 that is missing from the exponent. */
    uint64_t magnitude = ((uint64_t)(target - 1) << mantissa_bits) + kept;
    if (magnitude >= layout.overflow)
        magnitude = saturate ? layout.overflow - 1 : layout.overflow;
    return sign | (uint32_t)magnitude;
}

__attribute__((always_inline)) static inline float decode(Layout layout, uint32_t bits)
{
    int mantissa_bits = layout.mantissa_bits;
    int exponent_bits = layout.exponent_bits;
    uint32_t sign = bits >> (exponent_bits + mantissa_bits) << 31;
    uint32_t magnitude = bits & ((1u << (exponent_bits + mantissa_bits)) - 1);
    uint32_t mantissa = magnitude & ((1u << mantissa_bits) - 1);
    int exponent = (int)(magnitude >> mantissa_bits);
    int bias = (1 << (exponent_bits - 1)) - 1;

    if (magnitude >= layout.overflow) {
        bool infinite = magnitude == layout.overflow && layout.overflow != layout.nan;
        return float_of_bits(sign | 0x7F800000u | (infinite ? 0 : mantissa << (23 - mantissa_bits)));
    }
    if (exponent == 0) { /* mantissa times the smallest subnormal, 2^(1 - bias - mantissa_bits): exact in float */
        float value = (float)mantissa * float_of_bits((uint32_t)(1 - bias - mantissa_bits + 127) << 23);
        return sign ? -value : value;
    }
    return float_of_bits(sign | (uint32_t)(exponent - bias + 127) << 23 | mantissa << (23 - mantissa_bits));
}

/* bfloat16 is the upper half of a float, so rounding is one addition: half a unit, less one when the kept part is even.
 * Same result as encode(bf16_layout, value, false), which the tests compare. */
uint16_t hs_bf16_encode(float value)
{
    uint32_t bits = bits_of_float(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

float hs_bf16_decode(uint16_t bits)
{
    return float_of_bits((uint32_t)bits << 16);
}

uint16_t hs_f16_encode(float value)
{
    return (uint16_t)encode(f16_layout, value, false);
}

float hs_f16_decode(uint16_t bits)
{
    return decode(f16_layout, bits);
}

uint8_t hs_e4m3_encode(float value)
{
    return (uint8_t)encode(e4m3_layout, value, false);
}

uint8_t hs_e4m3_encode_saturate(float value)
{
    return isnan(value) ? FP8_NAN : (uint8_t)encode(e4m3_layout, value, true);
}

float hs_e4m3_decode(uint8_t bits)
{
    return decode(e4m3_layout, bits);
}

uint8_t hs_e5m2_encode(float value)
{
    return (uint8_t)encode(e5m2_layout, value, false);
}

uint8_t hs_e5m2_encode_saturate(float value)
{
    return isnan(value) ? FP8_NAN : (uint8_t)encode(e5m2_layout, value, true);
}

float hs_e5m2_decode(uint8_t bits)
{
    return decode(e5m2_layout, bits);
}

uint16_t hs_bf16_encode_stochastic(float value, uint16_t random_bits)
{
    uint32_t bits = bits_of_float(value);
    if ((bits & 0x7F800000u) == 0x7F800000u) /* adding to an infinity would make a NaN, and to a NaN an infinity */
        return hs_bf16_encode(value);
    return (uint16_t)((bits + random_bits) >> 16);
}

/* Nearest even, clamped to the range; NaN, which no integer can stand for, becomes 0. */
static double round_clamped(double value, double least, double most)
{
    if (isnan(value))
        return 0;
    double rounded = nearbyint(value);
    return rounded < least ? least : rounded > most ? most : rounded;
}

/* Load and store of each format at an index. */
#define STORE(name, Type, expression)                                  \
    static void store_##name(void *array, int64_t index, double value) \
    {                                                                  \
        ((Type *)array)[index] = (Type)(expression);                   \
    }
#define LOAD(name, Type, expression)                            \
    static double load_##name(const void *array, int64_t index) \
    {                                                           \
        Type bits = ((const Type *)array)[index];               \
        return (double)(expression);                            \
    }

STORE(f32, float, value)
LOAD(f32, float, bits)
STORE(f16, uint16_t, encode(f16_layout, value, false))
LOAD(f16, uint16_t, hs_f16_decode(bits))
STORE(bf16, uint16_t, encode(bf16_layout, value, false))
LOAD(bf16, uint16_t, hs_bf16_decode(bits))
STORE(e4m3, uint8_t, encode(e4m3_layout, value, false))
LOAD(e4m3, uint8_t, hs_e4m3_decode(bits))
STORE(e5m2, uint8_t, encode(e5m2_layout, value, false))
LOAD(e5m2, uint8_t, hs_e5m2_decode(bits))
STORE(f64, double, value)
LOAD(f64, double, bits)
STORE(i32, int32_t, round_clamped(value, INT32_MIN, INT32_MAX))
LOAD(i32, int32_t, bits)
STORE(u16, uint16_t, round_clamped(value, 0, UINT16_MAX))
LOAD(u16, uint16_t, bits)
STORE(u8, uint8_t, round_clamped(value, 0, UINT8_MAX))
LOAD(u8, uint8_t, bits)
LOAD(i64, int64_t, bits)

/* 2^63 is a double but not an int64_t: the clamp must come before the conversion. */
static void store_i64(void *array, int64_t index, double value)
{
    double rounded = isnan(value) ? 0 : nearbyint(value);
    ((int64_t *)array)[index] = rounded >= 0x1p63 ? INT64_MAX : rounded < -0x1p63 ? INT64_MIN : (int64_t)rounded;
}

typedef struct Row {
    HsDtypeInfo info;
    void (*store)(void *array, int64_t index, double value);
    double (*load)(const void *array, int64_t index);
} Row;

/* name, safetensors name, bytes, float?, exponent bits, mantissa bits, max, smallest normal, smallest subnormal,
 * epsilon, infinity? */
static const Row rows[HS_FORMAT_COUNT] = {
    [HS_F32] = { { "f32", "F32", 4, true, 8, 23, FLT_MAX, 0x1p-126, 0x1p-149, 0x1p-23, true }, store_f32, load_f32 },
    [HS_F16] = { { "f16", "F16", 2, true, 5, 10, 65504, 0x1p-14, 0x1p-24, 0x1p-10, true }, store_f16, load_f16 },
    [HS_BF16] = { { "bf16", "BF16", 2, true, 8, 7, 0x1.FEp127, 0x1p-126, 0x1p-133, 0x1p-7, true },
                  store_bf16,
                  load_bf16 },
    [HS_E4M3] = { { "e4m3", "F8_E4M3", 1, true, 4, 3, 448, 0x1p-6, 0x1p-9, 0x1p-3, false }, store_e4m3, load_e4m3 },
    [HS_E5M2] = { { "e5m2", "F8_E5M2", 1, true, 5, 2, 57344, 0x1p-14, 0x1p-16, 0x1p-2, true }, store_e5m2, load_e5m2 },
    [HS_F64] = { { "f64", "F64", 8, true, 11, 52, DBL_MAX, 0x1p-1022, 0x1p-1074, 0x1p-52, true }, store_f64, load_f64 },
    [HS_I32] = { { "i32", "I32", 4, false, 0, 31, INT32_MAX, 1, 1, 1, false }, store_i32, load_i32 },
    [HS_U16] = { { "u16", "U16", 2, false, 0, 16, UINT16_MAX, 1, 1, 1, false }, store_u16, load_u16 },
    [HS_U8] = { { "u8", "U8", 1, false, 0, 8, UINT8_MAX, 1, 1, 1, false }, store_u8, load_u8 },
    [HS_I64] = { { "i64", "I64", 8, false, 0, 63, 0x1p63, 1, 1, 1, false }, store_i64, load_i64 },
    [HS_TF32] = { { "tf32", NULL, 4, true, 8, 10, 0x1.FFCp127, 0x1p-126, 0x1p-136, 0x1p-10, true }, NULL, NULL },
    [HS_E2M1] = { { "e2m1", NULL, 0, true, 2, 1, 6, 1, 0.5, 0.5, false }, NULL, NULL },
};

const HsDtypeInfo *hs_dtype_info(HsDtype dtype)
{
    assert((unsigned)dtype < HS_FORMAT_COUNT);
    return &rows[dtype].info;
}

bool hs_dtype_find(const char *name, HsDtype *dtype)
{
    for (int i = 0; i < HS_DTYPE_COUNT; i++) {
        if (strcmp(name, rows[i].info.name) == 0 || strcmp(name, rows[i].info.safetensors_name) == 0) {
            *dtype = (HsDtype)i;
            return true;
        }
    }
    return false;
}

void hs_dtype_store(HsDtype dtype, void *array, int64_t index, double value)
{
    rows[dtype].store(array, index, value);
}

double hs_dtype_load(HsDtype dtype, const void *array, int64_t index)
{
    return rows[dtype].load(array, index);
}
