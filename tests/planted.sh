#!/bin/bash
# SPDX-License-Identifier: MIT
# planted.sh [PATTERN|texts]: mistakes put into the kernels themselves, Hopper's most of all, one at a time, each of which the emulator has to find by
# wrong results, a report, or a wait without end.  tests/emu plants the same kinds into small kernels in every test run;
# this asks whether the real ones are covered.  With PATTERN, only those with a name that matches it (a regular
# expression).  About 25 minutes: `make test-planted`, which passes the tools and PLANTED as the pattern.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
. tests/plant.sh
build=${BUILD:-build} pattern=${texts:+.} failures=0 count=0
pattern=${pattern:-${1:-}}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Orders of events: seed, schedule, copies, host threads.
settings=('1 pct late 1' '2 random late 1' '3 pct early 2' '4 random late 2' '5 pct late 2' '6 random late 1')

# Programs that find mistakes: the self-test of an operation, or of products by each of Hopper's tiles, or exact sums of
# code products, or the agreement of products or attention where blocks go round.  Copies use the emulator next to them.
[ -n "$texts" ] || cp "$build/trainer" "$build/tests/room/ops" "$build/bench/agreement" "$work" || exit 2

# How long a program of `op` may take: ten times what it takes without a mistake, so that a busy machine is no finding.
declare -A limits
allow_time() {
    local began=$SECONDS
    [ -z "${limits[$op$card]:-}" ] || return 0
    cp "$build/libhalfstep-emu.so" "$work/"
    "${program[@]}" >"$work/said" 2>&1 || { echo "FAIL  $op: without a mistake: $(tail -n 1 "$work/said")"; failures=$((failures + 1)); }
    limits[$op$card]=$((10 * (SECONDS - began) > 120 ? 10 * (SECONDS - began) : 120))
}

# link: the emulator, with $work/planted.o in the place of the source's object; `program` is what asks it.
link() {
    local object objects=()
    # shellcheck disable=SC2153
    for object in $OBJECTS; do
        [ "$object" = "$source" ] || objects+=("$object")
    done
    if [ "$op" = tiles ]; then
        program=("$work/ops" --filter 'matmul_tiles/hopper*')
    elif [ "$op" = codes ]; then
        program=("$work/ops" --filter 'fp8_products/*')
    elif [ "$op" = casts ]; then
        program=(env HALFSTEP_EMU_SHARED=99 "$work/trainer" selftest --device emu --no-speed --op matmul --match 'cast to'
            --force-tile mma-fp8-128x128)
    elif [ "$op" = agreement ]; then
        program=("$work/agreement" --device emu --tiny products)
    elif [ "$op" = unordered ]; then
        program=("$work/ops" --filter 'unordered/*')
    elif [ "$op" = agreement_gates ]; then
        program=("$work/agreement" --device emu --tiny 'products:*GLU*')
    elif [ "$op" = agreement_codes ]; then
        program=("$work/agreement" --device emu --tiny codes)
    elif [ "$op" = agreement_attention ]; then
        program=("$work/agreement" --device emu --tiny attention)
    elif [ "$op" = tiles_joint ]; then
        program=("$work/ops" --filter 'matmul_tiles/hopper_joint_wide')
    elif [ "$op" = joint_bits ]; then
        program=("$work/ops" --filter 'matmul_tiles/joint*')
    elif [ "$op" = agreement_joint ]; then
        program=(env HALFSTEP_MULTIPROCESSORS=10 "$work/agreement" --device emu --tiny products:plain)
    else
        program=(env HALFSTEP_EMU_SHARED=$card "$work/trainer" selftest --device emu --no-speed --op "$op")
    fi
    allow_time
    # shellcheck disable=SC2086
    $CXX $LDFLAGS -shared -Wl,-soname,libhalfstep-emu.so -o "$work/libhalfstep-emu.so" "$work/planted.o" "${objects[@]}"
}

# plant NAME UNIT FILE OLD NEW: in FILE, OLD becomes NEW; UNIT is the source that is compiled with it.
plant() {
    local name=$1 unit file setting program seed schedule copies threads
    unit=$(find kernels/cuda -name "$2") file=$(find kernels/cuda -name "$3")
    [[ $name =~ $pattern ]] || return 0
    count=$((count + 1))
    source=$build/obj/${unit%.cu}.emu.o
    rm -rf "${work:?}/kernels"
    mkdir -p "$work/$(dirname "$unit")" "$work/$(dirname "$file")"
    # Found before the tree's own.
    cp "$unit" "$work/$unit"
    if ! exchange "$file" "$4" "$5" "$work/changed"; then
        echo "FAIL  $name: $file does not hold what is to be changed"
        failures=$((failures + 1))
        return
    fi
    [ -z "$texts" ] || return 0
    mv "$work/changed" "$work/$file"
    # shellcheck disable=SC2086
    if ! $CXX -I"$work" $CXXFLAGS -x c++ -c -o "$work/planted.o" "$work/$unit" 2>"$work/errors" ||
        ! link 2>"$work/errors"; then
        echo "FAIL  $name: does not compile: $(grep -m 1 error "$work/errors")"
        failures=$((failures + 1))
        return
    fi
    for setting in "${settings[@]}"; do
        read -r seed schedule copies threads <<<"$setting"
        # In braces: what the shell says of a program that aborts goes nowhere.
        if ! { HALFSTEP_EMU_SEED=$seed HALFSTEP_EMU_SCHEDULE=$schedule HALFSTEP_EMU_COPIES=$copies \
            HALFSTEP_EMU_THREADS=$threads timeout "${limits[$op$card]}" "${program[@]}" >"$work/said" 2>&1; } 2>/dev/null; then
            echo "ok    $name (seed $seed, $schedule, copies $copies, threads $threads)"
            return
        fi
    done
    echo "FAIL  $name: not found"
    failures=$((failures + 1))
}

card=227 # KiB of shared memory a block, by which the emulator is one GPU or another
op=attention_backward unit=attention_backward_hopper.cu
plant 'backward: a turn is given before the part is in memory' $unit $unit 'ptx::store_tile_wait_written<0>();' ''
plant 'backward: a turn is not waited for' $unit $unit 'ptx::load_acquire(parameters.turns + index) != before' 'before == ~0u'
plant 'backward: late heads take turns as early ones do' $unit $unit 'late ? key_block : tile' 'tile'
plant 'backward: early heads take turns as late ones do' $unit $unit \
    '(late ? key_block : tile * Shape::step / GRADIENT_KEYS - key_block)' 'key_block'
op=unordered
plant 'unordered: the first part is not waited for' $unit $unit 'ptx::load_acquire(parameters.turns + index) != before' \
    'turn > 0 ? false : ptx::load_acquire(parameters.turns + index) != before'
plant 'unordered: each part is stored' $unit $unit 'if (turn == 0)' 'if (turn == 0 || parameters.unordered)'
plant 'unordered: the first turn is not given' $unit $unit 'parameters.unordered && turn > 0' 'parameters.unordered'
op=attention_backward
plant 'backward: begins with the kernel before' $unit $unit 'begin_after_kernel_before();' ''
plant 'backward: parts are written over others on their way' $unit $unit \
    'wait_empty<1>(base + Shape::parts_empty, sent);' ''
plant 'backward: a stage is read before it is full' $unit $unit \
    'wait_full<GRADIENT_STAGES>(base + Shape::full, count.steps);' ''
plant 'backward: the wrong parity' $unit $unit 'wait_empty<GRADIENT_STAGES>(base + Shape::empty, step);' \
    'wait_empty<GRADIENT_STAGES>(base + Shape::empty, step + GRADIENT_STAGES);'
plant 'backward: dS is read before all have written it' $unit $unit \
    'wait_full<GRADIENT_BUFFERS>(base + Shape::scores_full, step);' ''
plant 'backward: dS is written while it is read' $unit $unit \
    'wait_empty<GRADIENT_BUFFERS>(base + Shape::scores_empty, count.steps);' ''
plant 'backward: dQ from dS of this step' $unit $unit 'stage_of<GRADIENT_BUFFERS>(step) * Shape::score_bytes' \
    'stage_of<GRADIENT_BUFFERS>(step + 1) * Shape::score_bytes'
plant 'backward: another swizzle of dS' $unit $unit '(2 * k + i / 2) % 8 ^ g' '(2 * k + i / 2) % 8 ^ g / 2'
plant 'backward: the wrong transpose bit' $unit $unit 'ptx::wgmma<T, true, true>(part' 'ptx::wgmma<T, false, true>(part'
plant 'backward: dV before P is rounded' $unit $unit \
    $'round_kept<T, drops>(kept[part], probability + 32 * part);\n        ptx::wgmma_fence();\n        begin_weights<T, HeadTile<Shape::width, 64>>(dvalue, kept[part], douts + part * 64 * HEAD_LINE, true);\n        ptx::wgmma_commit();' \
    'ptx::wgmma_fence(); begin_weights<T, HeadTile<Shape::width, 64>>(dvalue, kept[part], douts + part * 64 * HEAD_LINE, true); ptx::wgmma_commit(); round_kept<T, drops>(kept[part], probability + 32 * part);'
plant 'backward: a stage is released before its products are done' $unit $unit \
    $'ptx::wgmma_wait<0>();\n    ptx::wgmma_settle(dkey);\n    ptx::wgmma_settle(dvalue);\n    arrive_warp(mbarrier_of<GRADIENT_STAGES>(base + Shape::empty, count.steps));' \
    'arrive_warp(mbarrier_of<GRADIENT_STAGES>(base + Shape::empty, count.steps)); ptx::wgmma_wait<0>(); ptx::wgmma_settle(dkey); ptx::wgmma_settle(dvalue);'
plant 'backward: no wait for dP' $unit $unit 'ptx::wgmma_wait<1>(); /* for dP^T */' ''
plant 'backward: keys are never released' $unit $unit \
    'arrive_warp(mbarrier_of<GRADIENT_BUFFERS>(base + Shape::keys_empty, count.tickets));' ''

# Blocks of three tickets and more, which go round the buffers of keys and values.
op=agreement_attention
plant 'backward, next ticket: its keys over those that are read' $unit $unit \
    'wait_empty<GRADIENT_BUFFERS>(base + Shape::keys_empty, n);' ''
plant 'backward, next ticket: its values over those that are read' $unit $unit \
    'wait_empty<Shape::value_buffers>(base + Shape::values_empty, n);' ''
plant 'backward, next ticket: keys are released before dQ is done' $unit $unit \
    $'ptx::wgmma_wait<0>();\n        ptx::wgmma_settle(part);\n        arrive_warp(mbarrier_of<GRADIENT_BUFFERS>(base + Shape::keys_empty, count.tickets));' \
    'arrive_warp(mbarrier_of<GRADIENT_BUFFERS>(base + Shape::keys_empty, count.tickets)); ptx::wgmma_wait<0>(); ptx::wgmma_settle(part);'
plant 'backward, next ticket: values are not waited for' $unit $unit \
    'wait_full<Shape::value_buffers>(base + Shape::values_full, count.tickets);' ''
plant 'backward, next ticket: the values of the one before' $unit $unit \
    'stage_of<Shape::value_buffers>(count.tickets) * KeyTile::bytes, consumer' '0, consumer'
plant 'backward, next ticket: results over parts on their way' $unit $unit \
    $'wait_empty<1>(base + Shape::parts_empty, sent);\n    stage_results' 'stage_results'

op=attention_forward unit=attention_forward_hopper.cu
plant 'forward: values are read before they are there' $unit $unit 'rings.values.wait_full(use);' ''
plant 'forward: begins with the kernel before' $unit $unit 'begin_after_kernel_before();' ''
plant 'forward: keys are released before their product is done' $unit $unit \
    $'ptx::wgmma_wait<1>();\n            ptx::wgmma_settle(score);\n            rings.keys.release(use + 1);' \
    'rings.keys.release(use + 1); ptx::wgmma_wait<1>(); ptx::wgmma_settle(score);'
plant 'forward: scores are read before they are there' $unit $unit 'ptx::wgmma_wait<1>();' ''
plant 'forward: half of the keys on the diagonal for both' $unit $unit 'if (consumer == 0) {' 'if (consumer <= 1) {'
plant 'forward: what is left out on the diagonal has weight' $unit $unit 'score[i] = 0.0f;' 'score[i] = 1.0f;'
plant 'forward: the wrong parity' $unit $unit '(use / stages & 1) ^ 1' 'use / stages & 1'
plant 'forward: results are written over others on their way' $unit $unit \
    'ptx::store_tile_wait<0>(); /* the tile before has left */' '(void)0;'
plant 'forward: another swizzle of results' $unit attention_hopper_softmax.cuh '(n % 8 ^ row % 8)' '(n % 8)'
plant 'forward: no fence before results are stored' $unit $unit 'ptx::fence_shared_to_async();' ''

# The kernels for all GPUs, in the tiles of one with 100 KiB a multiprocessor.
card=99
plant 'forward, 100 KiB: the next keys over those that are read' attention_forward.cu attention_forward.cu \
    '__syncthreads(); /* this tile is there' '/* this tile is there'
op=attention_backward
for unit in attention_backward_query.cu attention_backward_key_value.cu; do
    plant "backward, 100 KiB: the next tile over one that is read ($unit)" $unit $unit \
        '__syncthreads(); /* this tile is there' '/* this tile is there'
done
card=227

# What later models ask of attention and of the stream.
op=attention_forward
plant 'rule: a window of one key more, forward' attention_forward.cu attention.cuh \
    'inside - attention.window + 1' 'inside - attention.window'
plant 'rule: a sink counts twice where it is the largest' attention_forward.cu attention.cuh 'maximum = larger;' ''
plant 'rule: the values of a row do not shrink for a sink' attention_forward_exact.cu attention_forward_exact.cu \
    'attention.dropout.factor * shrink / sum' 'attention.dropout.factor / sum'
op=attention_backward
plant 'rule: a window of one key more, backward' attention_backward_key_value.cu attention.cuh \
    'inside - attention.window + 1' 'inside - attention.window'
plant 'rule: dq of capped scores without the slope' attention_backward_query.cu attention_backward_query.cu \
    'probability[m][n][i] *= cap_slope_of_probability' '(void)cap_slope_of_probability'
plant 'rule: dk of capped scores without the slope' attention_backward_key_value.cu attention_backward_key_value.cu \
    'gradient[m][n][i] *= cap_slope_of_probability' '(void)cap_slope_of_probability'
op=cross_entropy
plant 'loss: the cap is left out of the gradient' cross_entropy.cu logit_cap.cuh '4.0f * e * share * share }' '1.0f }'
op=sink_backward
plant 'sinks: the last rows are left out' attention_sinks.cu attention_sinks.cu \
    'call.rows - first < ROWS_A_BLOCK ? call.rows : first + ROWS_A_BLOCK' 'first + ROWS_A_BLOCK / 2'

op=smear_forward
plant 'smear: the token before a document is mixed in' streams.cu streams.cu \
    'return (uint32_t)row % length == (starts ? (uint32_t)starts[row] : 0u);' 'return (uint32_t)row % length == 0;'
op=gate_backward
plant 'gates: the slope of a gate at its half' gates.cu gates.cu '(1.0f - gate * task.inverse_factor)' '0.5f'

op=tiles unit=matmul_hopper.cu header=matmul_hopper.cuh
plant 'product: a stage is read before it is full' $unit $header \
    $'ptx::mbarrier_wait(ring.full(place.stage), place.parity);\n            Multiply::issue' 'Multiply::issue'
plant 'product: a stage is filled before it is empty' $unit $header \
    $'ptx::mbarrier_wait(ring.empty(place.stage), place.parity ^ 1);\n            hopper_copy' 'hopper_copy'
plant 'product: a stage is released before its products are done' $unit $header \
    $'ptx::wgmma_wait<1>();\n            release(before);' $'release(before);\n            ptx::wgmma_wait<1>();'
plant 'product: the first consumer does not say that it is ahead' $unit $header \
    'ptx::barrier_arrive(HOPPER_LAG_BARRIER, 128 * HOPPER_CONSUMERS);' ''
plant 'product: the second waits in tiles of few steps' $unit $header 'work.steps >= Tile::stages' 'work.steps > 0'
plant 'product: further behind than the ring allows' $unit $header 'lag = stages_ / 2;' 'lag = stages_;'
plant 'product: the wrong transpose bit' $unit $header '!a_contiguous, !b_contiguous>' '!b_contiguous, !a_contiguous>'
plant 'product: begins with the kernel before' $unit $header 'begin_after_kernel_before();' ''
plant 'product: half of the bytes are expected' $unit $header 'arrive_expect(full, Tile::stage_bytes)' \
    'arrive_expect(full, Tile::stage_bytes / 2)'
plant 'product: sums are read before they are there' $unit $header \
    $'ptx::wgmma_wait<0>();\n        ptx::wgmma_settle(sums);' '(void)sums;'
plant 'product: no fence before sums are stored' $unit matmul_hopper_epilogue.cuh 'ptx::fence_shared_to_async();' ''
plant 'product: a buffer is written while it is stored' $unit matmul_hopper_epilogue.cuh 'ptx::store_tile_wait<1>();' '(void)0;'
plant 'row sums: a stage is read before it is full' $unit $header \
    $'ptx::mbarrier_wait(ring.full(place.stage), place.parity);\n            const unsigned char' 'const unsigned char'
plant 'row sums: no wait for those that read' $unit $header 'HOPPER_CLUSTER + more_readers' 'HOPPER_CLUSTER + 0 * more_readers'
plant 'row sums: another swizzle' $unit $header 'lane / 4 ^ k % 8;' 'lane / 4;'
plant 'row sums: a stage is released before all lanes have read' $unit $header \
    $'__syncwarp(); /* all lanes have read */\n            if' 'if'
plant 'row sums: all slices in one place' $unit $header '(int64_t)work.slice * output.rows + row' 'row'

op=agreement
plant 'epilogue: every second column of the bias' $unit matmul_hopper_epilogue.cuh 'bias.pairs[i / 4].value[i % 2]' \
    'bias.pairs[i / 4].value[0]'
plant 'epilogue: the bias of the part before' $unit matmul_hopper_epilogue.cuh \
    'bias.load(matmul, place.column + HopperStaging::columns);' 'bias.load(matmul, place.column);'
plant 'epilogue: GELU of what is not stored' $unit matmul_hopper_epilogue.cuh 'activate<f>(as_stored(pre, values[i]))' \
    'activate<f>(values[i])'
plant 'epilogue: pre is not stored' $unit matmul_hopper_epilogue.cuh \
    'store_part(output, staging, matmul.pre, &output.pre, values, false, place);' '(void)0;'
plant 'epilogue: sums are stored, not added' $unit matmul_hopper_epilogue.cuh 'matmul.accumulate || staging.adds()' \
    'staging.adds()'
plant 'epilogue: pairs change places' $unit matmul_hopper_epilogue.cuh \
    'pack_pair<T>(blocks[j * 4], blocks[j * 4 + 1])' 'pack_pair<T>(blocks[j * 4 + 1], blocks[j * 4])'
plant 'epilogue: odd lines of f32 as even ones' $unit matmul_hopper_epilogue.cuh 'blocks[(j ^ 2) * 4 + i]' 'blocks[j * 4 + i]'
plant 'epilogue: lines are read before all lanes have written' $unit matmul_hopper_epilogue.cuh \
    $'__syncwarp();\n        if (!copied)' 'if (!copied)'
plant 'epilogue: lines four to seven as the first' $unit matmul_hopper_epilogue.cuh 'from ^ i % 2 * 64' 'from'
plant 'epilogue: lines behind the last row' $unit matmul_hopper_epilogue.cuh 'if (i * step < rows)' 'if (rows > 0)'
plant 'epilogue: lines of pre by the lines of c' $unit matmul_hopper_epilogue.cuh \
    'static_cast<T *>(view.data)' 'static_cast<T *>(output.matmul.c.data)'
plant 'epilogue: all slices in one place' $unit matmul_hopper_epilogue.cuh \
    'ptx::store_tile(source, map, place.column, place.row, place.slice);' \
    'ptx::store_tile(source, map, place.column, place.row, 0);'
plant 'epilogue, direct: one part everywhere' $unit matmul_hopper_epilogue.cuh \
    $'place.row,\n            place.column + part * HopperStaging::columns);' $'place.row,\n            place.column);'
plant 'epilogue, direct: residual in the format of c' $unit matmul_epilogue.cuh \
    'added == 0 ? output.residual.dtype : output.c.dtype' 'output.c.dtype'
plant 'epilogue, direct: nothing is added in 16 bits' $unit matmul_epilogue.cuh 'added < 2;' 'added < 1;'
plant 'epilogue, direct: GELU for its derivative' $unit matmul_epilogue.cuh 'slope_of<f>(pre[g][i])' 'activate<f>(pre[g][i])'
plant 'epilogue, direct: rows of odd length' $unit matmul_epilogue.cuh \
    'MatmulPlace{ first_row + row, 1, first_column + column }' 'MatmulPlace{ first_row + row, 0, first_column + column }'
plant 'epilogue, slices: rows of odd length' $unit matmul_hopper_epilogue.cuh \
    'const int row = place.row + lane / 4 + i / 2 % 2 * 8;' 'const int row = place.row + lane / 4 + i / 2 % 2 * 4;'
plant 'slices: one is left out' matmul.cu matmul.cu 'for (int slice = 0; slice < slices; slice++)' \
    'for (int slice = 1; slice < slices; slice++)'
plant 'next tile: the ring begins anew' $unit $header \
    $'float sums[Tile::columns / 2];\n        products.run' \
    $'float sums[Tile::columns / 2];\n        place = RingPlace<Tile::stages>();\n        products.run'
plant 'next tile: a buffer that is still read' $unit $header \
    'Tile::line_bytes, wait_input, input_done);' 'Tile::line_bytes, wait_input, input_done), staging.next = 0;'
plant 'turns: a consumer does not wait for its turn' $unit $header \
    'ptx::barrier_sync(HOPPER_TURN_BARRIER + consumer, 128 * HOPPER_CONSUMERS);' '(void)0;'
plant 'turns: given before inputs are there' $unit $header 'ptx::mbarrier_wait(ring.full(ahead.stage), ahead.parity);' '(void)0;'
plant 'turns: from the place of the tile before' $unit $header 'place.skip(work.steps + inputs);' '(void)0;'
plant 'turns: inputs of the other tile are forgotten' $unit $header 'place.skip(work.steps + inputs);' 'place.skip(work.steps);'
plant 'turns: both consumers are waited for' $unit $header '4 * Tile::readers' '4 * HOPPER_CONSUMERS'
plant 'turns: the same consumer for each tile' $unit $header 'item % 2 != consumer' 'consumer == 1'
plant 'turns: rounds are not counted' $unit ptx_mbarrier.cuh 'parity ^= (unsigned)rounds & 1;' ''
plant 'inputs: read before they are there' $unit $header \
    $'ptx::mbarrier_wait(ring.full(place.stage), place.parity);\n        return' 'return'
plant 'inputs: over a stage that is still read' $unit $header \
    $'ptx::mbarrier_wait(ring.empty(place.stage), place.parity ^ 1);\n            ptx::mbarrier_arrive_expect' \
    'ptx::mbarrier_arrive_expect'
plant 'inputs: released before all lanes have read' $unit $header \
    $'__syncwarp(); /* all lanes have read */\n        release' 'release'
plant 'inputs: never released' $unit $header $'release(place.stage);\n        place.next();' 'place.next();'
plant 'inputs: released after each part' $unit matmul_hopper_epilogue.cuh \
    'if (behind == output.stage_parts - 1 || part == parts - 1)' ''
plant 'inputs: one part everywhere' $unit matmul_hopper_epilogue.cuh 'wait() + behind * part_lines * next' 'wait()'
plant 'inputs: rows of the first consumer' $unit $header '% (Tile::rows / 16) * HopperStaging::rows' \
    '% 4 * HopperStaging::rows'
plant 'inputs: odd lines of f32 as even ones' $unit matmul_hopper_epilogue.cuh 'odd ? found[i ^ 8] : found[i]' 'found[i]'
plant 'inputs: halves of 16 bits change places' $unit matmul_hopper_epilogue.cuh '((half * 4 + j) * 16)' \
    '(((half ^ 1) * 4 + j) * 16)'
plant 'inputs: c by the derivative too' $unit matmul_hopper_epilogue.cuh 'input == 0 && hs_epilogue' 'hs_epilogue'
plant 'inputs: several with more than a part each' $unit matmul_hopper_launch.cuh 'output->input_count > 0 ? 1 : lines' 'lines'
op=agreement_gates
plant 'gates: the second half behind the first' $unit matmul_hopper_launch.cuh \
    'gates ? given.output.columns / 2 : tile_columns / HOPPER_CLUSTER;' 'tile_columns / HOPPER_CLUSTER;'
plant 'gates: tiles as far apart as without' $unit matmul_hopper_launch.cuh \
    'deal->columns = gates ? tile_columns / 2 : tile_columns;' 'deal->columns = tile_columns;'
plant 'gates: of what is not stored' $unit matmul_hopper_epilogue.cuh 'activate<f>(rounded<T>(gate[i]))' 'activate<f>(gate[i])'
plant 'gates: columns behind the last feature' $unit matmul_hopper_epilogue.cuh \
    'all = { matmul.rows, features, features };' 'all = { matmul.rows, 2 * features, features };'
plant "gates: the other half's bias" $unit matmul_hopper_epilogue.cuh \
    'bias.load(matmul, features + place.column);' 'bias.load(matmul, place.column);'
plant 'gates: the halves of pre change places' $unit matmul_hopper_launch.cuh \
    'given.columns * (int64_t)hs_dtype_bytes(half.dtype);' '0;'
plant "gates: the gradient's parts change places" $unit matmul_hopper_epilogue.cuh \
    'store_lines(half, c + features, buffer, place);' 'store_lines(half, c, buffer, place);'
plant 'gates: of a value that is not rounded' $unit matmul_hopper_epilogue.cuh \
    'const float value = rounded<T>(values[first * 16 + i]);' 'const float value = values[first * 16 + i];'
plant 'gates: a part is stored before all lanes have written' $unit matmul_hopper_epilogue.cuh \
    $'stage_blocks(T{}, buffer, values);\n    __syncwarp();' 'stage_blocks(T{}, buffer, values);'
unit=matmul_bf16.cu
plant 'gates, mma.sync: linear halves a feature early' $unit matmul_shared.cuh 'turn % 2 * features' 'turn % 2 * (features - 1)'
plant 'gates, mma.sync: passes as far apart as without' $unit matmul_shared.cuh 'gate > 0 ? pass_rows / 2 : pass_rows' 'pass_rows'
plant 'gates, mma.sync: the first turn everywhere' $unit matmul_epilogue.cuh \
    'offset / half * (2 * half) + offset % half' 'offset % half'
plant 'gates, mma.sync: of what is not stored' $unit matmul_epilogue.cuh 'activate<f>(to_float(gate.value[i]))' \
    'activate<f>(gates.value[i])'
plant "gates, mma.sync: the other half's bias" $unit matmul_epilogue.cuh 'output.bias + features + feature' 'output.bias + feature'
plant 'gates, mma.sync: of a value that is not rounded' $unit matmul_epilogue.cuh 'rounded<T>(sums.value[i])' 'sums.value[i]'
plant 'gates, mma.sync: one row for all' $unit matmul_epilogue.cuh 'pre + at + g * stride + features' 'pre + at + features'
unit=matmul_hopper.cu

work_header=matmul_hopper_work.cuh
op=agreement_joint
plant 'joint: a turn is not waited for' $unit $work_header 'ptx::load_acquire(counter) != (unsigned)turn' 'false'
plant 'joint: a turn is given before the part is in memory' $unit $work_header 'ptx::store_tile_wait_written<0>();' ''
plant 'joint: parts are stored, not added' $unit matmul_hopper_epilogue.cuh 'matmul.accumulate || staging.adds()' \
    'matmul.accumulate'
plant 'joint: turns are left as they are' $unit $work_header 'turn == last ? 0 : (unsigned)turn + 1' '(unsigned)turn + 1'
plant 'joint: clusters are counted on and on' $unit $work_header 'clusters - 1); /* 0' '~0u); /* 0'
plant 'joint: numbers by place, not as clusters begin' $unit $work_header \
    '(int)blockIdx.x / HOPPER_CLUSTER : *reinterpret_cast<const volatile int *>(place)' \
    '(int)blockIdx.x / HOPPER_CLUSTER : hopper_clusters() - 1 - (int)blockIdx.x / HOPPER_CLUSTER'
plant 'joint: a block does not learn the number' $unit $work_header 'ptx::map_shared(ptx::shared_address(place), block)' \
    'ptx::shared_address(place)'
plant 'joint: the first range is early' $unit $work_header 'work.turn == work.last_turn ? work.late : 0' '0'
plant 'joint: the last range is not counted' $unit $work_header 'turn - 1 + (time < early ? 1 : 0)' 'turn - 1'
plant 'joint: one turn for all warps' $unit $header 'rank * (Tile::rows / 16) + box * 4 + warp' '0'
plant 'joint: the turns of another tile' $unit $work_header 'work.counters = first;' 'work.counters = 0;'
op=tiles_joint
plant 'joint: row sums take the turns of sums' $unit $header 'HOPPER_ROW_TURNS + rank' 'rank'
plant 'joint: row sums are never passed on' $unit $header 'turn.pass(lane);' ''
op=joint_bits
plant 'joint: parts are added as they come' $unit $work_header 'ptx::load_acquire(counter) != (unsigned)turn' \
    'turn > 0 && ptx::load_acquire(counter) == 0'

op=codes unit=matmul_fp8_hopper.cu header=matmul_fp8_hopper.cuh
plant 'codes: a part is added before it is there' $unit $header $'ptx::wgmma_wait<0>();\n            ptx::wgmma_settle(part);' ''
plant 'codes: a stage is released before its part is there' $unit $header \
    $'ptx::wgmma_wait<0>();\n            ptx::wgmma_settle(part);\n            if (!blocks)\n                release(place.stage);' \
    $'if (!blocks)\n                release(place.stage);\n            ptx::wgmma_wait<0>();\n            ptx::wgmma_settle(part);'
plant 'codes: a stage is released before all lanes have read its scales' $unit $header \
    '__syncwarp(); /* all lanes have read the scales */' ''
plant 'codes: scales over those that are read' $unit $header \
    $'ptx::mbarrier_wait(ring.empty(place.stage), place.parity ^ 1);\n            float' 'float'
plant 'codes: a stage is full without its scales' $unit $header \
    $'__syncwarp(); /* all lanes have written */\n            if (lane == 0)\n                ptx::mbarrier_arrive(ring.full(place.stage));' \
    $'__syncwarp();'
plant 'codes: scales of other rows' $unit $header 'upper = rows[0], lower = rows[8]' 'upper = rows[8], lower = rows[0]'
plant 'codes: scales of another block' $unit $header 'work.k_of(step) / HOPPER_STEP' 'work.k_of(step) / HOPPER_STEP / 2'
plant 'codes: the scales of a for b' $unit $header 'of_a ? parameters.scales.a_blocks : parameters.scales.b_blocks' \
    'parameters.scales.a_blocks'
plant 'codes: no scale of b' $unit matmul_fp8.cuh 'HS_SCALING_FACTOR(scales.a) * HS_SCALING_FACTOR(scales.b)' \
    'HS_SCALING_FACTOR(scales.a)'
op=agreement_codes
plant 'codes, going round: the scales of the first tile' $unit $header 'hopper_work(product.deal, number(), item);' \
    'hopper_work(product.deal, number(), 0);'
op=codes unit=matmul_fp8.cu
plant 'codes, mma: promoted every 512 of k' $unit $unit 'step % PART_STEPS == PART_STEPS - 1' \
    'step % (4 * PART_STEPS) == 4 * PART_STEPS - 1'
plant 'codes, mma: all products are summed straight' $unit $unit 'sum != FP8_STRAIGHT &&' 'false &&'
plant 'codes, mma: columns of b change places' $unit $unit 'b[j / 2][j % 2 * 2]' 'b[j / 2][(j ^ 1) % 2 * 2]'
plant 'codes, mma: every slice has the scales of the first' $unit $unit 'k_begin / FP8_PART_PAIRS + step' 'step'
plant 'codes across: the other column' $unit $unit 'EVEN = 0x6420, ODD = 0x7531' 'EVEN = 0x7531, ODD = 0x6420'
plant 'codes across: k in another order than along' $unit $unit 'r / 2 * 4 + i % 2 * 2 + r % 2' 'i % 2 * 8 + r'
plant 'codes across: the registers of a for b' $unit $unit 'is_a ? half * 2 + 1 : half + 2' 'half * 2 + 1'
plant 'codes across: half of k' $unit $unit 'k_begin * AccessB::elements, k_end * AccessB::elements' \
    'k_begin * AccessB::elements, k_end'
plant 'codes across: rows of c as along' $unit matmul_kernel.cuh 'row = rows_turned ? 2 : 1, half_row = rows_turned ? 1 : 8' \
    'row = 1, half_row = 8'
plant 'codes across: columns of c as along' $unit matmul_kernel.cuh 'lane % 4 * (columns_turned ? 4 : 2)' 'lane % 4 * 2'
op=casts
plant 'casts: of numbers before they are rounded' $unit cast.cuh \
    'rounded<Bf16>(values[i]), rounded<Bf16>(values[i + 1])' 'values[i], values[i + 1]'
plant 'casts: by the scale of the cast before' $unit $unit 'cast.scaling->kept' 'cast.scaling->scale'
plant 'casts: the format of values for gradients' $unit $unit 'CastTo<cast_format<order>>' 'CastTo<HS_E4M3>'
plant 'casts: the half of the gate twice' $unit matmul_epilogue.cuh 'cast.store(at + g * stride + features, up)' \
    'cast.store(at + g * stride + features, gate)'
plant 'casts: nothing is counted' $unit cast.cuh 'count_pair<format>(x, low, high, pair, *counts);' ''
plant 'casts: the factor of the cast before' $unit cast.cuh 'out.scaling->inverse = 1.0f / out.scaling->kept;' ''
plant 'casts: no largest magnitude' matmul.cu amax.cuh '&cast.scaling->amax' '&cast.scaling->scale'
card=99 op=norm_forward unit=norm.cu
plant 'casts, norm: the sum is read, not made' $unit $unit 'make_row<one_warp>(task, row, columns, x);' \
    'read_row<one_warp>(task, row, columns, x);'
plant 'casts, norm: by the scale of the cast before' $unit $unit 'cast.scaling->kept' 'cast.scaling->scale'
plant 'casts, norm: all elements for each row of a block' $unit cast.cuh ' || threadIdx.y != 0' ''
plant 'casts, norm: half of a wide pack' $unit cast.cuh 'words.value[i / 4] |=' 'words.value[0] |='
op=norm_backward unit=norm_backward.cu
plant 'casts, norm backward: by the scale of the cast before' $unit $unit 'task.extra.cast.scaling->kept' \
    'task.extra.cast.scaling->scale'
plant 'casts, norm backward: nothing is recorded' $unit $unit 'leave_cast(task.extra.cast, counts);' '(void)counts;'
plant 'casts, norm backward: values for gradients' $unit $unit 'CastTo<HS_E5M2>' 'CastTo<HS_E4M3>'

# Largest magnitudes of what is stored.
card=227 op=matmul epilogue=matmul_hopper_epilogue.cuh
for unit in matmul_hopper.cu matmul_fp8_hopper.cu; do
    plant "amax, $unit: the lower rows are not looked at" $unit $epilogue '(i < 2 ? upper : lower))' \
        '(i < 2 ? upper : lower && output.rows < 0))'
    plant "amax, $unit: one part of a tile alone" $unit $epilogue 'if (matmul.amax.to != NULL)' \
        'if (matmul.amax.to != NULL && part == 0)'
done
plant 'amax: before it is rounded' matmul.cu amax.cuh 'if (dtype == HS_F32)' 'if (dtype != HS_I32)'
plant 'amax: of the first four rows' matmul.cu matmul_epilogue.cuh 'if (place.inside(output, g))
            most' 'if (g == 0 && place.inside(output, g))
            most'
op=norm_forward
plant 'amax, norm: of the first pack' norm.cu norm.cu 'most = largest_of(y, most);' 'most = column < width * WARP_SIZE ? largest_of(y, most) : most;'
op=norm_backward
plant 'amax, norm backward: of dx, not of what is masked' norm_backward.cu norm_backward.cu 'largest_of(masked, most)' 'largest_of(dx, most)'
op=attention_forward
plant 'amax, attention: the upper rows alone' attention_forward_hopper.cu attention_hopper_softmax.cuh \
    'if (row + 8 * half < rows)' 'if (half == 0 && row < rows)'
op=attention_backward
plant 'amax, attention: not of dV' attention_backward_hopper.cu attention_backward_hopper.cu \
    'leave_amax_of_results<T, Result>(attention.amax, mine, row, rows);' ''
op=rope
plant 'amax, rope: not of the values' rope.cu rope.cu 'if (task.amax.to)' 'if (task.amax.to && head < task.rotated_heads)'

echo "$count planted, $failures failures"
[ $failures -eq 0 ]
