/* SPDX-License-Identifier: MIT
 *
 * What a group of calls does, see work.h.
 */
#include "tests/nccl/work.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

extern "C" {
#include "kernels/base/dtype.h"
}

namespace standin
{

static const struct {
    int number;
    const char *name;
    HsDtype dtype;
} TYPES[] = {
    { 1, "uint8", HS_U8 },    { 4, "int64", HS_I64 },   { 6, "float16", HS_F16 },
    { 7, "float32", HS_F32 }, { 8, "float64", HS_F64 }, { 9, "bfloat16", HS_BF16 },
};

static const auto *type_of(int number)
{
    for (const auto &row : TYPES)
        if (row.number == number)
            return &row;
    return static_cast<decltype(&TYPES[0])>(nullptr);
}

size_t bytes_of(int dtype)
{
    return type_of(dtype) == nullptr ? 0 : hs_dtype_bytes(type_of(dtype)->dtype);
}

void describe(const Description &d, char *text, size_t room)
{
    static const char *const kinds[] = { "ncclAllReduce", "ncclReduceScatter", "ncclReduce",
                                         "ncclAllGather", "ncclBroadcast",     "ncclSend or ncclRecv" };
    const char *type = type_of(d.dtype) == nullptr ? "an unknown type" : type_of(d.dtype)->name;
    const char *op = d.op == 0 ? ", sum" : d.op == 2 ? ", maximum" : d.op >= 0 ? ", an unknown operation" : "";
    char root[32] = "", number[64] = "";
    if (d.root >= 0)
        snprintf(root, sizeof root, ", root %d", d.root);
    if (d.number > 0)
        snprintf(number, sizeof number, " (collective %llu, %u in its group)", (unsigned long long)d.number, d.grouped);
    snprintf(text, room, "%s of %llu %s%s%s%s", kinds[(int)d.kind], (unsigned long long)d.count, type, op, root,
             number);
}

uint64_t draw(Communicator &communicator, uint64_t below)
{
    uint64_t &state = communicator.random;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

Work::Work(Communicator &of, std::vector<Call> what, Trouble with)
    : stream(what[0].stream), communicator(of), calls(std::move(what)), trouble(with), inputs(calls.size())
{
    communicator.under_way++;
}

void Work::send(size_t call, int to, size_t first, size_t bytes)
{
    const unsigned char *from = inputs[call].data() + first;
    outgoing[to].push_back(
        Message{ calls[call].description, call, std::vector<unsigned char>(from, from + bytes), 0, false });
}

void Work::expect(size_t call, int from, size_t bytes)
{
    incoming[from].push_back(Message{ calls[call].description, call, std::vector<unsigned char>(bytes), 0, false });
}

void Work::start_call(size_t index)
{
    const Call &call = calls[index];
    const int rank = communicator.rank, root = call.description.root;
    const size_t share = call.description.kind == Kind::REDUCE_SCATTER ? call.receive_bytes : call.send_bytes;
    for (int other = 0; other < communicator.size; other++) {
        if (other == rank)
            continue;
        switch (call.description.kind) {
        case Kind::REDUCE_SCATTER:
            send(index, other, (size_t)other * share, share);
            expect(index, other, share);
            break;
        case Kind::ALL_REDUCE:
        case Kind::ALL_GATHER:
            send(index, other, 0, share);
            expect(index, other, share);
            break;
        case Kind::REDUCE:
            if (other == root)
                send(index, other, 0, share);
            if (rank == root)
                expect(index, other, share);
            break;
        case Kind::BROADCAST:
            if (rank == root)
                send(index, other, 0, share);
            if (other == root)
                expect(index, other, call.receive_bytes);
            break;
        case Kind::POINT_TO_POINT:
            if (other == call.to)
                send(index, other, 0, share);
            if (other == call.from)
                expect(index, other, call.receive_bytes);
            break;
        }
    }
}

/* All inputs before the first poison: a group may send from where it receives. */
void Work::start()
{
    for (size_t i = 0; i < calls.size(); i++) {
        const unsigned char *bytes = static_cast<const unsigned char *>(calls[i].send);
        inputs[i].assign(bytes, bytes + calls[i].send_bytes);
        start_call(i);
    }
    for (const Call &call : calls)
        if (call.receive_bytes > 0)
            memset(call.receive, 0xff, call.receive_bytes);
    started = true;
}

void Work::compare(const Description &mine, const Description &other, int from) const
{
    if (mine.kind == other.kind && mine.dtype == other.dtype && mine.op == other.op && mine.root == other.root &&
        mine.count == other.count && mine.number == other.number && mine.grouped == other.grouped)
        return;
    char own[256], theirs[256];
    describe(mine, own, sizeof own);
    describe(other, theirs, sizeof theirs);
    fault(communicator.rank, "ranks do different things: this one %s, rank %d %s", own, from, theirs);
}

bool Work::push(int to)
{
    Mailbox &box = communicator.segment->boxes[communicator.rank][to];
    if (outgoing[to].empty() || box.written.load() != box.read.load())
        return false;
    Message &message = outgoing[to].front();
    const size_t left = message.bytes.size() - message.moved, piece = left < Mailbox::ROOM ? left : Mailbox::ROOM;
    box.description = message.description;
    box.bytes = message.bytes.size();
    memcpy(box.data, message.bytes.data() + message.moved, piece);
    message.moved += piece;
    box.written.fetch_add(1);
    if (message.moved == message.bytes.size())
        outgoing[to].pop_front();
    return true;
}

bool Work::pull(int from)
{
    Mailbox &box = communicator.segment->boxes[from][communicator.rank];
    if (incoming[from].empty() || box.written.load() == box.read.load())
        return false;
    Message &message = incoming[from].front();
    const size_t left = message.bytes.size() - message.moved, piece = left < Mailbox::ROOM ? left : Mailbox::ROOM;
    compare(message.description, box.description, from);
    if (box.bytes != message.bytes.size())
        fault(communicator.rank, "rank %d sends %llu bytes, this one expects %zu", from, (unsigned long long)box.bytes,
              message.bytes.size());
    memcpy(message.bytes.data() + message.moved, box.data, piece);
    message.moved += piece;
    box.read.fetch_add(1);
    if (message.moved == message.bytes.size()) {
        received.push_back(std::move(message));
        received_from.push_back(from);
        incoming[from].pop_front();
    }
    return true;
}

bool Work::move()
{
    bool moved = false, again = true;
    while (again) {
        again = false;
        for (int other = 0; other < communicator.size; other++) {
            const bool pushed = push(other), pulled = pull(other);
            again = again || pushed || pulled;
        }
        moved = moved || again;
    }
    if (moved)
        segment_wake(communicator.segment);
    return moved;
}

bool Work::is_moved() const
{
    for (int other = 0; other < communicator.size; other++)
        if (!outgoing[other].empty() || !incoming[other].empty())
            return false;
    return true;
}

bool Work::is_rested(bool wait)
{
    const auto now = std::chrono::steady_clock::now();
    if (!resting) {
        resting = true;
        due = now + std::chrono::microseconds(draw(communicator, 300));
    }
    if (now < due && wait)
        usleep((useconds_t)std::chrono::duration_cast<std::chrono::microseconds>(due - now).count() + 1);
    return std::chrono::steady_clock::now() >= due;
}

/* In an order that rings have: the sum of piece p begins behind rank p and goes around, rounded at each rank. */
void Work::add_up(const Call &call, const std::vector<const unsigned char *> &parts) const
{
    const size_t size = parts.size(), count = (size_t)call.description.count, piece = (count + size - 1) / size;
    const HsDtype dtype = type_of(call.description.dtype)->dtype;
    const bool maximum = call.description.op == 2;
    for (size_t i = 0; i < count; i++) {
        const size_t first = (i / piece + 1) % size;
        int64_t whole = 0;
        for (size_t k = 0; k < size; k++) {
            const unsigned char *part = parts[(first + k) % size];
            if (dtype == HS_I64) {
                const int64_t next = reinterpret_cast<const int64_t *>(part)[i];
                whole = k == 0 || (maximum && next > whole) ? next : maximum ? whole : whole + next;
                memcpy(static_cast<int64_t *>(call.receive) + i, &whole, sizeof whole);
                continue;
            }
            const double next = hs_dtype_load(dtype, part, (int64_t)i);
            const double sum = k == 0 ? next : hs_dtype_load(dtype, call.receive, (int64_t)i);
            hs_dtype_store(dtype, call.receive, (int64_t)i, k == 0 ? next : maximum ? fmax(sum, next) : sum + next);
        }
    }
}

void Work::finish_call(size_t index)
{
    const Call &call = calls[index];
    if (call.receive_bytes == 0)
        return;
    const Kind kind = call.description.kind;
    std::vector<const unsigned char *> parts((size_t)communicator.size, inputs[index].data());
    if (kind == Kind::REDUCE_SCATTER)
        parts[(size_t)communicator.rank] += (size_t)communicator.rank * call.receive_bytes;
    for (size_t i = 0; i < received.size(); i++)
        if (received[i].call == index)
            parts[(size_t)received_from[i]] = received[i].bytes.data();
    unsigned char *to = static_cast<unsigned char *>(call.receive);
    if (kind == Kind::ALL_GATHER)
        for (size_t r = 0; r < parts.size(); r++)
            memcpy(to + r * call.send_bytes, parts[r], call.send_bytes);
    else if (kind == Kind::BROADCAST || kind == Kind::POINT_TO_POINT)
        memcpy(to, parts[(size_t)(kind == Kind::BROADCAST ? call.description.root : call.from)], call.receive_bytes);
    else
        add_up(call, parts);
}

void Work::finish()
{
    for (size_t i = 0; i < calls.size(); i++)
        finish_call(i);
    communicator.under_way--;
}

bool Work::advance(bool wait)
{
    if (communicator.aborted) {
        communicator.under_way--;
        return true;
    }
    if (trouble == Trouble::DIE)
        raise(SIGKILL);
    if (!started)
        start();
    if (trouble == Trouble::ASYNC || trouble == Trouble::HANG) {
        if (trouble == Trouble::ASYNC)
            communicator.result = 6; /* ncclRemoteError */
        if (wait)
            usleep(5000);
        return false;
    }
    const uint32_t seen = communicator.segment->changed.load();
    const bool moved = move();
    if (!is_moved()) {
        if (wait && !moved)
            segment_sleep(communicator.segment, seen);
        return false;
    }
    if (!is_rested(wait))
        return false;
    finish();
    return true;
}

} // namespace standin
