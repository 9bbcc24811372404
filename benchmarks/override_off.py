"""What overrides leave behind once they are off: ops beside those of an untouched process.

    python benchmarks/override_off.py
    python benchmarks/override_off.py --rounds 40 --json FILE

Processes come in pairs that share a core. In one of a pair the overrides of mm, gru and cat are switched on,
run (gru forward and backward) and switched off again in the middle of its life; the other runs the same
untouched, and imports nothing of tracer. All are visited once a round, one at a time and in turns of
changing order. A visit warms up each workload and then times single calls, each until the GPU is done; its
figure is their median. Since processes differ from each other by more than what is looked for, each is
compared with its own first half: the ratio of a pair is (used, second half / first half) / (untouched,
second half / first half), halves by the medians of their visits. Shown is the median over the pairs with
the 95 % interval of a bootstrap over them. Exits 1 where an interval lies outside 0.99 to 1.01. About a
minute on an H200.

    python benchmarks/override_off.py --device cpu --override examples/overrides/cpu_mm.py:numpy_mm

does the same on the CPU, to try it out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

UNTOUCHED, USED = "untouched", "used"
LEAST, MOST = 0.99, 1.01
WARM_UP_SECONDS = TIMED_SECONDS = 0.02  # of each workload in a visit
READY_SECONDS = 60.0


@dataclass(frozen=True)
class Row:
    """Seconds: medians over all visits of the second half; `low` and `high` bound the ratio."""

    workload: str
    untouched_s: float
    used_s: float
    ratio: float
    low: float
    high: float

    @property
    def passed(self) -> bool:
        return self.low <= MOST and self.high >= LEAST


# ---- in a process of its own --------------------------------------------------------------------


def workloads(device: str) -> dict[str, Callable[[], object]]:
    import torch

    torch.manual_seed(0)
    a, weight = torch.randn(8, 1536, device=device), torch.randn(5893, 1536, device=device).t()
    pieces = [torch.randn(64, 512, device=device) for _ in range(2)]
    gru = torch.nn.GRU(1536, 512).to(device)
    x, h = torch.randn(1, 64, 1536, device=device), torch.zeros(1, 64, 512, device=device)

    def step() -> object:
        with torch.no_grad():
            return gru(x, h)

    return {
        "mm 8x1536 1536x5893": lambda: torch.mm(a, weight),
        "cat of 2 64x512, dim 1": lambda: torch.cat(pieces, 1),
        "gru T1 B64 I1536 H512": step,
    }


def run_all(calls: dict[str, Callable[[], object]], device: str) -> None:
    """Each workload, and a gru forward and backward."""
    import torch

    module, x = torch.nn.GRU(32, 64).to(device), torch.randn(4, 8, 32, device=device)
    for call in calls.values():
        for _ in range(10):
            call()
    module(x)[0].sum().backward()


def use(names: list[str], calls: dict[str, Callable[[], object]], device: str) -> None:
    """Switches the overrides on, runs them, and off again. Raises RuntimeError where one did not run."""
    from tracer import overrides
    from tracer.overrides import names as given_names

    found = [given_names.find(name)[0] for name in names]
    with ExitStack() as stack:
        stack.enter_context(overrides.use(*names))
        run_all(calls, device)
    for override in found:
        if not sum(override.ran().values()):
            raise RuntimeError(f"{override.name} never ran: {override.handed_over()}")


def visit(calls: dict[str, Callable[[], object]], device: str) -> dict[str, float]:
    """The median of single calls of each workload, in seconds."""
    import torch

    wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    medians = {}
    for name, call in calls.items():
        end = time.perf_counter() + WARM_UP_SECONDS
        while time.perf_counter() < end:
            call()
            wait()
        taken = []
        begin = time.perf_counter()
        end = begin + TIMED_SECONDS
        while begin < end:
            begin = time.perf_counter()
            call()
            wait()
            taken.append(time.perf_counter() - begin)
        medians[name] = statistics.median(taken)
    return medians


def serve(options: argparse.Namespace) -> None:
    """Answers each line of stdin, "visit" or "touch", with a line of JSON."""
    os.sched_setaffinity(0, {options.core})
    import torch

    torch.set_num_threads(1)
    calls = workloads(options.device)
    visit(calls, options.device)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        if line.strip() == "visit":
            print(json.dumps(visit(calls, options.device)), flush=True)
            continue
        if "tracer" in sys.modules:
            raise RuntimeError("tracer was imported in a process that was to be untouched so far")
        if options.process == USED:
            use([name for name in options.override.split(",") if name], calls, options.device)
        else:
            run_all(calls, options.device)
        print(json.dumps("touched"), flush=True)


# ---- in the process that asks -------------------------------------------------------------------


class Process:
    """One process, and the medians of its visits by workload, before and after the overrides were on."""

    def __init__(self, kind: str, core: int, options: argparse.Namespace) -> None:
        self.kind = kind
        self.halves: list[list[dict[str, float]]] = [[]]
        command = [sys.executable, __file__, "--process", kind, "--device", options.device]
        command += ["--override", options.override, "--core", str(core)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ready(self) -> None:
        self._answer()

    def visit(self) -> None:
        self.halves[-1].append(self._ask("visit"))

    def touch(self) -> None:
        self._ask("touch")
        self.halves.append([])

    def half(self, number: int, workload: str) -> float:
        return statistics.median(visit[workload] for visit in self.halves[number])

    def change(self, workload: str) -> float:
        return self.half(1, workload) / self.half(0, workload)

    def end(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(READY_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _ask(self, what: str) -> Any:
        pipe = self._pipe(self._process.stdin)
        pipe.write(f"{what}\n")
        pipe.flush()
        return self._answer()

    def _answer(self) -> Any:
        line = self._pipe(self._process.stdout).readline()
        if not line:
            sys.exit(f"override_off: a process ({self.kind}) ended with {self._process.wait()}; see above")
        return json.loads(line)

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe


def visit_all(pairs: list[dict[str, Process]], rounds: int) -> None:
    for number in range(rounds):
        for pair in pairs[number % len(pairs) :] + pairs[: number % len(pairs)]:
            for kind in (UNTOUCHED, USED)[:: 1 if number % 2 == 0 else -1]:
                pair[kind].visit()


def measure(options: argparse.Namespace) -> list[Row]:
    cores = sorted(os.sched_getaffinity(0))
    pairs = [
        {kind: Process(kind, cores[number % len(cores)], options) for kind in (UNTOUCHED, USED)}
        for number in range(options.processes)
    ]
    everyone = [process for pair in pairs for process in pair.values()]
    try:
        for process in everyone:
            process.ready()
        visit_all(pairs, options.rounds)
        for process in everyone:
            process.touch()
        visit_all(pairs, options.rounds)
    finally:
        for process in everyone:
            process.end()
    return [row_of(workload, pairs) for workload in everyone[0].halves[0][0]]


def row_of(workload: str, pairs: list[dict[str, Process]]) -> Row:
    from tracer.compare.spread import Ratio

    ratios = [pair[USED].change(workload) / pair[UNTOUCHED].change(workload) for pair in pairs]
    ratio = Ratio.of(ratios, [1.0] * len(ratios))
    medians = [
        statistics.median(pair[kind].half(1, workload) for pair in pairs) for kind in (UNTOUCHED, USED)
    ]
    return Row(workload, *medians, ratio.value, ratio.low, ratio.high)


def table(rows: list[Row]) -> str:
    lines = ["| a call | untouched | used | used / untouched (95 %) | |", "|---|--:|--:|--:|---|"]
    lines += [
        f"| {row.workload} | {row.untouched_s * 1e6:.2f} us | {row.used_s * 1e6:.2f} us | "
        f"{row.ratio:.4f} ({row.low:.4f} to {row.high:.4f}) | {'passed' if row.passed else 'FAILED'} |"
        for row in rows
    ]
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8, help="visits of each process in each half (8)")
    parser.add_argument("--processes", type=int, default=10, help="of each kind (10)")
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--override", default="mm:force,gru:force,cat:force", help="names, separated by commas"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    parser.add_argument("--process", choices=[UNTOUCHED, USED], help=argparse.SUPPRESS)
    parser.add_argument("--core", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    options = parse()
    if options.process:
        serve(options)
        return 0
    import torch

    if options.device.startswith("cuda") and not torch.cuda.is_available():
        print("override_off: torch finds no CUDA GPU here; --device cpu tries it out", file=sys.stderr)
        return 1
    begin = time.monotonic()
    rows = measure(options)
    print(
        f"{options.override}, {options.device}: {options.processes} processes of each kind, "
        f"2 x {options.rounds} rounds, {time.monotonic() - begin:.0f} s\n"
    )
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0 if all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
