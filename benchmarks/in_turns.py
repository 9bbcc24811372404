"""What variants of a recording add to a training step, in turns inside one process.

    python benchmarks/in_turns.py                                   # on a machine with a GPU, some minutes
    python benchmarks/in_turns.py --workloads "gpt2 step" --processes 2 --rounds 3

Processes differ by more than variants do, so each process runs all variants in turns, and what a variant
adds is compared with what torch.profiler adds in the same process: after those of tracer, since
torch.profiler keeps CUPTI until the process ends. A step ends when the GPU has ended its work. The first
step of a window is told, too. Of an op a step is a thousand calls. Results go to measured/turns_gpu.json.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

import torch
from cuda_process import OPTIONS, WORKLOADS, Run, Workload, on_cores_of_their_own
from torch.profiler import ProfilerActivity, profile

import tracer

MEASURED = Path(__file__).resolve().parent / "measured" / "turns_gpu.json"
PROGRAMS = ["add 64x64", "gpt2 step", "resnet34 step", "resnet50 step", "large gpt2 step"]
TRACER, PROFILER = ["bare", "full", "queries"], ["alone", "prof"]
VARIANTS = [*TRACER, *PROFILER]
WARM = 5


def main() -> None:
    options = parse()
    if options.one:
        print(json.dumps(one_process(options.one, options.rounds, options.steps)))
        return
    programs = {
        program: [found for _ in range(options.processes) if (found := in_a_process(program, options))]
        for program in options.workloads
    }
    document = {
        "card": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "date": datetime.now(timezone.utc).date().isoformat(),
        "programs": programs,
    }
    Path(options.json).write_text(json.dumps(document) + "\n")
    for line in table(document):
        print(line)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=PROGRAMS)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--json", default=str(MEASURED))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args()


def in_a_process(program: str, options: argparse.Namespace) -> dict | None:
    command = [sys.executable, __file__, "--one", program]
    command += ["--rounds", str(options.rounds), "--steps", str(options.steps)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        print(f"{program}: {run.stderr[-1000:]}", file=sys.stderr)
        return None
    return json.loads(run.stdout.splitlines()[-1])


def one_process(program: str, rounds: int, steps: int) -> dict[str, dict[str, list[float]]]:
    """Milliseconds of each variant: of the steps of all its windows but the first, and of each window's first
    step. Those without a tool are `bare` beside tracer's and `alone` beside the profiler's.
    """
    torch.manual_seed(0)
    torch.set_num_threads(1)
    run = repeated(WORKLOADS[program])
    for _ in range(WARM):
        timed(run)
    found: dict[str, dict[str, list[float]]] = {name: {"ms": [], "first": []} for name in VARIANTS}
    with tempfile.TemporaryDirectory() as folder, on_cores_of_their_own():
        for variants in (TRACER, PROFILER):
            for number in range(rounds + 1):
                turn = number % len(variants)
                for name in variants[turn:] + variants[:turn]:
                    took = window(name, run, steps, folder)
                    if number:  # the first round has what each tool does once in a process
                        found[name]["first"].append(took[0])
                        found[name]["ms"] += took[WARM:]
    return found


def repeated(workload: Workload) -> Run:
    """A step, or a thousand calls of an op."""
    run = workload.prepare("cuda")
    if workload.is_step:
        return run

    def many() -> None:
        for _ in range(1000):
            run()

    return many


def window(name: str, run: Run, steps: int, folder: str) -> list[float]:
    gc.collect()
    with running(name, Path(folder)):
        gc.disable()
        took = [timed(run) for _ in range(steps)]
        gc.enable()
    return took


def timed(run: Run) -> float:
    begin = time.perf_counter_ns()
    run()
    torch.cuda.synchronize()
    return round((time.perf_counter_ns() - begin) / 1e6, 3)


@contextmanager
def running(name: str, folder: Path) -> Iterator[None]:
    if name in ("bare", "alone"):
        yield
    elif name == "prof":
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):
            yield
    else:
        trace = folder / f"{name}.trace"
        with tracer.record(trace, **OPTIONS[name]):
            yield
        trace.unlink()


def table(document: dict) -> list[str]:
    """Medians over processes, in milliseconds, of lower quartiles of steps (others use the machine too); the
    range over processes is behind the ratios.
    """
    lines = [
        "| a step of | bare ms | full adds | `--queries torch` adds | torch.profiler adds | full / profiler "
        "| torch / profiler | first step of a window |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for program, processes in document["programs"].items():
        if not processes:
            continue
        ms = [{name: lower_quartile(one[name]["ms"]) for name in VARIANTS} for one in processes]
        first = [{name: lower_quartile(one[name]["first"]) for name in VARIANTS} for one in processes]
        added = {
            "full": [one["full"] - one["bare"] for one in ms],
            "queries": [one["queries"] - one["bare"] for one in ms],
            "prof": [one["prof"] - one["alone"] for one in ms],
            "first": [one["full"] - of["full"] for one, of in zip(first, ms, strict=True)],
        }
        ratios = {
            name: [more / of for more, of in zip(added[name], added["prof"], strict=True) if of > 0]
            for name in ("full", "queries")
        }
        cells = [program, f"{statistics.median(one['bare'] for one in ms):.2f}"]
        cells += [f"{statistics.median(added[name]):+.2f}" for name in ("full", "queries", "prof")]
        cells += [spread(ratios["full"]), spread(ratios["queries"])]
        cells += [f"{statistics.median(added['first']):+.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def lower_quartile(values: list[float]) -> float:
    return statistics.quantiles(values, n=4, method="inclusive")[0]


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})" if values else "-"


if __name__ == "__main__":
    main()
