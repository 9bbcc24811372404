"""What recording CUDA costs on the host, beside torch.profiler with CPU and CUDA activities.

    python benchmarks/cuda_cost.py                 # about a minute and a half on a machine with a GPU
    python benchmarks/cuda_cost.py --quick         # under a minute, rougher

Each variant runs each workload in processes of its own: part of what CUPTI costs stays after a tool has
let go of it, and one process differs from the next. They are visited in turns, one at a time. README.md in
this folder has the details.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from random import Random

import torch
from cuda_process import CUPTI_PARTS, OPTIONS, VARIANTS, WORKLOADS
from report import Goal, Table, short

import tracer

GOAL = 0.6
RATIOS = {
    "full/prof": ("full", "prof"),
    "lean/prof": ("lean", "prof"),
    "full/prof+": ("full", "prof+"),
    "full/before": ("full", "before"),
}
"""What is compared: what the first adds over what the second adds. The goal is for the first of them."""
START_SECONDS = 180
VISIT_SECONDS = 60


class Visited:
    """A process of cuda_process.py: the `number`-th of its variant and workload."""

    def __init__(
        self, variant: str, workload: str, number: int, options: argparse.Namespace, folder: Path
    ) -> None:
        self.variant, self.workload, self.number = variant, workload, number
        self.visits: list[dict[str, float]] = []
        self.figures: dict[str, object] = {}
        self.error: str | None = None
        self._errors = (folder / f"{variant} {workload}.log").open("w+")
        fewer = "4" if options.quick else "1"
        environment = os.environ | ({"PYTHONPATH": str(options.before)} if variant == "before" else {})
        self._process = subprocess.Popen(
            [
                *(sys.executable, str(Path(__file__).with_name("cuda_process.py"))),
                *(variant, workload, options.device, str(folder), fewer),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
            start_new_session=True,  # Ctrl-C is for this process, which ends them
        )

    def started(self) -> None:
        self._answer(START_SECONDS)

    def visit(self) -> None:
        if self.error is None and (visit := self._ask("visit", VISIT_SECONDS)):
            self.visits.append(visit)

    def end(self) -> None:
        if self.error is None:
            self.figures = self._ask("end", START_SECONDS) or {}
            while self.figures.keys() & {"ns", "ready"}:  # the answer that Ctrl-C did not wait for
                self.figures = self._answer(START_SECONDS) or {}
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _ask(self, what: str, seconds: float) -> dict | None:
        try:
            self._process.stdin.write(f"{what}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._fail("it ended by itself")
            return None
        return self._answer(seconds)

    def _answer(self, seconds: float) -> dict | None:
        timer = threading.Timer(seconds, self._process.kill)
        timer.daemon = True
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            self._fail(f"it ended, or gave no answer in {seconds:.0f} s")
            return None
        return json.loads(line)

    def _fail(self, why: str) -> None:
        self._process.wait()
        self._errors.seek(0)
        self.error = f"{why} (status {self._process.returncode}): {self._errors.read()[-2000:]}"


@dataclass(frozen=True)
class Row:
    """One workload. `added`: variant -> median over the rounds of what it adds to bare, in nanoseconds."""

    workload: str
    bare: float
    added: dict[str, float]
    spread: dict[str, float]
    behind: float
    memory: dict[str, float]
    figures: dict[str, dict]

    def ratio(self, name: str) -> float | None:
        one, other = (self.added.get(variant) for variant in RATIOS[name])
        return one / other if one and other and one > 0 and other > 0 else None


def main() -> None:
    options = parse()
    if options.device != "cpu" and not torch.cuda.is_available():
        sys.exit("torch finds no CUDA GPU here; --device cpu tries the benchmark itself")
    folder = options.folder or Path("build")
    folder.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    processes: list[Visited] = []
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="cuda-cost-", dir=folder.absolute()) as scratch:
        try:
            for workload in options.workloads:
                for number in range(options.processes):
                    measure(options, workload, number, Path(scratch), processes)
        except KeyboardInterrupt:
            print("stopped: what was measured until then follows", file=sys.stderr)
    seconds = time.perf_counter() - began
    rows = [row for workload in options.workloads if (row := row_of(workload, processes))]
    goal = Goal("full / profiler, training steps", geometric_mean(steps_of(rows), "full/prof"), GOAL)
    machine = describe_machine(options.device)
    print_result(options, machine, seconds, rows, goal)
    if likely := interval(rows, processes, "full/prof"):
        print("full/prof, 95 % of processes and rounds drawn anew: {:.2f} to {:.2f}".format(*likely))
    failed = [process for process in processes if process.error]
    for process in failed:
        print(f"FAILED: {process.variant}, {process.workload}: {process.error}")
    if options.json:
        options.json.write_text(json.dumps(as_json(machine, seconds, rows, goal, processes), indent=1) + "\n")
    if failed:
        sys.exit(1)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, help="visits of each process (9; quick 3)")
    parser.add_argument(
        "--processes", type=int, default=1, metavar="N", help="that share the rounds, one after the other (1)"
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds, a quarter of the steps")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=["bare", "hops", "full", "prof"])
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument(
        "--before", type=Path, metavar="FOLDER", help="of another tracer (pip install --target), for `before`"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="save everything that was measured")
    parser.add_argument("--markdown", action="store_true", help="print markdown")
    parser.add_argument("--folder", type=Path, help="where traces go while measuring (build/)")
    options = parser.parse_args()
    options.rounds = options.rounds or (3 if options.quick else 9)
    if not 1 <= options.processes <= options.rounds:
        parser.error("--processes: at least 1, and no more than there are rounds")
    if options.device == "cpu" and CUPTI_PARTS.keys() & set(options.variants):
        parser.error(f"--device cpu: {', '.join(CUPTI_PARTS)} need a GPU")
    if ("before" in options.variants) != (options.before is not None):
        parser.error("the variant `before` and --before FOLDER need each other")
    if "bare" not in options.variants:
        parser.error("what a variant adds is counted from bare: name it too")
    return options


def measure(
    options: argparse.Namespace, workload: str, number: int, folder: Path, processes: list[Visited]
) -> None:
    """Starts one process of each variant, together, and visits them in turns once they are warm. They are
    added to `processes` as soon as there is something to tell of them, so that Ctrl-C loses nothing.
    """
    started = [Visited(variant, workload, number, options, folder) for variant in options.variants]
    rounds = range(
        options.rounds * number // options.processes, options.rounds * (number + 1) // options.processes
    )
    try:
        for process in started:
            process.started()
        processes += started
        for turn in rounds:
            for place in range(len(started)):
                started[(turn + place) % len(started)].visit()
    finally:
        for process in started:
            process.end()


def rounds_of(workload: str, processes: list[Visited]) -> list[list[dict[str, dict]]]:
    """The visits of a workload: for each process of bare its rounds, of these the visit of each variant."""
    groups: dict[int, list[Visited]] = {}
    for process in processes:
        if process.workload == workload:
            groups.setdefault(process.number, []).append(process)
    return [
        [
            {process.variant: process.visits[turn] for process in group if turn < len(process.visits)}
            for turn in range(max(len(process.visits) for process in group))
        ]
        for group in groups.values()
    ]


def row_of(workload: str, processes: list[Visited]) -> Row | None:
    """None where bare did not run."""
    rounds = [visits for group in rounds_of(workload, processes) for visits in group if "bare" in visits]
    if not rounds:
        return None

    def of(variant: str) -> list[dict]:
        return [visits[variant] for visits in rounds if variant in visits]

    ran = [variant for variant in VARIANTS if of(variant)]
    others = [variant for variant in ran if variant != "bare"]
    return Row(
        workload=workload,
        bare=statistics.median(visit["ns"] for visit in of("bare")),
        added={variant: statistics.median(added(rounds, variant)) for variant in others},
        spread={variant: spread([visit["ns"] for visit in of(variant)]) for variant in ran},
        behind=statistics.median(visit["behind_ns"] for visit in of("bare")),
        memory={
            variant: max(visit["mib"] for visit in of(variant)) - max(visit["mib"] for visit in of("bare"))
            for variant in others
        },
        figures={
            variant: figures for variant in others if (figures := figures_of(workload, variant, processes))
        },
    )


def figures_of(workload: str, variant: str, processes: list[Visited]) -> dict[str, object]:
    """Those of the first of its processes whose recording is not complete, else of the last."""
    told = [
        process.figures
        for process in processes
        if (process.workload, process.variant) == (workload, variant) and process.figures
    ]
    return next((figures for figures in told if not is_complete(figures)), told[-1] if told else {})


def is_complete(figures: dict[str, object]) -> bool:
    return str(figures.get("verdict", "")).startswith("complete")


def added(rounds: list[dict[str, dict]], variant: str) -> list[float]:
    """What a variant adds to bare in each round, in ns: what disturbs the machine for seconds meets both."""
    return [
        visits[variant]["ns"] - visits["bare"]["ns"] for visits in rounds if {variant, "bare"} <= set(visits)
    ]


def spread(numbers: list[float]) -> float:
    """The distance of the quartiles."""
    if len(numbers) < 2:
        return 0.0
    low, _, high = statistics.quantiles(numbers, n=4, method="inclusive")
    return high - low


def steps_of(rows: list[Row], are_steps: bool = True) -> list[Row]:
    """The rows of training steps, or of single ops."""
    return [row for row in rows if WORKLOADS[row.workload].is_step == are_steps]


DRAWS = 2000


def interval(rows: list[Row], processes: list[Visited], name: str) -> tuple[float, float] | None:
    """Where 95 % of the geometric means of the steps lie when each workload's processes, and of each its
    rounds, are drawn anew (bootstrap); None where that cannot be said.
    """
    random = Random(0)
    workloads = [rounds_of(row.workload, processes) for row in steps_of(rows)]
    means = sorted(mean for _ in range(DRAWS) if (mean := drawn_mean(workloads, name, random)) is not None)
    return (means[len(means) // 40], means[-1 - len(means) // 40]) if len(means) > 0.9 * DRAWS else None


def drawn_mean(workloads: list[list[list[dict]]], name: str, random: Random) -> float | None:
    """The geometric mean of the ratios, of what is drawn with replacement; None where noise hides a cost."""
    logarithms = []
    for groups in workloads:
        drawn = [
            visits
            for group in random.choices(groups, k=len(groups))
            for visits in random.choices(group, k=len(group))
        ]
        costs = [added(drawn, variant) for variant in RATIOS[name]]
        if not all(costs):
            return None
        one, other = map(statistics.median, costs)
        if one <= 0 or other <= 0:
            return None
        logarithms.append(math.log(one / other))
    return math.exp(statistics.fmean(logarithms)) if logarithms else None


def geometric_mean(rows: list[Row], name: str) -> float | None:
    ratios = [ratio for row in rows if (ratio := row.ratio(name)) is not None]
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else None


def tables_of(rows: list[Row], variants: list[str]) -> list[Table]:
    others = [variant for variant in variants if variant != "bare"]

    def shown(number: float | None, form: str = ".2f") -> str:
        return "-" if number is None else f"{number:{form}}"

    def figure(row: Row, variant: str, name: str) -> str:
        value = row.figures.get(variant, {}).get(name)
        return "-" if value is None else short(value)

    ratios = [name for name, compared in RATIOS.items() if set(compared) <= set(others)]
    recorded = [variant for variant in others if variant in OPTIONS]
    return [
        Table(
            "host time of a step in ns: bare, and what each variant adds (median of rounds)",
            ["", "bare", *others, *ratios, "GPU behind"],
            [
                [
                    row.workload,
                    short(row.bare),
                    *(short(row.added[v], sign=True) if v in row.added else "-" for v in others),
                    *(shown(row.ratio(name)) for name in ratios),
                    short(row.behind),
                ]
                for row in rows
            ]
            + [
                [
                    *(f"geometric mean, {what}", "", *[""] * len(others)),
                    *(shown(geometric_mean(of, name)) for name in ratios),
                    "",
                ]
                for what, of in (("single ops", steps_of(rows, False)), ("steps", steps_of(rows)))
            ],
        ),
        Table(
            "spread: distance of the quartiles of ns a step",
            ["", *variants],
            [
                [row.workload, *(short(row.spread[v]) if v in row.spread else "-" for v in variants)]
                for row in rows
            ],
        ),
        Table(
            "memory added in MiB, at most; bytes of file and hops a step",
            [
                "",
                *(f"{v} MiB" for v in others),
                *(f"{v} B" for v in recorded),
                *(f"{v} hops" for v in recorded[:1]),
            ],
            [
                [
                    row.workload,
                    *(shown(row.memory.get(v), "+.1f") for v in others),
                    *(figure(row, v, "bytes_per_step") for v in recorded),
                    *(figure(row, v, "hops_per_step") for v in recorded[:1]),
                ]
                for row in rows
            ],
        ),
    ]


def print_result(
    options: argparse.Namespace, machine: dict, seconds: float, rows: list[Row], goal: Goal
) -> None:
    print(f"tracer {machine['tracer']}, torch {machine['torch']}, {machine['gpu']}")
    print(f"{machine['cores']} cores, {machine['platform']}, {machine['date']}")
    each = "a process" if options.processes == 1 else f"{options.processes} processes"
    print(f"{options.rounds} rounds in {seconds:.0f} s, {each} for each variant and workload")
    for table in [
        *tables_of(rows, options.variants),
        Table("goal", ["", "measured", "goal", "aim", "verdict"], [goal.cells()]),
    ]:
        print()
        print(table.markdown() if options.markdown else table.text(), end="")
    print()
    for variant in options.variants:
        print(
            f"- `{variant}`: {VARIANTS[variant]}" if options.markdown else f"{variant:9}{VARIANTS[variant]}"
        )
    for row in rows:
        for variant, figures in row.figures.items():
            if not is_complete(figures):
                print(f"{variant}, {row.workload}: {figures.get('verdict')}")


def describe_machine(device: str) -> dict[str, object]:
    return {
        "tracer": tracer.__version__,
        "torch": torch.__version__,
        "gpu": "no GPU" if device == "cpu" else torch.cuda.get_device_name(),
        "cores": len(os.sched_getaffinity(0)),
        "platform": platform.platform(),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def as_json(machine: dict, seconds: float, rows: list[Row], goal: Goal, processes: list[Visited]) -> dict:
    return {
        "machine": machine,
        "seconds": round(seconds, 1),
        "goal": {"name": goal.name, "value": goal.value, "goal": goal.goal, "verdict": goal.verdict},
        "workloads": [
            {
                "workload": row.workload,
                "bare_ns": row.bare,
                "added_ns": row.added,
                "spread_ns": row.spread,
                "gpu_behind_ns": row.behind,
                "memory_added_mib": row.memory,
                "ratios": {name: row.ratio(name) for name in RATIOS},
                "figures": row.figures,
            }
            for row in rows
        ],
        "visits": [
            {
                "variant": p.variant,
                "workload": p.workload,
                "process": p.number,
                "visits": p.visits,
                "error": p.error,
            }
            for p in processes
        ],
    }


if __name__ == "__main__":
    main()
