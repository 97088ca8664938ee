/* SPDX-License-Identifier: MIT
 *
 * What tests/ops, tests/unit/kernels and tests/unit/base use of Criterion, for qemu's user mode: Criterion starts a new
 * program for each test, which is one of another machine there.  Here a test is a fork.
 *
 * A program runs the suites that its arguments name, or all, and exits with 1 when a test failed.  Every file of a
 * program includes this: what all of them define is weak, so that one definition is left.
 */
#ifndef HS_TESTS_ARM_CRITERION_H
#define HS_TESTS_ARM_CRITERION_H
#pragma GCC system_header /* macros without their last argument */

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct HsStandInTest {
    const char *suite, *name;
    void (*run)(void), (*init)(void), (*fini)(void);
    double timeout;
    struct HsStandInTest *next;
} HsStandInTest;

/* A suite is a test without `run`: its `init` comes first. */
__attribute__((weak)) HsStandInTest *hs_stand_in_tests;
__attribute__((weak)) int hs_stand_in_failures;

#define HS_STAND_IN(id, ...)                                \
    static HsStandInTest id = { __VA_ARGS__ };              \
    __attribute__((constructor)) static void id##_add(void) \
    {                                                       \
        id.next = hs_stand_in_tests;                        \
        hs_stand_in_tests = &id;                            \
    }
#define TestSuite(group, ...) HS_STAND_IN(group##_suite, .suite = #group, __VA_ARGS__)
#define Test(group, id, ...)                                                                               \
    static void group##_##id##_run(void);                                                                  \
    HS_STAND_IN(group##_##id##_test, .suite = #group, .name = #id, .run = group##_##id##_run, __VA_ARGS__) \
    static void group##_##id##_run(void)

__attribute__((weak, format(printf, 5, 6))) void hs_stand_in_fail(bool ends, const char *file, int line,
                                                                  const char *claim, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s:%d: %s: ", file, line, claim);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    hs_stand_in_failures++;
    if (ends)
        exit(1);
}

#define HS_STAND_IN_CLAIM(ends, claim, ...)                                     \
    do {                                                                        \
        if (!(claim))                                                           \
            hs_stand_in_fail(ends, __FILE__, __LINE__, #claim, "" __VA_ARGS__); \
    } while (0)
#define HS_ARE_NEAR(a, b, distance) (fabs((double)(a) - (double)(b)) <= (double)(distance))

#define cr_assert(claim, ...)                   HS_STAND_IN_CLAIM(true, claim, __VA_ARGS__)
#define cr_assert_eq(a, b, ...)                 HS_STAND_IN_CLAIM(true, (a) == (b), __VA_ARGS__)
#define cr_assert_neq(a, b, ...)                HS_STAND_IN_CLAIM(true, (a) != (b), __VA_ARGS__)
#define cr_assert_lt(a, b, ...)                 HS_STAND_IN_CLAIM(true, (a) < (b), __VA_ARGS__)
#define cr_assert_leq(a, b, ...)                HS_STAND_IN_CLAIM(true, (a) <= (b), __VA_ARGS__)
#define cr_assert_gt(a, b, ...)                 HS_STAND_IN_CLAIM(true, (a) > (b), __VA_ARGS__)
#define cr_assert_geq(a, b, ...)                HS_STAND_IN_CLAIM(true, (a) >= (b), __VA_ARGS__)
#define cr_assert_null(p, ...)                  HS_STAND_IN_CLAIM(true, (p) == NULL, __VA_ARGS__)
#define cr_assert_not_null(p, ...)              HS_STAND_IN_CLAIM(true, (p) != NULL, __VA_ARGS__)
#define cr_assert_str_eq(a, b, ...)             HS_STAND_IN_CLAIM(true, strcmp(a, b) == 0, __VA_ARGS__)
#define cr_assert_float_eq(a, b, distance, ...) HS_STAND_IN_CLAIM(true, HS_ARE_NEAR(a, b, distance), __VA_ARGS__)
#define cr_assert_fail(...)                     HS_STAND_IN_CLAIM(true, false, __VA_ARGS__)
#define cr_expect(claim, ...)                   HS_STAND_IN_CLAIM(false, claim, __VA_ARGS__)
#define cr_expect_not(claim, ...)               HS_STAND_IN_CLAIM(false, !(claim), __VA_ARGS__)
#define cr_expect_eq(a, b, ...)                 HS_STAND_IN_CLAIM(false, (a) == (b), __VA_ARGS__)
#define cr_expect_neq(a, b, ...)                HS_STAND_IN_CLAIM(false, (a) != (b), __VA_ARGS__)
#define cr_expect_lt(a, b, ...)                 HS_STAND_IN_CLAIM(false, (a) < (b), __VA_ARGS__)
#define cr_expect_leq(a, b, ...)                HS_STAND_IN_CLAIM(false, (a) <= (b), __VA_ARGS__)
#define cr_expect_gt(a, b, ...)                 HS_STAND_IN_CLAIM(false, (a) > (b), __VA_ARGS__)
#define cr_expect_geq(a, b, ...)                HS_STAND_IN_CLAIM(false, (a) >= (b), __VA_ARGS__)
#define cr_expect_null(p, ...)                  HS_STAND_IN_CLAIM(false, (p) == NULL, __VA_ARGS__)
#define cr_expect_not_null(p, ...)              HS_STAND_IN_CLAIM(false, (p) != NULL, __VA_ARGS__)
#define cr_expect_str_eq(a, b, ...)             HS_STAND_IN_CLAIM(false, strcmp(a, b) == 0, __VA_ARGS__)
#define cr_expect_str_empty(a, ...)             HS_STAND_IN_CLAIM(false, *(a) == '\0', __VA_ARGS__)
#define cr_expect_arr_eq(a, b, bytes, ...)      HS_STAND_IN_CLAIM(false, memcmp(a, b, bytes) == 0, __VA_ARGS__)
#define cr_expect_float_eq(a, b, distance, ...) HS_STAND_IN_CLAIM(false, HS_ARE_NEAR(a, b, distance), __VA_ARGS__)
#define cr_expect_fail(...)                     HS_STAND_IN_CLAIM(false, false, __VA_ARGS__)
#define cr_log_info(...)                        fprintf(stderr, __VA_ARGS__)
#define cr_log_error(...)                       fprintf(stderr, __VA_ARGS__)

__attribute__((weak)) void hs_stand_in_run(const HsStandInTest *test)
{
    for (HsStandInTest *suite = hs_stand_in_tests; suite; suite = suite->next)
        if (!suite->run && suite->init && strcmp(suite->suite, test->suite) == 0)
            suite->init();
    if (test->init)
        test->init();
    test->run();
    if (test->fini)
        test->fini();
    exit(hs_stand_in_failures > 0);
}

__attribute__((weak)) int main(int count, char **suites)
{
    int failed = 0, passed = 0;
    for (HsStandInTest *test = hs_stand_in_tests; test; test = test->next) {
        bool chosen = count == 1;
        for (int i = 1; i < count; i++)
            chosen = chosen || strcmp(suites[i], test->suite) == 0;
        if (!chosen || !test->run)
            continue;
        int status = 1;
        fflush(NULL);
        const pid_t child = fork();
        if (child == 0)
            hs_stand_in_run(test);
        if (child > 0)
            waitpid(child, &status, 0);
        if (status == 0) {
            passed++;
            continue;
        }
        failed++;
        printf("FAIL  %s/%s (status %d)\n", test->suite, test->name, status);
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0 || passed == 0;
}

#endif
