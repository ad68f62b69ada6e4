#!/bin/bash
# SPDX-License-Identifier: MIT
# cuda.sh [FOLDER]: compiles the Metal shaders as CUDA, runs them on the GPU of this machine in Kimi
# K3's shapes, compares with kernels/ scalar bit for bit, prints each kernel's share of the memory
# rate, and looks for races and bad accesses with compute-sanitizer. FOLDER keeps the build.
# Without nvcc or a GPU it says so and ends with 77.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
PATH=$PATH:/usr/local/cuda/bin
command -v nvcc >/dev/null || { echo "cuda.sh: no nvcc here, nothing was run"; exit 77; }
out=${1:-$(mktemp -d)}
mkdir -p "$out"
arch=${SHOAL_CUDA_ARCH:-native}
if ! nvidia-smi -L >/dev/null 2>&1; then
    [ -n "${SHOAL_CUDA_ARCH:-}" ] || { echo "cuda.sh: no NVIDIA GPU here, nothing was run"; exit 77; }
fi

cd "$root"
# One arithmetic: no contraction, no flushing, division and square root rounded as IEEE 754 says.
strict="-fmad=false -ftz=false -prec-div=true -prec-sqrt=true"
flags="-O2 -std=c11 -D_GNU_SOURCE -ffp-contract=off -fno-math-errno -I$root"
sources="$(echo kernels/*.c) shaders/plan.c shaders/plan_mla.c shaders/cases.c"
jobs=()
for f in $sources; do
    more=
    case $(uname -m)$f in x86_64*_avx2.c) more="-mavx2 -mfma" ;; esac
    ${CC:-cc} $flags $more -c "$f" -o "$out/$(basename "$f" .c).o" &
    jobs+=($!)
done
nvcc -O3 -std=c++17 -arch="$arch" $strict -diag-suppress 1675,1866,1097,20199,550,177 -Xptxas -v \
    -Itests/shaders/cuda -I"$root" -c tests/shaders/cuda/run.cu -o "$out/run.o" 2>"$out/ptxas.log" ||
    { cat "$out/ptxas.log"; exit 1; }
for j in "${jobs[@]}"; do wait "$j"; done
objects=$(for f in $sources; do echo "$out/$(basename "$f" .c).o"; done)
nvcc -arch="$arch" "$out/run.o" $objects -o "$out/run" -lpthread -lm
awk '/Compiling entry function/ { split($0, a, "\x27"); name = a[2] }
    /Used [0-9]+ registers/ { match($0, /[0-9]+ registers/); print substr($0, RSTART, RLENGTH), name }
    /spill stores/ && !/ 0 bytes spill stores/ { print "SPILLS", $0, name }' "$out/ptxas.log" >"$out/registers"
nvidia-smi -L >/dev/null 2>&1 || { echo "cuda.sh: compiled for $arch; no GPU here, nothing was run"; exit 77; }

rc=0
"$out/run" bits || rc=1
"$out/run" rates || rc=1
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck synccheck initcheck; do
        echo "== compute-sanitizer $tool, small shapes"
        compute-sanitizer --tool $tool --error-exitcode 9 "$out/run" small bits >"$out/$tool.log" 2>&1 || rc=1
        grep -E "=====|differences|DIFFERS" "$out/$tool.log" | head -20
    done
else
    echo "cuda.sh: no compute-sanitizer here: races and bad accesses were not looked for"
fi
[ $rc = 0 ] && echo "cuda.sh: all equal, nothing found" || echo "cuda.sh: FAILED"
exit $rc
