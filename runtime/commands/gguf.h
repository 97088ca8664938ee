/* SPDX-License-Identifier: MIT
 *
 * GGUF, version 3: the file format of ggml and llama.cpp.
 *
 *     | "GGUF" u32 version | u64 tensors | u64 pairs | pairs | tensor infos | padding | data, each tensor at 32 bytes |
 *
 *   pair    string key, u32 type, value;  string = u64 length, bytes;  array = u32 type, u64 count, values
 *   info    string name, u32 dimensions, u64 sizes (the row's first), u32 type, u64 offset in the data
 */
#ifndef HS_RUNTIME_COMMANDS_GGUF_H
#define HS_RUNTIME_COMMANDS_GGUF_H

#include "runtime/checkpoint/safetensors.h"
#include "runtime/data/tokenizer/bytes.h"

/* Formats of tensors, with ggml's numbers.  Q8_0: blocks of 32 numbers of a row, an f16 scale and 32 i8. */
typedef enum HsGgufType { HS_GGUF_F32 = 0, HS_GGUF_F16 = 1, HS_GGUF_Q8_0 = 8, HS_GGUF_BF16 = 30 } HsGgufType;
enum { HS_GGUF_Q8_BLOCK = 32 };

typedef struct HsGgufTensor {
    char name[64];
    HsNamedTensor source; /* of any floating-point format or in four bits, with its change; [rows, columns] or [size] */
    HsGgufType type;
    /* Rows of heads of this size go from halves to pairs: row 2i + j of a head is its row j * size / 2 + i; 0: as they
     * are. */
    int64_t pair_rows;
} HsGgufTensor;

typedef struct HsGguf {
    HsBytes pairs;
    uint64_t pair_count;
    HsStatus status; /* of the first failure; after it nothing is added */
} HsGguf;

void hs_gguf_add_text(HsGguf *file, const char *key, const char *text);
void hs_gguf_add_u32(HsGguf *file, const char *key, uint32_t value);
void hs_gguf_add_i32(HsGguf *file, const char *key, int32_t value);
void hs_gguf_add_f32(HsGguf *file, const char *key, double value);
void hs_gguf_add_bool(HsGguf *file, const char *key, bool value);
void hs_gguf_add_texts(HsGguf *file, const char *key, const char *const *texts, uint64_t count);
void hs_gguf_add_i32s(HsGguf *file, const char *key, const int32_t *values, uint64_t count);
void hs_gguf_add_f32s(HsGguf *file, const char *key, const float *values, uint64_t count);

/* Writes next to `path` and renames.  errors: HS_EIO, HS_ENOMEM, HS_EINVAL for a value that the type cannot hold */
HsStatus hs_gguf_write(const HsGguf *file, const HsGgufTensor *tensors, int count, const char *path);
void hs_gguf_deinit(HsGguf *file);

#endif
