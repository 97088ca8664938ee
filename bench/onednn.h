/* SPDX-License-Identifier: MIT
 *
 * The only file that knows oneDNN: products by its C interface, with its few declarations written out here.
 *
 * Versions 2 and 3 differ in what owns a memory's description: 2 fills the caller's structure, 3 returns a handle.
 * Every later call takes a pointer to it in both.  Weights may be reordered ahead into the layout that the library
 * chooses for the product, as inference and training with packed weights do.
 */
#ifndef HS_BENCH_ONEDNN_H
#define HS_BENCH_ONEDNN_H

#include <stdio.h>

#include "bench/library.h"
#include "kernels/ops/ops.h"

enum {
    ONEDNN_CPU = 1,
    ONEDNN_BF16 = 2,
    ONEDNN_F32 = 3,
    ONEDNN_IN_ORDER = 1,
    ONEDNN_LAYOUT_ANY = 1,
    ONEDNN_QUERY_KERNEL = 8,
    ONEDNN_QUERY_WEIGHTS = 131,
    ONEDNN_SOURCE = 1,
    ONEDNN_DESTINATION = 17,
    ONEDNN_WEIGHTS = 33,
    ONEDNN_DIMENSIONS = 12
};
#define ONEDNN_ALLOCATE ((void *)(size_t)-1)

typedef struct OneDnnVersion {
    int major, minor, patch;
} OneDnnVersion; /* its first members */

typedef struct OneDnnArgument {
    int role;
    void *memory;
} OneDnnArgument;

/* Version 2's structures, which only the library looks into: 696 and 2800 bytes in 2.6. */
typedef struct OneDnnDescription2 {
    _Alignas(16) char bytes[1024];
} OneDnnDescription2;
typedef struct OneDnnProduct2 {
    _Alignas(16) char bytes[4096];
} OneDnnProduct2;

/* name in the library without dnnl_, result, parameters: what both versions have, ... */
#define ONEDNN_FUNCTIONS(X)                                                                                        \
    X(version, const OneDnnVersion *, (void))                                                                      \
    X(engine_create, int, (void **engine, int kind, size_t index))                                                 \
    X(engine_destroy, int, (void *engine))                                                                         \
    X(stream_create, int, (void **stream, void *engine, unsigned flags))                                           \
    X(stream_wait, int, (void *stream))                                                                            \
    X(stream_destroy, int, (void *stream))                                                                         \
    X(memory_create, int, (void **memory, const void *description, void *engine, void *data))                      \
    X(memory_destroy, int, (void *memory))                                                                         \
    X(primitive_attr_create, int, (void **attributes))                                                             \
    X(primitive_attr_destroy, int, (void *attributes))                                                             \
    X(primitive_attr_set_post_ops, int, (void *attributes, const void *post))                                      \
    X(post_ops_create, int, (void **post))                                                                         \
    X(post_ops_destroy, int, (void *post))                                                                         \
    X(primitive_desc_query, int, (const void *plan, int what, int index, void *result))                            \
    X(primitive_desc_query_md, const void *, (const void *plan, int what, int index))                              \
    X(primitive_desc_destroy, int, (void *plan))                                                                   \
    X(reorder_primitive_desc_create, int,                                                                          \
      (void **plan, const void *from, void *from_engine, const void *to, void *to_engine, const void *attributes)) \
    X(primitive_create, int, (void **primitive, const void *plan))                                                 \
    X(primitive_execute, int, (const void *primitive, void *stream, int count, const OneDnnArgument *arguments))   \
    X(primitive_destroy, int, (void *primitive))

/* ... and what only one has, or has otherwise: member, name, parameters. */
#define ONEDNN_FUNCTIONS_2(X)                                                                                \
    X(strides_2, memory_desc_init_by_strides,                                                                \
      (OneDnnDescription2 * description, int rank, const int64_t *shape, int dtype, const int64_t *strides)) \
    X(layout_2, memory_desc_init_by_tag,                                                                     \
      (OneDnnDescription2 * description, int rank, const int64_t *shape, int dtype, int layout))             \
    X(matmul_2, matmul_desc_init,                                                                            \
      (OneDnnProduct2 * product, const void *a, const void *b, const void *bias, const void *c))             \
    X(plan_2, primitive_desc_create,                                                                         \
      (void **plan, const OneDnnProduct2 *product, const void *attributes, void *engine, const void *hint))  \
    X(add_2, post_ops_append_sum, (void *post, float scale))
#define ONEDNN_FUNCTIONS_3(X)                                                                    \
    X(strides_3, memory_desc_create_with_strides,                                                \
      (void **description, int rank, const int64_t *shape, int dtype, const int64_t *strides))   \
    X(layout_3, memory_desc_create_with_tag,                                                     \
      (void **description, int rank, const int64_t *shape, int dtype, int layout))               \
    X(release_3, memory_desc_destroy, (void *description))                                       \
    X(plan_3, matmul_primitive_desc_create,                                                      \
      (void **plan, void *engine, const void *a, const void *b, const void *bias, const void *c, \
       const void *attributes))                                                                  \
    X(add_3, post_ops_append_sum, (void *post, float scale, int32_t zero_point, int dtype))

typedef struct OneDnn {
    void *library; /* NULL: not there */
    void *engine, *stream;
    int major;
    char described[48];
    void (*set_threads)(int); /* of the OpenMP library that it is linked with */
#define ONEDNN_MEMBER(name, Result, parameters) Result(*name) parameters;
    ONEDNN_FUNCTIONS(ONEDNN_MEMBER)
#undef ONEDNN_MEMBER
#define ONEDNN_MEMBER(member, name, parameters) int(*member) parameters;
    ONEDNN_FUNCTIONS_2(ONEDNN_MEMBER)
    ONEDNN_FUNCTIONS_3(ONEDNN_MEMBER)
#undef ONEDNN_MEMBER
} OneDnn;

/* A matrix's description, of either version. */
typedef struct OneDnnMatrix {
    OneDnnDescription2 storage;
    void *handle;
} OneDnnMatrix;

/* A product, ready to run again and again. */
typedef struct OneDnnProduct {
    void *plan, *primitive;
    void *a, *b, *b_plain, *c; /* memories; b is b_plain where nothing is reordered */
    const char *kernel;        /* the library's name of its choice */
} OneDnnProduct;

static inline HsStatus onednn_check(int code, const char *what)
{
    return code == 0 ? HS_OK : hs_fail(HS_EUNSUPPORTED, "oneDNN: %s failed with status %d", what, code);
}

#define ONEDNN_TRY(dnn, name, ...) HS_TRY(onednn_check((dnn)->name(__VA_ARGS__), #name))

static inline void onednn_close(OneDnn *dnn)
{
    if (dnn->stream)
        dnn->stream_destroy(dnn->stream);
    if (dnn->engine)
        dnn->engine_destroy(dnn->engine);
    if (dnn->library)
        dlclose(dnn->library);
    *dnn = (OneDnn){ .library = NULL };
}

static inline HsStatus onednn_start(OneDnn *dnn)
{
#define ONEDNN_FIND(name, Result, parameters) \
    HS_TRY(library_find(dnn->library, "dnnl_" #name, &dnn->name, sizeof dnn->name));
    ONEDNN_FUNCTIONS(ONEDNN_FIND)
#undef ONEDNN_FIND
#define ONEDNN_FIND(member, name, parameters) \
    HS_TRY(library_find(dnn->library, "dnnl_" #name, &dnn->member, sizeof dnn->member));
    const OneDnnVersion *version = dnn->version();
    dnn->major = version->major;
    if (dnn->major == 2) {
        ONEDNN_FUNCTIONS_2(ONEDNN_FIND)
    } else {
        ONEDNN_FUNCTIONS_3(ONEDNN_FIND)
    }
#undef ONEDNN_FIND
    HS_TRY(library_find(dnn->library, "omp_set_num_threads", &dnn->set_threads, sizeof dnn->set_threads));
    snprintf(dnn->described, sizeof dnn->described, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
    ONEDNN_TRY(dnn, engine_create, &dnn->engine, ONEDNN_CPU, 0);
    ONEDNN_TRY(dnn, stream_create, &dnn->stream, dnn->engine, ONEDNN_IN_ORDER);
    return HS_OK;
}

static inline HsStatus onednn_open(OneDnn *dnn)
{
    static const char *const names[] = { "libdnnl.so.3", "libdnnl.so.2", NULL };
    *dnn = (OneDnn){ .library = NULL };
    HS_TRY(library_open(names, &dnn->library));
    const HsStatus status = onednn_start(dnn);
    if (status != HS_OK)
        onednn_close(dnn);
    return status;
}

/* Describes op(t); `any` leaves the layout to the library.  matrix->handle is what other calls take. */
static inline HsStatus onednn_describe(const OneDnn *dnn, const HsTensor *t, bool transposed, bool any,
                                       OneDnnMatrix *matrix)
{
    const int dtype = t->dtype == HS_BF16 ? ONEDNN_BF16 : ONEDNN_F32;
    int64_t shape[ONEDNN_DIMENSIONS] = { t->shape[transposed], t->shape[!transposed] };
    int64_t strides[ONEDNN_DIMENSIONS] = { transposed ? 1 : t->shape[1], transposed ? t->shape[1] : 1 };
    if (dnn->major == 2) {
        matrix->handle = &matrix->storage;
        if (any)
            ONEDNN_TRY(dnn, layout_2, &matrix->storage, 2, shape, dtype, ONEDNN_LAYOUT_ANY);
        else
            ONEDNN_TRY(dnn, strides_2, &matrix->storage, 2, shape, dtype, strides);
    } else if (any) {
        ONEDNN_TRY(dnn, layout_3, &matrix->handle, 2, shape, dtype, ONEDNN_LAYOUT_ANY);
    } else {
        ONEDNN_TRY(dnn, strides_3, &matrix->handle, 2, shape, dtype, strides);
    }
    return HS_OK;
}

static inline HsStatus onednn_plan(const OneDnn *dnn, const OneDnnMatrix *a, const OneDnnMatrix *b,
                                   const OneDnnMatrix *c, const void *attributes, OneDnnProduct *product)
{
    if (dnn->major == 2) {
        OneDnnProduct2 description;
        ONEDNN_TRY(dnn, matmul_2, &description, a->handle, b->handle, NULL, c->handle);
        ONEDNN_TRY(dnn, plan_2, &product->plan, &description, attributes, dnn->engine, NULL);
    } else {
        ONEDNN_TRY(dnn, plan_3, &product->plan, dnn->engine, a->handle, b->handle, NULL, c->handle, attributes);
    }
    return onednn_check(dnn->primitive_desc_query(product->plan, ONEDNN_QUERY_KERNEL, 0, &product->kernel), "a query");
}

/* Copies the plain weights into the layout of the plan. */
static inline HsStatus onednn_reorder(const OneDnn *dnn, const OneDnnMatrix *plain, OneDnnProduct *product)
{
    const void *chosen = dnn->primitive_desc_query_md(product->plan, ONEDNN_QUERY_WEIGHTS, 0);
    void *plan = NULL, *primitive = NULL;
    ONEDNN_TRY(dnn, memory_create, &product->b, chosen, dnn->engine, ONEDNN_ALLOCATE);
    ONEDNN_TRY(dnn, reorder_primitive_desc_create, &plan, plain->handle, dnn->engine, chosen, dnn->engine, NULL);
    int code = dnn->primitive_create(&primitive, plan);
    if (code == 0) {
        const OneDnnArgument arguments[] = { { ONEDNN_SOURCE, product->b_plain }, { ONEDNN_DESTINATION, product->b } };
        code = dnn->primitive_execute(primitive, dnn->stream, 2, arguments);
        dnn->stream_wait(dnn->stream);
        dnn->primitive_destroy(primitive);
    }
    dnn->primitive_desc_destroy(plan);
    return onednn_check(code, "the reordering of weights");
}

static inline HsStatus onednn_make(const OneDnn *dnn, const HsMatmulArgs *args, bool reorder, const OneDnnMatrix *a,
                                   const OneDnnMatrix *b, const OneDnnMatrix *plain, const OneDnnMatrix *c,
                                   const void *attributes, OneDnnProduct *product)
{
    HS_TRY(onednn_plan(dnn, a, b, c, attributes, product));
    ONEDNN_TRY(dnn, primitive_create, &product->primitive, product->plan);
    ONEDNN_TRY(dnn, memory_create, &product->a, a->handle, dnn->engine, args->a.values.data);
    ONEDNN_TRY(dnn, memory_create, &product->b_plain, plain->handle, dnn->engine, args->b.values.data);
    ONEDNN_TRY(dnn, memory_create, &product->c, c->handle, dnn->engine, args->c.data);
    if (reorder)
        return onednn_reorder(dnn, plain, product);
    product->b = product->b_plain;
    return HS_OK;
}

/* What is added to the result: c itself where args ask for it. */
static inline HsStatus onednn_accumulate(const OneDnn *dnn, void *attributes, void *post)
{
    if (dnn->major == 2)
        ONEDNN_TRY(dnn, add_2, post, 1.0f);
    else
        ONEDNN_TRY(dnn, add_3, post, 1.0f, 0, ONEDNN_F32);
    ONEDNN_TRY(dnn, primitive_attr_set_post_ops, attributes, post);
    return HS_OK;
}

static inline void onednn_free(const OneDnn *dnn, OneDnnProduct *product)
{
    void *const memories[] = { product->a, product->b == product->b_plain ? NULL : product->b, product->b_plain,
                               product->c };
    for (int i = 0; i < 4; i++)
        if (memories[i])
            dnn->memory_destroy(memories[i]);
    if (product->primitive)
        dnn->primitive_destroy(product->primitive);
    if (product->plan)
        dnn->primitive_desc_destroy(product->plan);
    *product = (OneDnnProduct){ .plan = NULL };
}

/* Prepares c = op(a) op(b) [+ c] in bf16 or f32 for the present number of threads (set_threads); `reorder`: b ahead. */
static inline HsStatus onednn_prepare(const OneDnn *dnn, const HsMatmulArgs *args, bool reorder, OneDnnProduct *product)
{
    OneDnnMatrix matrices[4] = { { .handle = NULL } }; /* a, b as the product takes it, b as it is, c */
    const HsTensor *const tensors[4] = { &args->a.values, &args->b.values, &args->b.values, &args->c };
    const bool transposed[4] = { args->transpose_a, args->transpose_b, args->transpose_b, false };
    void *attributes = NULL, *post = NULL;
    *product = (OneDnnProduct){ .plan = NULL };
    HsStatus status = onednn_check(dnn->primitive_attr_create(&attributes), "making attributes");
    if (status == HS_OK)
        status = onednn_check(dnn->post_ops_create(&post), "making attributes");
    for (int i = 0; status == HS_OK && i < 4; i++)
        status = onednn_describe(dnn, tensors[i], transposed[i], i == 1 && reorder, &matrices[i]);
    if (status == HS_OK && args->accumulate)
        status = onednn_accumulate(dnn, attributes, post);
    if (status == HS_OK)
        status = onednn_make(dnn, args, reorder, &matrices[0], &matrices[1], &matrices[2], &matrices[3], attributes,
                             product);
    for (int i = 0; i < 4; i++)
        if (dnn->major != 2 && matrices[i].handle)
            dnn->release_3(matrices[i].handle);
    if (post)
        dnn->post_ops_destroy(post);
    if (attributes)
        dnn->primitive_attr_destroy(attributes);
    if (status != HS_OK)
        onednn_free(dnn, product);
    return status;
}

static inline HsStatus onednn_product(const OneDnn *dnn, const OneDnnProduct *product)
{
    const OneDnnArgument arguments[] = { { ONEDNN_SOURCE, product->a },
                                         { ONEDNN_WEIGHTS, product->b },
                                         { ONEDNN_DESTINATION, product->c } };
    ONEDNN_TRY(dnn, primitive_execute, product->primitive, dnn->stream, 3, arguments);
    ONEDNN_TRY(dnn, stream_wait, dnn->stream);
    return HS_OK;
}

#endif
