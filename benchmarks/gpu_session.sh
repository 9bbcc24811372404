#!/usr/bin/env bash
# All that needs a GPU, in one call and without network: builds and installs, tests, measures, makes the
# sample reports and the small trace that the tests read. A phase that fails does not stop the next one.
#
#   benchmarks/gpu_session.sh                              all phases
#   PHASES="build reports" benchmarks/gpu_session.sh       some of: build tests times cost reports sample, and of
#                                                        the overrides and the gallery, which are not in "all":
#                                                        tuning rebuild overrides sanitizer compare
#                                                        gallery gallery_tests
#
#   OUT      folder for the one archive of what was made (build/gpu)
#   WHEELS   folder of wheels to install first, such as polars where it is missing (none)
#   PYTHON   the interpreter that has torch (python3)
#   LIMIT    seconds for everything (800: the cost alone takes six to seven minutes)
#   AT_ONCE  phases that measure nothing may share the GPU: those named here run at the same time, after build
set -u
cd "$(dirname "$0")/.."

PYTHON=$(command -v "${PYTHON:-python3}") || { echo "there is no ${PYTHON:-python3}" >&2; exit 2; }
[ "${PYTHON#/}" != "$PYTHON" ] || PYTHON=$PWD/$PYTHON
export PYTHON WHEELS=${WHEELS:-} DEVICE=${DEVICE:-cuda} PYTHONUNBUFFERED=1 COLUMNS=160
export TRACER=${TRACER:-$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("scripts"))')/tracer}
export MADE=build/gpu
PHASES=${PHASES:-build tests times cost reports sample}
OUT=${OUT:-$MADE}
LIMIT=${LIMIT:-800}
mkdir -p "$MADE/reports" "$MADE/logs" "$OUT"
: >"$MADE/took"

# phase NAME SECONDS LINES: runs the function do_NAME for at most so long, and shows the end of what it said.
phase() {
  local name=$1 limit=$2 lines=$3 began=$SECONDS left=$((LIMIT - SECONDS)) status
  case " $PHASES " in *" $name "*) ;; *) return ;; esac
  if [ "$left" -lt 10 ]; then
    echo "$name: left out, no time" >>"$MADE/took"
    return
  fi
  [ "$limit" -le "$left" ] || limit=$left
  timeout -k 5 "$limit" bash -c "set -u; do_$name" >"$MADE/logs/$name.log" 2>&1 </dev/null
  status=$?
  {
    echo "======== $name: $([ $status = 0 ] && echo ok || echo "FAILED ($status)"), $((SECONDS - began)) s"
    tail -n "$lines" "$MADE/logs/$name.log"
  } >"$MADE/logs/$name.end"
  cat "$MADE/logs/$name.end"
  echo "$name: $((SECONDS - began)) s$([ $status = 0 ] || echo ", FAILED ($status)")" >>"$MADE/took"
}

do_build() {
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
  if [ -n "$WHEELS" ]; then
    "$PYTHON" -m pip install --quiet --no-index --no-deps "$WHEELS"/*.whl || exit
  fi
  CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) "$PYTHON" -m pip install --quiet --no-index --no-deps \
    --no-build-isolation --force-reinstall . || exit
  "$TRACER" --version
}

# tests_of NAME ARGUMENTS: pytest from the folder of the tests, so that the installed tracer is the one that is
# tested. Its whole output is in NAME.pytest.log, here is what failed. A kernel that never ends must not take all
# the time there is.
tests_of() {
  local log=$PWD/$MADE/logs/$1.pytest.log status
  shift
  cd tests
  "$PYTHON" -c 'import pytest_timeout' 2>/dev/null && set -- "$@" --timeout=${LONGEST:-200} --timeout-method=thread
  "$PYTHON" -m pytest "$@" -q --tb=short --durations=8 >"$log" 2>&1
  status=$?
  grep -E '^_{3,} |^E   ' "$log" | cut -c1-300 | head -n 120
  tail -n 25 "$log" | cut -c1-200
  return $status
}

do_tests() {
  tests_of gpu gpu -n 5 --dist loadfile --ignore=gpu/test_cuda_kernel_times.py --ignore=gpu/test_gdb_sessions.py \
    --ignore-glob='gpu/test_override_*' --ignore-glob='gpu/test_gallery_*' --ignore-glob='gpu/test_compare_*'
}

# The kernels of the overrides, and compute-sanitizer over small shapes.
do_overrides() {
  tests_of overrides gpu/test_override_{mm,cat,gru,builtin}.py gpu/test_compare_cuda.py -n 5 --dist loadfile
}

do_sanitizer() {
  LONGEST=420 tests_of sanitizer gpu/test_override_sanitizer.py -n 4
}

# Which plan is fastest where: the tables in csrc/overrides, written there and to $MADE. "rebuild" takes them in.
export TABLES="measured.h kernels/mm_tuned.h kernels/gru_tuned.h ops/gru_measured.h"
do_tuning() {
  local table to=csrc/overrides
  "$PYTHON" benchmarks/override_tuning.py --json "$MADE/override_tuning.json" --measured $to/measured.h \
    --tuned $to/kernels/mm_tuned.h >"$MADE/logs/override_tuning.log" 2>&1
  local mm=$?
  "$PYTHON" benchmarks/gru_tuning.py --json "$MADE/gru_tuning.json" --measured $to/ops/gru_measured.h \
    --tuned $to/kernels/gru_tuned.h >"$MADE/logs/gru_tuning.log" 2>&1
  local gru=$?
  mkdir -p "$MADE/tables"
  for table in $TABLES; do cp "$to/$table" "$MADE/tables/"; done
  [ $mm = 0 ] && [ $gru = 0 ]
}

do_rebuild() {
  WHEELS= do_build
}

do_compare() {
  local status=0 name
  for name in mm gru cat; do
    "$TRACER" compare "$name" --details 4 --force -o "$MADE/reports/compare_$name.md" || status=1
  done
  return $status
}

do_gallery() {
  local name status
  "$PYTHON" benchmarks/gallery.py --gpu --jobs "${JOBS:-1}" --out "$MADE/reports/gallery"
  status=$?
  mkdir -p "$MADE/gallery"
  for name in build/gallery/*.trace; do
    "$TRACER" pack --force -o "$MADE/gallery/$(basename "$name").xz" "$name" &
  done >/dev/null
  wait
  return $status
}

do_gallery_tests() {
  tests_of gallery gpu/test_gallery_gpu_a.py gpu/test_gallery_gpu_b.py -n 3
}

# Alone on the GPU.
do_times() {
  cd tests && "$PYTHON" -m pytest gpu/test_cuda_kernel_times.py gpu/test_compare_times.py -q --tb=short -s
}

do_cost() {
  "$PYTHON" benchmarks/cuda_cost.py --variants bare full prof --rounds 32 --processes 8 \
    --workloads "linear step" "seq2seq step" "resnet34 step" --json "$MADE/cuda_cost.json" | tee "$MADE/cuda_cost.txt"
  return "${PIPESTATUS[0]}"
}

do_reports() {
  RECORD=1 benchmarks/make_reports.sh "$MADE" "$MADE/reports" || return
  head -c 3000 "$MADE/reports/mm.md"
}

do_sample() {
  "$TRACER" record --force -o "$MADE/gpu.trace" --cuda on tests/gpu/sample.py --device "$DEVICE" &&
    "$TRACER" pack --force "$MADE/gpu.trace" || exit
  "$TRACER" tree "$MADE/gpu.trace.xz" --op mm --limit 12 || exit
  local size
  size=$(stat -c %s "$MADE/gpu.trace.xz")
  echo "$MADE/gpu.trace.xz has $size bytes"
  mkdir -p tests/data && cp "$MADE/gpu.trace.xz" tests/data/
  [ "$size" -le $((1 << 20)) ]
}

# One archive below 15 MiB: reports, logs and figures always, further traces while there is room.
do_archive() {
  local name files=() room=$((14 << 20)) size
  for name in resnet34 seq2seq mm gru cat; do
    [ ! -s "$MADE/$name.trace" ] || timeout 60 "$TRACER" pack --force "$MADE/$name.trace" &
  done
  wait
  for name in gpu mm gru cat seq2seq resnet34; do
    [ -s "$MADE/$name.trace.xz" ] || continue
    size=$(stat -c %s "$MADE/$name.trace.xz")
    if [ "$size" -le "$room" ]; then
      files+=("$name.trace.xz")
      room=$((room - size))
    else
      echo "$name.trace.xz is left out: $size bytes"
    fi
  done
  for name in reports logs gallery cuda_cost.json cuda_cost.txt {override,gru}_tuning.json tables; do
    [ ! -e "$MADE/$name" ] || files+=("$name")
  done
  tar -C "$MADE" -czf "$1/gpu_session.tar.gz" "${files[@]}" && ls -l "$1/gpu_session.tar.gz"
}

export -f tests_of do_build do_rebuild do_tests do_times do_cost do_reports do_sample do_overrides do_sanitizer do_tuning \
  do_compare do_gallery do_gallery_tests

# The phases, with the seconds that each may take and the lines shown of what it said.
all_phases() {
  "$1" tests 300 100
  "$1" overrides 400 140
  "$1" sanitizer 400 60
  "$1" gallery 400 60
  "$1" gallery_tests 300 80
  "$1" times 60 30
  "$1" cost 500 40
  "$1" reports 100 60
  "$1" sample 30 20
  "$1" compare 300 40
}

AT_ONCE=${AT_ONCE:-}
at_once() {
  case " $AT_ONCE " in *" $1 "*) phase "$@" & ;; esac
}
one_by_one() {
  case " $AT_ONCE " in *" $1 "*) ;; *) phase "$@" ;; esac
}

phase build 200 5
phase tuning 250 5
phase rebuild 150 5
all_phases at_once
wait
all_phases one_by_one
do_archive "$OUT"
echo "======== $SECONDS s in all"
cat "$MADE/took"
