/* SPDX-License-Identifier: MIT
 *
 * The backend table of the instruction set being compiled: every operation of ops.h, and the scratch of those that
 * need some.  A missing function is a link error, never a silent fallback.
 */
#include "kernels/checks/checks.h"
#include "kernels/cpu/cpu.h"

#define HS_CPU_ENTRY(op, Args, formula)  .op = HS_ISA_NAME(hs_cpu_##op),
#define HS_CPU_WORKSPACE_ENTRY(op, Args) .workspace.op = HS_ISA_NAME(hs_cpu_##op##_workspace),

extern const HsBackend HS_ISA_NAME(hs_cpu_backend);

const HsBackend HS_ISA_NAME(hs_cpu_backend) = {
    .name = "cpu",
    HS_OPS(HS_CPU_ENTRY) HS_CPU_WORKSPACE_OPS(HS_CPU_WORKSPACE_ENTRY).packed_bytes = HS_ISA_NAME(hs_cpu_packed_bytes),
    .refuse.matmul = hs_refuse_mixed_product,
    .peak_flops = hs_cpu_peak_flops,
    .peak_bytes = hs_cpu_peak_bytes,
    .share_out = hs_cpu_share_out,
};
