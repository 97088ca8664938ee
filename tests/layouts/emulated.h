/* SPDX-License-Identifier: MIT
 *
 * The emulator's side: groups of experiments, each of which runs the project's own wrappers and kernel functions and
 * answers CuTe's tables with what came out.
 *
 * A product shows nothing of one operand alone: if A's and D's rows were renamed alike, no program could see it.  So
 * each mapping is derived with the other operands laid out as CuTe says: A's fragment with B's and D's of CuTe, and so
 * on.  Codes are small whole numbers, which 16-bit numbers hold exactly.
 */
#ifndef HS_TESTS_LAYOUTS_EMULATED_H
#define HS_TESTS_LAYOUTS_EMULATED_H

#include <stdio.h>
#include <stdlib.h>

#include "tests/layouts/table.h"

namespace layouts
{

struct Experiments {
    const Tables &cute;
    const std::string planted; /* the kind of table that gets a mistake in its experiments, or none */
    Tables own;

    bool is_planted(const char *kind) const
    {
        return planted == kind;
    }
    const Table &expected(const std::string &kind, const std::string &name) const
    {
        const auto found = cute.find({ kind, name });
        if (found == cute.end()) {
            fprintf(stderr, "CuTe's side has no row \"%s\" of kind %s\n", name.c_str(), kind.c_str());
            exit(1);
        }
        return found->second;
    }
    /* A table of the same axes, to be filled. */
    Table &answer(const std::string &kind, const std::string &name)
    {
        const Table &table = expected(kind, name);
        return add_table(own, Table(kind, name, table.index, table.value));
    }
};

/* An answer that a decoded code names; a code that cannot be is an element that was not found. */
static inline void set_number(Table &table, int64_t index, int64_t number)
{
    if (index >= 0 && index < (int64_t)table.numbers.size())
        table.numbers[(size_t)index] = number;
}

/* Codes that a 16-bit number cannot hold exactly go in two parts: code = 128 high + low. */
static inline float digit_of(int64_t code, int digit)
{
    return (float)(digit == 0 ? code % 128 : code / 128);
}

void run_mma(Experiments &experiments);         /* kind mma */
void run_load_matrix(Experiments &experiments); /* ldmatrix */
void run_sums(Experiments &experiments);        /* sums: wgmma's */
void run_registers(Experiments &experiments);   /* registers: wgmma's A */
void run_operands(Experiments &experiments);    /* operand: what wgmma reads by descriptors */
void run_tiles(Experiments &experiments);       /* tile: what tensor copies write */
void run_swizzled(Experiments &experiments);    /* swizzled: the emulator's function */
void run_staging(Experiments &experiments);     /* staging: what kernels write by themselves */
void run_products(Experiments &experiments);    /* start, advance, leading, stride, type, instruction: descriptors */

} // namespace layouts

#endif
