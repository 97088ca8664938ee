/* SPDX-License-Identifier: MIT
 *
 * Gradient statistics and the update rules.  Both rules unscale, update, refresh the weight from its master and clear
 * the gradient in one pass; a skipped step only clears the gradient.  What HsProtection adds is at the element, too.
 */
#include "kernels/ops/moment_map.h"
#include "kernels/ops/update_epilogue.h"
#include "kernels/ref/ref.h"

/* sum_squares = sum g^2 over finite g; nonfinite = how many are not. */
HsStatus hs_ref_grad_stats(HsContext *context, const HsGradStatsArgs *args)
{
    (void)context;
    for (int t = 0; t < args->count; t++) {
        double sum = 0.0;
        int64_t nonfinite = 0;
        for (int64_t i = 0; i < hs_tensor_count(&args->tensors[t]); i++) {
            const double g = hs_ref_load(&args->tensors[t], i);
            if (isfinite(g))
                sum += g * g;
            else
                nonfinite++;
        }
        args->sum_squares[t] = sum;
        args->nonfinite[t] = nonfinite;
    }
    return HS_OK;
}

/* What the penalty pulls with at one element: strength * importance (an absent importance is 1), 0 without an anchor.
 */
static double pull(const HsProtection *protection, int64_t index)
{
    if (!hs_tensor_present(&protection->anchor))
        return 0.0;
    const bool weighted = hs_tensor_present(&protection->importance);
    return (double)protection->strength * (weighted ? hs_ref_load(&protection->importance, index) : 1.0);
}

/* Gradient step: d/dp of strength/2 importance (p - anchor)^2 (Kirkpatrick et al. 2017, eq. 3). */
static double penalty_gradient(const HsProtection *protection, int64_t index, double p)
{
    if (protection->proximal || !hs_tensor_present(&protection->anchor))
        return 0.0;
    return pull(protection, index) * (p - hs_ref_load(&protection->anchor, index));
}

/* Proximal step: the minimum over q of (q - p)^2 / (2 rate) + pull/2 (q - anchor)^2 is
 * q = (p + k anchor) / (1 + k), k = rate pull; written as a difference it is exactly p where p is the anchor. */
static double proximal(const HsProtection *protection, int64_t index, double p, double rate)
{
    if (!protection->proximal || !hs_tensor_present(&protection->anchor))
        return p;
    const double k = rate * pull(protection, index);
    return p - k / (1.0 + k) * (p - hs_ref_load(&protection->anchor, index));
}

/* A parameter's last steps: the proximal one, the store, and the path integral over what was stored. */
static void finish(const HsUpdateArgs *update, int64_t index, double p, double rate, double gradient)
{
    const HsProtection *protection = &update->protection;
    const double before = hs_ref_load_parameter(&update->master, &update->weight, index);
    hs_ref_store_parameter(&update->master, &update->weight, &update->rng, index, proximal(protection, index, p, rate));
    if (hs_tensor_present(&protection->path)) {
        const double moved = hs_ref_load_parameter(&update->master, &update->weight, index) - before;
        const double unscaled = gradient * (double)update->scalars->unscale;
        hs_ref_store(&protection->path, index, hs_ref_load(&protection->path, index) - unscaled * moved);
    }
}

static double rate_of(const HsUpdateArgs *update)
{
    return (double)update->scalars->learning_rate * (double)update->learning_rate_scale;
}

/* The gradient as it is stored, and zero in its place. */
static double take_gradient(const HsUpdateArgs *update, int64_t index)
{
    const double grad = hs_ref_load(&update->grad, index);
    hs_ref_store(&update->grad, index, 0.0);
    return grad;
}

static double whole_gradient(const HsUpdateArgs *update, int64_t index, double grad, double p)
{
    const HsProtection *protection = &update->protection;
    double g = grad * (double)update->scalars->gradient_multiplier + penalty_gradient(protection, index, p);
    if (hs_tensor_present(&protection->pull))
        g += (double)protection->strength * hs_ref_load(&protection->pull, index);
    return g;
}

static HsStatus follow(HsContext *context, const HsUpdateArgs *update)
{
    return hs_update_epilogue_apart(context, update);
}

static void store_moments(const HsAdamWArgs *args, int64_t index, double m, double v)
{
    if (args->m.dtype != HS_BF16) {
        hs_ref_store(&args->m, index, m);
        hs_ref_store(&args->v, index, v);
        return;
    }
    const HsRng *rng = &args->update.rng;
    const uint64_t element = (uint64_t)(rng->row_offset + index);
    ((uint16_t *)args->m.data)[index] = hs_bf16_encode_stochastic((float)m, hs_ref_random_bits(rng, element));
    ((uint16_t *)args->v.data)[index] = hs_bf16_encode_stochastic((float)v, hs_ref_random_lower_bits(rng, element));
}

/* Defazio et al. 2024, algorithm 1, of y and z - y: x = y + (1 - 1/b1) (z - y) is not kept. */
static void schedule_free(const HsAdamWArgs *args, int64_t index, double grad)
{
    const HsUpdateArgs *update = &args->update;
    const double beta1 = (double)args->beta1, beta2 = (double)args->beta2, c = (double)update->scalars->free_weight;
    const double rate = (double)update->scalars->free_rate * (double)update->learning_rate_scale;
    const double y = hs_ref_load_parameter(&update->master, &update->weight, index);
    const double z = y + hs_ref_load(&args->m, index), g = whole_gradient(update, index, grad, y);
    const double v = beta2 * hs_ref_load(&args->v, index) + (1.0 - beta2) * g * g;
    const double direction = g / (sqrt(v) + (double)args->epsilon) + (double)update->weight_decay * y;
    const double y_new = (1.0 - c) * y + c * z + rate * (beta1 * (1.0 - c) - 1.0) * direction;
    const double z_new = z - rate * direction;
    store_moments(args, index, z_new - y_new, v);
    finish(update, index, y_new, rate, grad);
}

/* AdamW (Loshchilov & Hutter 2019, algorithm 2):
 *     p -= lr wd p;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  p -= lr (m/bc1) / (sqrt(v/bc2) + eps) */
HsStatus hs_ref_adamw(HsContext *context, const HsAdamWArgs *args)
{
    const HsUpdateArgs *update = &args->update;
    const HsStepScalars *scalars = update->scalars;
    const double rate = rate_of(update), beta1 = (double)args->beta1, beta2 = (double)args->beta2;
    for (int64_t i = 0; i < hs_tensor_count(&update->weight); i++) {
        const double grad = take_gradient(update, i);
        if (scalars->skip)
            continue;
        if (args->schedule_free) {
            schedule_free(args, i, grad);
            continue;
        }
        double p = hs_ref_load_parameter(&update->master, &update->weight, i);
        const double g = whole_gradient(update, i, grad, p);
        p -= rate * (double)update->weight_decay * p;
        const double m = beta1 * hs_ref_load(&args->m, i) + (1.0 - beta1) * g;
        const double v = beta2 * hs_ref_load(&args->v, i) + (1.0 - beta2) * g * g;
        store_moments(args, i, m, v);
        p -= rate * (m / (double)scalars->bias_correction1) /
             (sqrt(v / (double)scalars->bias_correction2) + (double)args->epsilon);
        finish(update, i, p, rate, grad);
    }
    return follow(context, update);
}

static double decode(HsMomentMap map, bool is_signed, const HsTensor *codes, const HsTensor *absmax, int64_t i)
{
    const double number = (double)hs_moment_number(map, is_signed, ((const uint8_t *)codes->data)[i]);
    return number * hs_ref_load(absmax, i / HS_DYNAMIC_BLOCK) / (double)hs_moment_largest(map, is_signed);
}

/* The level of the dynamic map's number nearest to x, of 0 and more; the map says which at a midpoint. */
static int nearest_level(bool is_signed, double x)
{
    int low = 0, high = hs_dynamic_top(is_signed);
    while (low < high) {
        const int middle = (low + high) / 2;
        const double midpoint = (double)hs_dynamic_midpoint(is_signed, middle);
        if (x > midpoint || (x == midpoint && hs_dynamic_tie_goes_up(is_signed, middle)))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* fp8: the level below x, or the one above it as often as x is near it; `random` is below 2^16. */
static int random_level(bool is_signed, double x, uint32_t random)
{
    int level = 0;
    while (level < hs_moment_top(HS_MOMENTS_FP8, is_signed) &&
           x >= (double)hs_moment_number(HS_MOMENTS_FP8, is_signed, level + 1))
        level++;
    if (level == hs_moment_top(HS_MOMENTS_FP8, is_signed))
        return level;
    const double below = (double)hs_moment_number(HS_MOMENTS_FP8, is_signed, level);
    const double above = (double)hs_moment_number(HS_MOMENTS_FP8, is_signed, level + 1);
    return level + (floor((x - below) / (above - below) * 0x1p16) + (double)random >= 0x1p16);
}

static void encode(const HsAdamW8bitArgs *args, bool is_signed, const double *values, int64_t count, int64_t block)
{
    const HsMomentMap map = args->map;
    const HsRng *rng = &args->update.rng;
    const double largest = (double)hs_moment_largest(map, is_signed);
    uint8_t *codes = (uint8_t *)(is_signed ? args->m : args->v).data + block * HS_DYNAMIC_BLOCK;
    double most = 0.0;
    for (int64_t i = 0; i < count; i++)
        most = fmax(most, fabs(values[i]));
    most = hs_ref_store_rounded(is_signed ? &args->m_absmax : &args->v_absmax, block, most);
    const bool counts = most >= largest * (double)FLT_MIN;
    for (int64_t i = 0; i < count; i++) {
        const uint64_t element = (uint64_t)(rng->row_offset + block * HS_DYNAMIC_BLOCK + i);
        const uint32_t random = is_signed ? hs_ref_random_bits(rng, element) : hs_ref_random_lower_bits(rng, element);
        const double x = counts ? fabs(values[i]) / most * largest : 0.0;
        const int level = map == HS_MOMENTS_FP8 ? random_level(is_signed, x, random) : nearest_level(is_signed, x);
        codes[i] = (uint8_t)hs_moment_code(map, is_signed, values[i], level);
    }
}

/* AdamW with moments in 8 bits (Dettmers et al. 2022).  Decay comes where AdamW has it, before the step. */
HsStatus hs_ref_adamw8bit(HsContext *context, const HsAdamW8bitArgs *args)
{
    const HsUpdateArgs *update = &args->update;
    const HsStepScalars *scalars = update->scalars;
    const double rate = rate_of(update), beta1 = (double)args->beta1, beta2 = (double)args->beta2;
    const int64_t count = hs_tensor_count(&update->weight);
    for (int64_t block = 0; block < hs_dynamic_blocks(count); block++) {
        double m[HS_DYNAMIC_BLOCK], v[HS_DYNAMIC_BLOCK];
        const int64_t begin = block * HS_DYNAMIC_BLOCK;
        const int64_t length = count - begin < HS_DYNAMIC_BLOCK ? count - begin : HS_DYNAMIC_BLOCK;
        for (int64_t j = 0; j < length; j++) {
            const int64_t i = begin + j;
            const double grad = take_gradient(update, i);
            if (scalars->skip)
                continue;
            double p = hs_ref_load_parameter(&update->master, &update->weight, i);
            const double g = whole_gradient(update, i, grad, p);
            p -= rate * (double)update->weight_decay * p;
            m[j] = beta1 * decode(args->map, true, &args->m, &args->m_absmax, i) + (1.0 - beta1) * g;
            v[j] = beta2 * decode(args->map, false, &args->v, &args->v_absmax, i) + (1.0 - beta2) * g * g;
            p -= rate * (m[j] / (double)scalars->bias_correction1) /
                 (sqrt(v[j] / (double)scalars->bias_correction2) + (double)args->epsilon);
            finish(update, i, p, rate, grad);
        }
        if (scalars->skip)
            continue;
        encode(args, true, m, length, block);
        encode(args, false, v, length, block);
    }
    return follow(context, update);
}

/* Stochastic gradient descent with momentum (Sutskever et al. 2013), decay inside the gradient:
 *     d = g + wd p;  buffer = momentum buffer + d;  p -= lr buffer   (nesterov: p -= lr (d + momentum buffer)) */
HsStatus hs_ref_sgd(HsContext *context, const HsSgdArgs *args)
{
    const HsUpdateArgs *update = &args->update;
    const double rate = rate_of(update), momentum = (double)args->momentum;
    for (int64_t i = 0; i < hs_tensor_count(&update->weight); i++) {
        const double grad = take_gradient(update, i);
        if (update->scalars->skip)
            continue;
        const double p = hs_ref_load_parameter(&update->master, &update->weight, i);
        const double descent = whole_gradient(update, i, grad, p) + (double)update->weight_decay * p;
        double direction = descent;
        if (hs_tensor_present(&args->buffer)) {
            const double buffer = momentum * hs_ref_load(&args->buffer, i) + descent;
            hs_ref_store(&args->buffer, i, buffer);
            direction = args->nesterov ? descent + momentum * buffer : buffer;
        }
        finish(update, i, p - rate * direction, rate, grad);
    }
    return follow(context, update);
}

HsStatus hs_ref_update_list(HsContext *context, const HsUpdateListArgs *args)
{
    for (int i = 0; i < args->adamw_count; i++)
        HS_TRY(hs_ref_adamw(context, &args->adamw[i]));
    for (int i = 0; i < args->adamw8bit_count; i++)
        HS_TRY(hs_ref_adamw8bit(context, &args->adamw8bit[i]));
    for (int i = 0; i < args->sgd_count; i++)
        HS_TRY(hs_ref_sgd(context, &args->sgd[i]));
    return HS_OK;
}

HsStatus hs_ref_momentum(HsContext *context, const HsMomentumArgs *args)
{
    (void)context;
    const HsUpdateArgs *update = &args->update;
    const double momentum = (double)update->scalars->momentum;
    for (int64_t i = 0; i < hs_tensor_count(&update->weight); i++) {
        if (update->scalars->skip) {
            hs_ref_store(&args->direction, i, 0.0);
            continue;
        }
        const double p = hs_ref_load_parameter(&update->master, &update->weight, i);
        const double g = whole_gradient(update, i, hs_ref_load(&update->grad, i), p);
        if (!hs_tensor_present(&args->m)) {
            hs_ref_store(&args->direction, i, g);
            continue;
        }
        const double m = momentum * hs_ref_load(&args->m, i) + (1.0 - momentum) * g;
        hs_ref_store(&args->m, i, m);
        hs_ref_store(&args->direction, i, args->nesterov ? (1.0 - momentum) * g + momentum * m : m);
    }
    return HS_OK;
}

HsStatus hs_ref_normalize(HsContext *context, const HsNormalizeArgs *args)
{
    (void)context;
    const double norm = sqrt(*args->sum_squares) + (double)args->epsilon;
    for (int64_t i = 0; i < hs_tensor_count(&args->x); i++)
        hs_ref_store(&args->y, i, hs_ref_load(&args->x, i) / norm);
    return HS_OK;
}

HsStatus hs_ref_average(HsContext *context, const HsAverageArgs *args)
{
    (void)context;
    for (int64_t i = 0; i < hs_tensor_count(&args->average); i++) {
        const double average = hs_ref_load(&args->average, i);
        const double x = hs_ref_load(&args->x, i);
        hs_ref_store(&args->average, i, *args->rate == 1.0f ? x : average + (double)*args->rate * (x - average));
    }
    return HS_OK;
}

/* Li et al. 2025 (arXiv 2510.05491), algorithm 1, lines 8 to 12. */
HsStatus hs_ref_scale_neurons(HsContext *context, const HsScaleNeuronsArgs *args)
{
    (void)context;
    const int64_t rows = args->x.shape[0], columns = args->x.shape[1];
    const double beta2 = (double)args->beta2, epsilon = (double)args->epsilon;
    double total = 0.0; /* |f x|^2 */
    if (args->scalars->skip)
        return HS_OK;
    for (int64_t row = 0; row < rows; row++) {
        double sum = 0.0;
        for (int64_t i = row * columns; i < (row + 1) * columns; i++)
            sum += hs_ref_load(&args->x, i) * hs_ref_load(&args->x, i);
        const double second = hs_ref_store_rounded(&args->second_moment, row,
                                                   beta2 * hs_ref_load(&args->second_moment, row) +
                                                       (1.0 - beta2) * sum / (double)columns);
        total += sum / ((sqrt(second) + epsilon) * (sqrt(second) + epsilon));
    }
    const double factor = total > 0.0 ? (double)args->size * sqrt((double)(rows * columns) / total) : 0.0;
    for (int64_t i = 0; i < rows * columns; i++) {
        const double second = hs_ref_load(&args->second_moment, i / columns);
        hs_ref_store(&args->x, i, hs_ref_load(&args->x, i) * factor / (sqrt(second) + epsilon));
    }
    return HS_OK;
}

/* Of element i of a direction, 1 without factors. */
static double factor_of(const HsDescendArgs *args, int64_t i)
{
    if (!hs_tensor_present(&args->factors))
        return 1.0;
    const int64_t columns = args->direction.shape[1];
    return hs_ref_load(&args->factors, args->of_columns ? i % columns : i / columns);
}

HsStatus hs_ref_descend(HsContext *context, const HsDescendArgs *args)
{
    const HsUpdateArgs *update = &args->update;
    const double rate = rate_of(update);
    for (int64_t i = 0; i < hs_tensor_count(&update->weight); i++) {
        const double grad = take_gradient(update, i);
        if (update->scalars->skip)
            continue;
        const double p = hs_ref_load_parameter(&update->master, &update->weight, i);
        const double direction = factor_of(args, i) * hs_ref_load(&args->direction, i);
        const double decay = args->cautious && direction * p < 0.0 ? 0.0 : (double)update->weight_decay;
        const double step = decay * p + direction;
        finish(update, i, p - rate * step, rate, grad);
    }
    return follow(context, update);
}
