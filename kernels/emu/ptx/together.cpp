/* SPDX-License-Identifier: MIT
 *
 * What threads do together, and what happens by itself: the emulator's own, given the operands of the text.
 *
 * Where the manual leaves open how an instruction behaves, this is assumed:
 *   barrier.cluster   arrive does nothing and wait meets all threads, as every wait here stands right behind its arrive
 *   mbarrier.try_wait waits as long as it takes, and is then true
 *   fences            but for that of shared memory to tensor copies, memory has one order here and needs none
 *   wgmma             the registers of sums hold NaN until a wait that covers them, whatever the compiler moved between
 */
#include "kernels/emu/fault.h"
#include "kernels/emu/ptx/program.h"
#include "kernels/emu/worker.h"

namespace hs_emu
{
namespace emulator
{
namespace ptx
{

namespace
{

uint32_t number(const Frame &frame, const Op &op, int operand)
{
    return get<uint32_t>(frame, op.slots[operand]);
}

/* Of a MEMORY operand in shared memory: its address in the emulator's window. */
uint32_t window_of(const Frame &frame, const Op &op, int operand)
{
    return frame.window_address(number(frame, op, operand) + (uint64_t)op.offset);
}

void nothing(Frame &, const Op &)
{
}

void trap(Frame &frame, const Op &op)
{
    fault("%s:%d: trap", frame.program->kernel.file.c_str(), op.line);
}

void barrier_sync(Frame &frame, const Op &op)
{
    if (op.extra->number == 1)
        __syncthreads(frame.site(op));
    else
        emulated_barrier_sync((int)number(frame, op, 0), (int)number(frame, op, 1), frame.site(op));
}

void barrier_arrive(Frame &frame, const Op &op)
{
    emulated_barrier_arrive((int)number(frame, op, 0), (int)number(frame, op, 1), frame.site(op));
}

void warp_sync(Frame &frame, const Op &op)
{
    __syncwarp(number(frame, op, 0), frame.site(op));
}

void cluster_wait(Frame &frame, const Op &op)
{
    emulated_cluster_sync(frame.site(op));
}

void map_shared(Frame &frame, const Op &op)
{
    const uint32_t rank = number(frame, op, 2);
    set<uint32_t>(frame, op.slots[0], number(frame, op, 1) | (rank + 1) << RANK_SHIFT);
}

/* shfl.sync.<mode>.b32 d|p, a, b, c, mask.  c: the last lane of a segment in bits 0 - 4, those of a lane's number
 * that name its segment in 8 - 12. */
template <char mode> void shuffle(Frame &frame, const Op &op)
{
    const int lane = lane_index(), b = (int)(number(frame, op, 2) & 31), c = (int)number(frame, op, 3);
    const int segment = c >> 8 & 31, last = (lane & segment) | ((c & 31) & ~segment);
    int source = mode == 'b'   ? lane ^ b
                 : mode == 'u' ? lane - b
                 : mode == 'd' ? lane + b
                               : (lane & segment) | (b & ~segment);
    const bool inside = mode == 'u' ? source >= last : source <= last;
    if (!inside)
        source = lane;
    const uint64_t value = exchange(number(frame, op, 4), number(frame, op, 1), source, frame.site(op));
    set<uint32_t>(frame, op.slots[0], (uint32_t)value);
    if (op.second != 0)
        frame.slots[op.second] = inside ? 1 : 0;
}

void vote_any(Frame &frame, const Op &op)
{
    const int predicate = frame.slots[op.slots[1]] != 0;
    frame.slots[op.slots[0]] = __any_sync(number(frame, op, 2), predicate, frame.site(op)) != 0 ? 1 : 0;
}

void vote_ballot(Frame &frame, const Op &op)
{
    const int predicate = frame.slots[op.slots[1]] != 0;
    set<uint32_t>(frame, op.slots[0], __ballot_sync(number(frame, op, 2), predicate, frame.site(op)));
}

template <typename T, size_t count>
void gather(const Frame &frame, const std::vector<uint32_t> &list, T (&values)[count])
{
    for (size_t i = 0; i < count; i++)
        values[i] = get<T>(frame, list[i]);
}

template <typename T> void scatter(Frame &frame, const std::vector<uint32_t> &list, const T *values)
{
    for (size_t i = 0; i < list.size(); i++)
        set<T>(frame, list[i], values[i]);
}

void multiply(Frame &frame, const Op &op)
{
    float d[4];
    uint32_t a[4], b[2];
    const Extra &extra = *op.extra;
    gather(frame, extra.lists[1], a);
    gather(frame, extra.lists[2], b);
    gather(frame, extra.lists[3], d);
    const Site site = frame.site(op);
    switch (extra.formats[0]) {
    case TensorFormat::BF16:
        emulated_mma_bf16(d, a, b, site);
        break;
    case TensorFormat::F16:
        emulated_mma_f16(d, a, b, site);
        break;
    case TensorFormat::TF32:
        emulated_mma_tf32(d, a, b, site);
        break;
    default:
        emulated_mma_fp8(extra.formats[0], extra.formats[1], d, a, b, site);
    }
    scatter(frame, extra.lists[0], d);
}

void load_matrices(Frame &frame, const Op &op)
{
    uint32_t result[4];
    emulated_load_matrix(result, op.extra->number, op.extra->flags[0], window_of(frame, op, 1), frame.site(op));
    scatter(frame, op.extra->lists[0], result);
}

/* A descriptor's start, in bits 0 - 13, where the emulator wants the window's address (wgmma.cpp). */
uint64_t window_descriptor(const Frame &frame, uint64_t descriptor)
{
    const uint64_t start = (descriptor & 0x3fff) << 4, window = frame.window_address(start);
    return (descriptor & ~(uint64_t)0x3fff) | (window >> 4 & 0x3fff) | window >> 18 << 52;
}

Sums &sums_of(Frame &frame, const Op &op)
{
    const std::vector<uint32_t> &list = op.extra->lists[0];
    for (Sums &sums : *frame.sums)
        if (sums.op->extra->lists[0] == list)
            return sums;
    frame.sums->push_back(Sums{ &op, std::vector<float>(list.size()) });
    Sums &sums = frame.sums->back();
    for (size_t i = 0; i < list.size(); i++)
        sums.values[i] = get<float>(frame, list[i]);
    return sums;
}

void warpgroup_multiply(Frame &frame, const Op &op)
{
    const Extra &extra = *op.extra;
    const bool registers = extra.lists.size() > 1;
    Sums &sums = sums_of(frame, op);
    float *const values = sums.values.data();
    uint32_t a[4];
    if (registers)
        gather(frame, extra.lists[1], a);
    emulated_wgmma(WarpgroupProduct{ values, registers ? a : nullptr,
                                     registers ? 0 : window_descriptor(frame, frame.slots[op.slots[1]]),
                                     window_descriptor(frame, frame.slots[op.slots[2]]), extra.number, extra.formats[0],
                                     extra.formats[1], frame.slots[op.slots[3]] != 0, extra.flags[0], extra.flags[1] },
                   frame.site(op));
    scatter(frame, extra.lists[0], values);
}

void warpgroup_wait(Frame &frame, const Op &op)
{
    emulated_wgmma_wait((int)number(frame, op, 0), frame.site(op));
    for (size_t i = frame.sums->size(); i-- > 0;) {
        const Sums &sums = (*frame.sums)[i];
        scatter(frame, sums.op->extra->lists[0], sums.values.data());
        if (!sums_under_way(sums.values.data()))
            frame.sums->erase(frame.sums->begin() + (long)i);
    }
}

void warpgroup_fence(Frame &frame, const Op &op)
{
    emulated_wgmma_fence(frame.site(op));
}

void warpgroup_commit(Frame &frame, const Op &op)
{
    emulated_wgmma_commit(frame.site(op));
}

void set_registers(Frame &frame, const Op &op)
{
    emulated_set_registers((int)number(frame, op, 0), op.extra->flags[0], frame.site(op));
}

void mbarrier_init(Frame &frame, const Op &op)
{
    emulated_mbarrier_init(window_of(frame, op, 0), (int)number(frame, op, 1), frame.site(op));
}

void mbarrier_arrive(Frame &frame, const Op &op)
{
    emulated_mbarrier_arrive(window_of(frame, op, 1), 0, frame.site(op));
}

void mbarrier_arrive_expect(Frame &frame, const Op &op)
{
    emulated_mbarrier_arrive(window_of(frame, op, 1), (int)number(frame, op, 2), frame.site(op));
}

void mbarrier_arrive_cluster(Frame &frame, const Op &op)
{
    emulated_mbarrier_arrive_remote(window_of(frame, op, 1), frame.site(op));
}

void mbarrier_try_wait(Frame &frame, const Op &op)
{
    emulated_mbarrier_wait(window_of(frame, op, 1), number(frame, op, 2), frame.site(op));
    frame.slots[op.slots[0]] = 1;
}

void fence_to_async(Frame &, const Op &)
{
    emulated_fence_shared_to_async();
}

void wait_for_kernel(Frame &frame, const Op &op)
{
    emulated_wait_for_kernel_before(frame.site(op));
}

void copy_async(Frame &frame, const Op &op)
{
    const void *source = reinterpret_cast<const void *>(frame.slots[op.slots[1]]);
    emulated_copy_async(window_of(frame, op, 0), source, (int)number(frame, op, 2), (int)number(frame, op, 3),
                        frame.site(op));
}

void copy_async_commit(Frame &, const Op &)
{
    emulated_copy_async_commit();
}

void copy_async_wait(Frame &frame, const Op &op)
{
    emulated_copy_async_wait((int)number(frame, op, 0), frame.site(op));
}

const TensorMap *map_of(const Frame &frame, const Op &op, int operand)
{
    return reinterpret_cast<const TensorMap *>(frame.slots[op.slots[operand]]);
}

void prefetch_map(Frame &frame, const Op &op)
{
    emulated_prefetch_tensor_map(map_of(frame, op, 0), frame.site(op));
}

void place_of(const Frame &frame, const Op &op, int (&place)[5])
{
    const std::vector<uint32_t> &list = op.extra->lists[0];
    for (size_t i = 0; i < list.size(); i++)
        place[i] = get<int>(frame, list[i]);
}

/* [destination], [map, {place}], [mbarrier] and of a multicast the blocks. */
void tensor_load(Frame &frame, const Op &op)
{
    int place[5] = { 0 };
    place_of(frame, op, place);
    const unsigned blocks = op.extra->flags[0] ? get<uint16_t>(frame, op.slots[3]) : 0;
    emulated_tensor_load(window_of(frame, op, 0), map_of(frame, op, 1), window_of(frame, op, 2), place, blocks,
                         frame.site(op));
}

/* [map, {place}], [source] */
void tensor_store(Frame &frame, const Op &op)
{
    int place[5] = { 0 };
    place_of(frame, op, place);
    emulated_tensor_store(window_of(frame, op, 1), map_of(frame, op, 0), place, op.extra->flags[0], frame.site(op));
}

void tensor_store_commit(Frame &, const Op &)
{
    emulated_tensor_store_commit();
}

void tensor_store_wait(Frame &frame, const Op &op)
{
    emulated_tensor_store_wait((int)number(frame, op, 0), op.extra->flags[0], frame.site(op));
}

struct Row {
    const char *text;
    Run run;
};

const Row ROWS[] = {
    { "trap", trap },
    { "bar.sync", barrier_sync },
    { "bar.arrive", barrier_arrive },
    { "bar.warp.sync", warp_sync },
    { "barrier.cluster.arrive.release.aligned", nothing },
    { "barrier.cluster.arrive.relaxed.aligned", nothing },
    { "barrier.cluster.wait.acquire.aligned", cluster_wait },
    { "mapa.shared::cluster.u32", map_shared },
    { "shfl.sync.bfly.b32", shuffle<'b'> },
    { "shfl.sync.up.b32", shuffle<'u'> },
    { "shfl.sync.down.b32", shuffle<'d'> },
    { "shfl.sync.idx.b32", shuffle<'i'> },
    { "vote.sync.any.pred", vote_any },
    { "vote.sync.ballot.b32", vote_ballot },
    { "mbarrier.init.shared::cta.b64", mbarrier_init },
    { "mbarrier.arrive.release.cta.shared::cta.b64", mbarrier_arrive },
    { "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64", mbarrier_arrive_expect },
    { "mbarrier.arrive.shared::cluster.b64", mbarrier_arrive_cluster },
    { "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64", mbarrier_try_wait },
    { "fence.mbarrier_init.release.cluster", nothing },
    { "fence.proxy.async.global", nothing },
    { "fence.proxy.async.shared::cta", fence_to_async },
    { "griddepcontrol.wait", wait_for_kernel },
    { "griddepcontrol.launch_dependents", nothing },
    { "cp.async.cg.shared.global", copy_async },
    { "cp.async.ca.shared.global", copy_async },
    { "cp.async.commit_group", copy_async_commit },
    { "cp.async.wait_group", copy_async_wait },
    { "cp.async.bulk.commit_group", tensor_store_commit },
    { "prefetch.tensormap", prefetch_map },
    { "wgmma.fence.sync.aligned", warpgroup_fence },
    { "wgmma.commit_group.sync.aligned", warpgroup_commit },
    { "wgmma.wait_group.sync.aligned", warpgroup_wait },
};

bool format_of(const std::string &word, TensorFormat *format)
{
    static const std::pair<const char *, TensorFormat> formats[] = {
        { "bf16", TensorFormat::BF16 }, { "f16", TensorFormat::F16 },   { "tf32", TensorFormat::TF32 },
        { "e4m3", TensorFormat::E4M3 }, { "e5m2", TensorFormat::E5M2 },
    };
    for (const auto &row : formats)
        if (word == row.first) {
            *format = row.second;
            return true;
        }
    return false;
}

/* mma.sync.aligned.m16n8k16.row.col.f32.A.B.f32 */
Run mma_run(const Instruction &instruction, Extra &extra)
{
    const std::vector<std::string> &words = instruction.words;
    static const char *const shapes[] = { "m16n8k16", "m16n8k16", "m16n8k8", "m16n8k32", "m16n8k32" };
    if (words.size() != 10 || words[4] != "row" || words[5] != "col" || words[6] != "f32" || words[9] != "f32" ||
        !format_of(words[7], &extra.formats[0]) || !format_of(words[8], &extra.formats[1]) ||
        words[3] != shapes[(int)extra.formats[0]])
        return nullptr;
    return multiply;
}

bool immediate(const Operand &operand, uint64_t value)
{
    return operand.kind == Operand::IMMEDIATE && operand.bits == value;
}

/* wgmma.mma_async.sync.aligned.m64n128k16.f32.A.B {d}, a, b, add, 1, 1 and of 16 bits which operands are transposed. */
Run wgmma_run(const Instruction &instruction, Extra &extra)
{
    const std::vector<std::string> &words = instruction.words;
    const std::vector<Operand> &operands = instruction.operands;
    if (words.size() != 8 || operands.size() < 6 || words[5] != "f32" || !format_of(words[6], &extra.formats[0]) ||
        !format_of(words[7], &extra.formats[1]) || sscanf(words[4].c_str(), "m64n%dk", &extra.number) != 1 ||
        !immediate(operands[4], 1) || !immediate(operands[5], 1))
        return nullptr;
    const bool registers = operands[1].kind == Operand::LIST;
    const size_t transposes =
        extra.formats[0] == TensorFormat::BF16 || extra.formats[0] == TensorFormat::F16 ? (registers ? 1 : 2) : 0;
    if (operands.size() != 6 + transposes || operands[0].items.size() != (size_t)extra.number / 2)
        return nullptr;
    if (transposes == 2)
        extra.flags[0] = operands[6].bits != 0;
    if (transposes > 0)
        extra.flags[1] = operands.back().bits != 0;
    return warpgroup_multiply;
}

/* cp.async.bulk.tensor, cp.reduce.async.bulk.tensor and the waits for stores. */
Run bulk_run(const Instruction &instruction, Extra &extra)
{
    const std::string &text = instruction.text;
    if (text == "cp.async.bulk.wait_group" || text == "cp.async.bulk.wait_group.read") {
        extra.flags[0] = !instruction.has("read");
        return tensor_store_wait;
    }
    const size_t tensor = text.find("bulk.tensor.");
    if (tensor == std::string::npos)
        return nullptr;
    const std::string behind = text.substr(tensor + 14); /* 2d. */
    extra.flags[0] = false;
    if (behind == ".shared::cluster.global.tile.mbarrier::complete_tx::bytes")
        return tensor_load;
    if (behind == ".global.shared::cta.bulk_group")
        return tensor_store;
    extra.flags[0] = true;
    if (behind == ".shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster")
        return tensor_load;
    return behind == ".global.shared::cta.add.tile.bulk_group" ? tensor_store : nullptr;
}

} // namespace

Run together_run(const Instruction &instruction, Extra &extra)
{
    const std::string &text = instruction.text;
    if (instruction.words[0] == "mma")
        return mma_run(instruction, extra);
    if (text.compare(0, 15, "wgmma.mma_async") == 0)
        return wgmma_run(instruction, extra);
    if (instruction.words[0] == "ldmatrix") { /* ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 */
        extra.number = instruction.words[4][1] - '0';
        extra.flags[0] = instruction.has("trans");
        return load_matrices;
    }
    if (instruction.words[0] == "setmaxnreg") {
        extra.flags[0] = instruction.has("inc");
        return set_registers;
    }
    for (const Row &row : ROWS)
        if (text == row.text) {
            extra.number = (int)instruction.operands.size();
            return row.run;
        }
    return bulk_run(instruction, extra);
}

} // namespace ptx
} // namespace emulator
} // namespace hs_emu
