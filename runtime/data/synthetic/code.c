/* SPDX-License-Identifier: MIT
 *
 * A small programming language; a document is one program, then a blank line.
 *
 *     let size = 4                 declares: the name is new
 *     for i in 0..size {           the loop's variable follows from the depth: i, then j
 *       total = max(total, i)      uses names that are declared (loop variables only inside their loop)
 *       print(total)
 *     }
 *
 * Decodable, reading left to right with one token of look-ahead: a statement begins with "let", "for", "print", "}"
 * or a variable's name, all different words; an expression begins with a digit, a function's name or a variable's
 * name, again all different; after an operand comes an operator or the end of the line.  Indentation follows from the
 * depth.  Where only one thing is possible (nothing is declared yet, all names are used up, the greatest depth is
 * reached) nothing is drawn or the other weights are 0, and whether that is so is seen in the text before.
 */
#include "runtime/data/synthetic/synthetic.h"

enum { NAME_COUNT = 10, LOOP_DEPTH = 2, FUNCTION_COUNT = 3, OPERATOR_COUNT = 4 };

static const char *const variable_names[NAME_COUNT] = { "size",  "total", "left",  "right", "index",
                                                        "value", "limit", "first", "last",  "key" };
static const char *const loop_names[LOOP_DEPTH] = { "i", "j" };
static const char *const functions[FUNCTION_COUNT] = { "min", "max", "gcd" };
static const char *const operators[OPERATOR_COUNT] = { " + ", " - ", " * ", " % " };

typedef struct Program {
    HsSyntheticWriter *writer;
    uint32_t declared[NAME_COUNT]; /* 1: may be used; as weights of a choice */
    uint32_t declared_count;
    uint32_t depth;
} Program;

/* A declared variable or the variable of an enclosing loop, all equally likely. */
static void put_variable(Program *program)
{
    uint32_t weights[NAME_COUNT + LOOP_DEPTH] = { 0 };
    for (uint32_t i = 0; i < NAME_COUNT; i++)
        weights[i] = program->declared[i];
    for (uint32_t i = 0; i < program->depth; i++)
        weights[NAME_COUNT + i] = 1;
    uint32_t chosen = hs_synthetic_choose(program->writer, weights, NAME_COUNT + LOOP_DEPTH);
    hs_synthetic_put(program->writer, chosen < NAME_COUNT ? variable_names[chosen] : loop_names[chosen - NAME_COUNT]);
}

/* A digit or a variable. */
static void put_operand(Program *program)
{
    if (program->declared_count > 0 && hs_synthetic_flip(program->writer, 3, 5))
        put_variable(program);
    else
        hs_synthetic_put_integer(program->writer, hs_synthetic_uniform(program->writer, 10));
}

/* operand | operand operator operand | function(operand, operand) */
static void put_expression(Program *program)
{
    HsSyntheticWriter *writer = program->writer;
    if (hs_synthetic_flip(writer, 1, 5)) {
        hs_synthetic_put(writer, functions[hs_synthetic_uniform(writer, FUNCTION_COUNT)]);
        hs_synthetic_put(writer, "(");
        put_operand(program);
        hs_synthetic_put(writer, ", ");
        put_operand(program);
        hs_synthetic_put(writer, ")");
        return;
    }
    put_operand(program);
    if (hs_synthetic_flip(writer, 1, 2)) {
        static const uint32_t operator_weights[OPERATOR_COUNT] = { 5, 3, 2, 1 };
        hs_synthetic_put(writer, operators[hs_synthetic_choose(writer, operator_weights, OPERATOR_COUNT)]);
        put_operand(program);
    }
}

static void put_indent(const Program *program)
{
    for (uint32_t i = 0; i < program->depth; i++)
        hs_synthetic_put(program->writer, "  ");
}

static void put_block(Program *program);

static void put_let(Program *program)
{
    HsSyntheticWriter *writer = program->writer;
    uint32_t free_names[NAME_COUNT];
    for (uint32_t i = 0; i < NAME_COUNT; i++)
        free_names[i] = 1 - program->declared[i];
    uint32_t chosen = hs_synthetic_choose(writer, free_names, NAME_COUNT);
    hs_synthetic_put(writer, "let ");
    hs_synthetic_put(writer, variable_names[chosen]);
    hs_synthetic_put(writer, " = ");
    put_expression(program); /* the new name may not be used in its own value */
    program->declared[chosen] = 1;
    program->declared_count++;
}

/* Only declared names are assigned to, never a loop's variable. */
static void put_assignment(Program *program)
{
    uint32_t chosen = hs_synthetic_choose(program->writer, program->declared, NAME_COUNT);
    hs_synthetic_put(program->writer, variable_names[chosen]);
    hs_synthetic_put(program->writer, " = ");
    put_expression(program);
}

static void put_print(Program *program)
{
    hs_synthetic_put(program->writer, "print(");
    put_variable(program);
    hs_synthetic_put(program->writer, ")");
}

static void put_loop(Program *program)
{
    HsSyntheticWriter *writer = program->writer;
    hs_synthetic_put(writer, "for ");
    hs_synthetic_put(writer, loop_names[program->depth]);
    hs_synthetic_put(writer, " in 0..");
    put_operand(program);
    hs_synthetic_put(writer, " {\n");
    program->depth++;
    put_block(program);
    program->depth--;
    put_indent(program);
    hs_synthetic_put(writer, "}");
}

typedef struct Statement {
    void (*put)(Program *program);
    uint32_t weight;
} Statement;

enum { LET, ASSIGNMENT, PRINT, LOOP, STATEMENT_COUNT };
static const Statement statements[STATEMENT_COUNT] = {
    [LET] = { put_let, 3 }, [ASSIGNMENT] = { put_assignment, 5 }, [PRINT] = { put_print, 2 }, [LOOP] = { put_loop, 1 }
};

static void put_statement(Program *program)
{
    uint32_t weights[STATEMENT_COUNT];
    for (int i = 0; i < STATEMENT_COUNT; i++)
        weights[i] = statements[i].weight;
    if (program->declared_count == 0)
        weights[ASSIGNMENT] = weights[PRINT] = weights[LOOP] = 0;
    if (program->declared_count == NAME_COUNT)
        weights[LET] = 0;
    if (program->depth == LOOP_DEPTH)
        weights[LOOP] = 0;
    uint32_t chosen = hs_synthetic_choose(program->writer, weights, STATEMENT_COUNT);
    put_indent(program);
    statements[chosen].put(program);
    hs_synthetic_put(program->writer, "\n");
}

/* One statement or more; on average three in a loop, ten in a program. */
static void put_block(Program *program)
{
    do
        put_statement(program);
    while (program->depth > 0 ? hs_synthetic_flip(program->writer, 2, 3) : hs_synthetic_flip(program->writer, 9, 10));
}

void hs_synthetic_code(HsSyntheticWriter *writer)
{
    Program program = { .writer = writer };
    put_block(&program);
    hs_synthetic_put(writer, "\n");
}
