/* SPDX-License-Identifier: MIT
 *
 * Histograms of exponents: counts at every boundary, and what they say of a format against rounding every number to it.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "kernels/base/rng.h"
#include "runtime/engine/histogram.h"

static int group_of(int exponent)
{
    return exponent - HS_HISTOGRAM_LOWEST;
}

/* A group is a half-open binade: its power of two, and the last number before the next. */
Test(histogram, binades_are_half_open)
{
    for (int exponent = HS_HISTOGRAM_LOWEST; exponent <= HS_HISTOGRAM_HIGHEST; exponent++) {
        HsHistogram histogram = { 0 };
        const double power = ldexp(1, exponent);
        hs_histogram_add_value(&histogram, power);
        hs_histogram_add_value(&histogram, -power);
        hs_histogram_add_value(&histogram, nextafter(power, INFINITY));
        hs_histogram_add_value(&histogram, nextafter(2 * power, 0));
        cr_assert_eq(hs_histogram_exponent(group_of(exponent)), exponent);
        cr_expect_eq(histogram.elements, 4);
        cr_expect_eq(histogram.groups[group_of(exponent)], 4, "2^%d", exponent);
        cr_expect_eq(histogram.powers[group_of(exponent)], 2, "2^%d", exponent);
    }
}

Test(histogram, zeros_what_is_not_finite_and_the_ends)
{
    HsHistogram histogram = { 0 };
    const double values[] = { 0.0, -0.0, NAN, INFINITY, -INFINITY, 0x1p-1074, 0x1p-200, 0x1p1000, -0x1p500, 1 };
    hs_histogram_add(&histogram, HS_F64, values, 10);
    cr_expect_eq(histogram.elements, 10);
    cr_expect_eq(histogram.zeros, 2);
    cr_expect_eq(histogram.nonfinite, 3);
    cr_expect_eq(histogram.groups[0], 2);
    cr_expect_eq(histogram.groups[HS_HISTOGRAM_GROUPS - 1], 2);
    cr_expect_eq(histogram.groups[group_of(0)], 1);
    /* 2^-200 is a power, but not the last group's. */
    cr_expect_eq(histogram.powers[0] + histogram.powers[HS_HISTOGRAM_GROUPS - 1], 0);
    cr_expect_eq(histogram.powers[group_of(0)], 1);
}

/* Every number of the 16-bit formats: a binade of normal numbers has 2^mantissa_bits of either sign, one of subnormal
 * ones as many as its distance from the smallest says. */
Test(histogram, counts_all_numbers_of_a_format)
{
    const HsDtype formats[] = { HS_F16, HS_BF16 };
    static uint16_t all[65536];
    for (int i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    for (int f = 0; f < 2; f++) {
        const HsDtypeInfo *info = hs_dtype_info(formats[f]);
        HsHistogram histogram = { 0 };
        hs_histogram_add(&histogram, formats[f], all, 65536);
        cr_expect_eq(histogram.elements, 65536);
        cr_expect_eq(histogram.zeros, 2);
        cr_expect_eq(histogram.nonfinite, 2 << info->mantissa_bits);
        const int smallest = ilogb(info->smallest_subnormal), normal = ilogb(info->smallest_normal);
        for (int group = 0; group < HS_HISTOGRAM_GROUPS; group++) {
            int exponent = hs_histogram_exponent(group),
                bits = exponent < normal ? exponent - smallest : normal - smallest;
            int64_t expected = bits < 0 || exponent > ilogb(info->max) ? 0 : 2 << bits;
            cr_expect_eq(histogram.groups[group], expected, "%s, 2^%d", info->name, exponent);
            cr_expect_eq(histogram.powers[group], expected > 0 ? 2 : 0, "%s, 2^%d", info->name, exponent);
        }
    }
}

Test(histogram, reads_every_dtype_and_merges)
{
    const HsDtype formats[] = { HS_F64, HS_F32, HS_F16, HS_BF16, HS_E4M3, HS_E5M2 };
    const double values[] = { 0, 1, -1.5, 0.25, 3, -2 }; /* in all formats */
    HsHistogram sum = { 0 }, whole = { 0 };
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        double storage[6];
        HsHistogram one = { 0 };
        for (int i = 0; i < 6; i++) {
            hs_dtype_store(formats[f], storage, i, values[i]);
            hs_histogram_add_value(&whole, values[i]);
        }
        hs_histogram_add(&one, formats[f], storage, 6);
        cr_expect_eq(one.groups[group_of(0)], 2, "%s", hs_dtype_name(formats[f]));
        cr_expect_eq(one.groups[group_of(1)], 2, "%s", hs_dtype_name(formats[f]));
        cr_expect_eq(one.powers[group_of(1)], 1, "%s", hs_dtype_name(formats[f]));
        cr_expect_eq(one.groups[group_of(-2)], 1, "%s", hs_dtype_name(formats[f]));
        hs_histogram_merge(&sum, &one);
    }
    cr_expect_eq(memcmp(&sum, &whole, sizeof sum), 0);
}

/* ---- what a format makes of it ---- */

typedef struct Fates {
    int64_t zero, vanished, subnormal, overflow;
} Fates;

/* The truth: the number is rounded to the format, by the encoder. */
static void add_fate(Fates *fates, HsDtype format, double value, int shift)
{
    double shifted = ldexp(value, shift), storage;
    hs_dtype_store(format, &storage, 0, shifted);
    double stored = hs_dtype_load(format, &storage, 0);
    fates->zero += value == 0;
    fates->vanished += value != 0 && stored == 0;
    fates->overflow += !isfinite(stored);
    /* By what it was: just below the smallest normal number it may round up to that, with one bit less. */
    fates->subnormal += stored != 0 && fabs(shifted) < hs_dtype_info(format)->smallest_normal;
}

static void expect_loss(const HsHistogram *histogram, HsDtype format, int shift, const Fates *fates)
{
    HsFormatLoss loss = hs_histogram_loss(histogram, format, shift);
    const double all = (double)histogram->elements;
    const char *name = hs_dtype_name(format);
    cr_expect_eq(loss.zero, (double)fates->zero / all, "%s, 2^%d: %g zero", name, shift, loss.zero * all);
    cr_expect_eq(loss.vanished, (double)fates->vanished / all, "%s, 2^%d: %g vanished, not %ld", name, shift,
                 loss.vanished * all, (long)fates->vanished);
    cr_expect_eq(loss.subnormal, (double)fates->subnormal / all, "%s, 2^%d: %g subnormal, not %ld", name, shift,
                 loss.subnormal * all, (long)fates->subnormal);
    cr_expect_eq(loss.overflow, (double)fates->overflow / all, "%s, 2^%d: %g overflow, not %ld", name, shift,
                 loss.overflow * all, (long)fates->overflow);
}

/* On both sides of each limit, one number at a time, so that no two errors can make up for each other. */
Test(histogram, loss_at_the_limits)
{
    const HsDtype formats[] = { HS_F32, HS_F16, HS_BF16, HS_E5M2 };
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        const HsDtypeInfo *info = hs_dtype_info(formats[f]);
        const double top = ldexp(1, ilogb(info->max) + 1);
        const double limits[] = { info->smallest_subnormal / 4,
                                  info->smallest_subnormal / 2,
                                  info->smallest_subnormal,
                                  info->smallest_subnormal * 2,
                                  info->smallest_normal,
                                  1,
                                  info->max,
                                  top,
                                  top * 2 };
        for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
            /* What is just below the top is the half unit that the next test is about. */
            const double values[] = { nextafter(limits[i], 0), limits[i],
                                      limits[i] == top ? top * 1.25 : nextafter(limits[i], INFINITY), -limits[i] };
            for (size_t v = limits[i] == top; v < 4; v++) {
                HsHistogram histogram = { 0 };
                Fates fates = { 0 };
                hs_histogram_add_value(&histogram, values[v]);
                add_fate(&fates, formats[f], values[v], 0);
                expect_loss(&histogram, formats[f], 0, &fates);
            }
        }
    }
}

/* The one place where binades and rounding part, as the header says: the top half unit of the last binade. */
Test(histogram, the_last_half_unit_counts_as_in_range)
{
    HsHistogram histogram = { 0 };
    hs_histogram_add_value(&histogram, 65519);
    hs_histogram_add_value(&histogram, 65520);
    cr_expect_eq(hs_histogram_loss(&histogram, HS_F16, 0).overflow, 0);
    cr_expect(isfinite(hs_f16_decode(hs_f16_encode(65519))) && isinf(hs_f16_decode(hs_f16_encode(65520))));
}

/* All numbers of fp16 and of bf16, scaled as a loss scale would, against both formats: exact. */
Test(histogram, loss_of_all_16_bit_numbers)
{
    const HsDtype formats[] = { HS_F16, HS_BF16 };
    const int shifts[] = { 0, 1, -1, 8, 15, 16, -10, -16 };
    for (int from = 0; from < 2; from++) {
        for (int to = 0; to < 2; to++) {
            for (size_t s = 0; s < sizeof shifts / sizeof *shifts; s++) {
                HsHistogram histogram = { 0 };
                Fates fates = { 0 };
                for (int bits = 0; bits < 65536; bits++) {
                    const uint16_t item = (uint16_t)bits;
                    double value = hs_dtype_load(formats[from], &item, 0);
                    hs_histogram_add_value(&histogram, value);
                    add_fate(&fates, formats[to], value, shifts[s]);
                }
                expect_loss(&histogram, formats[to], shifts[s], &fates);
            }
        }
    }
}

/* f32 numbers of all sizes, none in the last half unit (a 2^-12th of one binade of 80). */
Test(histogram, loss_of_random_numbers)
{
    const HsRng rng = { .seed = 3 };
    for (int shift = -12; shift <= 12; shift += 3) {
        HsHistogram histogram = { 0 };
        Fates fates = { 0 };
        for (uint64_t i = 0; i < 20000; i++) {
            HsPhilox draw = hs_rng_draw(&rng, i);
            float value = (float)ldexp(1 + (double)hs_rng_uniform(draw.word[0]), (int)(draw.word[1] % 80) - 48);
            if (fabs(ldexp((double)value, shift)) >= 65520 && ldexp((double)value, shift) < 65536)
                continue;
            value = i % 100 == 0 ? 0 : value;
            hs_histogram_add(&histogram, HS_F32, &value, 1);
            add_fate(&fates, HS_F16, (double)value, shift);
        }
        cr_assert(fates.vanished > 0 && fates.subnormal > 0 && fates.zero > 0);
        expect_loss(&histogram, HS_F16, shift, &fates);
    }
}

Test(histogram, nothing_loses_nothing)
{
    HsHistogram histogram = { 0 };
    HsFormatLoss loss = hs_histogram_loss(&histogram, HS_F16, 0);
    cr_expect(loss.zero == 0 && loss.vanished == 0 && loss.subnormal == 0 && loss.overflow == 0);
}
