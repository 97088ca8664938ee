/* SPDX-License-Identifier: MIT
 *
 * The cpu backend under whole training micro-batches: the number of threads, recomputation and a second run change no
 * bit, with packed weights as in training.
 */
#include "tests/support/tiny_model.h"

static const TinySpec specs[] = {
    { .family = "gpt2",
      .mode = "fp32",
      .layers = 2,
      .heads = 4,
      .width = 64,
      .vocabulary = 65,
      .batch = 3,
      .length = 48,
      .bias = true,
      .tie_head = true,
      .dropout = 0.2,
      .head_chunk = 64,
      .init_std = 0.05 },
    { .family = "gpt2",
      .mode = "bf16",
      .layers = 2,
      .heads = 3,
      .width = 96,
      .vocabulary = 65,
      .batch = 3,
      .length = 48,
      .tie_head = true,
      .head_chunk = 64,
      .init_std = 0.05 },
    { .family = "llama",
      .mode = "bf16",
      .layers = 2,
      .heads = 4,
      .kv_heads = 2,
      .width = 64,
      .mlp_width = 96,
      .vocabulary = 65,
      .batch = 3,
      .length = 48,
      .qk_norm = true,
      .qkv_bias = true,
      .dropout = 0.1,
      .head_chunk = 64,
      .init_std = 0.05 },
    { .family = "llama",
      .mode = "fp16",
      .layers = 2,
      .heads = 4,
      .width = 64,
      .mlp_width = 96,
      .vocabulary = 65,
      .batch = 3,
      .length = 48,
      .tie_head = true,
      .head_chunk = 64,
      .init_std = 0.05 },
};

static void assert_same_bits(TinyModel *expected, double loss, TinySpec spec, const char *what)
{
    TinyModel other;
    tiny_create(&other, spec);
    cr_assert(tiny_train(&other, 4.0f) == loss, "%s %s: another loss with %s", spec.family, spec.mode, what);
    for (int p = 0; p < other.model.param_count; p++) {
        const HsParam *a = &expected->model.params[p], *b = &other.model.params[p];
        cr_assert(memcmp(a->gradient.data, b->gradient.data, hs_tensor_bytes(&a->gradient)) == 0,
                  "%s %s: another gradient of %s with %s", spec.family, spec.mode, a->name, what);
    }
    tiny_destroy(&other);
}

Test(plan_threads, no_bit_depends_on_threads_or_recomputation)
{
    const HsBackend *cpu = NULL;
    TINY_OK(hs_backend_cpu(&cpu));
    for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++) {
        TinySpec spec = specs[s];
        spec.backend = cpu;
        spec.threads = 1;
        TinyModel tiny;
        tiny_create(&tiny, spec);
        double loss = tiny_train(&tiny, 4.0f);
        for (int threads = 2; threads <= 3; threads++) {
            spec.threads = threads;
            assert_same_bits(&tiny, loss, spec, threads == 2 ? "2 threads" : "3 threads");
        }
        for (int policy = HS_RECOMPUTE_ATTENTION; policy <= HS_RECOMPUTE_BLOCK; policy++) {
            spec.policy = (HsRecompute)policy;
            assert_same_bits(&tiny, loss, spec, "recomputation");
        }
        tiny_destroy(&tiny);
    }
}
