/* SPDX-License-Identifier: MIT
 *
 * TensorBoard event files: a sequence of TFRecords, each holding one protobuf Event.  Used by metrics.c only.
 *
 *   record   u64 length | u32 masked crc32c(length) | bytes | u32 masked crc32c(bytes)      all little-endian
 *   Event    1: wall_time double   2: step int64   3: file_version string   5: summary
 *   Summary  1: Value { 1: tag string   2: simple_value float }
 */
#ifndef HS_RUNTIME_RECORD_TENSORBOARD_H
#define HS_RUNTIME_RECORD_TENSORBOARD_H

#include <stddef.h>
#include <stdint.h>

/* CRC-32C (Castagnoli polynomial 0x1EDC6F41, reflected) and TFRecord's mask of it. */
uint32_t hs_crc32c(const void *bytes, size_t size);
uint32_t hs_crc32c_mask(uint32_t crc);

enum { HS_TENSORBOARD_MAX_TAG = 100, HS_TENSORBOARD_RECORD_BYTES = 256 };

/* The file's first record (file_version) and one scalar, as record bytes ready to append; returns how many of
 * HS_TENSORBOARD_RECORD_BYTES. */
size_t hs_tensorboard_version(unsigned char *record, double wall_time_s);
size_t hs_tensorboard_scalar(unsigned char *record, double wall_time_s, int64_t step, const char *tag, float value);

#endif
