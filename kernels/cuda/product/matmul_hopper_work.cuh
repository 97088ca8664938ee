/* SPDX-License-Identifier: MIT
 *
 * Which tiles of c, and which steps of k, each cluster of a Hopper product has (matmul_hopper.cuh).
 *
 * Whole tiles go round: cluster n has numbers n, n + clusters and so on in the order of tile_of_block, slice by slice
 * where k is cut into slices, with sums that a second kernel adds.
 *
 * Joint tiles.  A weight's gradient has few tiles and a long k, and the last of its rounds hardly ever has a tile for
 * every cluster.  The `rest` tiles of that round are then shared by all clusters: their steps of k, one tile's behind
 * the other's, are cut into a range for each cluster, all of one length.  A range has a part of one tile or of two, and
 * a tile is the sum of its ranges' parts, which are added to c in f32 by the copy that stores them.
 *
 *     27 tiles of 512 steps and 66 clusters:  210 steps each, where whole tiles would take 512 and 7 slices 3 x 74
 *
 * In which order are the parts of a tile added?  A range has the part with its lower steps first.  So of the ranges of
 * a tile, in the order of steps, the last one comes to it at once, the first one, which may have a tile before it, late;
 * those between have nothing else.  Parts are therefore added from the last range's to the first's: each warp waits for
 * its turn, a counter for each tile and warp, adds its rows, and passes the turn on when they are written.  The same
 * bits come out every time.
 *
 * No warp waits for ever, however clusters are scheduled.  Clusters are numbered as they begin, by a counter in memory,
 * and cluster n has the n-th range from the end.  So it waits only for clusters with smaller numbers, which have begun.
 * Of all clusters that are not done the one with the smallest number waits for none, and gets on.
 *
 * Which step of k is the s-th of a range?  Clusters that are far apart in k share nothing in L2, and each would fetch
 * its operands from HBM by itself: 906 MB in the example, 200 if each line came once.  So the clusters of a tile do not
 * have a piece of k each but deal k out among them: at a time t of the launch, counted in steps, those that are at work
 * at the tile take the next steps, one each, and all tiles' clusters walk along k side by side.  With `between` ranges
 * in the middle, the last range at work until `early` and the first one from `late` on, the steps before time t are
 *
 *     between * t + min(t, early) + max(0, t - late)
 *
 * Speeds differ, as a tile may have two clusters at a time or three: in the example by 26 steps of k at most, 10 MB of
 * operands, which L2 holds.
 */
#ifndef HS_KERNELS_CUDA_PRODUCT_MATMUL_HOPPER_WORK_CUH
#define HS_KERNELS_CUDA_PRODUCT_MATMUL_HOPPER_WORK_CUH

#include <limits.h>

#include "kernels/cuda/product/matmul.cuh"
#include "kernels/cuda/toolbox/ptx_mbarrier.cuh"
#include "kernels/cuda/toolbox/ptx_tensor_copy.cuh"

namespace HS_CUDA_NAMESPACE
{

enum {
    HOPPER_STEP = 64, /* of k: lines of 128 bytes */
    HOPPER_CLUSTER = 2,
    /* Counters of a tile's turns: a warp of each block of 16 rows, then a summing warp of each 64 rows. */
    HOPPER_ROW_TURNS = 16,
    HOPPER_TURNS = 32
};

struct HopperDeal {
    int depth, slice_depth;              /* k, and of one slice: a multiple of HOPPER_STEP */
    int row_pairs, column_tiles, slices; /* clusters' rows of tiles */
    int columns;                         /* from a tile's first column of op(b) to the next tile's */
    int range;                           /* steps of a cluster's range; 0: no tiles are joint */
    unsigned *turns; /* [clusters, HOPPER_TURNS], and a counter of clusters; zeros between launches */
};

struct HopperWork {
    MatmulTilePosition position; /* row: of a pair of tiles */
    int slice, steps;
    int turn, last_turn;             /* of a joint tile's parts */
    int counters;                    /* which: the tile's first range */
    int begin, between, early, late; /* where step 0 is in time, and which other ranges are at work */

    __device__ __forceinline__ int k_of(int step) const
    {
        const int time = begin + step;
        const int before = between * time + min(time, early) + max(0, time - late);
        return (before + (turn == 0 ? 0 : turn - 1 + (time < early ? 1 : 0))) * HOPPER_STEP;
    }
};

HS_DEVICE int hopper_clusters()
{
    return (int)gridDim.x / HOPPER_CLUSTER;
}

HS_DEVICE int hopper_tiles(const HopperDeal &deal)
{
    return deal.row_pairs * deal.column_tiles;
}

HS_DEVICE int hopper_tile_steps(const HopperDeal &deal)
{
    return (deal.depth + HOPPER_STEP - 1) / HOPPER_STEP;
}

/* The order of tile_of_block: groups of eight rows of pairs of tiles, column by column.
 *
 * Is that order good?  With tiles of 256 columns, the H200's 66 clusters work on 8 rows and 8.25 columns of 256 x 256
 * tiles at once.  They need 16.25 * 256 rows and columns of operands; no patch of 66 tiles needs fewer (2 sqrt(66) =
 * 16.25).  They advance along k side by side, so that L2 (50 MB) has to hold only what they are at, and each line comes
 * from HBM once a wave.  Predicted traffic with HBM, bf16:
 *     8192^3                      15.5 waves of 68 MB and c, 134 MB: 1.2 GB; in the 1.4 ms that the product takes at
 *                                 800 TFLOP/s, HBM could move 6.6 GB
 *     32768 x 768..3072, k 768    a group's rows of A (3 MB) and all of B (1 to 5 MB) stay in L2: A, B and c once,
 *                                 50 + 1 + 50 to 50 + 5 + 201 MB, which is the least possible
 *     32768 x 768, k 3072         likewise (13 + 5 MB in L2): 201 + 5 + 50 MB
 *     32768 x 50304, k 768        B (77 MB) once for each of 16 groups: 1.2 GB besides c's 3.3 GB.  Higher groups would
 *                                 save 0.9 GB of 4.6, but in 3.2 ms HBM could move 15 GB
 * Tiles of 128 columns: 8 x 8.25 tiles of 256 x 128 need 3104 rows and columns, the best patch 2941.  Other orders have
 * nothing to win. */
HS_DEVICE HopperWork whole_tile(const HopperDeal &deal, int index)
{
    const int tiles = hopper_tiles(deal);
    HopperWork work = {};
    work.slice = index / tiles;
    work.position = tile_of_block(index % tiles, deal.row_pairs, deal.column_tiles);
    const int k_begin = work.slice * deal.slice_depth, k_end = min(deal.depth, k_begin + deal.slice_depth);
    work.steps = (k_end - k_begin + HOPPER_STEP - 1) / HOPPER_STEP;
    work.begin = k_begin / HOPPER_STEP;
    work.early = work.late = INT_MAX;
    return work;
}

/* The steps of a range, in all joint tiles' steps. */
struct HopperRange {
    int begin, end;
};

HS_DEVICE HopperRange hopper_range(const HopperDeal &deal, int number)
{
    const int clusters = hopper_clusters(), all = hopper_tiles(deal) % clusters * hopper_tile_steps(deal);
    const int begin = min(all, (clusters - 1 - number) * deal.range);
    return { begin, min(all, begin + deal.range) };
}

/* The part of a range in the i-th of its tiles. */
HS_DEVICE HopperWork joint_tile(const HopperDeal &deal, int number, int i)
{
    const int clusters = hopper_clusters(), tiles = hopper_tiles(deal), steps = hopper_tile_steps(deal);
    const HopperRange range = hopper_range(deal, number);
    const int tile = range.begin / steps + i, begin = tile * steps, end = begin + steps;
    const int first = begin / deal.range, last = (end - 1) / deal.range;
    HopperWork work = {};
    work.position = tile_of_block(tiles / clusters * clusters + tile, deal.row_pairs, deal.column_tiles);
    work.steps = min(range.end, end) - max(range.begin, begin);
    work.turn = last - range.begin / deal.range;
    work.last_turn = last - first;
    work.counters = first;
    work.early = work.late = INT_MAX;
    if (first == last)
        return work;
    work.between = work.last_turn - 1;
    work.early = end - last * deal.range;
    work.late = begin - first * deal.range;
    work.begin = work.turn == work.last_turn ? work.late : 0;
    return work;
}

/* How many tiles, or parts of them, a cluster has. */
HS_DEVICE int hopper_count(const HopperDeal &deal, int number)
{
    const int clusters = hopper_clusters(), tiles = hopper_tiles(deal);
    if (deal.range == 0)
        return (tiles * deal.slices - number + clusters - 1) / clusters;
    const int steps = hopper_tile_steps(deal);
    const HopperRange range = hopper_range(deal, number);
    const int parts = range.begin == range.end ? 0 : (range.end - 1) / steps - range.begin / steps + 1;
    return tiles / clusters + parts;
}

HS_DEVICE HopperWork hopper_work(const HopperDeal &deal, int number, int i)
{
    const int clusters = hopper_clusters();
    if (deal.range == 0 || i < hopper_tiles(deal) / clusters)
        return whole_tile(deal, number + i * clusters);
    return joint_tile(deal, number, i - hopper_tiles(deal) / clusters);
}

/* Gives a cluster with joint tiles its number, by all of its threads.  place: a word of shared memory, the same in both
 * blocks. */
HS_DEVICE void hopper_draw_number(const HopperDeal &deal, unsigned char *place, int rank)
{
    if (deal.range == 0)
        return;
    if (rank == 0 && threadIdx.x == 0) {
        const unsigned clusters = (unsigned)hopper_clusters();
        const unsigned number = atomicInc(deal.turns + clusters * HOPPER_TURNS, clusters - 1); /* 0 after the last */
        for (int block = 0; block < HOPPER_CLUSTER; block++)
            ptx::store_shared_cluster(ptx::map_shared(ptx::shared_address(place), block), number);
    }
    ptx::cluster_sync();
}

HS_DEVICE int hopper_number(const HopperDeal &deal, const unsigned char *place)
{
    return deal.range == 0 ? (int)blockIdx.x / HOPPER_CLUSTER : *reinterpret_cast<const volatile int *>(place);
}

/* A warp's turn in a joint tile. */
struct HopperTurn {
    unsigned *counter;
    int turn, last;

    /* Until what comes before is in memory, for this warp's copies (of its lane 0) and accesses. */
    __device__ __forceinline__ void wait(int lane) const
    {
        if (last == 0)
            return;
        if (lane == 0) {
            while (ptx::load_acquire(counter) != (unsigned)turn) {
            }
            ptx::fence_global_to_async();
        }
        __syncwarp();
    }

    /* After this warp's accesses, and lane 0's copies, which are waited for. */
    __device__ __forceinline__ void pass(int lane) const
    {
        if (last == 0 || lane != 0)
            return;
        ptx::store_tile_wait_written<0>();
        ptx::store_release(counter, turn == last ? 0 : (unsigned)turn + 1);
    }
};

/* which: of the tile's counters, as HOPPER_ROW_TURNS says. */
HS_DEVICE HopperTurn hopper_turn(const HopperDeal &deal, const HopperWork &work, int which)
{
    return { deal.turns + work.counters * HOPPER_TURNS + which, work.turn, work.last_turn };
}

} // namespace HS_CUDA_NAMESPACE

#endif
