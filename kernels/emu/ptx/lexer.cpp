/* SPDX-License-Identifier: MIT */
#include "kernels/emu/ptx/lexer.h"

#include <ctype.h>

#include "kernels/emu/fault.h"

namespace hs_emu
{
namespace emulator
{
namespace ptx
{

void Lexer::fail(const char *what) const
{
    fault("%s:%d: %s, at \"%s\"", file.c_str(), line, what, word.c_str());
}

/* Blanks and comments. */
void Lexer::skip()
{
    while (at < end) {
        if (text[at] == '\n') {
            line++;
            at++;
        } else if (isspace((unsigned char)text[at])) {
            at++;
        } else if (text.compare(at, 2, "//") == 0) {
            const size_t stop = text.find('\n', at);
            at = stop == std::string::npos ? end : stop;
        } else {
            return;
        }
    }
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

const std::string &Lexer::next()
{
    skip();
    word.clear();
    if (at >= end)
        return word;
    if (text[at] == '"') {
        const size_t stop = text.find('"', at + 1);
        word = text.substr(at, stop + 1 - at);
        at = stop + 1;
        return word;
    }
    while (at < end && (is_word(text[at]) || text.compare(at, 2, "::") == 0)) {
        const size_t step = text[at] == ':' ? 2 : 1;
        word.append(text, at, step);
        at += step;
    }
    if (word.empty())
        word = text[at++];
    return word;
}

void Lexer::expect(const char *wanted)
{
    if (!is(wanted)) {
        const std::string what = std::string("expected \"") + wanted + "\"";
        fail(what.c_str());
    }
    next();
}

} // namespace ptx
} // namespace emulator
} // namespace hs_emu
