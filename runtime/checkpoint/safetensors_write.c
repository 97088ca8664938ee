/* SPDX-License-Identifier: MIT
 *
 * Writing safetensors.  Equal tensors make equal bytes: the order in the file is by element size, largest first (so
 * that every tensor lies aligned), then by name; never by the order of the arguments.
 *
 *     | u64 header bytes | {"__metadata__":{..},"name":{"dtype","shape","data_offsets"},..}  spaces to 8 | data ... |
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "runtime/checkpoint/safetensors.h"
#include "runtime/io/json.h"
#include "runtime/io/storage.h"

enum { PIECE_BYTES = 8 << 20 };
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors data is little-endian and written as it lies");

enum { ALIGNMENT = 8 };

static HsDtype stored_dtype(const HsNamedTensor *named)
{
    return named->converted ? named->stored : named->tensor.dtype;
}

static int compare_placement(const void *a, const void *b)
{
    const HsNamedTensor *left = *(const HsNamedTensor *const *)a, *right = *(const HsNamedTensor *const *)b;
    size_t left_bytes = hs_dtype_bytes(stored_dtype(left)), right_bytes = hs_dtype_bytes(stored_dtype(right));
    if (left_bytes != right_bytes)
        return left_bytes > right_bytes ? -1 : 1;
    return strcmp(left->name, right->name);
}

static HsStatus check_names(const char *path, const HsNamedTensor *const *order, int count)
{
    /* Sorted by name only within one element size, hence every pair; a model has some hundred tensors. */
    for (int i = 0; i < count; i++) {
        if (order[i]->name[0] == '\0' || strcmp(order[i]->name, "__metadata__") == 0)
            return hs_fail(HS_EINVAL, "%s: `%s` cannot name a tensor", path, order[i]->name);
        for (int j = 0; j < i; j++) {
            if (strcmp(order[i]->name, order[j]->name) == 0)
                return hs_fail(HS_EINVAL, "%s: two tensors are named `%s`", path, order[i]->name);
        }
    }
    return HS_OK;
}

/* Header text with its padding; the caller frees. */
static HsStatus make_header(const char *path, const HsNamedTensor *const *order, int count, const char *const *metadata,
                            char **header, size_t *size)
{
    HsJson *root = hs_json_object();
    if (metadata && metadata[0]) {
        HsJson *pairs = hs_json_object();
        for (int i = 0; metadata[i]; i += 2)
            hs_json_set_string(pairs, metadata[i], metadata[i + 1]);
        hs_json_set(root, "__metadata__", pairs);
    }
    int64_t offset = 0;
    for (int i = 0; i < count; i++) {
        const HsTensor *tensor = &order[i]->tensor;
        HsJson *entry = hs_json_object(), *shape = hs_json_array(), *offsets = hs_json_array();
        const HsDtype dtype = stored_dtype(order[i]);
        for (int axis = 0; axis < tensor->rank; axis++)
            hs_json_append(shape,
                           hs_json_new_integer(tensor->shape[order[i]->transposed ? tensor->rank - 1 - axis : axis]));
        hs_json_append(offsets, hs_json_new_integer(offset));
        offset += hs_tensor_count(tensor) * (int64_t)hs_dtype_bytes(dtype);
        hs_json_append(offsets, hs_json_new_integer(offset));
        hs_json_set_string(entry, "dtype", hs_dtype_info(dtype)->safetensors_name);
        hs_json_set(entry, "shape", shape);
        hs_json_set(entry, "data_offsets", offsets);
        hs_json_set(root, order[i]->name, entry);
    }
    char *text = hs_json_write(root, false);
    hs_json_destroy(root);
    size_t length = text ? strlen(text) : 0;
    *size = (length + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    *header = text ? realloc(text, *size + 1) : NULL;
    if (!*header) {
        free(text);
        return hs_fail(HS_ENOMEM, "%s: no memory for the header of %d tensors", path, count);
    }
    memset(*header + length, ' ', *size - length);
    return HS_OK;
}

/* One piece of the file, into the checksum and onto the disk. */
static HsStatus put(int descriptor, const char *path, XXH3_state_t *hash, const void *bytes, size_t size)
{
    if (size == 0 || descriptor < 0)
        return HS_OK; /* empty tensors may have no address; another process writes */
    XXH3_64bits_update(hash, bytes, size);
    return hs_storage_write_all(descriptor, path, bytes, size);
}

/* Host bytes of a device's tensor; the caller frees. */
static HsStatus fetch(const char *path, const HsNamedTensor *named, size_t first, size_t size, void **bytes)
{
    const HsContext *context = named->context;
    *bytes = malloc(size);
    if (!*bytes)
        return hs_fail(HS_ENOMEM, "%s: no memory for %zu bytes of %s", path, size, named->name);
    const size_t width = hs_dtype_bytes(named->tensor.dtype);
    if (named->derive)
        return named->derive(named, (int64_t)(first / width), (int64_t)(size / width), *bytes);
    HsStatus status = context->device->copy(context->device, context->stream, *bytes,
                                            (const unsigned char *)named->tensor.data + first, size);
    if (status == HS_OK)
        status = context->device->stream_sync(context->device, context->stream);
    return status;
}

static bool is_on_host(const HsNamedTensor *named)
{
    return !named->context || named->context->device->host_accessible;
}

/* As it lies; what is on a device comes to the host piece by piece. */
static HsStatus put_bytes(int descriptor, const char *path, XXH3_state_t *hash, const HsNamedTensor *named)
{
    const size_t size = hs_tensor_bytes(&named->tensor);
    if ((is_on_host(named) && !named->derive) || size == 0)
        return put(descriptor, path, hash, named->tensor.data, size);
    HsStatus status = HS_OK;
    for (size_t first = 0; first < size && status == HS_OK; first += PIECE_BYTES) {
        const size_t here = size - first < PIECE_BYTES ? size - first : PIECE_BYTES;
        void *piece = NULL;
        status = fetch(path, named, first, here, &piece);
        if (status == HS_OK)
            status = put(descriptor, path, hash, piece, here);
        free(piece);
    }
    return status;
}

/* Elements of one row of the file's matrix, or of all of another tensor, rounded to its format. */
static HsStatus put_run(int descriptor, const char *path, XXH3_state_t *hash, const HsNamedTensor *named, int64_t first,
                        int64_t stride, int64_t count)
{
    enum { CHUNK = 4096 };
    const HsDtype dtype = stored_dtype(named);
    double values[CHUNK] = { 0 };
    _Alignas(8) unsigned char rounded[CHUNK * 8];
    for (int64_t at = 0; at < count; at += CHUNK) {
        const int64_t here = count - at < CHUNK ? count - at : CHUNK;
        if (named->tensor.data || named->quantized)
            hs_named_load(named, first + at * stride, stride, here, values);
        for (int64_t i = 0; i < here; i++) {
            hs_dtype_store(dtype, rounded, i, values[i]);
            if (isfinite(values[i]) && !isfinite(hs_dtype_load(dtype, rounded, i)))
                return hs_fail(HS_EINVAL,
                               "%s: tensor `%s` has the value %g, which is too large for %s: choose another "
                               "format",
                               path, named->name, values[i], hs_dtype_name(dtype));
        }
        HS_TRY(put(descriptor, path, hash, rounded, (size_t)here * hs_dtype_bytes(dtype)));
    }
    return HS_OK;
}

int64_t hs_tensor_share_of(const HsTensorShare *share, int64_t count, int rank, int64_t *first)
{
    int64_t bounds[2];
    for (int i = 0; i < 2; i++) {
        /* A tensor of fewer elements has one for each block of the parameter, which ranges begin with. */
        const int64_t at = (share->starts[rank + i] - share->offset + share->elements - 1) / share->elements;
        bounds[i] = at < 0 ? 0 : at > count ? count : at;
    }
    *first = bounds[0];
    return bounds[1] - bounds[0];
}

/* Elements [at, at + count) of a shared tensor into `piece`, on every process. */
static HsStatus assemble(const HsNamedTensor *named, int64_t at, int64_t count, unsigned char *piece, size_t *starts)
{
    const HsTensorShare *share = &named->share;
    const HsContext *context = named->context;
    const size_t bytes = hs_dtype_bytes(named->tensor.dtype);
    for (int r = 0; r < share->comm->size; r++) {
        int64_t first, own = hs_tensor_share_of(share, hs_tensor_count(&named->tensor), r, &first);
        int64_t from = first > at ? first : at, to = first + own < at + count ? first + own : at + count;
        from = from < at + count ? from : at + count;
        to = to > from ? to : from;
        starts[r] = (size_t)(from - at) * bytes;
        starts[r + 1] = (size_t)(to - at) * bytes;
        if (r == share->comm->rank && to > from && named->derive)
            HS_TRY(named->derive(named, from - first, to - from, piece + starts[r]));
        else if (r == share->comm->rank && to > from)
            HS_TRY(context->device->copy(context->device, context->stream, piece + starts[r],
                                         (const unsigned char *)named->tensor.data + (size_t)(from - first) * bytes,
                                         (size_t)(to - from) * bytes));
    }
    HS_TRY(context->device->stream_sync(context->device, context->stream));
    return hs_comm_all_gather(share->comm, context->stream, piece, starts, HS_U8);
}

static HsStatus put_shared(int descriptor, const char *path, XXH3_state_t *hash, const HsNamedTensor *named)
{
    const size_t bytes = hs_dtype_bytes(named->tensor.dtype);
    const int64_t count = hs_tensor_count(&named->tensor), most = PIECE_BYTES / (int64_t)bytes;
    unsigned char *piece = malloc(PIECE_BYTES);
    size_t *starts = calloc((size_t)named->share.comm->size + 1, sizeof *starts);
    HsStatus status = piece && starts ? HS_OK : hs_fail(HS_ENOMEM, "%s: no memory to assemble %s", path, named->name);
    for (int64_t at = 0; at < count && status == HS_OK; at += most) {
        const int64_t here = count - at < most ? count - at : most;
        status = assemble(named, at, here, piece, starts);
        if (status == HS_OK)
            status = put(descriptor, path, hash, piece, (size_t)here * bytes);
    }
    free(starts);
    free(piece);
    return status;
}

static HsStatus put_tensor(int descriptor, const char *path, XXH3_state_t *hash, const HsNamedTensor *named)
{
    HsNamedTensor host = *named;
    const int64_t count = hs_tensor_count(&named->tensor);
    const bool turned = named->transposed && named->tensor.rank == 2;
    void *bytes = NULL;
    if (named->share.comm)
        return put_shared(descriptor, path, hash, named);
    assert(named->shift == 0 || named->converted);
    assert(!named->derive || (!turned && !named->converted));
    if (!turned && !named->converted && named->tensor.data)
        return put_bytes(descriptor, path, hash, named);
    if (!is_on_host(named) && count > 0) {
        HS_TRY(fetch(path, named, 0, hs_tensor_bytes(&named->tensor), &bytes));
        host.tensor.data = bytes;
    }
    const int64_t rows = turned ? named->tensor.shape[1] : 1, stride = rows;
    HsStatus status = HS_OK;
    for (int64_t row = 0; row < rows && status == HS_OK; row++)
        status = put_run(descriptor, path, hash, &host, row, stride, count / rows);
    free(bytes);
    return status;
}

HsStatus hs_safetensors_write(const char *path, const HsNamedTensor *tensors, int count, const char *const *metadata,
                              uint64_t *checksum)
{
    HsStatus status = HS_OK;
    char *header = NULL;
    size_t header_size = 0;
    int descriptor = -1;
    const bool writes = path != NULL;
    path = writes ? path : "a checkpoint that another process writes";
    const HsNamedTensor **order = malloc((size_t)(count + 1) * sizeof *order);
    XXH3_state_t *hash = XXH3_createState();
    if (!order || !hash) {
        status = hs_fail(HS_ENOMEM, "%s: no memory to write %d tensors", path, count);
        goto done;
    }
    for (int i = 0; i < count; i++)
        order[i] = &tensors[i];
    qsort(order, (size_t)count, sizeof *order, compare_placement);
    HS_TRY_GOTO(status, check_names(path, order, count), done);
    HS_TRY_GOTO(status, make_header(path, order, count, metadata, &header, &header_size), done);

    descriptor = writes ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1;
    if (writes && descriptor < 0) {
        status = hs_fail(HS_EIO, "cannot create %s: %s", path, strerror(errno));
        goto done;
    }
    XXH3_64bits_reset(hash);
    uint64_t length = header_size;
    HS_TRY_GOTO(status, put(descriptor, path, hash, &length, sizeof length), done);
    HS_TRY_GOTO(status, put(descriptor, path, hash, header, header_size), done);
    for (int i = 0; i < count; i++)
        HS_TRY_GOTO(status, put_tensor(descriptor, path, hash, order[i]), done);
    if (writes && fsync(descriptor) != 0)
        status = hs_fail(HS_EIO, "cannot flush %s: %s", path, strerror(errno));
    if (checksum)
        *checksum = XXH3_64bits_digest(hash);
done:
    if (descriptor >= 0 && close(descriptor) != 0 && status == HS_OK)
        status = hs_fail(HS_EIO, "cannot close %s: %s", path, strerror(errno));
    XXH3_freeState(hash);
    free(header);
    free(order);
    return status;
}
