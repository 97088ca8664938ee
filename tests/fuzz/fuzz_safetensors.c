/* SPDX-License-Identifier: MIT
 *
 * safetensors: every tensor that is let through lies inside the file, and together they cover the data.
 */
#include <assert.h>
#include <string.h>

#include "runtime/checkpoint/checkpoint.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    HsSafetensors file;
    if (hs_safetensors_parse("fuzz", bytes, size, &file) != HS_OK)
        return 0;
    uint64_t header = 0;
    memcpy(&header, bytes, sizeof header);
    const uint8_t *expected = bytes + sizeof header + header;
    for (int i = 0; i < file.count; i++) {
        const HsNamedTensor *named = &file.tensors[i];
        assert((const uint8_t *)named->tensor.data == expected);
        expected += hs_tensor_bytes(&named->tensor);
        assert(expected <= bytes + size);
        assert(hs_safetensors_find(&file, named->name) == named);
        /* Touch the first and the last element. */
        double value;
        int64_t count = hs_tensor_count(&named->tensor);
        if (count > 0) {
            hs_safetensors_load(&named->tensor, 0, 1, 1, &value);
            hs_safetensors_load(&named->tensor, count - 1, 1, 1, &value);
        }
    }
    assert(expected == bytes + size);
    float out[4];
    const HsNamedTensor destination = { .name = "w", .tensor = hs_tensor_1d(out, HS_F32, 4) };
    (void)hs_checkpoint_restore("fuzz", &file, &destination, 1);
    hs_safetensors_close(&file);
    return 0;
}
