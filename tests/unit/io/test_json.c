/* SPDX-License-Identifier: MIT
 *
 * JSON: what must be refused, with byte offsets; numbers that read back bit for bit; order and doubled keys.
 */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/rng.h"
#include "runtime/io/json.h"

typedef struct BadText {
    const char *text;
    size_t length; /* 0: strlen */
    const char *message;
} BadText;

static const BadText bad_texts[] = {
    { "", 0, "t: byte 0: not JSON" },
    { "{", 0, "t: byte 1: not JSON" },
    { "[1,2", 0, "t: byte 4: not JSON" },
    { "[1,]", 0, "t: byte 3: not JSON" },
    { "{\"a\" 1}", 0, "t: byte 5: not JSON" },
    { "{\"a\":1} x", 0, "t: byte 8: not JSON" },
    { "nul", 0, "t: byte 0: not JSON" },
    { "[01]", 0, "t: byte 1: not JSON: number with a leading zero" },
    { "[1.]", 0, "t: byte 1: not JSON: number without digits after the point" },
    { "[1e+]", 0, "t: byte 1: not JSON: number without digits in its exponent" },
    { "[-]", 0, "t: byte 1: not JSON: not a number" },
    { "[+1]", 0, "t: byte 1: not JSON" },
    { "[NaN]", 0, "t: byte 1: not JSON: NaN, which Python writes and JSON does not have" },
    { "[1, -Infinity]", 0, "t: byte 4: not JSON: Infinity, which Python writes and JSON does not have" },
    { "\xEF\xBB\xBF[1]", 0, "t: byte 0: not JSON: a byte order mark in front" },
    { "[\"a\\ud83dz\"]", 0, "t: byte 3: not JSON: half of a surrogate pair in a string, which is no character" },
    { "[\"\\udc00\"]", 0, "t: byte 2: not JSON: half of a surrogate pair in a string, which is no character" },
    { "\"abc", 0, "t: byte 4: not JSON: string without an end" },
    { "\"a\nb\"", 0, "t: byte 2: not JSON: control character in a string" },
    { "\"a\\u0000b\"", 0, "t: byte 2: not JSON: U+0000 in a string" },
    { "[1,\0002]", 6, "t: byte 3: not JSON: control character" },
    { "\"a\0b\"", 5, "t: byte 2: not JSON: control character in a string" },
    { "\"\x80\"", 0, "t: byte 1: not JSON: malformed UTF-8" },
    { "\"\xc0\xaf\"", 0, "t: byte 1: not JSON: malformed UTF-8" },
    { "\"\xed\xa0\x80\"", 0, "t: byte 1: not JSON: malformed UTF-8" },
    { "\"\xf4\x90\x80\x80\"", 0, "t: byte 1: not JSON: malformed UTF-8" },
    { "\"\xe2\x82\"", 0, "t: byte 1: not JSON: malformed UTF-8" },
};

Test(json, refuses_bad_texts_with_their_offset)
{
    for (size_t i = 0; i < sizeof bad_texts / sizeof *bad_texts; i++) {
        HsJson *root = NULL;
        size_t length = bad_texts[i].length ? bad_texts[i].length : strlen(bad_texts[i].text);
        cr_expect_eq(hs_json_parse("t", bad_texts[i].text, length, &root), HS_EFORMAT, "text %zu", i);
        cr_expect_str_eq(hs_error_message(), bad_texts[i].message);
        cr_expect_null(root);
    }
}

static HsStatus parse_nested(int depth)
{
    char text[1024];
    memset(text, '[', (size_t)depth);
    memset(text + depth, ']', (size_t)depth);
    HsJson *root = NULL;
    HsStatus status = hs_json_parse("t", text, 2 * (size_t)depth, &root);
    hs_json_destroy(root);
    return status;
}

Test(json, limits_the_depth)
{
    cr_expect_eq(parse_nested(256), HS_OK);
    cr_expect_eq(parse_nested(257), HS_EFORMAT);
    cr_expect_str_eq(hs_error_message(), "t: byte 256: not JSON: nested deeper than 256");
}

/* The text must not be read past its length, where sanitizers would see it. */
Test(json, does_not_read_past_the_length)
{
    const char text[] = "{\"1\":1,\"2\":[true,false,null]}";
    for (size_t length = 0; length < sizeof text - 1; length++) {
        char *exact = malloc(length ? length : 1);
        cr_assert_not_null(exact);
        memcpy(exact, text, length);
        HsJson *root = NULL;
        cr_expect_eq(hs_json_parse("t", exact, length, &root), HS_EFORMAT, "length %zu", length);
        free(exact);
    }
}

static HsJson *parse(const char *text)
{
    HsJson *root = NULL;
    cr_assert_eq(hs_json_parse("t", text, strlen(text), &root), HS_OK, "%s", hs_error_message());
    return root;
}

Test(json, reads_members_in_order_and_the_last_of_doubled_keys)
{
    HsJson *root = parse(" {\"b\":1,\"a\":[\"x\",2.5,true,null],\"b\":3}\n");
    cr_expect_eq(hs_json_count(root), 3);
    cr_expect_eq(hs_json_number(hs_json_get(root, "b")), 3.0);
    cr_expect(!hs_json_is_last(root, hs_json_first(root)));
    const HsJson *list = hs_json_get(root, "a"), *item = hs_json_first(list);
    cr_expect(hs_json_is_array(list) && !hs_json_is_object(list));
    cr_expect_str_eq(hs_json_string(item), "x");
    cr_expect_eq(hs_json_number(item = hs_json_next(item)), 2.5);
    cr_expect(hs_json_is_true(item = hs_json_next(item)));
    cr_expect_null(hs_json_next(hs_json_next(item)));
    cr_expect_str_eq(hs_json_key(hs_json_next(list)), "b");
    cr_expect_null(hs_json_get(root, "B"));
    cr_expect_null(hs_json_get(list, "x"));
    cr_expect_null(hs_json_get(NULL, "x"));
    cr_expect(isnan(hs_json_number(list)));
    hs_json_destroy(root);
}

/* As Python's json module, which writes them: numbers, and what needs a finite one refuses them. */
Test(json, reads_what_python_writes_where_that_is_asked_for)
{
    static const char text[] = "{\"a\":NaN,\"NaN\":[Infinity,-Infinity,\"\\\"NaN\"],\"b\":2}";
    static const char broken[] = "{\"a\":NaN,\"b\":Infinity \"c\":N}";
    HsJson *root = NULL;
    double real;
    cr_assert_eq(hs_json_parse_python("t", text, sizeof text - 1, &root), HS_OK, "%s", hs_error_message());
    cr_expect_eq(hs_json_number(hs_json_get(root, "b")), 2.0);
    const HsJson *list = hs_json_get(root, "NaN");
    cr_expect_eq(hs_json_count(list), 3);
    cr_expect_str_eq(hs_json_string(hs_json_next(hs_json_next(hs_json_first(list)))), "\"NaN");
    cr_expect_eq(hs_json_need_real("t", root, "a", &real), HS_EFORMAT);
    hs_json_destroy(root);
    cr_expect_eq(hs_json_parse_python("t", broken, sizeof broken - 1, &root), HS_EFORMAT);
    cr_expect(strstr(hs_error_message(), "byte 22: not JSON"), "%s", hs_error_message());
}

Test(json, numbers_keep_how_they_are_written)
{
    static const char text[] =
        "{\"1\\\"2\": [1.0, -0,1e5 ,true, NaN], \"b\": {\"c\": -Infinity}, \"d\": 12345678901234567890}";
    static const char *const expected[] = { "1.0", "-0", "1e5", NULL, "NaN" };
    HsJson *root;
    cr_assert_eq(hs_json_parse_python("x", text, strlen(text), &root), HS_OK, "%s", hs_error_message());
    const HsJson *const list = hs_json_first(root);
    cr_expect_null(hs_json_spelling(hs_json_first(list)));
    for (int twice = 0; twice < 2; twice++) {
        int at = 0;
        cr_assert_eq(hs_json_keep_spelling(root, text, strlen(text)), HS_OK);
        for (const HsJson *item = hs_json_first(list); item; item = hs_json_next(item), at++)
            if (expected[at])
                cr_expect_str_eq(hs_json_spelling(item), expected[at]);
            else
                cr_expect_null(hs_json_spelling(item));
        cr_expect_str_eq(hs_json_spelling(hs_json_get(hs_json_get(root, "b"), "c")), "-Infinity");
        cr_expect_str_eq(hs_json_spelling(hs_json_get(root, "d")), "12345678901234567890");
    }
    cr_expect_eq(hs_json_number(hs_json_first(list)), 1.0);
    hs_json_destroy(root);
}

Test(json, needs_name_what_is_wrong)
{
    HsJson *root = parse("{\"i\":7,\"f\":1.5,\"s\":\"text\",\"big\":9007199254740994,\"far\":1e999,"
                         "\"d\":\"-9223372036854775808\",\"over\":\"9223372036854775808\",\"tail\":\"12x\"}");
    int64_t integer = 0;
    double real = 0;
    const char *string = NULL;
    cr_expect_eq(hs_json_need_integer("f.json", root, "i", &integer), HS_OK);
    cr_expect_eq(integer, 7);
    cr_expect_eq(hs_json_need_integer("f.json", root, "d", &integer), HS_OK);
    cr_expect_eq(integer, INT64_MIN);
    static const char *const not_integers[] = { "f", "s", "big", "far", "over", "tail" };
    for (size_t i = 0; i < sizeof not_integers / sizeof *not_integers; i++) {
        char message[64];
        snprintf(message, sizeof message, "f.json: member `%s` must be an integer", not_integers[i]);
        cr_expect_eq(hs_json_need_integer("f.json", root, not_integers[i], &integer), HS_EFORMAT);
        cr_expect_str_eq(hs_error_message(), message);
    }
    cr_expect_eq(hs_json_need_real("f.json", root, "far", &real), HS_EFORMAT);
    cr_expect_str_eq(hs_error_message(), "f.json: member `far` must be a finite number");
    cr_expect_eq(hs_json_need_string("f.json", root, "i", &string), HS_EFORMAT);
    cr_expect_str_eq(hs_error_message(), "f.json: member `i` must be a string");
    cr_expect_eq(hs_json_need_string("f.json", root, "none", &string), HS_EFORMAT);
    cr_expect_str_eq(hs_error_message(), "f.json: member `none` is missing");
    hs_json_destroy(root);
}

Test(json, writes_exact_text)
{
    HsJson *root = hs_json_object(), *list = hs_json_array();
    hs_json_set_string(root, "z", "a\"b\\c\n\x01\xc3\xa9/");
    hs_json_set_real(root, "half", 0.5);
    hs_json_set_real(root, "tenth", 0.1);
    hs_json_set_real(root, "whole", 200);
    hs_json_set(root, "float", hs_json_new_float(30));
    hs_json_set(root, "part", hs_json_new_float(0.1));
    hs_json_set_real(root, "minus_zero", -0.0);
    hs_json_set_real(root, "nan", (double)NAN);
    hs_json_set_integer(root, "exact", INT64_C(9007199254740992));
    hs_json_set_integer(root, "beyond", INT64_C(9007199254740993));
    hs_json_set_bool(root, "yes", true);
    hs_json_append(list, hs_json_new_integer(-1));
    hs_json_append(list, hs_json_new_string(""));
    hs_json_append(list, hs_json_object());
    hs_json_set(root, "list", list);
    char *text = hs_json_write(root, false);
    cr_expect_str_eq(text, "{\"z\":\"a\\\"b\\\\c\\n\\u0001\xc3\xa9/\",\"half\":0.5,\"tenth\":0.1,\"whole\":200,"
                           "\"float\":30.0,\"part\":0.1,\"minus_zero\":-0,\"nan\":null,\"exact\":9007199254740992,"
                           "\"beyond\":\"9007199254740993\",\"yes\":true,\"list\":[-1,\"\",{}]}");
    free(text);
    hs_json_destroy(root);

    root = parse("{\"a\":[1,{\"b\":2}],\"c\":{}}");
    text = hs_json_write(root, true);
    cr_expect_str_eq(text, "{\n  \"a\": [\n    1,\n    {\n      \"b\": 2\n    }\n  ],\n  \"c\": {}\n}");
    free(text);
    hs_json_destroy(root);
}

static double read_back_real(double value)
{
    HsJson *root = hs_json_object();
    hs_json_set_real(root, "v", value);
    char *text = hs_json_write(root, false);
    HsJson *again = parse(text);
    double result = (double)NAN;
    cr_assert_eq(hs_json_need_real("t", again, "v", &result), HS_OK);
    hs_json_destroy(root);
    hs_json_destroy(again);
    free(text);
    return result;
}

Test(json, numbers_read_back_bit_for_bit)
{
    const double edges[] = {
        0.1, 1.0 / 3, DBL_MAX, DBL_MIN, 0x1p-1074, 1e23, -2.5e-5, 123456789.125, 9007199254740993.0
    };
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
        cr_expect_eq(read_back_real(edges[i]), edges[i], "%a", edges[i]);
    /* Any bit pattern of a finite double. */
    for (uint32_t i = 0; i < 2000; i++) {
        HsPhilox draw = hs_philox(3, (const uint32_t[4]){ i, 0, 0, 0 });
        double value = 0;
        memcpy(&value, draw.word, sizeof value);
        if (isfinite(value))
            cr_expect_eq(read_back_real(value), value, "%a", value);
    }
    const int64_t integers[] = { 0, -1, INT64_MAX, INT64_MIN, INT64_C(1) << 53, (INT64_C(1) << 53) + 1 };
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
        HsJson *root = hs_json_object();
        hs_json_set_integer(root, "v", integers[i]);
        char *text = hs_json_write(root, false);
        HsJson *again = parse(text);
        int64_t value = 0;
        cr_expect_eq(hs_json_need_integer("t", again, "v", &value), HS_OK);
        cr_expect_eq(value, integers[i]);
        hs_json_destroy(root);
        hs_json_destroy(again);
        free(text);
    }
}
