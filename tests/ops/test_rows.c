/* SPDX-License-Identifier: MIT
 *
 * gather_rows and scatter_rows against single bytes, on every backend of a CPU and on the emulated GPU: of every width
 * of an element, of rows that consist of whole words and of those that do not, wherever they begin.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/emulator.h"
#include "tests/support/host_backends.h"

#define RUN(call) cr_assert_eq((call), HS_OK, "%s", hs_error_message())

enum { MANY = 37, LISTED = 29, MOST_BYTES = MANY * 300 * 4 + 16 };

/* On the device; what is moved begins `skew` elements behind. */
typedef struct Memory {
    HsContext *context;
    unsigned char *x, *y;
    int32_t *rows;
} Memory;

static void copy(const Memory *memory, void *to, const void *from, size_t bytes)
{
    HsDevice *device = memory->context->device;
    RUN(device->copy(device, NULL, to, from, bytes));
    RUN(device->stream_sync(device, NULL));
}

/* Every third is none; the others are rows from the last to the first, each once. */
static void make_list(int32_t list[LISTED])
{
    for (int n = 0; n < LISTED; n++)
        list[n] = n % 3 == 1 ? -1 : MANY - 1 - n;
}

static void check(const Memory *memory, const char *name, HsDtype dtype, int64_t columns, int skew)
{
    static unsigned char x[MOST_BYTES], before[MOST_BYTES], gathered[MOST_BYTES], scattered[MOST_BYTES];
    const size_t element = hs_dtype_bytes(dtype), row = (size_t)columns * element, offset = (size_t)skew * element;
    int32_t list[LISTED];
    make_list(list);
    for (size_t i = 0; i < MOST_BYTES; i++) {
        x[i] = (unsigned char)(i * 7 + i / 251);
        before[i] = (unsigned char)(i * 5 + 3);
    }
    copy(memory, memory->rows, list, sizeof list);
    copy(memory, memory->x, x, MOST_BYTES);
    copy(memory, memory->y, before, MOST_BYTES);
    const HsMoveRowsArgs gather = { .x = hs_tensor_2d(memory->x + offset, dtype, MANY, columns),
                                    .rows = hs_tensor_1d(memory->rows, HS_I32, LISTED),
                                    .y = hs_tensor_2d(memory->y + offset, dtype, LISTED, columns) };
    RUN(hs_op_gather_rows(memory->context, &gather));
    copy(memory, gathered, memory->y, MOST_BYTES);
    copy(memory, memory->y, before, MOST_BYTES);
    const HsMoveRowsArgs scatter = { .x = hs_tensor_2d(memory->x + offset, dtype, LISTED, columns),
                                     .rows = gather.rows,
                                     .y = hs_tensor_2d(memory->y + offset, dtype, MANY, columns) };
    RUN(hs_op_scatter_rows(memory->context, &scatter));
    copy(memory, scattered, memory->y, MOST_BYTES);
    for (size_t i = 0; i < MOST_BYTES; i++) {
        unsigned char together = before[i], back = before[i];
        for (size_t n = 0; n < LISTED && i >= offset; n++) {
            const size_t b = (i - offset) % row;
            if ((i - offset) / row == n)
                together = list[n] >= 0 ? x[offset + (size_t)list[n] * row + b] : dtype == HS_I32 ? 0xff : 0;
            if (list[n] >= 0 && (i - offset) / row == (size_t)list[n])
                back = x[offset + n * row + b];
        }
        cr_assert_eq(gathered[i], together, "%s, %s, %d columns, skew %d: gathered byte %zu", name,
                     hs_dtype_name(dtype), (int)columns, skew, i);
        cr_assert_eq(scattered[i], back, "%s, %s, %d columns, skew %d: scattered byte %zu", name, hs_dtype_name(dtype),
                     (int)columns, skew, i);
    }
}

static void check_all(HsContext *context, const char *name, bool wide)
{
    static const HsDtype dtypes[] = { HS_F32, HS_BF16, HS_F16, HS_I32, HS_F64 };
    static const int64_t columns[] = { 1, 3, 8, 130, 300 };
    HsDevice *device = context->device;
    Memory memory = { .context = context };
    void *blocks[3];
    for (int i = 0; i < 3; i++)
        RUN(device->alloc(device, MOST_BYTES, &blocks[i]));
    memory.x = blocks[0];
    memory.y = blocks[1];
    memory.rows = blocks[2];
    for (int d = 0; d < 4 + wide; d++)
        for (int c = 0; c < 5; c++)
            for (int skew = 0; skew < 2; skew++)
                if (dtypes[d] != HS_F64 || columns[c] < 150)
                    check(&memory, name, dtypes[d], columns[c], skew);
    for (int i = 0; i < 3; i++)
        device->release(device, blocks[i]);
}

Test(rows, on_every_host_backend)
{
    HsDevice device;
    HsContext context;
    const char *name;
    RUN(hs_device_host_init(&device));
    for (int index = 0; next_host_backend(&index, &context, &name);) {
        context.device = &device;
        context.threads = 3;
        check_all(&context, name, index == 1);
    }
}

Test(rows, on_the_emulator)
{
    HsDevice device;
    const HsCudaOptions options = { 0 };
    RUN(emulator()->device_init(&device, &options));
    HsContext context = { .backend = emulator()->backend, .device = &device, .threads = 1 };
    check_all(&context, "emu", false);
    hs_device_deinit(&device);
}
