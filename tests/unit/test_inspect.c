/* SPDX-License-Identifier: MIT
 *
 * trainer inspect on a checkpoint whose statistics can be worked out by hand.
 */
#include <inttypes.h>
#include <math.h>

#include "runtime/checkpoint.h"
#include "runtime/inspect.h"
#include "tests/support/scratch.h"

static void save(const Scratch *scratch)
{
    /* Eight elements: zero, -2, 2^-15 (fp16 subnormal), 2^-30 (below fp16), 2^-130 (bf16 subnormal), 1e5 (over fp16's
     * max), and two that are not finite. */
    float mixed[8] = { 0, -2, 0x1p-15f, 0x1p-30f, 0x1p-130f, 1e5f, INFINITY, NAN };
    float ones[4] = { 1, 1.5f, -1, -1.5f };
    float moment[4] = { 0x1p-20f, 0x1p-20f, 0x1p-19f, 0 };
    const HsNamedTensor model[] = { { .name = "mixed", .tensor = hs_tensor_2d(mixed, HS_F32, 2, 4) },
                                    { .name = "ones", .tensor = hs_tensor_1d(ones, HS_F32, 4) } };
    const HsNamedTensor optimizer[] = { { .name = "ones.m", .tensor = hs_tensor_1d(moment, HS_F32, 4) },
                                        { .name = "ones.v", .tensor = hs_tensor_1d(moment, HS_F32, 4) } };
    HsJson *state = hs_json_object();
    hs_json_set_integer(state, "applied_steps", 10);
    hs_json_set_real(state, "best_validation", (double)NAN);
    const HsCheckpointContent content = { 10, model, 2, optimizer, 2, state, NULL, NULL };
    cr_assert_eq(hs_checkpoint_save(scratch->folder, &content, 1), HS_OK, "%s", hs_error_message());
    hs_json_destroy(state);
}

Test(inspect, prints_what_is_there)
{
    Scratch scratch = scratch_make();
    save(&scratch);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    cr_assert_not_null(out);
    cr_assert_eq(hs_inspect_checkpoint(scratch.folder, out), HS_OK, "%s", hs_error_message());
    fclose(out);

    uint64_t hash = 0;
    const char *folder = scratch_path(&scratch, "checkpoints/step-00000010");
    cr_assert_eq(hs_checkpoint_hash(folder, &hash), HS_OK);
    char head[512];
    snprintf(head, sizeof head,
             "checkpoint %s\nhash %016" PRIx64 "\n\n"
             "trainer state\n"
             "  applied_steps        10\n"
             "  best_validation      (none)\n"
             "\n",
             folder, hash);
    /* mean of `mixed`: (1e5 - 2) / 6 = 16666.3; rms sqrt((1e10 + 4) / 6) = 40824.8.  Moments: mean 2^-20, rms 2^-20
     * sqrt(1.5). */
    static const char body[] =
        "model: 2 tensors\n"
        "  name      dtype shape              elements         min         max        mean      "
        "   rms     zeros nonfinite"
        "   f16<norm   f16>max  bf16<norm  bf16>max\n"
        "  mixed     f32   [2,4]                     8  -2.000e+00   1.000e+05   1.667e+04   "
        "4.082e+04    12.50%         2"
        "     37.50%    12.50%     12.50%         0\n"
        "  ones      f32   [4]                       4  -1.500e+00   1.500e+00   0.000e+00   "
        "1.275e+00         0         0"
        "          0         0          0         0\n"
        "  all                                      12  -2.000e+00   1.000e+05   1.000e+04   "
        "3.162e+04     8.33%         2"
        "     25.00%     8.33%      8.33%         0\n"
        "\n"
        "optimizer: 2 tensors\n"
        "  name      dtype shape              elements         min         max        mean      "
        "   rms     zeros nonfinite"
        "   f16<norm   f16>max  bf16<norm  bf16>max\n"
        "  ones.m    f32   [4]                       4   0.000e+00   1.907e-06   9.537e-07   "
        "1.168e-06    25.00%         0"
        "     75.00%         0          0         0\n"
        "  ones.v    f32   [4]                       4   0.000e+00   1.907e-06   9.537e-07   "
        "1.168e-06    25.00%         0"
        "     75.00%         0          0         0\n"
        "  all                                       8   0.000e+00   1.907e-06   9.537e-07   "
        "1.168e-06    25.00%         0"
        "     75.00%         0          0         0\n"
        "\n"
        "exponents of model: 9 values that are finite and not zero\n"
        "  2^16   to 2^18    11.11%  ########                                  overflows fp16\n"
        "  ...\n"
        "  2^0    to 2^2     55.56%  ########################################\n"
        "  ...\n"
        "  2^-16  to 2^-14   11.11%  ########                                  subnormal in fp16\n"
        "  ...\n"
        "  2^-30  to 2^-28   11.11%  ########                                  below fp16\n"
        "  ...\n"
        "  2^-130 to 2^-128  11.11%  ########                                  below fp16\n"
        "\n"
        "exponents of m: 3 values that are finite and not zero\n"
        "  2^-20  to 2^-18  100.00%  ########################################  subnormal in fp16\n"
        "\n"
        "exponents of v: 3 values that are finite and not zero\n"
        "  2^-20  to 2^-18  100.00%  ########################################  subnormal in fp16\n";
    cr_assert_eq(strncmp(text, head, strlen(head)), 0, "%s", text);
    cr_expect_str_eq(text + strlen(head), body);
    free(text);
    scratch_remove(&scratch);
}

Test(inspect, a_damaged_or_missing_checkpoint_is_an_error)
{
    Scratch scratch = scratch_make();
    cr_expect_eq(hs_inspect_checkpoint(scratch_path(&scratch, "none"), stdout), HS_EIO);
    save(&scratch);
    scratch_write(scratch_path(&scratch, "checkpoints/step-00000010/trainer.json"), "{}", 2);
    cr_expect_eq(hs_inspect_checkpoint(scratch_path(&scratch, "checkpoints/step-00000010"), stdout), HS_EFORMAT);
    scratch_remove(&scratch);
}
