/* SPDX-License-Identifier: MIT
 *
 * The choice of the cpu backend's instruction set: once per process, the most capable one that the processor and the
 * operating system both support, or the one that HALFSTEP_CPU_ISA names.
 *
 * __builtin_cpu_supports reads cpuid and, for registers wider than 128 bits, XCR0 (xgetbv): a vector extension with
 * registers that the operating system does not save counts as absent.  On Arm the kernel says what there is (Linux,
 * Documentation/arch/arm64/elf_hwcaps.rst).
 */
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#ifdef __aarch64__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

/* One row per instruction set; the Makefile defines HS_HAS_ISA_x for those it builds. */
typedef struct HsIsaRow {
    const char *name;
    const HsBackend *backend;
    bool (*supported)(void);
    bool has_bf16;
} HsIsaRow;

#ifdef __x86_64__
/* clang 14's __builtin_cpu_supports does not know the word. */
static inline bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}
#endif

#ifdef HS_HAS_ISA_avx512bf16
extern const HsBackend hs_cpu_backend_avx512bf16;
static bool supports_avx512bf16(void)
{
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("fma") && has_f16c();
}
#endif
#ifdef HS_HAS_ISA_amx
extern const HsBackend hs_cpu_backend_amx;
/* cpuid's leaf 7: AMX-BF16, AMX-TILE.  The kernel gives a process the tiles' registers only when it asks (Linux,
 * Documentation/arch/x86/xstate.rst). */
static bool supports_amx(void)
{
    enum { BF16 = 1 << 22, TILE = 1 << 24, ASK_FOR_STATE = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d = 0;
    if (!supports_avx512bf16() || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & BF16) == 0 || (d & TILE) == 0)
        return false;
    return syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_DATA) == 0;
}
#endif
#ifdef HS_HAS_ISA_avx512
extern const HsBackend hs_cpu_backend_avx512;
static bool supports_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("fma") &&
           has_f16c();
}
#endif
#ifdef HS_HAS_ISA_avx2
extern const HsBackend hs_cpu_backend_avx2;
static bool supports_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}
#endif
#ifdef HS_HAS_ISA_neonbf16
extern const HsBackend hs_cpu_backend_neonbf16;
static bool supports_neonbf16(void)
{
    return (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
}
#endif
#ifdef HS_HAS_ISA_neon
extern const HsBackend hs_cpu_backend_neon;
static bool supports_neon(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_ASIMD) != 0;
}
#endif
extern const HsBackend hs_cpu_backend_portable;
static bool supports_portable(void)
{
    return true;
}

/* The most capable first: the first supported row is the default. */
static const HsIsaRow isa_rows[] = {
#ifdef HS_HAS_ISA_amx
    { "amx", &hs_cpu_backend_amx, supports_amx, true },
#endif
#ifdef HS_HAS_ISA_avx512bf16
    { "avx512bf16", &hs_cpu_backend_avx512bf16, supports_avx512bf16, true },
#endif
#ifdef HS_HAS_ISA_avx512
    { "avx512", &hs_cpu_backend_avx512, supports_avx512, false },
#endif
#ifdef HS_HAS_ISA_avx2
    { "avx2", &hs_cpu_backend_avx2, supports_avx2, false },
#endif
#ifdef HS_HAS_ISA_neonbf16
    { "neonbf16", &hs_cpu_backend_neonbf16, supports_neonbf16, true },
#endif
#ifdef HS_HAS_ISA_neon
    { "neon", &hs_cpu_backend_neon, supports_neon, false },
#endif
    { "portable", &hs_cpu_backend_portable, supports_portable, false },
};
enum { ISA_ROW_COUNT = sizeof isa_rows / sizeof *isa_rows };

const char *hs_backend_cpu_isa_name(int index)
{
    return index >= 0 && index < ISA_ROW_COUNT ? isa_rows[index].name : NULL;
}

/* The row called `isa`, if this build has it and this machine runs it. */
static HsStatus find_row(const char *isa, const HsIsaRow **found)
{
    char names[128] = "";
    for (int i = 0; i < ISA_ROW_COUNT; i++) {
        if (strcmp(isa, isa_rows[i].name) == 0) {
            *found = &isa_rows[i];
            if (!isa_rows[i].supported())
                return hs_fail(HS_EUNSUPPORTED,
                               "this processor or operating system does not support %s; choose another, or leave the "
                               "variable unset",
                               isa);
            return HS_OK;
        }
        size_t length = strlen(names);
        snprintf(names + length, sizeof names - length, "%s%s", length ? ", " : "", isa_rows[i].name);
    }
    return hs_fail(HS_EINVAL, "'%s' is not an instruction set of this build; it has %s", isa, names);
}

HsStatus hs_backend_cpu_for_isa(const char *isa, const HsBackend **backend)
{
    const HsIsaRow *row;
    HS_TRY(find_row(isa, &row));
    *backend = row->backend;
    return HS_OK;
}

/* The process's choice, made once.  `chosen` stays NULL when HALFSTEP_CPU_ISA asks for what is not there; the failure
 * is then repeated, with its message, at every call. */
static pthread_once_t choice_once = PTHREAD_ONCE_INIT;
static const HsIsaRow *chosen;
static char forced_isa[32];

static void choose(void)
{
    const char *forced = getenv("HALFSTEP_CPU_ISA");
    if (forced && *forced) {
        snprintf(forced_isa, sizeof forced_isa, "%s", forced);
        const HsIsaRow *row;
        if (find_row(forced_isa, &row) == HS_OK)
            chosen = row;
        return;
    }
    for (int i = 0; i < ISA_ROW_COUNT && !chosen; i++)
        if (isa_rows[i].supported())
            chosen = &isa_rows[i];
}

HsStatus hs_cpu_read_peak(double *flops)
{
    const char *const text = getenv("HALFSTEP_CPU_PEAK");
    char *end;
    *flops = 0;
    if (text == NULL || *text == '\0')
        return HS_OK;
    const double value = strtod(text, &end);
    if (*end != '\0' || !isfinite(value) || value <= 0)
        return hs_fail(HS_ECONFIG, "HALFSTEP_CPU_PEAK=%.40s: give operations a second, such as 2.5e11", text);
    *flops = value;
    return HS_OK;
}

HsStatus hs_backend_cpu(const HsBackend **backend)
{
    double peak;
    pthread_once(&choice_once, choose);
    HS_TRY(hs_cpu_read_peak(&peak));
    if (!chosen) {
        const HsIsaRow *row;
        return hs_error_prefix(find_row(forced_isa, &row), "HALFSTEP_CPU_ISA");
    }
    *backend = chosen->backend;
    return HS_OK;
}

const char *hs_backend_cpu_isa(void)
{
    pthread_once(&choice_once, choose);
    return chosen ? chosen->name : forced_isa;
}

bool hs_backend_cpu_fuses(void)
{
    pthread_once(&choice_once, choose);
#if defined(__FP_FAST_FMAF) && !defined(__aarch64__)
    return chosen != NULL;
#else
    return chosen && chosen->backend != &hs_cpu_backend_portable;
#endif
}

bool hs_backend_cpu_has_bf16(void)
{
    pthread_once(&choice_once, choose);
    return chosen && chosen->has_bf16;
}

void hs_cpu_share_out(int threads, int count, void (*piece)(void *data, int index, int thread), void *data)
{
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int index = 0; index < count; index++)
        piece(data, index, omp_get_thread_num());
}
