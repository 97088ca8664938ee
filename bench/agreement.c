/* SPDX-License-Identifier: MIT
 *
 * Whether the kernels that go on from tile to tile compute the right numbers at sizes at which they do.
 *
 *     agreement [--device cuda|emu] [--tiny] [--json FILE] [products|attention]
 *
 * The self-test compares every operation with the reference at small sizes.  A GPU of 132 multiprocessors gives each of
 * its blocks at most one tile of those, so that what happens between tiles (rings that run on, buffers used again,
 * tickets, turns) would be seen in no comparison.  Here sizes are large; and HALFSTEP_MULTIPROCESSORS=4 makes every
 * block go round many times.  Products: agreement_products.h; attention: agreement_attention.h.
 */
#include "bench/agreement_attention.h"
#include "bench/agreement_products.h"

int main(int argc, char **argv)
{
    Bench bench;
    const char *part;
    HsStatus status = bench_open(&bench, argc, argv, &part);
    if (status == HS_OK && part && strcmp(part, "products") != 0 && strcmp(part, "attention") != 0)
        status = hs_fail(HS_EINVAL, "%s is not known; products or attention, or nothing for both", part);
    if (status != HS_OK)
        return bench_fail(&bench);
    printf("%s%s\n\n", bench_note(&bench), bench.device.description);
    if (!part || strcmp(part, "products") == 0)
        status = agreement_products(&bench);
    if (status != HS_OK)
        bench_fail(&bench);
    if (!part || strcmp(part, "attention") == 0) {
        const HsStatus attention = agreement_attention(&bench);
        if (attention != HS_OK)
            bench_fail(&bench);
        status = status == HS_OK ? attention : status;
    }
    bench_close(&bench);
    return status == HS_OK ? 0 : 1;
}
