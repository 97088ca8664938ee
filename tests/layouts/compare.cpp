/* SPDX-License-Identifier: MIT
 *
 * compare TABLES [--planted KIND]: the emulator's side.  Every table that CuTe's side wrote has to have the same
 * numbers here; exit status 1 and the places where it has not.  With --planted, only the experiments of that kind of
 * table run, with a mistake in them, which has to change numbers of that kind and of no other.
 */
#include <algorithm>
#include <fstream>
#include <set>

#include "tests/layouts/emulated.h"

using namespace layouts;

enum { MOST_TOLD = 8 }; /* differences of a kind */

enum Theme { FRAGMENTS, SWIZZLES, DESCRIPTORS, THEMES };

struct Group {
    Theme theme;
    void (*run)(Experiments &);
    std::vector<const char *> kinds;
    const char *what;
};

static const Group groups[] = {
    { FRAGMENTS, run_mma, { "mma" }, "fragments of mma.sync" },
    { FRAGMENTS, run_load_matrix, { "ldmatrix" }, "ldmatrix" },
    { FRAGMENTS, run_sums, { "sums" }, "sums of wgmma" },
    { FRAGMENTS, run_registers, { "registers" }, "A of wgmma in registers" },
    { SWIZZLES, run_operands, { "operand" }, "operands that wgmma reads by descriptors" },
    { SWIZZLES, run_swizzled, { "swizzled" }, "the emulator's swizzles" },
    { SWIZZLES, run_tiles, { "tile" }, "tiles of tensor copies" },
    { SWIZZLES, run_staging, { "staging" }, "tiles that kernels write themselves" },
    { DESCRIPTORS,
      run_products,
      { "start", "advance", "leading", "stride", "type", "instruction" },
      "the kernels' descriptors" },
};

struct Count {
    int64_t tables, numbers, unread;
    std::vector<std::string> differences; /* in words */
};

static void compare(const Table &cute, const Table &own, Count &count)
{
    count.tables++;
    for (size_t i = 0; i < cute.numbers.size(); i++) {
        if (cute.numbers[i] == UNREAD) {
            count.unread++;
            continue;
        }
        count.numbers++;
        if (own.numbers[i] != cute.numbers[i])
            count.differences.push_back(cute.kind + ", " + cute.name + ": " + describe(cute.index, (int64_t)i) +
                                        ": CuTe says " + describe(cute.value, cute.numbers[i]) + ", the project " +
                                        describe(cute.value, own.numbers[i]));
    }
}

/* The tables of one kind; those that this side did not answer are differences too. */
static Count compare_kind(const Tables &cute, const Tables &own, const std::string &kind)
{
    Count count = {};
    for (const auto &entry : cute) {
        if (entry.second.kind != kind)
            continue;
        const auto found = own.find(entry.first);
        if (found == own.end())
            count.differences.push_back(kind + ", " + entry.second.name + ": the project's side has no such row");
        else
            compare(entry.second, found->second, count);
    }
    return count;
}

/* 0 where the mistake in `kind` changes tables of that kind and of no other. */
static int find_planted(const Tables &cute, const std::string &kind)
{
    for (const Group &group : groups) {
        if (std::find(group.kinds.begin(), group.kinds.end(), kind) == group.kinds.end())
            continue;
        Experiments experiments = { cute, kind, {} };
        group.run(experiments);
        for (const std::string other : group.kinds) {
            const Count count = compare_kind(cute, experiments.own, other);
            if (count.differences.empty() == (kind == other)) {
                printf("FAIL  planted: %s: %zu differences of kind %s\n", kind.c_str(), count.differences.size(),
                       other.c_str());
                return 1;
            }
            if (kind == other)
                printf("ok    planted: %s: %zu of %lld numbers differ, the first: %s\n", kind.c_str(),
                       count.differences.size(), (long long)count.numbers, count.differences[0].c_str());
        }
        return 0;
    }
    printf("FAIL  planted: no experiment is about %s\n", kind.c_str());
    return 1;
}

static void tell(const Group &group, const std::string &kind, const Count &count)
{
    for (size_t i = 0; i < count.differences.size() && i < MOST_TOLD; i++)
        printf("DIFFERS  %s\n", count.differences[i].c_str());
    if (count.differences.size() > MOST_TOLD)
        printf("DIFFERS  ... and %zu more\n", count.differences.size() - MOST_TOLD);
    printf("%s  %s", count.differences.empty() ? "ok  " : "FAIL", group.what);
    if (group.kinds.size() > 1)
        printf(", %s", kind.c_str());
    printf(": %lld mappings, %lld numbers", (long long)count.tables, (long long)count.numbers);
    if (count.unread > 0)
        printf(", and %lld that hardware does not read", (long long)count.unread);
    printf("\n");
}

static int compare_all(const Tables &cute)
{
    int64_t differences = 0, mappings[THEMES] = {}, instructions = 0, descriptors = 0;
    std::set<std::string> known = { "given" }; /* CuTe's descriptors, which run_operands uses */
    for (const Group &group : groups) {
        Experiments experiments = { cute, "", {} };
        group.run(experiments);
        for (const std::string kind : group.kinds) {
            const Count count = compare_kind(cute, experiments.own, kind);
            tell(group, kind, count);
            known.insert(kind);
            differences += (int64_t)count.differences.size();
            mappings[group.theme] += count.tables;
            if (kind == "type")
                descriptors = count.numbers;
            if (group.theme == FRAGMENTS)
                instructions += kind == "mma" ? count.tables / 3 : count.tables; /* A, B and C of one */
        }
    }
    for (const auto &entry : cute)
        if (known.count(entry.second.kind) == 0) {
            printf("FAIL  no experiment is about %s\n", entry.second.kind.c_str());
            differences++;
        }
    printf("%lld instructions, %lld fragments, %lld tiles and swizzles, %lld descriptors: %lld differences\n",
           (long long)instructions, (long long)mappings[FRAGMENTS], (long long)mappings[SWIZZLES],
           (long long)descriptors, (long long)differences);
    return differences == 0 && instructions > 0 && descriptors > 0 ? 0 : 1;
}

int main(int count, char **arguments)
{
    const bool planted = count == 4 && std::string(arguments[2]) == "--planted";
    if (count != 2 && !planted) {
        fprintf(stderr, "usage: compare TABLES [--planted KIND]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0); /* the emulator may end the program */
    std::ifstream file(arguments[1]);
    const Tables cute = read_tables(file);
    return planted ? find_planted(cute, arguments[3]) : compare_all(cute);
}
