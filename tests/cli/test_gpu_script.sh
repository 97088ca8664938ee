#!/bin/bash
# SPDX-License-Identifier: MIT
# bench/gpu.sh from its package, in an empty folder, on the emulator: every kind of phase, tools that a machine may lack
# played by scripts, the limit of size, the number of files.  make test-gpu-script runs the three calls whole.
. "$(dirname "$0")/lib.sh"
build=$(dirname "$trainer")

expect 0 "$root/bench/package/make.sh" "$build" "$scratch/package"
if ! ldd "$build/halfstep-gpu" | grep -qE 'lib(asan|ubsan)'; then
    [ "$(du -sm package | cut -f 1)" -le 54 ] || fail "the package has $(du -sm package | cut -f 1) MiB, more than 54"
fi

# fits SIZE: GPT-2 124M's batch on a card of that size, by the plan: nothing is allocated.
fits() (
    device=emu layers=12 width=768 heads=12 vocabulary=50304 length=1024 batch=32 card_memory=$1 torch_missing=${2:-} work=$scratch
    limited() { shift && "$@"; }
    tool() { tool=("$trainer"); }
    . "$root/bench/gpu/speed.sh"
    fit_batch
    echo "$batch"
)
for case in '20GiB none 32' '12GiB none 16' '8GiB none 8' '12GiB peer 4' '1GiB none 1'; do
    read -r size peer expected <<<"$case"
    got=$(fits "$size" "${peer/peer/}")
    [ "$got" = "$expected" ] || fail "GPT-2 on $size ($peer): a batch of $got, expected $expected"
done

# Stand-ins: they run what they are asked to watch, and print what the real ones would.
mkdir tools
cat >tools/compute-sanitizer <<'SH'
#!/bin/bash
tool=$2
while [ "$1" != env ]; do shift; done
case "$tool $*" in synccheck*attention) echo "========= Error: Race reported between Write and Read"; exit 9 ;; esac
echo "========= COMPUTE-SANITIZER"
echo "========= ERROR SUMMARY: 0 errors"
SH
cat >tools/nvidia-smi <<'SH'
#!/bin/bash
case "$*" in
*-lms*)
    while :; do
        printf '1755, 640.50, 99, 0x0000000000000004\n1980, 500.00, 98, 0x0000000000000000\n345, 80.00, 0, 0x0000000000000001\n'
        sleep 0.1
    done
    ;;
*memory.total,*) printf 'name, clocks\nSTAND-IN, 345 MHz\n' ;;
*memory.total*) echo 81559 ;;
*) echo STAND-IN ;;
esac
SH
cat >tools/ncu <<'SH'
#!/bin/bash
asked=() metrics=''
while [ "$1" != env ]; do
    [ "$1" != --metrics ] || metrics=yes
    [ "$1" != --kernel-id ] || { name=${2#*^} && asked+=("${name%%\$*}"); }
    shift
done
"$@" || exit
echo '==PROF== Connected to process 1'
echo '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"'
echo '"0","1","p","h","matmul_hopper_kernel","1","7","(384, 1, 1)","(132, 1, 1)","0","9.0","GPU Speed Of Light Throughput","Duration","us","96.5"'
echo '"0","1","p","h","matmul_hopper_kernel","1","7","(384, 1, 1)","(132, 1, 1)","0","9.0","GPU Speed Of Light Throughput","DRAM Throughput","%","41.2"'
echo '"1","1","p","h","update_kernel","1","7","(256, 1, 1)","(132, 1, 1)","0","9.0","GPU Speed Of Light Throughput","Duration","us","12.0"'
[ -z "$metrics" ] || echo '"0","1","p","h","matmul_hopper_kernel","1","7","(384, 1, 1)","(132, 1, 1)","0","9.0","Command line profiler metrics","lts__t_bytes.sum","Mbyte","321.5"'
for name in "${asked[@]}"; do
    case $name in
    matmul_hopper_kernel | update_kernel) ;;
    *) echo "\"9\",\"1\",\"p\",\"h\",\"$name\",\"1\",\"7\",\"(1, 1, 1)\",\"(1, 1, 1)\",\"0\",\"9.0\",\"x\",\"Other\",\"us\",\"1\"" ;;
    esac
done
SH
chmod +x tools/*

mkdir empty && cd empty || exit 1
PATH=$scratch/tools:$PATH expect 1 "$scratch/package/gpu.sh" --device emu --out results \
    --phases fragments,agreement,forced,hopper,selftest,parity,sanitizer,losses,products,fp8,tuning,gpt2,small,attention,gates,trace,counters,collectives --ops matmul,combine
page=results/README.md
says err "results: results (1 phases failed"
says $page "| wgmma n256, both across | exact | 16384 of 16384 | holds |"
says $page "| 520 x 272 x 328 | forward | GELU, bias, pre | bf16 -> bf16 | 0, 0 | 0, 0 | 0, 0 | 0, 0 |"
says $page "laid out for 132 multiprocessors"
says $page "- wgmma-256x128, slices: 3, laid out for 132 multiprocessors: "
says $page "- wgmma-fp8-256x256, slices: 1, laid out for 4 multiprocessors: "
says $page "| 272 x 144 x 160 | forward | e4m3 x e4m3, tensor | bf16 | none wrong, "
[ "$(grep -c '^1 operations within tolerance, 0 not.' $page)" = 2 ] || fail "Hopper's operation, and the other: $(grep within $page)"
says $page "| gpt2 | bf16 |"
says $page "| memcheck | attention | clean |"
says $page "| synccheck | attention | exit code 9: see log.txt |"
says results/log.txt "Race reported between Write and Read"
says $page "    ========= Error: Race reported between Write and Read"
says $page "| bf16 | 3 | "
says $page "| no_hopper | 3 | "
says $page "| cublaslt | 0 | it failed: "
says $page "| tiny | layer | 96 x 64 x 160 | forward | bf16 |"
says $page "| tiny | wgrad | 160 x 64 x 272 | E5M2 x E4M3 |"
says $page "choices in results/tuning.txt: set kernels.tuning to it"
says $page "| bf16 | tuned | "
says $page "| matmul_hopper_kernel | 3 | (132, 1, 1) | 96.5 us |  |  | 41.2 % |  |  |"
says $page "| update_kernel | 3 | (132, 1, 1) | 12.0 us |"
says $page "Product 3: nt, "
says $page "| matmul_hopper_kernel 0 | lts__t_bytes.sum | 321.5 Mbyte |"
says $page "held back by power in 50%, by heat in 0%."
says results/results.json '"bench":"clocks","phase":"gpt2"'
says $page "| epilogue | "
says $page "| apart | "
says $page "| all_reduce | tree | f32 | 100003 | 0.0 |"
says results/results.json '"operation":"all_gather","exact":false,"ranks":2'
says results/trace.json '"name":"matmul"'
python3 -c 'import json; assert len(json.load(open("results/results.json"))) > 60' 2>err || fail "results.json is no JSON: $(cat err)"
[ "$(find results -type f | wc -l)" -le 8 ] || fail "more than eight files: $(ls results)"
[ "$(find . -maxdepth 1 -type f | sort | tr '\n' ' ')" = './err ./out ' ] || fail "files were left: $(ls)"

expect 2 "$scratch/package/gpu.sh" --device emu --phases nothing
says err "gpu.sh: no phase nothing"
# Out of time: said, and the page is there.
expect 1 "$scratch/package/gpu.sh" --device emu --phases agreement,bandwidth --seconds 3 --out late
says late/README.md "Not run: no time left."
finish
