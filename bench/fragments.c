/* SPDX-License-Identifier: MIT
 *
 * The emulator's assumptions against the hardware: fragment layouts of mma, ldmatrix and wgmma, partial asynchronous
 * copies, copies of tiles, barriers, conversions at ties, overflow and NaN, approximate functions.
 *
 *     fragments [--device cuda|emu] [--json FILE] [--from N] [DUMP]
 *
 * Every experiment of fragment_inputs.h runs on the device and on the emulator, and the results are compared by the
 * experiment's rule.  DUMP receives the device's words, of long results a digest of every 256: kept under tests/, a
 * GPU's dump is golden data for the emulator.  Experiments marked "reported" show where hardware may differ without harm:
 * they are reported and never fail.  Those of sm_90a are not for other GPUs, which is reported too.
 *
 * A kernel that hangs or traps takes the process with it.  So each row begins before its experiment does, the exit code
 * is 3 after a failure of the device, 4 if that experiment is only reported, and --from continues with the N-th
 * experiment (from 0), adding to table and dump.
 */
#include <dlfcn.h>

#include "bench/bench.h"
#include "bench/fragment_inputs.h"
#include "kernels/base/hash.h"

static bool agree(const Experiment *experiment, uint32_t found, uint32_t expected)
{
    const float a = bits_float(found), b = bits_float(expected);
    const bool half = experiment->kernel == FRAGMENT_PACK_BF16 || experiment->kernel == FRAGMENT_PACK_F16;
    if (found == expected)
        return true;
    /* Which NaN comes out of a conversion, no kernel reads. */
    if (half) {
        const uint32_t infinity = experiment->operands == HS_BF16 ? 0x7f80u : 0x7c00u;
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
    if (experiment->rule == SUMS) {
        const float terms = (float)sum_terms(experiment->kernel);
        return fabsf(a - b) <= terms * terms * 0x1p-23f;
    }
    return experiment->rule == RELATIVE && fabsf(a - b) <= 0x1p-21f * fabsf(b);
}

/* In the part that the device was opened from. */
static HsStatus find_run(const char *device, FragmentKernel kernel, FragmentRun **run)
{
    char file[64];
    const char *name = kernel >= FRAGMENT_FIRST_HOPPER ? "fragments_hopper_run" : "fragments_run";
    snprintf(file, sizeof file, "libhalfstep-%.32s.so", device);
    void *part = dlopen(file, RTLD_NOW | RTLD_NOLOAD);
    *(void **)run = part ? dlsym(part, name) : NULL; /* as POSIX has it */
    if (part)
        dlclose(part); /* it stays open: the device is */
    return *run ? HS_OK : hs_fail(HS_EUNSUPPORTED, "%s has no %s: it was not built for the benchmarks", file, name);
}

/* Copies one way or the other, and waits. */
static HsStatus copy_words(HsContext *context, void *to, const void *from, int words)
{
    HsDevice *device = context->device;
    HS_TRY(device->copy(device, context->stream, to, from, (size_t)words * sizeof(uint32_t)));
    return device->stream_sync(device, context->stream);
}

static HsStatus run_on(HsContext *context, const char *device_name, const Experiment *experiment, uint32_t *words)
{
    HsDevice *device = context->device;
    const FragmentShape *shape = fragment_shape(experiment->kernel);
    FragmentRun *run;
    HS_TRY(find_run(device_name, experiment->kernel, &run));
    void *in = NULL, *out = NULL;
    HsStatus status;
    HS_TRY_GOTO(status, device->alloc(device, (size_t)shape->inputs * sizeof *words, &in), done);
    HS_TRY_GOTO(status, device->alloc(device, (size_t)shape->outputs * sizeof *words, &out), done);
    for (int i = 0; i < shape->inputs; i++)
        words[i] = input_word(experiment, i);
    HS_TRY_GOTO(status, copy_words(context, in, words, shape->inputs), done);
    for (int i = 0; i < shape->outputs; i++)
        words[i] = initial_word(experiment, i);
    HS_TRY_GOTO(status, copy_words(context, out, words, shape->outputs), done);
    HS_TRY_GOTO(status, run(context, experiment->kernel, in, out), done);
    HS_TRY_GOTO(status, copy_words(context, words, out, shape->outputs), done);
done:
    if (in)
        device->release(device, in);
    if (out)
        device->release(device, out);
    return status;
}

static uint64_t digest(const uint32_t *words, int count)
{
    uint64_t hash = HS_HASH_START;
    for (int i = 0; i < 4 * count; i++)
        hash = hs_hash_number(hash, words[i / 4] >> (8 * (i % 4)) & 0xffu);
    return hash;
}

static void dump(FILE *file, const Experiment *experiment, const uint32_t *words)
{
    enum { WHOLE = 1024, DIGESTED = 256 };
    const int count = fragment_shape(experiment->kernel)->outputs;
    fprintf(file, "%s\n", experiment->name);
    for (int i = 0; count <= WHOLE && i < count; i++)
        fprintf(file, "%s%08" PRIx32 "%s", i % 8 == 0 ? "  " : " ", words[i], i % 8 == 7 || i == count - 1 ? "\n" : "");
    for (int i = 0; count > WHOLE && i < count; i += DIGESTED)
        fprintf(file, "  %016" PRIx64 "\n", digest(words + i, count - i < DIGESTED ? count - i : DIGESTED));
}

/* *failed grows by one where the rule is broken. */
static void compare(Bench *bench, const Experiment *experiment, const uint32_t *found, const uint32_t *expected,
                    int *failed)
{
    const int count = fragment_shape(experiment->kernel)->outputs;
    int identical = 0, within = 0, first = -1;
    for (int i = 0; i < count; i++) {
        identical += found[i] == expected[i];
        within += agree(experiment, found[i], expected[i]);
        if (first < 0 && !agree(experiment, found[i], expected[i]))
            first = i;
    }
    const bool broken = within < count && experiment->rule != REPORTED;
    *failed += broken;
    printf(" %d of %d | %s", identical, count, broken ? "BROKEN" : within < count ? "differs" : "holds");
    if (first >= 0)
        printf(": word %d is %08" PRIx32 ", emulated %08" PRIx32, first, found[first], expected[first]);
    printf(" |\n");
    bench_json(bench,
               "{\"bench\":\"fragment\",\"name\":\"%s\",\"rule\":\"%s\",\"words\":%d,\"identical\":%d,\"within\":%d}",
               experiment->name, rule_names[experiment->rule], count, identical, within);
}

enum { LOST = 3, REPORTED_LOST = 4 };

/* One experiment's row.  *lost: the exit code, if the device is of no more use. */
static HsStatus run_one(Bench *bench, HsContext *emulator, FILE *file, const Experiment *experiment, int *failed,
                        int *lost)
{
    static uint32_t found[FRAGMENT_MOST_WORDS], expected[FRAGMENT_MOST_WORDS];
    const char *rule = rule_names[experiment->rule];
    printf("| %s | %s |", experiment->name, rule);
    fflush(stdout);
    const HsStatus status = run_on(&bench->context, bench->device_name, experiment, found);
    if (status == HS_EUNSUPPORTED) {
        printf(" | not on this GPU |\n");
        bench_json(bench, "{\"bench\":\"fragment\",\"name\":\"%s\",\"rule\":\"%s\",\"words\":0}", experiment->name,
                   rule);
        return HS_OK;
    }
    if (status != HS_OK) {
        printf(" | FAILED: %s |\n", hs_error_message());
        *lost = experiment->rule == REPORTED ? REPORTED_LOST : LOST;
        return status;
    }
    HS_TRY(run_on(emulator, "emu", experiment, expected));
    compare(bench, experiment, found, expected, failed);
    if (file)
        dump(file, experiment, found);
    return HS_OK;
}

/* Takes --from N out of the arguments; 0: not there. */
static int take_from(int *argc, char **argv)
{
    for (int i = 1; i + 1 < *argc; i++)
        if (strcmp(argv[i], "--from") == 0) {
            const int from = atoi(argv[i + 1]);
            *argc -= 2;
            memmove(argv + i, argv + i + 2, (size_t)(*argc - i) * sizeof *argv);
            return from > 0 ? from : 0;
        }
    return 0;
}

int main(int argc, char **argv)
{
    const int count = sizeof experiments / sizeof *experiments, from = take_from(&argc, argv);
    Bench bench;
    HsDevice device;
    HsContext emulator;
    const char *path;
    int failed = 0, lost = 0;
    HsStatus status = bench_open(&bench, argc, argv, &path);
    if (status == HS_OK)
        status = bench_device(&device, &emulator, "emu", (HsCudaOptions){ 0 });
    if (status != HS_OK)
        return bench_fail(&bench);
    FILE *file = path ? fopen(path, from > 0 ? "a" : "w") : NULL;
    if (path && file == NULL)
        status = hs_fail(HS_EIO, "%s: cannot be written", path);
    if (from == 0)
        printf("| experiment | rule | identical words | verdict |\n|---|---|---|---|\n");
    for (int i = from; status == HS_OK && i < count; i++)
        status = run_one(&bench, &emulator, file, &experiments[i], &failed, &lost);
    if (file && fclose(file) != 0 && status == HS_OK)
        status = hs_fail(HS_EIO, "%s: not written whole", path);
    int result = status == HS_OK ? 0 : bench_fail(&bench);
    if (failed > 0) {
        fprintf(stderr, "%d of the emulator's assumptions do not hold on this device\n", failed);
        result = 1;
    }
    bench_device_close(&device, &emulator);
    bench_close(&bench);
    return lost ? lost : result;
}
