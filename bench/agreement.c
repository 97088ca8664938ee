/* SPDX-License-Identifier: MIT
 *
 * Whether the kernels that continue from tile to tile compute the right numbers at sizes at which they do so.
 *
 *     agreement [--device cuda|emu] [--tiny] [--json FILE] [products|products:PATTERN|codes|attention]
 *
 * The self-test compares every operation with the reference at small sizes.  A GPU of 132 multiprocessors gives each of
 * its blocks at most one tile of those, so that what happens between tiles (rings that run on, buffers used again,
 * tickets, turns) would be seen in no comparison.  Here sizes are large; and HALFSTEP_MULTIPROCESSORS=4 makes every
 * block go round many times.  agreement_products.h, agreement_codes.h, agreement_attention.h.
 */
#include "bench/agreement_attention.h"
#include "bench/agreement_codes.h"

static HsStatus run_codes(Bench *bench, const char *none)
{
    (void)none;
    return agreement_codes(bench);
}

static HsStatus run_attention(Bench *bench, const char *none)
{
    (void)none;
    return agreement_attention(bench);
}

static const struct {
    const char *name;
    HsStatus (*run)(Bench *bench, const char *more);
} parts[] = { { "products", agreement_products }, { "codes", run_codes }, { "attention", run_attention } };
enum { PARTS = sizeof parts / sizeof *parts };

int main(int argc, char **argv)
{
    Bench bench;
    const char *part;
    HsStatus status = bench_open(&bench, argc, argv, &part);
    const char *const epilogue = part && strncmp(part, "products:", 9) == 0 ? part + 9 : NULL;
    if (status != HS_OK)
        return bench_fail(&bench);
    printf("%s%s\n\n", bench_note(&bench), bench.device.description);
    bool known = false, right = true;
    for (int i = 0; i < PARTS; i++) {
        if (part && strcmp(part, parts[i].name) != 0 && !(epilogue && i == 0))
            continue;
        known = true;
        status = parts[i].run(&bench, epilogue);
        if (status != HS_OK)
            bench_fail(&bench);
        right = right && status == HS_OK;
    }
    if (!known) {
        hs_fail(HS_EINVAL, "%s is not known; products, products:PATTERN, codes or attention, or nothing for all", part);
        bench_fail(&bench);
    }
    bench_close(&bench);
    return known && right ? 0 : 1;
}
