/* SPDX-License-Identifier: MIT
 *
 * What four neighbouring warps do together: wgmma (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions") and
 * setmaxnreg.
 *
 * A product runs on by itself until wgmma.wait_group, which is each warp's own affair: that its part is done says
 * nothing of the others'.  Emulated are the extremes: at once, or a warp's 16 rows when that warp waits, when shared
 * memory is read as it is then; until that wait the registers of the sums hold NaN.
 */
#include "kernels/emu/wgmma.h"
#include "kernels/emu/worker.h"

namespace hs_emu
{
namespace emulator
{

enum { THREADS = WARPGROUP * LANES };

static int warp_number(const Thread &thread)
{
    return (int)(thread.warp - worker->warps);
}

static Warpgroup &group_of(const Thread &thread)
{
    return worker->warpgroups[warp_number(thread) / WARPGROUP];
}

/* The k-th thread of the current thread's warpgroup. */
static Thread &member(int k)
{
    const int first = warp_number(*worker->current) / WARPGROUP * WARPGROUP;
    return worker->warps[first + k / LANES].threads[k % LANES];
}

void warpgroup_start(Warpgroup &group)
{
    group.arrived = 0;
    group.fenced = false;
    group.registers = 0;
    group.flights.clear();
    group.products.clear();
    group.groups.clear();
    group.first_product = 0;
    for (int warp = 0; warp < WARPGROUP; warp++)
        group.waited[warp] = group.performed[warp] = 0;
}

static size_t issued(const Warpgroup &group)
{
    return group.first_product + group.products.size();
}

void warpgroup_check_exit(const Thread &thread)
{
    const Warpgroup &group = group_of(thread);
    if (group.performed[warp_number(thread) % WARPGROUP] < issued(group))
        fault("this thread returned before it waited for its products (wgmma.wait_group)");
    if (group.arrived != 0)
        fault("this thread returned and will not take part in %s (%s:%d), where others of its warpgroup wait",
              group.kind, group.site.file, group.site.line);
}

/* Wait until all of the warpgroup are here; the last one performs for all. */
template <typename Body> static void meet_warpgroup(const char *kind, Site site, Body perform)
{
    Thread &thread = *worker->current;
    Warpgroup &group = group_of(thread);
    const int first = warp_number(thread) / WARPGROUP * WARPGROUP;
    for (int w = 0; w < WARPGROUP; w++)
        if (worker->warps[first + w].exited != 0)
            fault("%s (%s:%d): lanes %08x of warp %d of the warpgroup do not take part", kind, site.file, site.line,
                  worker->warps[first + w].exited, w);
    if (group.arrived == 0) {
        group.kind = kind;
        group.site = site;
    } else if (group.kind != kind || group.site.line != site.line) {
        fault("divergent warpgroup: this thread is at %s (%s:%d), others wait at %s (%s:%d)", kind, site.file,
              site.line, group.kind, group.site.file, group.site.line);
    }
    if (++group.arrived < THREADS) {
        wait_on(&group, kind, site);
        return;
    }
    group.arrived = 0;
    perform(group);
    wake(&group);
    switch_away();
}

/* Where the sums of a product go: registers, or the copy that was taken of them when the first product under way was
 * issued. */
static Flight &flight_of(Warpgroup &group, int registers)
{
    const float *key = static_cast<const WarpgroupProduct *>(member(0).operands[0])->sums;
    for (Flight &flight : group.flights)
        if (flight.key == key)
            return flight;
    group.flights.push_back(Flight{ key, {}, {}, 0 });
    Flight &flight = group.flights.back();
    flight.values.resize((size_t)registers * THREADS);
    for (int t = 0; t < THREADS; t++) {
        float *sums = static_cast<const WarpgroupProduct *>(member(t).operands[0])->sums;
        flight.registers.push_back(sums);
        memcpy(&flight.values[(size_t)(t * registers)], sums, (size_t)registers * sizeof *sums);
        memset(sums, 0xff, (size_t)registers * sizeof *sums);
    }
    return flight;
}

/* A warp's rows of the products before number `end`, in the order they were issued; sums that no product adds to any
 * more return to the warp's registers. */
static void perform_products(Warpgroup &group, int warp, size_t end)
{
    const size_t first = group.first_product;
    for (size_t &next = group.performed[warp]; next < end; next++)
        group.products[next - first].perform(warp);
    for (size_t f = group.flights.size(); f-- > 0;) {
        Flight &flight = group.flights[f];
        bool awaited = (flight.landed >> warp & 1) != 0;
        for (size_t i = group.performed[warp]; i < issued(group); i++)
            awaited = awaited || group.products[i - first].key == flight.key;
        if (awaited)
            continue;
        const size_t registers = flight.values.size() / THREADS;
        for (size_t t = (size_t)warp * LANES; t < (size_t)(warp + 1) * LANES; t++)
            memcpy(flight.registers[t], &flight.values[t * registers], registers * sizeof(float));
        flight.landed |= 1u << warp;
        if (flight.landed == (1u << WARPGROUP) - 1)
            group.flights.erase(group.flights.begin() + (long)f);
    }
    size_t all = group.performed[0];
    for (size_t performed : group.performed)
        all = performed < all ? performed : all;
    group.products.erase(group.products.begin(), group.products.begin() + (long)(all - first));
    group.first_product = all;
}

bool sums_under_way(const float *registers)
{
    const Thread &thread = *worker->current;
    const int warp = warp_number(thread) % WARPGROUP;
    for (const Flight &flight : group_of(thread).flights)
        if (flight.registers[(size_t)(warp * LANES + thread.lane)] == registers)
            return (flight.landed >> warp & 1) == 0;
    return false;
}

/* What the operands must have in common. */
static void check_product(const WarpgroupProduct &product, const WarpgroupProduct &first, Site site)
{
    if (product.a_descriptor != first.a_descriptor || product.b_descriptor != first.b_descriptor ||
        product.add != first.add || product.columns != first.columns)
        fault("wgmma (%s:%d): descriptors or scale differ within the warpgroup", site.file, site.line);
    if (product.a_format != first.a_format || product.b_format != first.b_format)
        fault("wgmma (%s:%d): formats differ within the warpgroup", site.file, site.line);
    if (product.columns < 8 || product.columns > 256 || product.columns % 8 != 0)
        fault("wgmma (%s:%d): %d columns", site.file, site.line, product.columns);
}

static void issue(Warpgroup &group, Site site)
{
    const WarpgroupProduct first = *static_cast<const WarpgroupProduct *>(member(0).operands[0]);
    if (!group.fenced)
        fault("wgmma (%s:%d): no wgmma.fence since the registers of the sums were last the program's", site.file,
              site.line);
    WgmmaOperands operands = { first, std::vector<uint32_t>(), site };
    for (int t = 0; t < THREADS; t++) {
        const WarpgroupProduct &product = *static_cast<const WarpgroupProduct *>(member(t).operands[0]);
        check_product(product, first, site);
        if (first.a != nullptr)
            operands.a_registers.insert(operands.a_registers.end(), product.a, product.a + 4);
    }
    const int registers = first.columns / 2;
    const size_t flight = (size_t)(&flight_of(group, registers) - group.flights.data());
    const float *key = group.flights[flight].key;
    Warpgroup *const owner = &group;
    group.products.push_back(Product{ [=](int warp) {
                                         for (Flight &own : owner->flights)
                                             if (own.key == key)
                                                 wgmma_multiply(operands, warp, own.values.data());
                                     },
                                      key });
    if (!worker->launch->settings.late_copies)
        for (int warp = 0; warp < WARPGROUP; warp++)
            perform_products(group, warp, issued(group));
}

} // namespace emulator

using namespace emulator;

void emulated_wgmma(const WarpgroupProduct &product, Site site)
{
    worker->current->operands[0] = const_cast<WarpgroupProduct *>(&product);
    meet_warpgroup("wgmma.mma_async", site, [site](Warpgroup &group) { issue(group, site); });
}

void emulated_wgmma_fence(Site site)
{
    meet_warpgroup("wgmma.fence", site, [](Warpgroup &group) { group.fenced = true; });
}

void emulated_wgmma_commit(Site site)
{
    meet_warpgroup("wgmma.commit_group", site, [](Warpgroup &group) { group.groups.push_back(issued(group)); });
}

void emulated_wgmma_wait(int pending, Site site)
{
    worker->current->value = (uint64_t)pending;
    meet("wgmma.wait_group", 0xffffffffu, site, [](Warp &warp, const Meeting &) {
        const Thread &thread = warp.threads[0];
        Warpgroup &group = group_of(thread);
        const int own = warp_number(thread) % WARPGROUP;
        const size_t open = (size_t)thread.value;
        if (group.groups.size() <= group.waited[own] + open)
            return;
        group.waited[own] = group.groups.size() - open;
        perform_products(group, own, group.groups[group.waited[own] - 1]);
        if (group.flights.empty())
            group.fenced = false;
    });
}

/* The registers of a multiprocessor, 65,536, are shared out among the warpgroups of its block. */
void emulated_set_registers(int count, bool more, Site site)
{
    const char *kind = more ? "setmaxnreg.inc" : "setmaxnreg.dec";
    if (count < 24 || count > 256 || count % 8 != 0)
        fault("%s (%s:%d): %d registers; 24 to 256 in steps of 8", kind, site.file, site.line, count);
    meet_warpgroup(kind, site, [=](Warpgroup &group) {
        group.registers = count;
        const Block &block = block_of(*worker->current);
        int total = 0, unset = 0;
        for (int w = 0; w < block.warp_count; w += WARPGROUP) {
            const int registers = worker->warpgroups[(block.first_warp + w) / WARPGROUP].registers;
            total += registers * THREADS;
            unset += registers == 0;
        }
        if (unset == 0 && total > 65536)
            fault("%s (%s:%d): the block's warpgroups take %d registers of 65536", kind, site.file, site.line, total);
    });
}

} // namespace hs_emu
