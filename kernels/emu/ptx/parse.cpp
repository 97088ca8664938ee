/* SPDX-License-Identifier: MIT
 *
 * A kernel's text to instructions.
 */
#include <algorithm>
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

bool Instruction::has(const char *word) const
{
    for (const std::string &own : words)
        if (own == word)
            return true;
    return false;
}

static bool is_number(const std::string &word)
{
    return !word.empty() && word[0] >= '0' && word[0] <= '9';
}

Variable read_declaration(Lexer &lexer)
{
    Variable variable;
    for (; !lexer.word.empty() && lexer.word[0] == '.'; lexer.next()) {
        if (lexer.is(".align"))
            variable.alignment = (size_t)strtoul(lexer.next().c_str(), nullptr, 10);
        else if (strchr("bsuf", lexer.word[1]) != nullptr && is_number(lexer.word.substr(2)))
            variable.element = (size_t)strtoul(lexer.word.c_str() + 2, nullptr, 10) / 8;
    }
    variable.name = lexer.word;
    variable.bytes = variable.element;
    if (variable.alignment < variable.element)
        variable.alignment = variable.element;
    if (lexer.next() == "[") {
        lexer.next();
        variable.dynamic = lexer.is("]");
        variable.bytes = variable.dynamic ? 0 : variable.element * (size_t)strtoul(lexer.word.c_str(), nullptr, 10);
        if (!variable.dynamic)
            lexer.next();
        lexer.expect("]");
    }
    return variable;
}

namespace
{

/* Names that inline assembly declares between braces, the innermost last. */
struct Scope {
    std::map<std::string, int> registers;
    std::map<std::string, std::string> labels; /* as written, and made unique */
};

class Parser
{
  public:
    Parser(Lexer &lexer, Kernel &kernel) : lexer_(lexer), kernel_(kernel)
    {
    }
    void parse(bool function);

  private:
    void parse_parameters();
    void parse_body();
    void parse_directive();
    void parse_registers();
    void parse_instruction();
    Operand parse_operand();
    Operand parse_memory();
    Operand parse_list(const char *open, const char *close);
    void parse_number(Operand &operand, bool negative);
    bool take_register(const std::string &name, int *slot);
    std::string label_name(const std::string &name) const;
    void declare_labels();

    Lexer &lexer_;
    Kernel &kernel_;
    std::vector<Scope> scopes_;
    std::map<std::string, int> prefixes_; /* %r<10>: of the first of them */
    std::map<std::string, int> counts_;
    int braces_ = 0;
};

/* (.param .b64 a, .param .align 8 .b8 b[16]) */
void Parser::parse_parameters()
{
    lexer_.expect("(");
    while (!lexer_.is(")")) {
        lexer_.expect(".param");
        kernel_.parameters.push_back(read_declaration(lexer_));
        if (lexer_.is(","))
            lexer_.next();
    }
    lexer_.next();
}

/* .reg .b32 %r<10>; or .reg .pred p, q; */
void Parser::parse_registers()
{
    lexer_.next();
    while (!lexer_.is(";")) {
        const std::string name = lexer_.word;
        lexer_.next();
        if (lexer_.is("<")) {
            prefixes_[name] = kernel_.slots;
            counts_[name] = atoi(lexer_.next().c_str());
            kernel_.slots += counts_[name];
            lexer_.next();
            lexer_.expect(">");
        } else {
            scopes_.back().registers[name] = kernel_.slots++;
        }
        if (lexer_.is(","))
            lexer_.next();
    }
    lexer_.next();
}

void Parser::parse_directive()
{
    if (lexer_.is(".reg")) {
        lexer_.next();
        parse_registers();
    } else if (lexer_.is(".shared")) {
        lexer_.next();
        kernel_.shared.push_back(read_declaration(lexer_));
        lexer_.expect(";");
    } else if (lexer_.is(".param")) { /* of a call */
        lexer_.next();
        const Variable variable = read_declaration(lexer_);
        bool known = false;
        for (const Variable &other : kernel_.parameters)
            known = known || other.name == variable.name;
        if (!known)
            kernel_.parameters.push_back(variable);
        lexer_.expect(";");
    } else if (lexer_.is(".pragma")) {
        lexer_.next();
        lexer_.next();
        lexer_.expect(";");
    } else {
        lexer_.fail("a directive that is not known");
    }
}

bool Parser::take_register(const std::string &name, int *slot)
{
    for (size_t i = scopes_.size(); i-- > 0;) {
        const auto found = scopes_[i].registers.find(name);
        if (found != scopes_[i].registers.end()) {
            *slot = found->second;
            return true;
        }
    }
    size_t digits = name.size();
    while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9')
        digits--;
    const auto prefix = prefixes_.find(name.substr(0, digits));
    if (prefix == prefixes_.end() || digits == name.size())
        return false;
    const int number = atoi(name.c_str() + digits);
    if (number >= counts_[prefix->first])
        lexer_.fail("a register that was not declared");
    *slot = prefix->second + number;
    return true;
}

/* 12, 0x1F, 0f3F800000 (bits of an f32), 0d3FF0000000000000. */
void Parser::parse_number(Operand &operand, bool negative)
{
    const std::string &word = lexer_.word;
    operand.kind = Operand::IMMEDIATE;
    if (word.compare(0, 2, "0f") == 0 || word.compare(0, 2, "0F") == 0 || word.compare(0, 2, "0d") == 0 ||
        word.compare(0, 2, "0D") == 0)
        operand.bits = strtoull(word.c_str() + 2, nullptr, 16);
    else
        operand.bits = strtoull(word.c_str(), nullptr, 0);
    if (negative)
        operand.bits = 0 - operand.bits;
    lexer_.next();
}

Operand Parser::parse_list(const char *open, const char *close)
{
    Operand list;
    list.kind = Operand::LIST;
    lexer_.expect(open);
    while (!lexer_.is(close)) {
        list.items.push_back(parse_operand());
        if (lexer_.is(","))
            lexer_.next();
    }
    lexer_.next();
    return list;
}

Operand Parser::parse_memory()
{
    Operand memory;
    memory.kind = Operand::MEMORY;
    lexer_.expect("[");
    memory.items.push_back(parse_operand());
    memory.offset = memory.items[0].offset;
    while (lexer_.is(",")) {
        lexer_.next();
        memory.items.push_back(parse_operand());
    }
    lexer_.expect("]");
    return memory;
}

Operand Parser::parse_operand()
{
    Operand operand;
    if (lexer_.is("{"))
        return parse_list("{", "}");
    if (lexer_.is("["))
        return parse_memory();
    if (lexer_.is("("))
        return parse_list("(", ")");
    operand.negated = lexer_.is("!");
    const bool negative = lexer_.is("-");
    if (operand.negated || negative)
        lexer_.next();
    if (is_number(lexer_.word)) {
        parse_number(operand, negative);
        return operand;
    }
    operand.name = lexer_.word;
    if (take_register(lexer_.word, &operand.slot))
        operand.kind = Operand::REGISTER;
    else if (lexer_.word[0] == '%')
        operand.kind = Operand::SPECIAL;
    else
        operand.kind = Operand::SYMBOL;
    lexer_.next();
    if (lexer_.is("|")) {
        if (!take_register(lexer_.next(), &operand.second))
            lexer_.fail("expected a register");
        lexer_.next();
    }
    if (lexer_.is("+") || lexer_.is("-")) { /* -N is written +-N */
        lexer_.next();
        const bool below = lexer_.is("-");
        if (below)
            lexer_.next();
        Operand offset;
        parse_number(offset, below);
        operand.offset = (int64_t)offset.bits;
    }
    return operand;
}

std::string Parser::label_name(const std::string &name) const
{
    for (size_t i = scopes_.size(); i-- > 0;) {
        const auto found = scopes_[i].labels.find(name);
        if (found != scopes_[i].labels.end())
            return found->second;
    }
    return name;
}

void Parser::parse_instruction()
{
    Instruction instruction;
    instruction.line = lexer_.line;
    if (lexer_.is("@")) {
        lexer_.next();
        instruction.guard_negated = lexer_.is("!");
        if (instruction.guard_negated)
            lexer_.next();
        if (!take_register(lexer_.word, &instruction.guard))
            lexer_.fail("expected a predicate");
        lexer_.next();
    }
    instruction.text = lexer_.word;
    for (size_t from = 0; from <= instruction.text.size();) {
        const size_t dot = std::min(instruction.text.find('.', from), instruction.text.size());
        instruction.words.push_back(instruction.text.substr(from, dot - from));
        from = dot + 1;
    }
    lexer_.next();
    while (!lexer_.is(";")) {
        if (lexer_.word.empty())
            lexer_.fail("expected \";\"");
        instruction.operands.push_back(parse_operand());
        if (lexer_.is(","))
            lexer_.next();
        else if (!lexer_.is(";") && !lexer_.is("{") && !lexer_.is("["))
            lexer_.fail("expected \",\" or \";\"");
    }
    lexer_.next();
    if (instruction.words[0] == "bra")
        instruction.operands[0].name = label_name(instruction.operands[0].name);
    kernel_.instructions.push_back(instruction);
}

/* Labels of a brace that has just been opened: a jump may come before its label. */
void Parser::declare_labels()
{
    Lexer ahead = { lexer_.file, lexer_.text, lexer_.at, lexer_.end, lexer_.line, lexer_.word };
    std::string before = ahead.word;
    for (int depth = 1; depth > 0 && !ahead.word.empty(); ahead.next()) {
        if (ahead.is("{"))
            depth++;
        else if (ahead.is("}"))
            depth--;
        else if (ahead.is(":") && depth == 1)
            scopes_.back().labels[before] = before + "@" + std::to_string(braces_);
        before = ahead.word;
    }
    braces_++;
}

void Parser::parse_body()
{
    int depth = 0;
    do {
        if (lexer_.word.empty())
            lexer_.fail("the kernel's text ends before its last brace");
        if (lexer_.is("{")) {
            lexer_.next();
            scopes_.push_back(Scope());
            if (depth++ > 0)
                declare_labels();
        } else if (lexer_.is("}")) {
            lexer_.next();
            scopes_.pop_back();
            depth--;
        } else if (lexer_.word[0] == '.') {
            parse_directive();
        } else {
            Lexer ahead = { lexer_.file, lexer_.text, lexer_.at, lexer_.end, lexer_.line, lexer_.word };
            if (ahead.next() == ":") {
                kernel_.labels[label_name(lexer_.word)] = kernel_.instructions.size();
                lexer_.next();
                lexer_.next();
            } else {
                parse_instruction();
            }
        }
    } while (depth > 0);
}

/* An entry from behind its name; a function from its results, which stand before its name. */
void Parser::parse(bool function)
{
    lexer_.next();
    if (function) {
        std::vector<Variable> results;
        parse_parameters();
        results.swap(kernel_.parameters);
        lexer_.next();
        parse_parameters();
        kernel_.taken = kernel_.parameters.size();
        kernel_.parameters.insert(kernel_.parameters.end(), results.begin(), results.end());
    } else {
        parse_parameters();
        kernel_.taken = kernel_.parameters.size();
    }
    kernel_.returned = kernel_.parameters.size() - kernel_.taken;
    while (!lexer_.is("{")) /* .maxntid 128, 1, 1 */
        if (lexer_.next().empty())
            lexer_.fail("a kernel without a body");
    parse_body();
}

} // namespace

Kernel parse_kernel(const Library &library, const std::string &name, const Entry &entry, bool function)
{
    Kernel kernel;
    kernel.name = name;
    kernel.file = entry.file;
    Lexer lexer = { entry.file, library.modules.at(entry.file).text, entry.begin, entry.end, entry.line, "" };
    Parser(lexer, kernel).parse(function);
    return kernel;
}

} // namespace ptx
} // namespace emulator
} // namespace hs_emu
