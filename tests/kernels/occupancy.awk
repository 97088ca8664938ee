# SPDX-License-Identifier: MIT
# Occupancy by the rules of the CUDA programming guide's table of compute capabilities: how many blocks of a kernel fit
# on a multiprocessor, as a share of the warps that it can hold.  Limits are registers (handed out to warps in units of
# 256, from four partitions), shared memory (units of 128 bytes, 1 KiB of each block is the system's), warps and blocks.

function limits(sm, field) {
    if (sm == 80)
        split("64 32 167936 166912", limit)
    else if (sm == 86)
        split("48 16 102400 101376", limit)
    else if (sm == 89)
        split("48 24 102400 101376", limit)
    else
        split("64 32 233472 232448", limit) # 90
    return limit[field]
}

function ceil_to(value, unit) {
    return int((value + unit - 1) / unit) * unit
}

function smaller(a, b) {
    return a < b ? a : b
}

# "75%", or "-" where a block does not fit.
function occupancy(sm, threads, registers, shared,    warps, of_partition, blocks, block_shared) {
    warps = int((threads + 31) / 32)
    if (shared > limits(sm, 4))
        return "-"
    blocks = smaller(limits(sm, 2), int(limits(sm, 1) / warps))
    of_partition = int(16384 / ceil_to(registers * 32, 256))
    blocks = smaller(blocks, int(4 * of_partition / warps))
    block_shared = ceil_to(shared + 1024, 128)
    blocks = smaller(blocks, int(limits(sm, 3) / block_shared))
    return blocks == 0 ? "-" : int(100 * blocks * warps / limits(sm, 1) + 0.5) "%"
}
