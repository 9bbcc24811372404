#!/bin/bash
# Compiles a few files of PyTorch with -O0 -g, into a library that a release of the same version preloads: minutes
# instead of hours, and lines, arguments and locals in these files.
#   preload.sh OUT TORCH FILE...
# OUT: the folder of build.sh, which need only have configured (ONLY=configure build.sh SOURCE OUT). TORCH: the folder
# of the release's package torch. FILE: LinearAlgebra.cpp, Operators_3.cpp, ... The library is OUT/preload.so.
set -euo pipefail

fail() { echo "preload.sh: $*" >&2; exit 1; }
[ $# -ge 3 ] || fail "name three things or more: preload.sh OUT TORCH FILE..."
out=$(realpath "$1")
torch=$(realpath "$2")
shift 2
[ -e "$out/build/.configured" ] || fail "$out is not configured: ONLY=configure build.sh SOURCE $out"
[ -e "$torch/lib/libtorch_cpu.so" ] || fail "$torch has no lib/libtorch_cpu.so: name the folder of the package torch"

export CCACHE_DIR=$out/ccache CCACHE_SLOPPINESS=pch_defines,time_macros
objects=()
for file in "$@"; do
  # generated files and others alike; of several with one name, the CPU library's
  object=$(ninja -C "$out/build" -t targets all |
    sed -n "s#^\(caffe2/CMakeFiles/torch_cpu.dir/.*/$file.o\): .*#\1#p" | head -1)
  [ -n "$object" ] || fail "libtorch_cpu has no file $file"
  objects+=("$object")
done
ninja -C "$out/build" "${objects[@]}"
linker=""
for candidate in mold lld; do
  command -v "ld.$candidate" > /dev/null && linker="-fuse-ld=$candidate -Wl,--gdb-index" && break
done
# shellcheck disable=SC2086
(cd "$out/build" && g++ -shared -fPIC -fopenmp -g $linker -o "$out/preload.so" "${objects[@]}" \
  "$torch/lib/libtorch_cpu.so" "$torch/lib/libc10.so" -Wl,-rpath,"$torch/lib")
echo "next: tracer gdb --preload $out/preload.so --python PYTHON mm"
