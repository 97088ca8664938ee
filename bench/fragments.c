/* SPDX-License-Identifier: MIT
 *
 * The emulator's assumptions against the hardware: fragment layouts of mma and ldmatrix, partial asynchronous copies,
 * conversions at ties, overflow and NaN, approximate functions.
 *
 *     fragments [--device cuda|emu] [--json FILE] [DUMP]
 *
 * Every experiment of fragments.h runs on the device and on the emulator, and the results are compared by the
 * experiment's rule.  DUMP receives the device's words: kept under tests/, a GPU's dump is golden data for the
 * emulator. Experiments marked "told" show where hardware may differ without harm: they are reported and never fail.
 */
#include <math.h>

#include "bench/bench.h"
#include "bench/fragments.h"

#pragma weak fragments_run_cuda

typedef enum Rule {
    EXACT,    /* the same words; any NaN for a NaN */
    SUMS,     /* sums of at most 17 terms of magnitude 1: each addition may lose a unit in the last place of 17 */
    RELATIVE, /* approximate functions: 2^-21 */
    TOLD
} Rule;
static const char *const rule_names[] = { "exact", "sums", "relative", "told" };

/* How the numbers of an mma are made. */
typedef enum Numbers {
    WORDS,     /* any bits */
    INTEGERS,  /* small: every sum is exact, so only the layout matters */
    UNIFORM,   /* in [-1, 1) */
    SPECIAL,   /* infinities, NaNs and the largest numbers among ones */
    SUBNORMAL, /* a below the normal range */
    ROUNDING,  /* ones added to 2^24: what the adder drops */
    LOW_BITS,  /* tf32 operands with bits below its mantissa */
    FLOATS,    /* ties, limits, and any bits */
    EXPONENTS, /* in [-150, 150) */
    POSITIVE
} Numbers;

typedef struct Experiment {
    const char *name;
    FragmentKernel kernel;
    Numbers numbers;
    Rule rule;
} Experiment;

static const Experiment experiments[] = {
    { "mma bf16 layout", FRAGMENT_MMA_BF16, INTEGERS, EXACT },
    { "mma f16 layout", FRAGMENT_MMA_F16, INTEGERS, EXACT },
    { "mma tf32 layout", FRAGMENT_MMA_TF32, INTEGERS, EXACT },
    { "mma bf16 sums", FRAGMENT_MMA_BF16, UNIFORM, SUMS },
    { "mma f16 sums", FRAGMENT_MMA_F16, UNIFORM, SUMS },
    { "mma tf32 sums", FRAGMENT_MMA_TF32, UNIFORM, SUMS },
    { "mma bf16 infinities and NaN", FRAGMENT_MMA_BF16, SPECIAL, EXACT },
    { "mma f16 infinities and NaN", FRAGMENT_MMA_F16, SPECIAL, EXACT },
    { "mma tf32 infinities and NaN", FRAGMENT_MMA_TF32, SPECIAL, EXACT },
    { "mma f16 subnormal", FRAGMENT_MMA_F16, SUBNORMAL, EXACT },
    { "mma bf16 subnormal", FRAGMENT_MMA_BF16, SUBNORMAL, TOLD },
    { "mma bf16 adder's rounding", FRAGMENT_MMA_BF16, ROUNDING, TOLD },
    { "mma f16 adder's rounding", FRAGMENT_MMA_F16, ROUNDING, TOLD },
    { "mma tf32 low bits", FRAGMENT_MMA_TF32, LOW_BITS, TOLD },
    { "ldmatrix x4", FRAGMENT_LOAD_MATRIX_X4, WORDS, EXACT },
    { "ldmatrix x4 transposed", FRAGMENT_LOAD_MATRIX_X4_TRANSPOSED, WORDS, EXACT },
    { "ldmatrix x2", FRAGMENT_LOAD_MATRIX_X2, WORDS, EXACT },
    { "ldmatrix x2 transposed", FRAGMENT_LOAD_MATRIX_X2_TRANSPOSED, WORDS, EXACT },
    { "cp.async of 0 to 16 bytes", FRAGMENT_COPY_ASYNC_16, WORDS, EXACT },
    { "cp.async of 0 to 4 bytes", FRAGMENT_COPY_ASYNC_4, WORDS, EXACT },
    { "two f32 to bf16", FRAGMENT_PACK_BF16, FLOATS, EXACT },
    { "two f32 to f16", FRAGMENT_PACK_F16, FLOATS, EXACT },
    { "f32 to tf32", FRAGMENT_ENCODE_TF32, FLOATS, EXACT },
    { "f16 to f32", FRAGMENT_DECODE_F16, WORDS, EXACT },
    { "2^x", FRAGMENT_EXP2_APPROXIMATE, EXPONENTS, RELATIVE },
    { "1/sqrt(x)", FRAGMENT_RSQRT, POSITIVE, RELATIVE },
    { "shuffle", FRAGMENT_SHUFFLE_XOR, WORDS, EXACT },
    { "ballot", FRAGMENT_BALLOT, WORDS, EXACT },
};

#define WORD_COUNTS(name, inputs, outputs) { inputs, outputs },
static const struct {
    int inputs, outputs;
} word_counts[] = { FRAGMENT_KERNELS(WORD_COUNTS) };

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

/* A number of register `index` % 10 of a lane: 4 registers of a, 2 of b, 4 of the accumulator. */
static float mma_number(Numbers numbers, HsDtype dtype, int register_index, int index)
{
    const uint32_t word = random_word(index);
    const float uniform = hs_rng_uniform(word) * 2.0f - 1.0f;
    switch (numbers) {
    case INTEGERS:
        return (float)((int)(word % 17) - 8);
    case SPECIAL:
        if (word % 61 == 0)
            return word % 2 ? INFINITY : NAN;
        return word % 59 == 0 ? (float)hs_dtype_info(dtype)->max : 1.0f;
    case SUBNORMAL: /* in a only; the products are normal and their sums exact */
        return (float)((int)(word % 17) - 8) *
               (register_index % 10 < 4 ? (float)hs_dtype_info(dtype)->smallest_subnormal : 1024.0f);
    case ROUNDING:
        return 1.0f;
    default:
        return uniform;
    }
}

/* One word of a fragment: two numbers of 16 bits, or one of 32. */
static uint32_t mma_word(const Experiment *experiment, int index)
{
    const Numbers numbers = experiment->numbers;
    if (experiment->kernel == FRAGMENT_MMA_TF32) { /* exact in tf32, but where its lowest bits are the question */
        const float value = mma_number(numbers, HS_F32, index, index);
        return float_bits(value) & (numbers == LOW_BITS || isnan(value) ? UINT32_MAX : 0xffffe000u);
    }
    const HsDtype dtype = experiment->kernel == FRAGMENT_MMA_BF16 ? HS_BF16 : HS_F16;
    uint16_t halves[2];
    for (int i = 0; i < 2; i++)
        hs_dtype_store(dtype, halves, i, (double)mma_number(numbers, dtype, index, 2 * index + i));
    return (uint32_t)halves[0] | (uint32_t)halves[1] << 16;
}

static uint32_t input_word(const Experiment *experiment, int index)
{
    enum { HARD = sizeof hard_floats / sizeof *hard_floats, LANE_WORDS = 10, ACCUMULATORS = 6 };
    const uint32_t word = random_word(index);
    if (experiment->kernel <= FRAGMENT_MMA_TF32) {
        if (index % LANE_WORDS < ACCUMULATORS)
            return mma_word(experiment, index);
        if (experiment->numbers == ROUNDING)
            return float_bits(0x1p24f + (float)(2 * (index % 5)));
        return float_bits(experiment->numbers == SPECIAL     ? 1.0f
                          : experiment->numbers == SUBNORMAL ? 0.0f
                                                             : mma_number(experiment->numbers, HS_F32, index, index));
    }
    switch (experiment->numbers) {
    case FLOATS:
        return index < HARD ? hard_floats[index] : word;
    case EXPONENTS:
        return float_bits((hs_rng_uniform(word) * 2.0f - 1.0f) * 150.0f);
    case POSITIVE:
        return float_bits(ldexpf(1.0f + hs_rng_uniform(word), (int)(word % 200) - 100));
    default:
        return word;
    }
}

static bool agree(const Experiment *experiment, uint32_t found, uint32_t expected)
{
    const float a = bits_float(found), b = bits_float(expected);
    const bool half = experiment->kernel == FRAGMENT_PACK_BF16 || experiment->kernel == FRAGMENT_PACK_F16;
    if (found == expected)
        return true;
    /* Which NaN comes out of a conversion, no kernel reads. */
    if (half) {
        const uint32_t infinity = experiment->kernel == FRAGMENT_PACK_BF16 ? 0x7f80u : 0x7c00u;
        for (int part = 0; part < 2; part++) {
            const uint32_t x = found >> (16 * part) & 0xffffu, y = expected >> (16 * part) & 0xffffu;
            if (x != y && ((x & 0x7fffu) <= infinity || (y & 0x7fffu) <= infinity))
                return false;
        }
        return true;
    }
    if (experiment->numbers == WORDS && experiment->kernel != FRAGMENT_DECODE_F16)
        return false;
    if (isnan(a) || isnan(b) || isinf(a) || isinf(b))
        return isnan(a) && isnan(b);
    if (experiment->rule == SUMS)
        return fabsf(a - b) <= 17.0f * 17.0f * 0x1p-23f;
    return experiment->rule == RELATIVE && fabsf(a - b) <= 0x1p-21f * fabsf(b);
}

typedef HsStatus (*Run)(HsContext *context, FragmentKernel kernel, const uint32_t *inputs, uint32_t *outputs);

static HsStatus run_on(HsContext *context, Run run, const Experiment *experiment, uint32_t *words)
{
    HsDevice *device = context->device;
    const size_t room = FRAGMENT_MOST_WORDS * sizeof *words;
    uint32_t inputs[FRAGMENT_MOST_WORDS] = { 0 };
    void *in = NULL, *out = NULL;
    for (int i = 0; i < word_counts[experiment->kernel].inputs; i++)
        inputs[i] = input_word(experiment, i);
    HsStatus status;
    HS_TRY_GOTO(status, device->alloc(device, room, &in), done);
    HS_TRY_GOTO(status, device->alloc(device, room, &out), done);
    HS_TRY_GOTO(status, device->copy(device, context->stream, in, inputs, room), done);
    HS_TRY_GOTO(status, run(context, experiment->kernel, in, out), done);
    HS_TRY_GOTO(status, device->copy(device, context->stream, words, out, room), done);
    HS_TRY_GOTO(status, device->stream_sync(device, context->stream), done);
done:
    if (in)
        device->release(device, in);
    if (out)
        device->release(device, out);
    return status;
}

static void dump(FILE *file, const Experiment *experiment, const uint32_t *words)
{
    const int count = word_counts[experiment->kernel].outputs;
    fprintf(file, "%s\n", experiment->name);
    for (int i = 0; i < count; i++)
        fprintf(file, "%s%08" PRIx32 "%s", i % 8 == 0 ? "  " : " ", words[i], i % 8 == 7 || i == count - 1 ? "\n" : "");
}

/* *failed grows by one where the rule is broken. */
static void compare(Bench *bench, const Experiment *experiment, const uint32_t *found, const uint32_t *expected,
                    int *failed)
{
    const int count = word_counts[experiment->kernel].outputs;
    int identical = 0, within = 0, first = -1;
    for (int i = 0; i < count; i++) {
        identical += found[i] == expected[i];
        within += agree(experiment, found[i], expected[i]);
        if (first < 0 && !agree(experiment, found[i], expected[i]))
            first = i;
    }
    const bool broken = within < count && experiment->rule != TOLD;
    *failed += broken;
    printf("| %s | %s | %d of %d | %s", experiment->name, rule_names[experiment->rule], identical, count,
           broken           ? "BROKEN"
           : within < count ? "differs"
                            : "holds");
    if (first >= 0)
        printf(": word %d is %08" PRIx32 ", emulated %08" PRIx32, first, found[first], expected[first]);
    printf(" |\n");
    bench_json(bench,
               "{\"bench\":\"fragment\",\"name\":\"%s\",\"rule\":\"%s\",\"words\":%d,\"identical\":%d,\"within\":%d}",
               experiment->name, rule_names[experiment->rule], count, identical, within);
}

static HsStatus run_all(Bench *bench, HsContext *emulator, FILE *file, int *failed)
{
    const Run run = strcmp(bench->device_name, "emu") == 0 ? fragments_run_emu : fragments_run_cuda;
    if (run == NULL)
        return hs_fail(HS_EUNSUPPORTED, "this build has no GPU kernels");
    printf("| experiment | rule | identical words | verdict |\n|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof experiments / sizeof *experiments; i++) {
        uint32_t found[FRAGMENT_MOST_WORDS], expected[FRAGMENT_MOST_WORDS];
        HS_TRY(run_on(&bench->context, run, &experiments[i], found));
        HS_TRY(run_on(emulator, fragments_run_emu, &experiments[i], expected));
        compare(bench, &experiments[i], found, expected, failed);
        if (file)
            dump(file, &experiments[i], found);
    }
    return HS_OK;
}

int main(int argc, char **argv)
{
    Bench bench;
    HsDevice device;
    HsContext emulator;
    const char *path;
    int failed = 0;
    HsStatus status = bench_open(&bench, argc, argv, &path);
    if (status == HS_OK)
        status = bench_device(&device, &emulator, "emu", false);
    if (status != HS_OK)
        return bench_fail(&bench);
    FILE *file = path ? fopen(path, "w") : NULL;
    status = path && file == NULL ? hs_fail(HS_EIO, "%s: cannot be written", path)
                                  : run_all(&bench, &emulator, file, &failed);
    if (file && fclose(file) != 0 && status == HS_OK)
        status = hs_fail(HS_EIO, "%s: not written whole", path);
    int result = status == HS_OK ? 0 : bench_fail(&bench);
    if (failed > 0) {
        printf("\n%d of the emulator's assumptions do not hold on this device\n", failed);
        result = 1;
    }
    hs_device_deinit(&device);
    bench_close(&bench);
    return result;
}
