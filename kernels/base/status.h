/* SPDX-License-Identifier: MIT
 *
 * Status codes and the message that goes with them.
 *
 * Every fallible function returns HsStatus.  The first failure formats one message into a thread-local
 * buffer; callers pass the code up with HS_TRY and may add context with hs_error_prefix.  Only main turns a
 * status into an exit code.  Invariant: status != HS_OK  <=>  hs_error_message() describes it.
 */
#ifndef HS_KERNELS_BASE_STATUS_H
#define HS_KERNELS_BASE_STATUS_H

typedef enum HsStatus {
    HS_OK = 0,
    HS_EINVAL,       /* an argument that the caller could have checked */
    HS_ESHAPE,       /* tensor shapes or dtypes that do not fit together */
    HS_EUNSUPPORTED, /* valid, but this backend, build or machine cannot do it */
    HS_EDEVICE,      /* the device failed: a kernel, a copy, the driver */
    HS_ENOMEM,       /* host or device memory exhausted, or over the plan's limit */
    HS_EIO,          /* the operating system refused a file operation */
    HS_EFORMAT,      /* a file's bytes are not what its format says */
    HS_ECONFIG,      /* the configuration or the command line is wrong (exit code 2) */
    HS_ENUMERIC,     /* gradients that are not finite at the smallest loss scale */
    HS_EINTERRUPTED  /* stopped by SIGINT or SIGTERM after saving */
} HsStatus;

/* Record a formatted message (printf rules) and return `code`, so that `return hs_fail(HS_EIO, ...)` reads well. */
HsStatus hs_fail(HsStatus code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Put "prefix: " before the current message; returns `code` unchanged. */
HsStatus hs_error_prefix(HsStatus code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The message of this thread's latest failure; never NULL, empty before any failure. */
const char *hs_error_message(void);

/* The symbolic name of a code, e.g. "HS_ESHAPE". */
const char *hs_status_name(HsStatus code);

/* Return from the calling function with the first failure. */
#define HS_TRY(expression)                      \
    do {                                        \
        HsStatus hs_try_status_ = (expression); \
        if (hs_try_status_ != HS_OK)            \
            return hs_try_status_;              \
    } while (0)

/* Keep the first failure in `status` and jump to the function's one clean-up label. */
#define HS_TRY_GOTO(status, expression, label) \
    do {                                       \
        (status) = (expression);               \
        if ((status) != HS_OK)                 \
            goto label;                        \
    } while (0)

#endif
