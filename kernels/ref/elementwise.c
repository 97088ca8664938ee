/* SPDX-License-Identifier: MIT
 *
 * Operations that treat each element by itself: activations, dropout, conversion.
 */
#include "kernels/ref/ref.h"

static const double sqrt_2_over_pi = 0.79788456080286535588;
static const double cubic = 0.044715;

/* Tanh form (Hendrycks & Gimpel 2016, section 2): x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3) */
static double gelu(double x)
{
    return 0.5 * x * (1.0 + tanh(sqrt_2_over_pi * (x + cubic * x * x * x)));
}

/* gelu'(x) = (1 + t)/2 + x/2 (1 - t^2) u',  u' = sqrt(2/pi) (1 + 3 * 0.044715 x^2),  t = tanh(u) */
static double gelu_derivative(double x)
{
    const double t = tanh(sqrt_2_over_pi * (x + cubic * x * x * x));
    const double inner = sqrt_2_over_pi * (1.0 + 3.0 * cubic * x * x);
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner;
}

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static double silu(double x)
{
    return x * sigmoid(x);
}

/* silu'(x) = sigmoid(x) (1 + x (1 - sigmoid(x))) */
static double silu_derivative(double x)
{
    const double s = sigmoid(x);
    return s * (1.0 + x * (1.0 - s));
}

/* max(x, 0), of a NaN a NaN */
static double rectified(double x)
{
    return x < 0.0 ? 0.0 : x;
}

/* Squared (So et al. 2021, section 3.1) */
static double relu2(double x)
{
    return rectified(x) * rectified(x);
}

static double relu2_derivative(double x)
{
    return 2.0 * rectified(x);
}

static const struct {
    double (*value)(double x), (*derivative)(double x);
} functions[] = {
    [HS_ACTIVATION_GELU] = { gelu, gelu_derivative },
    [HS_ACTIVATION_SILU] = { silu, silu_derivative },
    [HS_ACTIVATION_RELU2] = { relu2, relu2_derivative },
};

double hs_ref_activation(HsActivation function, double x)
{
    return functions[function].value(x);
}

double hs_ref_derivative(HsActivation function, double x)
{
    return functions[function].derivative(x);
}

/* SwiGLU and GEGLU (Shazeer 2020, eq. 5), x = [gate | up]:  y = f(gate) up */
HsStatus hs_ref_swiglu_forward(HsContext *context, const HsUnaryArgs *args)
{
    (void)context;
    const int64_t width = args->y.shape[1];
    for (int64_t n = 0; n < args->y.shape[0]; n++) {
        for (int64_t c = 0; c < width; c++) {
            const double gate = hs_ref_load(&args->x, 2 * n * width + c);
            const double up = hs_ref_load(&args->x, (2 * n + 1) * width + c);
            hs_ref_store(&args->y, n * width + c, hs_ref_activation(args->gate, gate) * up);
        }
    }
    hs_ref_find_amax(&args->y);
    return HS_OK;
}

void hs_ref_gate_gradient(HsActivation f, const HsTensor *x, const HsTensor *dx, int64_t row, int64_t column, double dy)
{
    const int64_t width = x->shape[1] / 2, gate_at = 2 * row * width + column, up_at = gate_at + width;
    const double gate = hs_ref_load(x, gate_at), up = hs_ref_load(x, up_at);
    hs_ref_store(dx, gate_at, dy * up * hs_ref_derivative(f, gate));
    hs_ref_store(dx, up_at, dy * hs_ref_activation(f, gate));
}

HsStatus hs_ref_swiglu_backward(HsContext *context, const HsUnaryBackwardArgs *args)
{
    (void)context;
    const int64_t width = args->dy.shape[1];
    for (int64_t n = 0; n < args->dy.shape[0]; n++)
        for (int64_t c = 0; c < width; c++)
            hs_ref_gate_gradient(args->gate, &args->x, &args->dx, n, c, hs_ref_load(&args->dy, n * width + c));
    hs_ref_find_amax(&args->dx);
    return HS_OK;
}

/* y = residual + factor x (Srivastava et al. 2014, scaled at training time). */
static void dropout(const HsDropoutArgs *args)
{
    const int64_t columns = args->x.shape[1];
    const uint64_t first = (uint64_t)(args->rng.row_offset * columns);
    for (int64_t i = 0; i < hs_tensor_count(&args->x); i++) {
        const double factor = hs_ref_dropout_factor(&args->rng, args->probability, first + (uint64_t)i);
        /* a dropped element is 0 even where x is infinite */
        double value = factor == 0.0 ? 0.0 : factor * hs_ref_load(&args->x, i);
        if (hs_tensor_present(&args->residual))
            value += hs_ref_load(&args->residual, i);
        hs_ref_store(&args->y, i, value);
    }
    hs_ref_find_amax(&args->y);
}

HsStatus hs_ref_dropout_forward(HsContext *context, const HsDropoutArgs *args)
{
    (void)context;
    dropout(args);
    return HS_OK;
}

/* Linear, so its gradient is the same mask on dy. */
HsStatus hs_ref_dropout_backward(HsContext *context, const HsDropoutArgs *args)
{
    (void)context;
    dropout(args);
    return HS_OK;
}

HsStatus hs_ref_convert(HsContext *context, const HsConvertArgs *args)
{
    (void)context;
    for (int64_t i = 0; i < hs_tensor_count(&args->x); i++) {
        const double value = hs_ref_load(&args->x, i);
        if (args->stochastic)
            ((uint16_t *)args->y.data)[i] =
                hs_bf16_encode_stochastic((float)value, hs_ref_random_bits(&args->rng, (uint64_t)i));
        else
            hs_ref_store(&args->y, i, value);
    }
    return HS_OK;
}
