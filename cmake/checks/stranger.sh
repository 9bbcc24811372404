#!/usr/bin/env bash
# `make demo` as on a machine without a CUDA toolkit and without local wheels: pip brings torch with CUDA, and the build
# finds its headers in torch's own packages. A quick twin of `make fresh`: five minutes, and it needs root.
set -euo pipefail
cd "$(dirname "$0")/../.."

if [ "${1:-}" != hidden ]; then
  exec unshare --mount "$0" hidden # what is mounted there is seen by nobody else
fi
for toolkit in /usr/local/cuda /usr/local/cuda-*; do
  [ ! -d "$toolkit" ] || mountpoint -q "$(realpath "$toolkit")" || mount -t tmpfs none "$(realpath "$toolkit")"
done
unset CUDA_HOME CUDACXX PIP_FIND_LINKS PIP_EXTRA_INDEX_URL
export PIP_CONFIG_FILE=/dev/null

folder=build/stranger
rm -rf "$folder"
mkdir -p "$folder"
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$folder"
cd "$folder"
[ -z "${CCACHE_BASEDIR:-}" ] || export CCACHE_BASEDIR=$PWD # paths in it are relative, as where the cache was filled
make demo TORCH_BUILD=cuda
.venv/bin/python - <<'CHECK'
import sys
sys.path.remove("")  # the installed tracer, not its source
from tracer import _build_info as built
assert built.TORCH_CUDA and built.CUDA_HEADERS == built.TORCH_CUDA, vars(built)
CHECK
.venv/bin/pytest -q tests/cpu/test_cuda_without_gpu.py tests/cpu/test_doctor_command.py::test_recording_works_here
cd ../..
rm -rf "$folder"
