# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034,SC2154
# What tests that want the hardware makers' headers share; sourced, with BUILD and in `what` the test's name.
#
# CuTe's headers come with the Python package nvidia-cutlass, which is put into $BUILD/layouts and is no part of this
# repository; CUTLASS_INCLUDE=FOLDER takes headers that are there already.  They want those of the CUDA toolkit.  Where
# either cannot be had, the test is skipped.
build=${BUILD:?make test-$what}

skip() {
    echo "SKIPPED  $what: $1; nothing was compared"
    exit 0
}

# fetch PACKAGE VERSION: of pip's, whole or not at all, once; its folder is in `package`.
fetch() {
    package=$build/layouts/$1-$2
    [ -d "$package" ] && return
    rm -rf "$package.partial"
    mkdir -p "$build/layouts"
    timeout 300 python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps \
        --no-compile --target "$package.partial" "$1==$2" >"$build/layouts/pip.log" 2>&1 &&
        mv "$package.partial" "$package"
}

# find_headers: `cuda` is the folder of the toolkit's headers, `include` that of CUTLASS.
find_headers() {
    local compiler=${NVCC:-$(command -v nvcc)} folder
    cuda=
    for folder in ${compiler:+"$(dirname "$(realpath "$compiler")")/../include"} /usr/local/cuda/include; do
        [ -n "$cuda" ] || [ ! -f "$folder/cuda_runtime.h" ] || cuda=$folder
    done
    [ -n "$cuda" ] || skip "no headers of a CUDA toolkit were found"
    include=${CUTLASS_INCLUDE:-}
    if [ -z "$include" ]; then
        fetch nvidia-cutlass 4.2.0.0 ||
            skip "the package nvidia-cutlass cannot be had ($(tail -n 1 "$build/layouts/pip.log" 2>/dev/null))"
        include=$package/cutlass_library/source/include
    fi
    [ -f "$include/cute/tensor.hpp" ] || skip "there is no cute/tensor.hpp in $include"
}
