/* SPDX-License-Identifier: MIT
 *
 * Which kernels a folder of PTX has, what variables its files declare, and how a kernel of the emulator is called
 * there.
 */
#include <algorithm>
#include <dlfcn.h>
#include <elf.h>
#include <filesystem>
#include <fstream>
#include <link.h>
#include <sstream>
#include <stdlib.h>
#include <string.h>

#include "kernels/emu/fault.h"
#include "kernels/emu/ptx/lexer.h"
#include "kernels/emu/ptx/module.h"

namespace hs_emu
{
namespace emulator
{
namespace ptx
{

/* A name's parts carry their length: 7hs_cuda is this backend's namespace, 6hs_emu the emulator's.  nvcc gives the
 * namespace without a name one that holds the file's (61_GLOBAL__N__8189cf51_28_attention_...), g++ 12_GLOBAL__N_1. */
std::string host_name(const std::string &name)
{
    std::string result;
    for (size_t at = 0; at < name.size();) {
        if (name.compare(at, 8, "7hs_cuda") == 0) {
            result += "6hs_emu";
            at += 8;
            continue;
        }
        char *after;
        const unsigned long length = strtoul(name.c_str() + at, &after, 10);
        const size_t start = (size_t)(after - name.c_str());
        const bool number = name[at] >= '0' && name[at] <= '9';
        if (number && name.compare(start, 12, "_GLOBAL__N__") == 0 && start + length <= name.size()) {
            result += "12_GLOBAL__N_1";
            at = start + length;
        } else if (number) {
            result.append(name, at, start - at);
            at = start;
        } else {
            result += name[at++];
        }
    }
    return result;
}

/* = {1, 2, 0x3}; or = {0f3F800000}; or = 5. */
static void read_value(Lexer &lexer, Variable &variable)
{
    const size_t size = variable.element;
    variable.value.assign(variable.bytes, 0);
    size_t place = 0;
    if (!lexer.is("="))
        return;
    for (lexer.next(); !lexer.is(";") && !lexer.word.empty(); lexer.next()) {
        const bool negative = lexer.is("-");
        if (negative)
            lexer.next();
        if (lexer.is("{") || lexer.is("}") || lexer.is(","))
            continue;
        const bool real = lexer.word.compare(0, 2, "0f") == 0 || lexer.word.compare(0, 2, "0d") == 0;
        uint64_t bits = strtoull(lexer.word.c_str() + (real ? 2 : 0), nullptr, real ? 16 : 0);
        bits = negative ? 0 - bits : bits;
        if (place + size > variable.bytes)
            lexer.fail("more values than the variable has");
        memcpy(&variable.value[place], &bits, size);
        place += size;
    }
}

/* .const .align 4 .b8 name[16] = {...}; from its state space on. */
static void read_variable(Lexer &lexer, Module &module)
{
    const bool shared = lexer.is(".shared");
    Variable variable = read_declaration(lexer);
    if (!shared)
        read_value(lexer, variable);
    while (!lexer.is(";") && !lexer.word.empty())
        lexer.next();
    module.variables[variable.name] = variable;
}

/* To the brace that closes the first one; the lexer is behind it then. */
static Entry entry_from(const std::string &file, Lexer &lexer, size_t begin)
{
    Entry entry = { file, begin, begin, lexer.line };
    int depth = 0;
    do {
        entry.end = lexer.text.find_first_of("{}", entry.end);
        if (entry.end == std::string::npos)
            lexer.fail("a kernel without an end");
        depth += lexer.text[entry.end++] == '{' ? 1 : -1;
    } while (depth > 0);
    lexer.line += (int)std::count(lexer.text.begin() + (long)lexer.at, lexer.text.begin() + (long)entry.end, '\n');
    lexer.at = entry.end;
    return entry;
}

static void read_entry(Library &library, const std::string &file, Lexer &lexer)
{
    lexer.next();
    const std::string name = host_name(lexer.word);
    const Entry entry = entry_from(file, lexer, lexer.at);
    if (!library.entries.insert({ name, entry }).second)
        fault("%s:%d: a kernel of this name is in %s, too: %s", file.c_str(), entry.line,
              library.entries[name].file.c_str(), name.c_str());
}

/* .func (.param .b64 result) name (...) and then a semicolon, or a body. */
static void read_function(Module &module, const std::string &file, Lexer &lexer)
{
    const size_t begin = lexer.at;
    while (!lexer.is(")") && !lexer.word.empty())
        lexer.next();
    const std::string name = lexer.next();
    while (!lexer.is(";") && !lexer.is("{") && !lexer.word.empty())
        lexer.next();
    if (lexer.is("{"))
        module.functions[name] = entry_from(file, lexer, begin);
}

static void read_module(Library &library, const std::string &file)
{
    std::ifstream stream(file);
    std::stringstream content;
    content << stream.rdbuf();
    if (!stream)
        fault("%s: cannot be read", file.c_str());
    Module &module = library.modules[file];
    module.text = content.str();
    Lexer lexer = { library.modules.find(file)->first, module.text, 0, module.text.size(), 1, "" };
    while (!lexer.next().empty()) {
        if (lexer.is(".visible") || lexer.is(".weak") || lexer.is(".extern"))
            lexer.next();
        if (lexer.is(".entry"))
            read_entry(library, file, lexer);
        else if (lexer.is(".func"))
            read_function(module, file, lexer);
        else if (lexer.is(".global") || lexer.is(".const") || lexer.is(".shared"))
            read_variable(lexer, module);
        else if (lexer.is(".version") || lexer.is(".target") || lexer.is(".address_size"))
            lexer.next();
        else
            lexer.fail("a statement that is not known");
    }
}

Library read_library(const std::string &folder)
{
    Library library;
    std::error_code error;
    std::vector<std::string> files;
    for (auto at = std::filesystem::recursive_directory_iterator(folder, error);
         !error && at != std::filesystem::recursive_directory_iterator(); at.increment(error))
        if (at->path().extension() == ".ptx")
            files.push_back(at->path().string());
    if (error || files.empty())
        fault("HALFSTEP_EMU_PTX: %s: %s", folder.c_str(), error ? error.message().c_str() : "no file NAME.ptx");
    std::sort(files.begin(), files.end());
    for (const std::string &file : files)
        read_module(library, file);
    return library;
}

/* Names of all functions of the object that holds this code: it exports few, so that dladdr knows few. */
static std::map<uint64_t, std::string> read_symbols(const char *path)
{
    std::map<uint64_t, std::string> symbols;
    std::ifstream stream(path, std::ios::binary);
    std::stringstream content;
    content << stream.rdbuf();
    const std::string bytes = content.str();
    const auto *header = reinterpret_cast<const ElfW(Ehdr) *>(bytes.data());
    if (bytes.size() < sizeof *header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
        return symbols;
    const auto *sections = reinterpret_cast<const ElfW(Shdr) *>(bytes.data() + header->e_shoff);
    for (int s = 0; s < header->e_shnum; s++) {
        if (sections[s].sh_type != SHT_SYMTAB)
            continue;
        const auto *table = reinterpret_cast<const ElfW(Sym) *>(bytes.data() + sections[s].sh_offset);
        const char *names = bytes.data() + sections[sections[s].sh_link].sh_offset;
        for (size_t i = 0; i < sections[s].sh_size / sizeof *table; i++)
            if ((table[i].st_info & 0xf) == STT_FUNC)
                symbols[table[i].st_value] = names + table[i].st_name;
    }
    return symbols;
}

std::string symbol_name(const void *function)
{
    Dl_info info;
    if (dladdr(function, &info) == 0)
        return "";
    static const std::map<uint64_t, std::string> symbols = read_symbols(info.dli_fname);
    const char *base = static_cast<const char *>(info.dli_fbase);
    auto found = symbols.find((uint64_t)(static_cast<const char *>(function) - base));
    if (found == symbols.end()) /* a program at a fixed address */
        found = symbols.find((uint64_t)(uintptr_t)function);
    if (found == symbols.end())
        return "";
    /* g++ marks what is static by an L before the name's length, nvcc does not. */
    const std::string marked = "_ZN6hs_emuL";
    return found->second.compare(0, marked.size(), marked) == 0 ? "_ZN6hs_emu" + found->second.substr(marked.size())
                                                                : found->second;
}

} // namespace ptx
} // namespace emulator
} // namespace hs_emu
