/* SPDX-License-Identifier: MIT
 *
 * The processor's own peak, against which products are measured: chains of the multiply-add instruction that carries
 * them, on every thread at once.  Takes some tens of milliseconds, unless HALFSTEP_CPU_PEAK says what to take.
 */
#include <string.h>

#include "kernels/base/clock.h"
#include "kernels/cpu/cpu.h"

/* Fourteen independent chains hide the latency of one or two multiply-adds a cycle. */
#if defined(__x86_64__)
#define CHAINS(instruction, r)                                                                                      \
    __asm__ volatile(instruction                                                                                    \
                     " %%" r "15, %%" r "14, %%" r "0\n\t" instruction " %%" r "15, %%" r "14, %%" r                \
                     "1\n\t" instruction " %%" r "15, %%" r "14, %%" r "2\n\t" instruction " %%" r "15, %%" r       \
                     "14, %%" r "3\n\t" instruction " %%" r "15, %%" r "14, %%" r "4\n\t" instruction " %%" r       \
                     "15, %%" r "14, %%" r "5\n\t" instruction " %%" r "15, %%" r "14, %%" r "6\n\t" instruction    \
                     " %%" r "15, %%" r "14, %%" r "7\n\t" instruction " %%" r "15, %%" r "14, %%" r                \
                     "8\n\t" instruction " %%" r "15, %%" r "14, %%" r "9\n\t" instruction " %%" r "15, %%" r       \
                     "14, %%" r "10\n\t" instruction " %%" r "15, %%" r "14, %%" r "11\n\t" instruction " %%" r     \
                     "15, %%" r "14, %%" r "12\n\t" instruction " %%" r "15, %%" r "14, %%" r "13" ::               \
                         : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
                           "xmm11", "xmm12", "xmm13", "xmm14", "xmm15")
enum { CHAIN_COUNT = 14, PROBE_STEPS = 500000 };

/* Just after a pause threads may share a core, and cores run slowly: the first milliseconds show half of the peak and
 * less.  So the probe continues until for a while nothing was better. */
static const double settled_s = 0.04, longest_s = 0.25;

static void probe_bf16_512(void)
{
    for (int i = 0; i < PROBE_STEPS; i++)
        CHAINS("vdpbf16ps", "zmm");
}
static void probe_f32_512(void)
{
    for (int i = 0; i < PROBE_STEPS; i++)
        CHAINS("vfmadd231ps", "zmm");
}
static void probe_f32_256(void)
{
    for (int i = 0; i < PROBE_STEPS; i++)
        CHAINS("vfmadd231ps", "ymm");
}

/* Six tiles of sums hide the latency of one product in sixteen cycles.  As many multiply-adds as there are chains, but
 * fewer steps: each has eight thousand.  The operands are loaded: where a core's other thread is at work, products of
 * tiles that were made zero are two and a half times as fast as any others. */
enum { AMX_SHARE = 50 };
static void probe_amx(void)
{
    static const struct {
        uint8_t palette, zeros[15];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = { .palette = 1,
                 .row_bytes = { 64, 64, 64, 64, 64, 64, 64, 64 },
                 .rows = { 16, 16, 16, 16, 16, 16, 16, 16 } };
    static const uint8_t operand[16][64];
    __asm__ volatile("ldtilecfg %0\n\ttileloadd (%1,%2,1), %%tmm6\n\ttileloadd (%1,%2,1), %%tmm7"
                     :
                     : "m"(config), "r"(operand), "r"(sizeof operand[0]), "m"(operand));
    for (int i = 0; i < PROBE_STEPS / AMX_SHARE * CHAIN_COUNT; i += 6)
        __asm__ volatile("tdpbf16ps %%tmm7, %%tmm6, %%tmm0\n\ttdpbf16ps %%tmm7, %%tmm6, %%tmm1\n\t"
                         "tdpbf16ps %%tmm7, %%tmm6, %%tmm2\n\ttdpbf16ps %%tmm7, %%tmm6, %%tmm3\n\t"
                         "tdpbf16ps %%tmm7, %%tmm6, %%tmm4\n\ttdpbf16ps %%tmm7, %%tmm6, %%tmm5" ::);
}

/* Which instruction carries the products of an instruction set and dtype; portable code has none to compare with. */
static const struct {
    const char *isa;
    HsDtype dtype;
    void (*probe)(void);
    double flops; /* of one instruction */
} probes[] = {
    { "amx", HS_BF16, probe_amx, 16384.0 / AMX_SHARE },
    { "amx", HS_F32, probe_f32_512, 32 },
    { "amx", HS_F16, probe_f32_512, 32 },
    { "avx512bf16", HS_BF16, probe_bf16_512, 64 },
    { "avx512bf16", HS_F32, probe_f32_512, 32 },
    { "avx512bf16", HS_F16, probe_f32_512, 32 },
    { "avx512", HS_BF16, probe_f32_512, 32 },
    { "avx512", HS_F32, probe_f32_512, 32 },
    { "avx512", HS_F16, probe_f32_512, 32 },
    { "avx2", HS_BF16, probe_f32_256, 16 },
    { "avx2", HS_F32, probe_f32_256, 16 },
    { "avx2", HS_F16, probe_f32_256, 16 },
};

double hs_cpu_peak_flops(const HsContext *context, HsDtype dtype, HsProductPolicy policy)
{
    (void)policy; /* f32 rounded to tf32 is multiplied as f32 */
    const char *isa = hs_backend_cpu_isa();
    const int threads = hs_cpu_thread_slots(context);
    const double began_s = hs_clock_s();
    double given;
    if (hs_cpu_read_peak(&given) == HS_OK && given > 0)
        return given;
    double best = 0, improved_s = began_s, now_s = began_s;
    for (size_t row = 0; row < sizeof probes / sizeof *probes; row++) {
        if (strcmp(probes[row].isa, isa) != 0 || probes[row].dtype != dtype)
            continue;
        while (now_s - improved_s < settled_s && now_s - began_s < longest_s) {
            const double start_s = now_s;
#pragma omp parallel num_threads(threads)
            probes[row].probe();
            now_s = hs_clock_s();
            const double rate = probes[row].flops * CHAIN_COUNT * PROBE_STEPS * threads / (now_s - start_s);
            if (rate > 1.01 * best)
                improved_s = now_s;
            best = rate > best ? rate : best;
        }
    }
    return best;
}
#else
double hs_cpu_peak_flops(const HsContext *context, HsDtype dtype, HsProductPolicy policy)
{
    (void)policy; /* f32 rounded to tf32 is multiplied as f32 */
    (void)context, (void)dtype;
    double given;
    return hs_cpu_read_peak(&given) == HS_OK ? given : 0;
}
#endif
