/* SPDX-License-Identifier: MIT
 *
 * safetensors: exact bytes, every dtype there and back, and a table of files that must be refused.  The files of the
 * table are put together here byte by byte, not by the writer under test.
 */
#include <xxhash.h>

#include "runtime/checkpoint/safetensors.h"
#include "tests/support/scratch.h"

Test(safetensors, writes_exact_bytes_in_its_own_order)
{
    Scratch scratch = scratch_make();
    const char *path = scratch_path(&scratch, "f.safetensors");
    uint16_t half[2] = { 0x3c00, 0xc000 };
    float wide[1] = { 1.5f };
    /* Given smallest first: the file has the widest elements first, then by name. */
    const HsNamedTensor tensors[] = {
        { .name = "a", .tensor = hs_tensor_1d(half, HS_F16, 2) },
        { .name = "z", .tensor = hs_tensor_2d(wide, HS_F32, 1, 1) },
        { .name = "b", .tensor = hs_tensor_1d(NULL, HS_F16, 0) },
    };
    static const char *const metadata[] = { "format", "pt", NULL };
    uint64_t checksum = 0;
    cr_assert_eq(hs_safetensors_write(path, tensors, 3, metadata, &checksum), HS_OK, "%s", hs_error_message());

    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                                 "\"z\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[0,4]},"
                                 "\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[4,8]},"
                                 "\"b\":{\"dtype\":\"F16\",\"shape\":[0],\"data_offsets\":[8,8]}}";
    size_t padded = (strlen(header) + 7) / 8 * 8;
    char expected[512] = { 0 };
    expected[0] = (char)padded; /* below 256 + ... : two bytes of the length are enough */
    expected[1] = (char)(padded >> 8);
    memset(expected + 8, ' ', padded);
    memcpy(expected + 8, header, strlen(header));
    memcpy(expected + 8 + padded, "\x00\x00\xc0\x3f\x00\x3c\x00\xc0", 8);
    size_t size = 0;
    char *bytes = scratch_read(path, &size);
    cr_assert_eq(size, 16 + padded);
    cr_expect_arr_eq(bytes, expected, size);
    cr_expect_eq(checksum, XXH3_64bits(bytes, size));
    free(bytes);
    scratch_remove(&scratch);
}

Test(safetensors, every_dtype_scalars_and_empty_tensors_come_back)
{
    Scratch scratch = scratch_make();
    const char *path = scratch_path(&scratch, "f.safetensors");
    unsigned char bytes[HS_DTYPE_COUNT][6 * 8];
    HsNamedTensor tensors[HS_DTYPE_COUNT + 2] = { 0 };
    for (int i = 0; i < HS_DTYPE_COUNT; i++) {
        for (size_t j = 0; j < sizeof bytes[i]; j++)
            bytes[i][j] = (unsigned char)(37 * i + 11 * (int)j + 1);
        snprintf(tensors[i].name, sizeof tensors[i].name, "t.%s", hs_dtype_name((HsDtype)i));
        tensors[i].tensor = hs_tensor_2d(bytes[i], (HsDtype)i, 2, 3);
    }
    float scalar = -7.25f;
    tensors[HS_DTYPE_COUNT] = (HsNamedTensor){ .name = "scalar", .tensor = { &scalar, HS_F32, 0, { 1, 1, 1, 1 } } };
    tensors[HS_DTYPE_COUNT + 1] = (HsNamedTensor){ .name = "empty", .tensor = { NULL, HS_BF16, 3, { 4, 0, 5, 1 } } };
    cr_assert_eq(hs_safetensors_write(path, tensors, HS_DTYPE_COUNT + 2, NULL, NULL), HS_OK, "%s", hs_error_message());

    HsSafetensors file;
    cr_assert_eq(hs_safetensors_open(path, &file), HS_OK, "%s", hs_error_message());
    cr_expect_eq(file.count, HS_DTYPE_COUNT + 2);
    for (int i = 0; i < HS_DTYPE_COUNT + 2; i++) {
        const HsNamedTensor *found = hs_safetensors_find(&file, tensors[i].name);
        cr_assert_not_null(found, "%s", tensors[i].name);
        cr_expect_eq(found->tensor.dtype, tensors[i].tensor.dtype);
        cr_expect_eq(found->tensor.rank, tensors[i].tensor.rank);
        for (int axis = 0; axis < found->tensor.rank; axis++)
            cr_expect_eq(found->tensor.shape[axis], tensors[i].tensor.shape[axis]);
        size_t size = hs_tensor_bytes(&tensors[i].tensor);
        cr_expect(size == 0 || memcmp(found->tensor.data, tensors[i].tensor.data, size) == 0, "%s", tensors[i].name);
        cr_expect_eq((uintptr_t)found->tensor.data % hs_dtype_bytes(found->tensor.dtype), 0u, "aligned");
    }
    cr_expect_null(hs_safetensors_find(&file, "t.none"));
    hs_safetensors_close(&file);

    cr_assert_eq(hs_safetensors_write(path, NULL, 0, NULL, NULL), HS_OK);
    cr_assert_eq(hs_safetensors_open(path, &file), HS_OK, "%s", hs_error_message());
    cr_expect_eq(file.count, 0);
    hs_safetensors_close(&file);
    scratch_remove(&scratch);
}

Test(safetensors, loads_elements_that_lie_unaligned)
{
    /* An odd header length, as older writers leave it. */
    static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}} ";
    _Alignas(8) unsigned char bytes[128] = { sizeof header - 1 };
    cr_assert_eq((sizeof header - 1) % 2, 1u);
    memcpy(bytes + 8, header, sizeof header - 1);
    const float values[2] = { 0.1f, -3e38f };
    memcpy(bytes + 8 + sizeof header - 1, values, sizeof values);
    HsSafetensors file;
    cr_assert_eq(hs_safetensors_parse("f", bytes, 8 + sizeof header - 1 + sizeof values, &file), HS_OK, "%s",
                 hs_error_message());
    double loaded[2];
    hs_safetensors_load(&file.tensors[0].tensor, 0, 1, 2, loaded);
    cr_expect_eq(loaded[0], (double)0.1f);
    cr_expect_eq(loaded[1], (double)-3e38f);
    hs_safetensors_close(&file);
}

#define ENTRY(name, dtype, shape, offsets) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define A96 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

typedef struct Malformed {
    const char *header;
    uint64_t length; /* 0: the header's own */
    size_t data;     /* bytes behind the header */
    HsStatus status;
    const char *message;
} Malformed;

static const Malformed malformed[] = {
    { "", 0, 0, HS_EFORMAT, "f: byte 8: the header must start with {" },
    { "[]", 0, 0, HS_EFORMAT, "f: byte 8: the header must start with {" },
    { " {}", 0, 0, HS_EFORMAT, "f: byte 8: the header must start with {" },
    { "{}", 3, 0, HS_EFORMAT, "f: cut off (copy or download it again): a header of 3 bytes, but only 2 follow" },
    { "{}", 100000001, 0, HS_EFORMAT, "f: a header of 100000001 bytes, more than the 100000000 allowed" },
    { "{}", UINT64_MAX, 0, HS_EFORMAT, "f: a header of 18446744073709551615 bytes, more than the 100000000 allowed" },
    { "{\"a\":}", 0, 0, HS_EFORMAT, "f: header: byte 5: not JSON" },
    { "{} x", 0, 0, HS_EFORMAT, "f: header: byte 3: not JSON" },
    { "{}", 0, 4, HS_EFORMAT, "f: 4 bytes after the last tensor belong to no tensor" },
    { "{\"a\":1}", 0, 0, HS_EFORMAT, "f: tensor `a`: must be an object" },
    { "{" ENTRY("", "F32", "[1]", "[0,4]") "}", 0, 4, HS_EFORMAT, "f: a tensor without a name" },
    { "{" ENTRY(A96, "F32", "[1]", "[0,4]") "}", 0, 4, HS_EUNSUPPORTED,
      "f: tensor `aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...`: a name of more than 95 bytes" },
    { "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 0, 4, HS_EFORMAT, "f: tensor `a`: dtype must be a string" },
    { "{" ENTRY("a", "f32", "[1]", "[0,4]") "}", 0, 4, HS_EFORMAT, "f: tensor `a`: unknown dtype `f32`" },
    { "{" ENTRY("a", "BOOL", "[1]", "[0,1]") "}", 0, 1, HS_EUNSUPPORTED, "f: tensor `a`: dtype BOOL is not supported" },
    { "{" ENTRY("a", "F32", "1", "[0,4]") "}", 0, 4, HS_EFORMAT, "f: tensor `a`: shape must be a list" },
    { "{" ENTRY("a", "F32", "[-1]", "[0,4]") "}", 0, 4, HS_EFORMAT, "f: tensor `a`: dimension 0 is not a count" },
    { "{" ENTRY("a", "F32", "[1,0.5]", "[0,2]") "}", 0, 2, HS_EFORMAT, "f: tensor `a`: dimension 1 is not a count" },
    { "{" ENTRY("a", "F32", "[1e300]", "[0,4]") "}", 0, 4, HS_EFORMAT, "f: tensor `a`: dimension 0 is not a count" },
    { "{" ENTRY("a", "F32", "[1,1,1,1,1]", "[0,4]") "}", 0, 4, HS_EUNSUPPORTED,
      "f: tensor `a`: more than 4 dimensions" },
    { "{" ENTRY("a", "F32", "[4294967296,4294967296]", "[0,0]") "}", 0, 0, HS_EFORMAT,
      "f: tensor `a`: its shape overflows" },
    { "{" ENTRY("a", "F32", "[2147483648,1073741824]", "[0,4]") "}", 0, 4, HS_EFORMAT,
      "f: tensor `a`: its shape overflows" },
    { "{" ENTRY("a", "F32", "[1]", "[0]") "}", 0, 4, HS_EFORMAT, "f: tensor `a`: data_offsets must be two counts" },
    { "{" ENTRY("a", "F32", "[1]", "[0,-4]") "}", 0, 4, HS_EFORMAT, "f: tensor `a`: data_offsets must be two counts" },
    { "{" ENTRY("a", "F32", "[1]", "[4,0]") "}", 0, 4, HS_EFORMAT,
      "f: tensor `a`: bytes 4 to 0 lie outside the 4 bytes of data" },
    { "{" ENTRY("a", "F32", "[2]", "[0,8]") "}", 0, 4, HS_EFORMAT,
      "f: tensor `a`: bytes 0 to 8 lie outside the 4 bytes of data" },
    { "{" ENTRY("a", "F32", "[2]", "[0,4]") "}", 0, 4, HS_EFORMAT,
      "f: tensor `a`: its shape needs 8 bytes, data_offsets give 4" },
    { "{" ENTRY("a", "F32", "[1]", "[0,4]") "," ENTRY("b", "F32", "[1]", "[8,12]") "}", 0, 12, HS_EFORMAT,
      "f: tensor `b`: starts at byte 8 of the data, leaving a hole from byte 4" },
    { "{" ENTRY("a", "F32", "[1]", "[4,8]") "}", 0, 8, HS_EFORMAT,
      "f: tensor `a`: starts at byte 4 of the data, leaving a hole from byte 0" },
    { "{" ENTRY("a", "F32", "[2]", "[0,8]") "," ENTRY("b", "F32", "[2]", "[4,12]") "}", 0, 12, HS_EFORMAT,
      "f: tensor `b`: starts at byte 4 of the data, overlapping the tensor up to byte 8" },
    { "{" ENTRY("a", "F32", "[1]", "[0,4]") "}", 0, 7, HS_EFORMAT,
      "f: 3 bytes after the last tensor belong to no tensor" },
    { "{" ENTRY("a", "F32", "[1]", "[0,4]") "," ENTRY("a", "F32", "[1]", "[4,8]") "}", 0, 8, HS_EFORMAT,
      "f: tensor `a`: named twice" },
    { "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,4]}}", 0, 4, HS_EFORMAT,
      "f: tensor `a`: must have dtype, shape and data_offsets, each once, and no more" },
    { "{\"__metadata__\":[]}", 0, 0, HS_EFORMAT, "f: __metadata__ must be an object" },
    { "{\"__metadata__\":{\"k\":1}}", 0, 0, HS_EFORMAT, "f: __metadata__: `k` must be a string" },
    { "{\"__metadata__\":{},\"__metadata__\":{}}", 0, 0, HS_EFORMAT, "f: __metadata__ is there twice" },
};

Test(safetensors, refuses_malformed_files)
{
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        const Malformed *row = &malformed[i];
        size_t header = strlen(row->header);
        uint64_t length = row->length ? row->length : header;
        unsigned char *bytes = calloc(1, 8 + header + row->data); /* exact, so that a sanitizer sees one byte more */
        cr_assert_not_null(bytes);
        memcpy(bytes, &length, sizeof length);
        memcpy(bytes + 8, row->header, header);
        HsSafetensors file;
        cr_expect_eq(hs_safetensors_parse("f", bytes, 8 + header + row->data, &file), row->status, "row %zu", i);
        cr_expect_str_eq(hs_error_message(), row->message);
        cr_expect_eq(file.count, 0);
        free(bytes);
    }
}

Test(safetensors, refuses_files_that_are_too_short_or_not_there)
{
    Scratch scratch = scratch_make();
    const char *path = scratch_path(&scratch, "short");
    char message[512];
    HsSafetensors file;
    for (size_t size = 0; size < 8; size++) {
        scratch_write(path, "\x02\0\0\0\0\0\0\0", size);
        snprintf(message, sizeof message, "%s: %zu bytes, too short for a safetensors file: copy or download it again",
                 path, size);
        cr_expect_eq(hs_safetensors_open(path, &file), HS_EFORMAT);
        cr_expect_str_eq(hs_error_message(), message);
    }
    snprintf(message, sizeof message, "cannot open %s: No such file or directory", scratch_path(&scratch, "none"));
    cr_expect_eq(hs_safetensors_open(scratch_path(&scratch, "none"), &file), HS_EIO);
    cr_expect_str_eq(hs_error_message(), message);
    cr_expect_eq(hs_safetensors_open(scratch.folder, &file), HS_EIO);
    scratch_remove(&scratch);
}

/* Every cut of a good file is refused. */
Test(safetensors, refuses_every_truncation)
{
    Scratch scratch = scratch_make();
    const char *path = scratch_path(&scratch, "f");
    float values[3] = { 1, 2, 3 };
    const HsNamedTensor tensor = { .name = "a", .tensor = hs_tensor_1d(values, HS_F32, 3) };
    cr_assert_eq(hs_safetensors_write(path, &tensor, 1, NULL, NULL), HS_OK);
    size_t size = 0;
    char *bytes = scratch_read(path, &size);
    HsSafetensors file;
    for (size_t cut = 0; cut < size; cut++)
        cr_expect_eq(hs_safetensors_parse("f", bytes, cut, &file), HS_EFORMAT, "%zu bytes", cut);
    cr_expect_eq(hs_safetensors_parse("f", bytes, size, &file), HS_OK);
    hs_safetensors_close(&file);
    free(bytes);
    scratch_remove(&scratch);
}

Test(safetensors, the_writer_refuses_doubled_and_reserved_names)
{
    Scratch scratch = scratch_make();
    const char *path = scratch_path(&scratch, "f");
    float value = 1;
    HsNamedTensor tensors[2] = { { .name = "a", .tensor = hs_tensor_1d(&value, HS_F32, 1) },
                                 { .name = "a", .tensor = hs_tensor_1d(&value, HS_I32, 1) } };
    cr_expect_eq(hs_safetensors_write(path, tensors, 2, NULL, NULL), HS_EINVAL);
    strcpy(tensors[1].name, "__metadata__");
    cr_expect_eq(hs_safetensors_write(path, tensors, 2, NULL, NULL), HS_EINVAL);
    cr_expect_eq(hs_safetensors_write(scratch_path(&scratch, "no/f"), tensors, 1, NULL, NULL), HS_EIO);
    scratch_remove(&scratch);
}
