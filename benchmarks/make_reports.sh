#!/usr/bin/env bash
# The sample reports, from the traces of the examples: NAME.trace or NAME.trace.xz in FOLDER.
#
#   benchmarks/make_reports.sh FOLDER            into reports/
#   benchmarks/make_reports.sh FOLDER OUT        into OUT
#   RECORD=1 benchmarks/make_reports.sh FOLDER   records the traces into FOLDER first
#   DEMO=1 benchmarks/make_reports.sh FOLDER     records the demo, which needs no GPU, and writes its report and
#                                                the HTML page of a ResNet-34 (html/) alone; the demo's page is in FOLDER
#
#   TRACER   the command (tracer)
#   PYTHON   an interpreter that can import tracer (python3)
#   DEVICE   where RECORD=1 runs the examples (cuda)
#   DRIVER   the driver's version to name in the reports (what nvidia-smi says, if it is there)
set -u
[ $# -ge 1 ] || { sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 2; }
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1" "${2:-$root/reports}" || exit
traces=$(cd "$1" && pwd)
out=$(cd "${2:-$root/reports}" && pwd)
cd "$root" || exit

TRACER=${TRACER:-tracer}
PYTHON=${PYTHON:-python3}
DEVICE=${DEVICE:-cuda}
export DRIVER=${DRIVER:-$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1)}
failed=0

# record NAME SCRIPT ARGS...
record() {
  local name=$1
  shift
  # shellcheck disable=SC2086  # the command may have several words
  $TRACER record --force --cuda on -o "$traces/$name.trace" "$@" || { echo "FAILED: $name is not recorded" >&2; failed=1; }
}

if [ -n "${RECORD:-}" ]; then
  record resnet34 examples/resnet34.py --device "$DEVICE" --images imagenet --batch 16 --steps 8
  record seq2seq examples/seq2seq_gru.py --device "$DEVICE" --epochs 1 --steps 8 --batch 64 --length 16 \
    --hidden 256 --vocabulary 1000
  record mm examples/mm.py --device "$DEVICE"
  record gru examples/gru.py --device "$DEVICE" --time 32 --batch 64 --input 256 --hidden 512 --steps 6
  record cat examples/cat.py --device "$DEVICE" --size 2048
fi

# Traces lie here unpacked, so that reports name NAME.trace.
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT

# made_by TRACE NAME REPORT_OPTIONS...: the two commands, and on what the trace was recorded
made_by() {
  "$PYTHON" - "$@" <<'END'
import os
import shlex
import sys

import tracer

file, name, *options = sys.argv[1:]
trace = tracer.load(file)
facts = trace.environment
print(f"    tracer record -o {name}.trace {shlex.join(facts['argv'])}")
print(f"    tracer report {name}.trace {shlex.join(options)}".rstrip())
gpus = trace.devices["name"].to_list()
on = [f"one {gpus[0]}" if len(gpus) == 1 else f"{len(gpus)} GPUs" if gpus else facts.get("cpu", "a CPU")]
on.append(f"torch {facts['torch']}")
on += [f"CUDA {facts['torch_cuda']}"] * bool(facts.get("torch_cuda"))
on += [f"driver {os.environ['DRIVER']}"] * bool(gpus and os.environ.get("DRIVER"))
print(f"\nrecorded on {', '.join(on)}, on {facts['started_at'][:10]}.")
END
}

# report FILE NAME [OPTIONS...]: adds the report of NAME's trace to FILE, below the commands that made it
report() {
  local file=$out/$1 name=$2
  shift 2
  if [ ! -s "$here/$name.trace" ]; then
    if [ -s "$traces/$name.trace" ]; then
      ln -s "$traces/$name.trace" "$here/$name.trace"
    elif ! xz -dc "$traces/$name.trace.xz" >"$here/$name.trace"; then
      echo "FAILED: there is no trace $name in $traces" >&2
      failed=1
      return
    fi
  fi
  # The pictures of a report are beside it, named after it.
  local part=$here/$(basename "$file" .md).$name.md
  # shellcheck disable=SC2086
  {
    printf 'Made by\n\n' && made_by "$here/$name.trace" "$name" "$@" && echo &&
      $TRACER report "$here/$name.trace" "$@" --force -o "$part" && sed 's/^#/##/' "$part"
  } >>"$file" || {
    echo "FAILED: report of $name" >&2
    failed=1
  }
  for picture in "${part%.md}".*.svg; do
    if [ -e "$picture" ]; then mv "$picture" "$out"; fi
  done
}

# page OUT TRACE: the HTML page of a trace, packed or not
page() {
  local name
  name=$(basename "$2" .xz)
  case $2 in *.xz) xz -dc "$2" >"$here/$name" ;; *) ln -sf "$2" "$here/$name" ;; esac
  mkdir -p "$(dirname "$1")"
  # shellcheck disable=SC2086
  $TRACER report "$here/$name" --force -o "$1" || { echo "FAILED: page of $name" >&2; failed=1; }
}

# begin FILE TITLE TEXT: what the file shows
begin() {
  printf '# %s\n\n%s\n\n' "$2" "$3" >"$out/$1"
}

# The sections that follow an op down to its kernel; the surveys are reports of their own.
chain=(--rows 20)
for section in summary exceptions paths path_details launches kernels_to_gain; do
  chain+=(--section "$section")
done

between() {
  printf '\n---\n\n' >>"$out/$1"
}

if [ -n "${DEMO:-}" ]; then
  $TRACER record --force -o "$traces/seq2seq_gru.trace" examples/seq2seq_gru.py || exit
  begin demo.md "A training run on the CPU" \
    "Parts of the report that \`make demo\` writes: a translator (GRU encoder and decoder with attention) learns to reverse
sequences of numbers. Dispatch alone, without a GPU: what each line of the program became, forward and backward."
  report demo.md seq2seq_gru --rows 8 --section summary --section steps --section gaps --section paths --section sources
  page "$traces/demo.html" "$traces/seq2seq_gru.trace"
  page "$out/html/resnet34.gpu.html" "$root/reports/traces/resnet34.trace.xz"
  exit $failed
fi

begin cuda_runtime_survey.md "What PyTorch asks of the CUDA runtime" \
  "Training steps of a ResNet-34 and of a translator (GRU encoder and decoder): every CUDA function that was
called, how often, by which part of PyTorch, and what it cost the host. How to read it:
[docs/report.md](../docs/report.md)."
report cuda_runtime_survey.md resnet34 --only cuda --rows 20 --details 1
between cuda_runtime_survey.md
report cuda_runtime_survey.md seq2seq --rows 12 --section runtime --section api_roles --section synchronisations

begin kernel_survey.md "What the GPU ran, and how far that is from what it can do" \
  "The kernels of training steps of a ResNet-34 and of a translator (GRU encoder and decoder), those with the
most to gain first. How to read it: [docs/report.md](../docs/report.md)."
survey=()
for section in kernels kernels_to_gain kernel_details kernels_unknown kernels_families; do
  survey+=(--section "$section")
done
report kernel_survey.md resnet34 --rows 16 --details 2 "${survey[@]}"
between kernel_survey.md
report kernel_survey.md seq2seq --rows 12 --section kernels --section kernels_to_gain

begin mm.md "How a matrix product reaches cuBLAS" \
  "From \`torch.matmul\`, \`bmm\` and \`Linear\` down to the kernel: which function of cuBLAS is called for strict
fp32, TF32, bf16, fp16, a vector, a batch, a bias and the backward pass, and which kernel cuBLAS picks."
report mm.md mm --op 'cublas*' --paths 14 --details 1 "${chain[@]}"

begin gru.md "How a GRU reaches cuDNN" \
  "\`nn.GRU\` becomes one call of cuDNN forward and two backward; \`nn.GRUCell\` two matrix products and a fused
pointwise kernel."
report gru.md gru --op 'cudnnRNN*' --op 'gru*' --paths 14 --details 1 "${chain[@]}"

begin cat.md "What torch.cat does on a GPU" \
  "One kernel that copies all inputs where they fit it, in a vectorised, an aligned or a plain variant; one copy
an input where they do not (mixed types, more than four dimensions)."
report cat.md cat --op cat --op stack --paths 14 --details 1 "${chain[@]}"

begin resnet34.md "Training steps of a ResNet-34" \
  "What the six steps after warm-up ran: convolutions, batch normalisation, pooling and the optimiser, forward and
backward."
sections=()
for section in summary paths path_details api_roles synchronisations idle kernels kernels_to_gain sources modules backward; do
  sections+=(--section "$section")
done
report resnet34.md resnet34 --steady --paths 12 --details 1 --rows 12 "${sections[@]}"

wc -c "$out"/*.md
exit $failed
