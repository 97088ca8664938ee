/* SPDX-License-Identifier: MIT
 *
 * Words of PTX text (PTX ISA, "Syntax").
 */
#ifndef HS_KERNELS_EMU_PTX_LEXER_H
#define HS_KERNELS_EMU_PTX_LEXER_H

#include <string>

namespace hs_emu
{
namespace emulator
{
namespace ptx
{

struct Lexer {
    const std::string &file, &text;
    size_t at, end;
    int line;
    std::string word; /* the one read last; empty: the end */

    /* A word of letters, digits and the characters _ $ % . :: that names have, or one other character. */
    const std::string &next();
    bool is(const char *wanted) const
    {
        return word == wanted;
    }
    void expect(const char *wanted);
    [[noreturn]] void fail(const char *what) const;

  private:
    void skip();
};

} // namespace ptx
} // namespace emulator
} // namespace hs_emu

#endif
