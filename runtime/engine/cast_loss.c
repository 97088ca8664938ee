/* SPDX-License-Identifier: MIT */
#include "runtime/engine/cast_loss.h"

#include "kernels/ops/code_rule.h"

/* A block as it is cast. */
typedef struct Block {
    float factor; /* for hs_code_scaled */
    float worth;  /* what a code's number is multiplied by to give x back */
} Block;

static float largest(const float *values, int64_t rows, int64_t columns, int64_t stride)
{
    float most = 0;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t k = 0; k < columns; k++)
            most = fmaxf(most, fabsf(values[row * stride + k]));
    return most;
}

static Block scale_block(const HsCastRule *rule, float block_amax, float tensor_amax)
{
    const uint32_t bits = hs_code_bits(block_amax), tensor_bits = hs_code_bits(tensor_amax);
    if (rule->granularity == HS_SCALE_TENSOR) {
        const float scale = hs_code_tensor_scale(rule->format, tensor_bits, false);
        return (Block){ scale, 1.0f / scale };
    }
    if (rule->granularity == HS_SCALE_NV) {
        const float inverse = hs_code_nv_inverse(tensor_bits);
        const float worth = hs_code_nv_worth(hs_code_nv_block(bits, inverse), inverse);
        return (Block){ worth, worth };
    }
    const uint32_t exponent = hs_code_block_exponent(rule->format, bits);
    return (Block){ hs_code_inverse_power(exponent), hs_code_power(exponent) };
}

static void add_block(const HsCastRule *rule, const float *values, int64_t rows, int64_t columns, int64_t stride,
                      float tensor_amax, HsCastLoss *loss)
{
    const Block block = scale_block(rule, largest(values, rows, columns, stride), tensor_amax);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t k = 0; k < columns; k++) {
            const float x = values[row * stride + k];
            const float scaled = hs_code_scaled(rule->granularity, x, block.factor);
            const double back =
                (double)hs_code_decode(rule->format, hs_code_encode(rule->format, scaled)) * (double)block.worth;
            loss->elements++;
            loss->saturated += fabsf(scaled) > hs_code_largest(rule->format);
            loss->zeroed += x != 0 && back == 0;
            loss->error_squares += ((double)x - back) * ((double)x - back);
            loss->squares += (double)x * (double)x;
        }
}

void hs_cast_loss_add(const HsCastRule *rule, const float *values, int64_t rows, int64_t depth, float amax,
                      HsCastLoss *loss)
{
    const int64_t size = hs_scale_block(rule->granularity);
    const int64_t wide = size > 0 ? size : depth, tall = size > 0 && rule->squares ? size : 1;
    for (int64_t row = 0; row < rows; row += tall)
        for (int64_t k = 0; k < depth; k += wide)
            add_block(rule, values + row * depth + k, row + tall < rows ? tall : rows - row,
                      k + wide < depth ? wide : depth - k, depth, amax, loss);
}

double hs_cast_loss_error(const HsCastLoss *loss)
{
    return loss->squares > 0 ? sqrt(loss->error_squares / loss->squares) : 0;
}
