/* SPDX-License-Identifier: MIT
 *
 * The table of number formats: one row each, from which conversions, tolerances and documentation come.
 * Software encode and decode are exact and define the result for every backend: decode is injective on finite
 * values, encode rounds to nearest, ties to even.
 *
 * Sources: IEEE 754-2019 (binary16, binary32); bfloat16 = the upper half of binary32; OCP 8-bit Floating Point
 * Specification (E4M3 without infinity, E5M2 like IEEE).
 */
#ifndef HS_KERNELS_BASE_DTYPE_H
#define HS_KERNELS_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Number formats. */
typedef enum HsDtype {
    HS_F32 = 0,
    HS_F16,
    HS_BF16,
    HS_E4M3,
    HS_E5M2,
    HS_F64,
    HS_I32,
    HS_U16,
    HS_U8,
    HS_I64,
    HS_DTYPE_COUNT, /* those of tensors: elements of whole bytes */
    /* what else numbers are rounded to: */
    HS_TF32 = HS_DTYPE_COUNT, /* lies in f32 */
    HS_E2M1,                  /* two in a byte (kernels/ops/codes.h) */
    HS_FORMAT_COUNT
} HsDtype;

typedef struct HsDtypeInfo {
    const char *name;             /* "bf16": configuration, messages, tables */
    const char *safetensors_name; /* "BF16"; NULL: files have none */
    size_t bytes;                 /* 0: half a byte */
    bool is_float;
    int exponent_bits;
    int mantissa_bits; /* stored bits, the implicit one not counted */
    double max;        /* largest finite magnitude */
    double smallest_normal;
    double smallest_subnormal;
    double epsilon; /* distance from 1 to the next larger value, 2^-mantissa_bits */
    bool has_infinity;
} HsDtypeInfo;

/* The row of a format; never NULL for a valid enum value. */
const HsDtypeInfo *hs_dtype_info(HsDtype dtype);
#define hs_dtype_bytes(dtype) (hs_dtype_info(dtype)->bytes)
#define hs_dtype_name(dtype)  (hs_dtype_info(dtype)->name)

/* Look a tensor's format up by `name` or `safetensors_name`; returns false when there is none. */
bool hs_dtype_find(const char *name, HsDtype *dtype);

/* Scalar encode (round to nearest even) and decode.  Overflow: f16, bf16, e5m2 to infinity; e4m3 to NaN.
 * The *_saturate forms clamp finite and infinite overflow to the largest finite value (FP8 training's rule), and a NaN of
 * whatever sign becomes 0x7F, as GPUs convert; an overflow has to be looked for before. */
uint16_t hs_bf16_encode(float value);
float hs_bf16_decode(uint16_t bits);
uint16_t hs_f16_encode(float value);
float hs_f16_decode(uint16_t bits);
uint8_t hs_e4m3_encode(float value);
uint8_t hs_e4m3_encode_saturate(float value);
float hs_e4m3_decode(uint8_t bits);
uint8_t hs_e5m2_encode(float value);
uint8_t hs_e5m2_encode_saturate(float value);
float hs_e5m2_decode(uint8_t bits);

/* Round a double straight to a tensor's format, one rounding only (no detour through float, which could round twice),
 * and store it at element `index` of an array of that format.  Integer formats round to nearest even and clamp. */
void hs_dtype_store(HsDtype dtype, void *array, int64_t index, double value);

/* Element `index` of an array, exactly. */
double hs_dtype_load(HsDtype dtype, const void *array, int64_t index);

/* Stochastic rounding f32 -> bf16: add 16 uniform random bits below the kept ones and truncate;
 * P(away from zero) = low16 / 65536.  Infinity and NaN pass through. */
uint16_t hs_bf16_encode_stochastic(float value, uint16_t random_bits);

#endif
