# SPDX-License-Identifier: MIT
# Of PTX text: how many opcodes it has, and in how many forms (an opcode with its types and modifiers).  Statements end with
# a semicolon, several of inline assembly's stand in a line; a predicate comes first; directives and labels are none.
{ sub(/\/\/.*/, "") }
/^[ \t]*\./ || /:$/ { next }
{
    count = split($0, statements, ";")
    for (i = 1; i < count; i++) {
        text = statements[i]
        sub(/^[ \t{}]+/, "", text)
        sub(/^@!?%[a-z0-9]+[ \t]+/, "", text)
        if (match(text, /^[a-z][a-z0-9_]*([.:][a-zA-Z0-9_:]+)*/)) forms[substr(text, 1, RLENGTH)]
    }
}
END {
    for (form in forms) {
        all++
        split(form, words, ".")
        if (!(words[1] in opcodes)) different++
        opcodes[words[1]]
    }
    printf "%d opcodes in %d forms\n", different, all
}
