/* SPDX-License-Identifier: MIT
 *
 * PTX text as the emulator reads it: a folder of files that nvcc made of kernels/cuda, of which each kernel is parsed
 * when it is first launched.  The grammar is that of the PTX ISA, chapters 4 and 5, as far as compilers write it: one
 * entry after another, braces only around inline assembly's own names and around calls.  What is not known is a fault
 * that names file and line.
 */
#ifndef HS_KERNELS_EMU_PTX_MODULE_H
#define HS_KERNELS_EMU_PTX_MODULE_H

#include <map>
#include <memory>
#include <stdint.h>
#include <string>
#include <vector>

namespace hs_emu
{
namespace emulator
{
namespace ptx
{

struct Operand {
    enum Kind {
        NONE,
        REGISTER,  /* slot */
        SPECIAL,   /* %tid.x: name */
        IMMEDIATE, /* bits */
        SYMBOL,    /* name: of a parameter, a variable */
        LIST,      /* {items} */
        MEMORY     /* [items[0] + offset], or of a tensor [items[0], items[1]] */
    };
    Kind kind = NONE;
    int slot = -1;
    bool negated = false; /* !%p1 */
    int second = -1;      /* %r1|%p1 */
    uint64_t bits = 0;
    int64_t offset = 0;
    std::string name;
    std::vector<Operand> items;
};

struct Instruction {
    std::vector<std::string> words; /* mnemonic and its modifiers: "ld", "global", "v4", "f32" */
    std::string text;               /* the same in one */
    int guard = -1;                 /* slot of the predicate; -1: none */
    bool guard_negated = false;
    std::vector<Operand> operands;
    int line = 0;

    bool has(const char *word) const;
};

/* A label's place among the instructions. */
typedef std::map<std::string, size_t> Labels;

struct Lexer;

/* A variable: of a kernel's shared memory, a parameter, or the module's. */
struct Variable {
    std::string name;
    size_t element = 1, bytes = 0, alignment = 1;
    bool dynamic = false;       /* the launch's shared memory */
    std::vector<uint8_t> value; /* of .const and .global; storage of them */
};

/* .align 16 .b8 name[64], from any of its words on; without a number, name[], it is the launch's. */
Variable read_declaration(Lexer &lexer);

/* An entry or, of those that compilers add, a function. */
struct Kernel {
    std::string name, file;
    /* parameters, then a function's results, then parameters and results of the calls that are made */
    std::vector<Variable> parameters;
    size_t taken = 0, returned = 0; /* how many of the first two kinds */
    std::vector<Variable> shared;
    int slots = 0; /* registers, of 64 bits each */
    std::vector<Instruction> instructions;
    Labels labels;
};

/* Where a kernel's text is. */
struct Entry {
    std::string file;
    size_t begin = 0, end = 0;
    int line = 0;
};

struct Module {
    std::string text;
    std::map<std::string, Variable> variables;
    std::map<std::string, Entry> functions;
};

struct Library {
    std::map<std::string, Module> modules; /* by file */
    std::map<std::string, Entry> entries;  /* by the name that the emulator's own compiler gives the kernel */
};

/* All files NAME.ptx below a folder; the first fault is said with file and line. */
Library read_library(const std::string &folder);
/* At `entry`, which is a function or not. */
Kernel parse_kernel(const Library &library, const std::string &name, const Entry &entry, bool function);

/* The name that g++ gives the kernel to which nvcc gave this one. */
std::string host_name(const std::string &name);
/* The name of a function of this program or library, from its table of symbols; empty: it has none. */
std::string symbol_name(const void *function);

} // namespace ptx
} // namespace emulator
} // namespace hs_emu

#endif
