/* SPDX-License-Identifier: MIT
 *
 * Mappings as tables of whole numbers, and as text: what CuTe's side writes and the emulator's side reads.  A table has
 * a number for each place of its index, the last axis fastest; a number is a place of the value's axes likewise.  As
 * text a table is a line:
 *
 *     kind;name;axis count,axis count,...;axis count,...;number number ...
 *     fragment;mma.m16n8k16 bf16 A;lane 32,register 4,half 2;row 16,column 16;0 1 128 129 8 ...
 */
#ifndef HS_TESTS_LAYOUTS_TABLE_H
#define HS_TESTS_LAYOUTS_TABLE_H

#include <istream>
#include <map>
#include <ostream>
#include <sstream>
#include <stdint.h>
#include <string>
#include <vector>

namespace layouts
{

/* In the place of a number: no hardware reads what would be here; nothing was found. */
enum { UNREAD = -1, NOWHERE = -2 };

/* Where the descriptors' tiles begin: high enough that their addresses need 18 bits.  B follows A's tile. */
enum { TILE_ADDRESS = 128 * 1024 + 3072, SHARED_BYTES = 227 * 1024 };

struct Axis {
    std::string name;
    int64_t count;
};
typedef std::vector<Axis> Axes;

static inline int64_t places(const Axes &axes)
{
    int64_t count = 1;
    for (const Axis &axis : axes)
        count *= axis.count;
    return count;
}

/* "lane 3 register 1 half 0" */
static inline std::string describe(const Axes &axes, int64_t place)
{
    if (place == UNREAD)
        return "unread";
    if (place < 0)
        return "nowhere";
    std::string text;
    for (size_t i = axes.size(); i-- > 0; place /= axes[i].count)
        text = axes[i].name + " " + std::to_string(i == 0 ? place : place % axes[i].count) +
               (text.empty() ? "" : " " + text);
    return text;
}

struct Table {
    std::string kind, name;
    Axes index, value;
    std::vector<int64_t> numbers;

    Table() = default;
    Table(const std::string &kind_, const std::string &name_, const Axes &index_, const Axes &value_)
        : kind(kind_), name(name_), index(index_), value(value_), numbers((size_t)places(index_), NOWHERE)
    {
    }
};

/* By kind and name. */
typedef std::map<std::pair<std::string, std::string>, Table> Tables;

static inline Table &add_table(Tables &tables, const Table &table)
{
    return tables[{ table.kind, table.name }] = table;
}

static inline void write_axes(std::ostream &out, const Axes &axes)
{
    for (size_t i = 0; i < axes.size(); i++)
        out << (i == 0 ? "" : ",") << axes[i].name << ' ' << axes[i].count;
}

static inline void write_tables(std::ostream &out, const Tables &tables)
{
    for (const auto &entry : tables) {
        const Table &table = entry.second;
        out << table.kind << ';' << table.name << ';';
        write_axes(out, table.index);
        out << ';';
        write_axes(out, table.value);
        for (size_t i = 0; i < table.numbers.size(); i++)
            out << (i == 0 ? ';' : ' ') << table.numbers[i];
        out << '\n';
    }
}

static inline Axes read_axes(const std::string &text)
{
    Axes axes;
    std::istringstream parts(text);
    for (std::string part; std::getline(parts, part, ',');) {
        const size_t space = part.rfind(' ');
        axes.push_back(Axis{ part.substr(0, space), std::stoll(part.substr(space + 1)) });
    }
    return axes;
}

static inline Tables read_tables(std::istream &in)
{
    Tables tables;
    for (std::string line; std::getline(in, line);) {
        std::istringstream fields(line);
        std::string kind, name, index, value;
        std::getline(fields, kind, ';');
        std::getline(fields, name, ';');
        std::getline(fields, index, ';');
        std::getline(fields, value, ';');
        Table &table = add_table(tables, Table(kind, name, read_axes(index), read_axes(value)));
        for (int64_t &number : table.numbers)
            fields >> number;
    }
    return tables;
}

} // namespace layouts

#endif
