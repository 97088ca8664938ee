/* SPDX-License-Identifier: MIT
 *
 * Making a trial's operands, running it, comparing it.
 */
#include "runtime/selftest/trial.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/hash.h"
#include "kernels/checks/checks.h"

static const char *const option_names[] = { "transpose_a", "transpose_b", "bias",     "residual",   "in place",
                                            "addend",      "unaligned",   "pre",      "accumulate", "packed",
                                            "positions",   "layer",       "inverse",  "gradient",   "z-loss",
                                            "master",      "momentum",    "nesterov", "skip",       "stochastic",
                                            "non-finite",  "huge",        "anchor",   "importance", "proximal",
                                            "path",        "merge" };

static const char *const epilogue_names[] = {
    [HS_EPILOGUE_NONE] = "none",
    [HS_EPILOGUE_GELU] = "gelu",
    [HS_EPILOGUE_GELU_BACKWARD] = "gelu'",
    [HS_EPILOGUE_SWIGLU] = "swiglu",
    [HS_EPILOGUE_SWIGLU_BACKWARD] = "swiglu'",
    [HS_EPILOGUE_GEGLU] = "geglu",
    [HS_EPILOGUE_GEGLU_BACKWARD] = "geglu'",
    [HS_EPILOGUE_RELU2] = "relu2",
    [HS_EPILOGUE_RELU2_BACKWARD] = "relu2'",
};

static const char *const scale_names[HS_SCALE_GRANULARITIES] = { "no scales", "tensor", "block", "mx", "nv" };

const char *hs_case_describe(const HsCase *config, char *text, size_t bytes)
{
    int length = snprintf(text, bytes, "%s -> %s", hs_dtype_name(config->dtype), hs_dtype_name(config->out));
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = { { "rows", config->rows },
                  { "columns", config->columns },
                  { "depth", config->depth },
                  { "batch", config->heads.batch },
                  { "length", config->heads.sequence_length },
                  { "heads", config->heads.heads },
                  { "kv heads", config->heads.kv_heads },
                  { "head dim", config->heads.head_dim },
                  { "start", config->start } };
    for (int i = 0; i < HS_COUNT_OF(sizes); i++) {
        if (sizes[i].value && length < (int)bytes)
            length += snprintf(text + length, bytes - (size_t)length, ", %s %" PRId64, sizes[i].name, sizes[i].value);
    }
    for (int i = 0; i < HS_COUNT_OF(option_names); i++) {
        if ((config->options >> i & 1) && length < (int)bytes)
            length += snprintf(text + length, bytes - (size_t)length, ", %s", option_names[i]);
    }
    if (config->epilogue != HS_EPILOGUE_NONE && length < (int)bytes)
        length += snprintf(text + length, bytes - (size_t)length, ", %s", epilogue_names[config->epilogue]);
    if (config->documents && length < (int)bytes)
        length += snprintf(text + length, bytes - (size_t)length, ", documents");
    if (config->window > 0 && length < (int)bytes)
        length += snprintf(text + length, bytes - (size_t)length, ", window %" PRId64, config->window);
    if (config->cap > 0.0f && length < (int)bytes)
        length += snprintf(text + length, bytes - (size_t)length, ", cap %g", (double)config->cap);
    if (config->sums && length < (int)bytes)
        length += snprintf(text + length, bytes - (size_t)length, ", sums");
    if (config->unweighted && length < (int)bytes)
        length += snprintf(text + length, bytes - (size_t)length, ", no weight");
    if (config->whole && length < (int)bytes)
        length += snprintf(text + length, bytes - (size_t)length, ", whole");
    if (hs_policy_is_tf32(config->policy) && length < (int)bytes)
        length += snprintf(text + length, bytes - (size_t)length, ", tf32");
    if (config->policy.granularity != HS_SCALE_NONE && length < (int)bytes)
        length += snprintf(text + length, bytes - (size_t)length, ", %s x %s, %s", hs_dtype_name(config->policy.a),
                           hs_dtype_name(config->policy.b), scale_names[config->policy.granularity]);
    if (config->cast != HS_F32 && length < (int)bytes)
        length += snprintf(text + length, bytes - (size_t)length, ", cast to %s", hs_dtype_name(config->cast));
    if (config->quantized > 0 && length < (int)bytes)
        length += snprintf(text + length, bytes - (size_t)length, ", nf4 of %d", config->quantized);
    if (config->alpha != 0.0f && length < (int)bytes)
        length += snprintf(text + length, bytes - (size_t)length, ", alpha %g", (double)config->alpha);
    if (config->map == HS_MOMENTS_FP8 && length < (int)bytes)
        length += snprintf(text + length, bytes - (size_t)length, ", fp8");
    if (config->dropout > 0.0f && length < (int)bytes)
        snprintf(text + length, bytes - (size_t)length, ", dropout %g", (double)config->dropout);
    return text;
}

static double random_value(const HsTrialOperand *operand, const HsRng *rng, int64_t index)
{
    const HsPhilox draw = hs_rng_draw(rng, (uint64_t)index);
    const double uniform = (double)hs_rng_uniform(draw.word[2]);
    double normal[2];
    switch (operand->fill) {
    case HS_FILL_ZERO:
        return 0.0;
    case HS_FILL_POSITIVE:
        return operand->scale * (0.5 + 1.5 * uniform);
    case HS_FILL_INDEX:
        return floor(uniform * operand->scale);
    case HS_FILL_TARGET:
        return draw.word[3] % 5 == 0 ? -1.0 : floor(uniform * operand->scale);
    case HS_FILL_BROKEN:
        if (draw.word[3] % 7 == 0)
            return draw.word[3] % 2 ? INFINITY : NAN;
        break;
    case HS_FILL_NORMAL:
        break;
    }
    hs_rng_normal(draw.word[0], draw.word[1], normal);
    return operand->scale * normal[0];
}

static bool widened(const HsTrialOperand *operand)
{
    return !operand->as_is && hs_dtype_info(operand->tensor.dtype)->is_float;
}

static double *copy_as_double(const HsTensor *tensor, const void *image)
{
    const int64_t count = hs_tensor_count(tensor);
    double *values = malloc((size_t)count * sizeof *values);
    for (int64_t i = 0; values && i < count; i++)
        values[i] = hs_dtype_load(tensor->dtype, image, i);
    return values;
}

static HsStatus out_of_memory(const HsTrial *trial, size_t bytes)
{
    return hs_fail(HS_ENOMEM, "selftest: no %zu bytes of memory for %s", bytes, trial->op);
}

/* Bytes between an operand's allocation, which is aligned, and its first element. */
static size_t offset_of(const HsTrial *trial, const HsTrialOperand *operand)
{
    const HsDtypeInfo *info = hs_dtype_info(operand->tensor.dtype);
    return hs_case_has(trial, HS_CASE_UNALIGNED) && info->is_float ? info->bytes : 0;
}

/* Four of a draw: they cost more than most operations. */
static void fill_normal(const HsTrialOperand *operand, const HsRng *rng, int64_t count)
{
    for (int64_t first = 0; first < count; first += 4) {
        const HsPhilox draw = hs_rng_draw(rng, (uint64_t)first / 4);
        double normal[4];
        hs_rng_normal(draw.word[0], draw.word[1], normal);
        hs_rng_normal(draw.word[2], draw.word[3], normal + 2);
        for (int64_t i = first; i < first + 4 && i < count; i++)
            hs_dtype_store(operand->tensor.dtype, operand->image, i, operand->scale * normal[i - first]);
    }
}

/* Random numbers cost more than most operations: what is only timed gets a block of them, repeated. */
static void fill_image(const HsTrial *trial, int index, bool for_timing)
{
    enum { BLOCK = 1 << 16 };
    const HsTrialOperand *operand = &trial->operands[index];
    const int64_t count = hs_tensor_count(&operand->tensor);
    const int64_t drawn = for_timing && count > BLOCK ? BLOCK : count;
    const HsRng rng = { .seed = trial->seed, .site = (uint32_t)index };
    if (operand->fill == HS_FILL_NORMAL)
        fill_normal(operand, &rng, drawn);
    for (int64_t i = 0; i < drawn && operand->fill != HS_FILL_NORMAL; i++)
        hs_dtype_store(operand->tensor.dtype, operand->image, i, random_value(operand, &rng, i));
    unsigned char *image = operand->image;
    const size_t bytes = hs_tensor_bytes(&operand->tensor);
    const size_t block = (size_t)drawn * hs_dtype_bytes(operand->tensor.dtype);
    for (size_t at = block; at < bytes; at += block)
        memcpy(image + at, image, bytes - at < block ? bytes - at : block);
}

static HsStatus fill_operand(HsTrial *trial, int index, HsDevice *device, bool for_timing)
{
    HsTrialOperand *operand = &trial->operands[index];
    const size_t bytes = hs_tensor_bytes(&operand->tensor);
    operand->image = calloc(1, bytes);
    if (operand->image == NULL)
        return out_of_memory(trial, bytes);
    if (operand->fill != HS_FILL_ZERO)
        fill_image(trial, index, for_timing);
    HS_TRY(device->alloc(device, bytes + offset_of(trial, operand), &operand->tensor.data));
    operand->tensor.data = (unsigned char *)operand->tensor.data + offset_of(trial, operand);
    return HS_OK;
}

/* Below whatever is stored, or in some cases above it.  Eleven goes into no table's repetitions. */
void hs_trial_ask_amax(HsTrial *trial, int of)
{
    const HsOpTest *const test = trial->test;
    int index = 0;
    while (index < test->case_count && &test->cases[index] != trial->config)
        index++;
    if (index == test->case_count || index % 11 == 0)
        return;
    const HsTrialOperand amax = hs_updated("amax", index % 7 == 0 ? 1e9 : 1e-9, hs_tensor_1d(NULL, HS_F32, 1));
    trial->operands[HS_TRIAL_AMAX] = hs_filled(amax, HS_FILL_POSITIVE);
    trial->operands[HS_TRIAL_AMAX].as_is = true;
    trial->operands[HS_TRIAL_AMAX].amax_of = of + 1;
}

/* What the reference works on: f64 copies, or the bytes themselves. */
static HsStatus make_exact_operand(HsTrial *trial, HsTrialOperand *operand)
{
    const size_t bytes = hs_tensor_bytes(&operand->tensor);
    const size_t count = (size_t)hs_tensor_count(&operand->tensor);
    operand->exact = operand->tensor;
    if (!widened(operand)) {
        operand->exact.data = malloc(bytes);
        if (operand->exact.data == NULL)
            return out_of_memory(trial, bytes);
        memcpy(operand->exact.data, operand->image, bytes);
    } else {
        operand->exact.dtype = HS_F64;
        operand->exact.data = copy_as_double(&operand->tensor, operand->image);
        operand->initial = copy_as_double(&operand->tensor, operand->image);
    }
    operand->error = calloc(count, sizeof *operand->error);
    if (operand->error == NULL || operand->exact.data == NULL || (widened(operand) && operand->initial == NULL))
        return out_of_memory(trial, count * sizeof(double));
    return HS_OK;
}

void hs_trial_place_amax(const HsTrial *trial, HsTensor tensors[HS_TRIAL_OPERANDS])
{
    const int of = trial->operands[HS_TRIAL_AMAX].amax_of;
    if (of > 0)
        tensors[of - 1].amax = tensors[HS_TRIAL_AMAX].data;
}

static HsStatus make_exact_result(HsTrial *trial, HsContext *reference)
{
    HsTensor tensors[HS_TRIAL_OPERANDS] = { 0 };
    if (trial->test->prepare)
        HS_TRY(trial->test->prepare(trial, reference));
    for (int i = 0; i < HS_TRIAL_OPERANDS; i++) {
        if (hs_operand_present(trial, i))
            HS_TRY(make_exact_operand(trial, &trial->operands[i]));
        tensors[i] = trial->operands[i].exact;
    }
    hs_trial_place_amax(trial, tensors);
    HS_TRY(trial->test->call(trial, reference, tensors));
    if (trial->test->bound)
        trial->test->bound(trial);
    return HS_OK;
}

HsStatus hs_trial_create(HsTrial *trial, const char *op, const HsOpTest *test, const HsCase *config, uint64_t seed,
                         HsDevice *device, bool for_timing)
{
    *trial = (HsTrial){ .op = op, .test = test, .config = config, .seed = seed, .on_gpu = !device->host_accessible };
    test->declare(trial);
    for (int i = 0; i < HS_TRIAL_OPERANDS; i++) {
        if (hs_operand_present(trial, i))
            HS_TRY(fill_operand(trial, i, device, for_timing));
    }
    if (for_timing)
        return test->prepare ? test->prepare(trial, NULL) : HS_OK;
    HsDevice host;
    HS_TRY(hs_device_host_init(&host));
    HsContext reference = { .backend = hs_backend_ref(), .device = &host, .threads = 1 };
    return make_exact_result(trial, &reference);
}

void hs_trial_begin(HsTrial *trial, HsContext *context)
{
    if (trial->packed.data)
        context->device->release(context->device, trial->packed.data);
    trial->packed = (HsPacked){ 0 };
    trial->worst = 0.0;
    trial->complaint[0] = 0;
}

void hs_trial_destroy(HsTrial *trial, HsContext *context)
{
    hs_trial_begin(trial, context);
    for (int i = 0; i < HS_TRIAL_OPERANDS; i++) {
        HsTrialOperand *operand = &trial->operands[i];
        if (operand->tensor.data)
            context->device->release(context->device,
                                     (unsigned char *)operand->tensor.data - offset_of(trial, operand));
        if (operand->exact.data)
            free(operand->exact.data);
        free(operand->image);
        free(operand->initial);
        free(operand->error);
    }
    if (trial->quantized_memory)
        context->device->release(context->device, trial->quantized_memory);
    free(trial->quantized_image);
    if (trial->coded_memory)
        context->device->release(context->device, trial->coded_memory);
    free(trial->coded_image);
}

double hs_operand_bytes(const HsTrialOperand *operand)
{
    const bool twice = operand->role == HS_ROLE_BOTH && !operand->overwritten;
    return (twice ? 2.0 : 1.0) * (double)hs_tensor_bytes(&operand->tensor);
}

double hs_trial_bytes(const HsTrial *trial)
{
    double bytes = 0.0;
    for (int i = 0; i < HS_TRIAL_OPERANDS; i++) {
        if (hs_operand_present(trial, i) && !trial->operands[i].parameter)
            bytes += hs_operand_bytes(&trial->operands[i]);
    }
    return bytes;
}

HsStatus hs_trial_upload(HsTrial *trial, HsContext *context)
{
    for (int i = 0; i < HS_TRIAL_OPERANDS; i++) {
        const HsTrialOperand *operand = &trial->operands[i];
        if (hs_operand_present(trial, i))
            HS_TRY(context->device->copy(context->device, context->stream, operand->tensor.data, operand->image,
                                         hs_tensor_bytes(&operand->tensor)));
    }
    return HS_OK;
}

HsStatus hs_trial_call(HsTrial *trial, HsContext *context)
{
    HsTensor tensors[HS_TRIAL_OPERANDS] = { 0 };
    for (int i = 0; i < HS_TRIAL_OPERANDS; i++)
        tensors[i] = trial->operands[i].tensor;
    hs_trial_place_amax(trial, tensors);
    HS_TRY(trial->test->call(trial, context, tensors));
    return context->device->stream_sync(context->device, context->stream);
}

/* The operand as the backend left it, in host memory that the caller frees. */
static HsStatus download(HsTrial *trial, HsContext *context, const HsTrialOperand *operand, void **bytes)
{
    const size_t size = hs_tensor_bytes(&operand->tensor);
    *bytes = malloc(size);
    if (*bytes == NULL)
        return out_of_memory(trial, size);
    HS_TRY(context->device->copy(context->device, context->stream, *bytes, operand->tensor.data, size));
    return context->device->stream_sync(context->device, context->stream);
}

/* How far element i may be off: the chain's error, then the rounding of what the chain can have produced. */
static double tolerance_of(const HsTrialOperand *operand, int64_t i, double exact)
{
    if (!hs_dtype_info(operand->tensor.dtype)->is_float)
        return 0.0;
    const double error = operand->error[i];
    const double rounding = hs_tolerance(0, 0, HS_F32, operand->tensor.dtype, 0.0, fabs(exact) + error);
    return error + rounding * (operand->one_sided ? 2.0 : 1.0);
}

/* Whether a choice that is not the reference's may be one all the same. */
static bool accepted(const HsTrial *trial, const HsTrialOperand *operand, int64_t i, double value)
{
    return trial->test->accepts && operand->role != HS_ROLE_INPUT && !hs_dtype_info(operand->tensor.dtype)->is_float &&
           trial->test->accepts(trial, (int)(operand - trial->operands), i, value);
}

static void compare_operand(HsTrial *trial, const HsTrialOperand *operand, const void *found)
{
    const HsDtype dtype = operand->tensor.dtype;
    for (int64_t i = 0; i < hs_tensor_count(&operand->tensor); i++) {
        double exact = hs_dtype_load(operand->exact.dtype, operand->exact.data, i);
        double tolerance = tolerance_of(operand, i, exact);
        const double value = hs_dtype_load(dtype, found, i);
        /* Inputs are compared too: an operation must leave them alone. */
        if (operand->exact_bits || operand->role == HS_ROLE_INPUT) {
            int64_t rounded; /* room for one element of any dtype */
            hs_dtype_store(dtype, &rounded, 0, exact);
            exact = hs_dtype_load(dtype, &rounded, 0);
            tolerance = 0.0;
        }
        if (value == exact || (isnan(value) && isnan(exact)) || accepted(trial, operand, i, value))
            continue;
        /* An infinite or missing number is never near a finite one, whatever the tolerance. */
        const double ratio = isfinite(value) && tolerance > 0.0 ? fabs(value - exact) / tolerance : INFINITY;
        if (ratio > trial->worst || isnan(ratio))
            trial->worst = isnan(ratio) ? INFINITY : ratio;
        if (!(ratio <= 1.0) && trial->complaint[0] == 0)
            snprintf(trial->complaint, sizeof trial->complaint, "%s[%" PRId64 "] is %.9g, expected %.9g +- %.2g",
                     operand->name, i, value, exact, tolerance);
    }
}

static uint32_t magnitude_of(double value)
{
    const float magnitude = fabsf((float)value);
    uint32_t bits;
    memcpy(&bits, &magnitude, sizeof bits);
    return bits;
}

float hs_largest_magnitude(const HsTensor *tensor, const void *bytes, float least)
{
    uint32_t most = magnitude_of((double)least);
    for (int64_t i = 0; i < hs_tensor_count(tensor); i++) {
        const uint32_t magnitude = magnitude_of(hs_dtype_load(tensor->dtype, bytes, i));
        most = magnitude > most ? magnitude : most;
    }
    memcpy(&least, &most, sizeof least);
    return least;
}

/* Of what this backend has stored, however it differs from the reference's: no bit of it may be missed. */
static void compare_amax(HsTrial *trial, const HsTrialOperand *amax, const HsTrialOperand *of, const float *found,
                         const void *stored)
{
    const float expected = hs_largest_magnitude(&of->tensor, stored, *(const float *)amax->image);
    if (*found == expected || (isnan(*found) && isnan(expected)))
        return;
    trial->worst = INFINITY;
    if (trial->complaint[0] == 0)
        snprintf(trial->complaint, sizeof trial->complaint, "amax is %.9g, %s's is %.9g", (double)*found, of->name,
                 (double)expected);
}

/* Outputs of a run with `threads` worker threads against those of the run before, bit for bit. */
static HsStatus compare_threads(HsTrial *trial, HsContext *context, void **before)
{
    HsContext single = *context;
    single.threads = 1;
    HS_TRY(hs_trial_upload(trial, &single));
    HS_TRY(hs_trial_call(trial, &single));
    for (int i = 0; i < HS_TRIAL_OPERANDS; i++) {
        const HsTrialOperand *operand = &trial->operands[i];
        if (before[i] == NULL)
            continue;
        void *now = NULL;
        HsStatus status = download(trial, &single, operand, &now);
        if (status == HS_OK && memcmp(now, before[i], hs_tensor_bytes(&operand->tensor)) != 0) {
            trial->worst = INFINITY;
            snprintf(trial->complaint, sizeof trial->complaint, "%s differs between 1 and %d threads", operand->name,
                     context->threads);
        }
        free(now);
        HS_TRY(status);
    }
    return HS_OK;
}

static HsStatus follow(HsTrial *trial, void *const *stored)
{
    HsDevice host;
    if (!trial->test->follow)
        return HS_OK;
    HS_TRY(hs_device_host_init(&host));
    HsContext reference = { .backend = hs_backend_ref(), .device = &host, .threads = 1 };
    return trial->test->follow(trial, &reference, stored);
}

HsStatus hs_trial_compare(HsTrial *trial, HsContext *context)
{
    void *found[HS_TRIAL_OPERANDS] = { 0 };
    HsStatus status;
    HS_TRY_GOTO(status, hs_trial_upload(trial, context), done);
    HS_TRY_GOTO(status, hs_trial_call(trial, context), done);
    for (int i = 0; i < HS_TRIAL_OPERANDS; i++)
        if (hs_operand_present(trial, i))
            HS_TRY_GOTO(status, download(trial, context, &trial->operands[i], &found[i]), done);
    HS_TRY_GOTO(status, follow(trial, found), done);
    for (int i = 0; i < HS_TRIAL_OPERANDS; i++) {
        if (!hs_operand_present(trial, i))
            continue;
        const HsTrialOperand *const operand = &trial->operands[i];
        if (operand->role != HS_ROLE_INPUT)
            trial->hash = hs_hash_bytes(trial->hash, found[i], hs_tensor_bytes(&operand->tensor));
        if (operand->amax_of > 0)
            compare_amax(trial, operand, &trial->operands[operand->amax_of - 1], found[i], found[operand->amax_of - 1]);
        else
            compare_operand(trial, operand, found[i]);
    }
    if (context->threads > 1 && trial->complaint[0] == 0)
        HS_TRY_GOTO(status, compare_threads(trial, context, found), done);
done:
    for (int i = 0; i < HS_TRIAL_OPERANDS; i++)
        free(found[i]);
    return status;
}
