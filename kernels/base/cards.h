/* SPDX-License-Identifier: MIT
 *
 * The one table of GPUs that need not be here: what plans take their times from (trainer plan --card), and what the
 * model of the GPU is printed for (trainer reference --predicted).
 */
#ifndef HS_KERNELS_BASE_CARDS_H
#define HS_KERNELS_BASE_CARDS_H

/* A GPU by its manufacturer's datasheet and architecture paper. */
typedef struct HsCard {
    const char *name;
    int gigabytes; /* of memory, in GiB */
    /* 1e12 operations a second: f32, products of f32 rounded to tf32, dense products of 16 bits with f32 sums */
    double f32_teraflops, tf32_teraflops, half_teraflops;
    double gigabytes_per_second;      /* 1e9 */
    double link_gigabytes_per_second; /* to other GPUs of the host, each way: NVLink's, else PCI Express's */
    int compute_capability;           /* 86: 8.6 */
    int multiprocessors;
    double clock_ghz; /* that products run at: boost; of the H100 and H200 the lower end of 1.755 to 1.98 GHz */
} HsCard;

extern const HsCard hs_cards[];
extern const int hs_card_count;

/* Most dynamic shared memory of a block, in KiB, by compute capability; a multiprocessor has one KiB more. */
static inline int hs_card_shared_kib(int compute_capability)
{
    switch (compute_capability) {
    case 80:
        return 163;
    case 90:
    case 100:
        return 227;
    default: /* 8.6, 8.9, 12.0 */
        return 99;
    }
}

#endif
