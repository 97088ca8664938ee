/* SPDX-License-Identifier: MIT
 *
 * Whether the kernels that continue from tile to tile compute the right numbers at sizes at which they do so.
 *
 *     agreement [--device cuda|emu] [--tiny] [--json FILE] [products|products:EPILOGUE|attention]
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
    const char *const epilogue = part && strncmp(part, "products:", 9) == 0 ? part + 9 : NULL;
    const bool products = !part || epilogue || strcmp(part, "products") == 0;
    const bool attention = !part || strcmp(part, "attention") == 0;
    if (status == HS_OK && !products && !attention)
        status =
            hs_fail(HS_EINVAL, "%s is not known; products, products:EPILOGUE or attention, or nothing for all", part);
    if (status != HS_OK)
        return bench_fail(&bench);
    printf("%s%s\n\n", bench_note(&bench), bench.device.description);
    if (products)
        status = agreement_products(&bench, epilogue);
    if (status != HS_OK)
        bench_fail(&bench);
    if (attention) {
        const HsStatus second = agreement_attention(&bench);
        if (second != HS_OK)
            bench_fail(&bench);
        status = status == HS_OK ? second : status;
    }
    bench_close(&bench);
    return status == HS_OK ? 0 : 1;
}
