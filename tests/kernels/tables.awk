# SPDX-License-Identifier: MIT
# Reads, in this order, each line led by its kind:
#     report SOURCE ARCHITECTURE REGISTERS STATIC_SHARED STACK SPILL_STORES SPILL_LOADS NAME
#     code INSTRUCTIONS HMMA LDSM LDGSTS STL LDL HGMMA UTMALDG QMMA QGMMA NAME
#     launch KIB THREADS DYNAMIC_SHARED NAME     on a device with at most KIB of shared memory a block
#     needs PATTERN OPCODES   kernels with machine code that must hold these
# and writes the rows of the two tables of KERNELS.md to `families` and `table`, complaints to the standard output.  NAME is
# the rest of the line.

function rest(first,    text, i) {
    text = $first
    for (i = first + 1; i <= NF; i++)
        text = text " " $i
    return text
}

# A template and its instantiations.
function family_of(name) {
    sub(/<.*/, "", name)
    return name
}

function complain(name, what) {
    print source[name] ": " name ": " what
}

$1 == "report" {
    name = rest(9)
    source[name] = $2
    registers[name, $3 == "sm_90a" ? "sm_90" : $3] = $4
    static_shared[name] = $5
    spilled[name] += $7 + $8
}
$1 == "code" {
    name = rest(12)
    coded[name] = 1
    instructions[name] = $2
    found[name, "HMMA"] = $3; found[name, "LDSM"] = $4; found[name, "LDGSTS"] = $5
    found[name, "STL"] = $6; found[name, "LDL"] = $7
    found[name, "HGMMA"] = $8; found[name, "UTMALDG"] = $9
    found[name, "QMMA"] = $10; found[name, "QGMMA"] = $11
}
# Of several launches of a kernel the largest block, then the most shared memory, counts: the least occupancy.
$1 == "launch" {
    name = rest(5)
    family_launches[family_of(name)] = 1
    if ($3 > threads[name, $2] + 0 || ($3 == threads[name, $2] && $4 > dynamic_shared[name, $2])) {
        threads[name, $2] = $3
        dynamic_shared[name, $2] = $4
    }
}
$1 == "needs" { needs[$2] = rest(3) }

function check(name,    pattern, opcodes, n, i) {
    if (spilled[name] > 0)
        complain(name, spilled[name] " bytes of registers are spilled")
    if (found[name, "STL"] > 0)
        complain(name, found[name, "STL"] " stores to local memory")
    if (!(name in coded))
        complain(name, "no machine code was found")
    if (!(family_of(name) in family_launches))
        complain(name, "is never launched: no case of the selftest reaches it, or it is dead")
    for (pattern in needs) {
        if (name !~ pattern)
            continue
        used[pattern] = 1
        n = split(needs[pattern], opcodes, " ")
        for (i = 1; i <= n; i++)
            if (found[name, opcodes[i]] == 0)
                complain(name, "no " opcodes[i] " in its machine code")
    }
}

# Shared memory of a block by compute capability.
function kib_of(sm) {
    return sm == 80 ? 163 : sm == 90 ? 227 : 99
}

# Without their own machine code, 8.6 and 8.9 run that of 8.0.  Some combinations of number formats are launched
# by no case: "-".
function occupied(sm, name,    kib, own) {
    kib = kib_of(sm)
    if (threads[name, kib] + 0 == 0)
        return "-"
    own = (name, "sm_" sm) in registers ? "sm_" sm : "sm_80"
    return occupancy(sm, threads[name, kib], registers[name, own],
        static_shared[name] + dynamic_shared[name, kib])
}

# "8.0's / 9.0's", or one where they agree or there is no other.
function pair(a, b) {
    return a == b || a == "" ? b : a " / " b
}

function row(name,    block, shared) {
    block = pair(threads[name, 163], threads[name, 227])
    shared = static_shared[name] + 0
    shared = shared " + " pair(dynamic_shared[name, 163] + 0, dynamic_shared[name, 227] + 0)
    printf "| %s | `%s` | %s | %s | %s | %d | %d | %s | %s | %s | %s |\n", source[name], name, block == "" ? "-" : block,
        pair(registers[name, "sm_80"], registers[name, "sm_90"]), shared, spilled[name], instructions[name],
        occupied(80, name), occupied(86, name), occupied(89, name), occupied(90, name) >table
}

function larger(a, b) {
    return a > b ? a : b
}

# The worst of a family: most registers, most spilled, least occupancy.
function gather(name,    family, share) {
    family = family_of(name)
    members[family]++
    home[family] = source[name]
    if (registers[name, "sm_80"] != "")
        most80[family] = larger(most80[family] + 0, registers[name, "sm_80"] + 0)
    most90[family] = larger(most90[family] + 0, registers[name, "sm_90"] + 0)
    all_spilled[family] += spilled[name]
    mma[family] += found[name, "HMMA"] + found[name, "HGMMA"] + found[name, "QMMA"] + found[name, "QGMMA"]
    share = occupied(80, name)
    if (share != "-" && (!(family in least80) || share + 0 < least80[family]))
        least80[family] = share + 0
    share = occupied(90, name)
    if (share != "-" && (!(family in least90) || share + 0 < least90[family]))
        least90[family] = share + 0
}

END {
    for (name in source) {
        check(name)
        row(name)
        gather(name)
    }
    for (family in members)
        printf "| %s | `%s` | %d | %s | %d | %s | %s | %s |\n", home[family], family, members[family],
            pair(most80[family], most90[family]), all_spilled[family], mma[family] ? "yes" : "", (family in least80) ? least80[family] "%" : "-",
            (family in least90) ? least90[family] "%" : "-" >families
    for (pattern in needs)
        if (!(pattern in used))
            print "no kernel's name matches " pattern ": mend the list in tests/check_kernels.sh"
}
