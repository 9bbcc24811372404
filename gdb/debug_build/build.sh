#!/bin/bash
# Builds PyTorch for the CPU with -O0 -g, trimmed to what dispatch needs.
#   build.sh SOURCE [OUT]
# SOURCE is a checkout of PyTorch with its submodules, or an original tarball of Debian's package (apt-get source
# --download-only pytorch). OUT (default ./debug-torch) gets the build and OUT/venv/bin/python, which imports it.
# A build that was stopped goes on where it was. Variables: PYTHON, JOBS, VERSION;
# ONLY=configure stops before it compiles, for preload.sh.
set -euo pipefail

fail() { echo "build.sh: $*" >&2; exit 1; }
[ $# -ge 1 ] || fail "name the source: build.sh SOURCE [OUT] (a checkout of PyTorch or Debian's .orig.tar.xz)"
[ -e "$1" ] || fail "$1 does not exist: name a checkout of PyTorch or Debian's .orig.tar.xz"
here=$(cd "$(dirname "$0")" && pwd)
given=$(realpath "$1")
mkdir -p "${2:-debug-torch}"
out=$(cd "${2:-debug-torch}" && pwd)

missing=""
for tool in cmake ninja g++ gdb; do command -v $tool > /dev/null || missing="$missing $tool"; done
[ -z "$missing" ] || fail "these programs are missing:$missing (apt-get install cmake ninja-build g++ gdb)"

. "$here/parts/source.sh"      # source, version, system_libraries
. "$here/parts/python.sh"      # python: OUT/venv with what the build needs
. "$here/parts/configure.sh"   # build: the configured build folder

memory=$(awk '/MemAvailable/ {print int($2 / 1500000)}' /proc/meminfo)
cores=$(nproc)
jobs=${JOBS:-$((memory < cores ? (memory > 0 ? memory : 1) : cores))}
ninja -C "$build" build.ninja > "$out/generate.log" || fail "PyTorch's code generation failed: $out/generate.log"
[ "${ONLY:-}" != configure ] || exit 0
ninja -C "$build" -n install > "$out/steps.txt"
files=$(grep -c 'Building C' "$out/steps.txt" || true)
# 7.5 CPU-seconds a file: measured with gcc 12 on 1,096 files of 1.13.1
echo "PyTorch $version: $files files to compile, $jobs at a time: about $((files * 15 / 2 / jobs / 60)) minutes of idle" \
  "cores, 1 to 1.5 GB of memory each, 5 GB of disk in $out. Stop it with Ctrl-C; the same command goes on."
started=$SECONDS
NINJA_STATUS='[%f/%t, %p, %es] ' ninja -C "$build" -j "$jobs" -k 0 install
echo "compiled in $(((SECONDS - started) / 60)) minutes"
"$python" "$here/parts/assemble.py" "$source" "$build" "$out/install" "$version"
echo "$("$python" -c 'import torch; print("torch", torch.__version__, "debug", torch.version.debug)'): $python"
echo "next: tracer gdb --python $python mm"
