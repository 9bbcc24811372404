"""What the paths of modules and stacks of more than one line add to a recording.

    python benchmarks/python_cost.py                # about a minute
    python benchmarks/python_cost.py --rounds 40

Each round visits every workload with every variant once, in rotating order; times are the processor time
of the thread. Beside the medians is what a variant adds to `plain` in the same round: the median of
the differences in ns, and of the ratios.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import torch
from overhead import progress, scratch_folder
from torch import nn
from workloads import Workload, all_workloads

import tracer

VARIANTS: dict[str, dict | None] = {
    "bare": None,
    "plain": {"modules": False},
    "modules": {},
    "stack 4": {"modules": False, "stack": 4},
    "stack 16": {"modules": False, "stack": 16},
}
"""Options of the recording; None: no tool"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--folder", type=Path, help="where traces go while measuring (build/)")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("medians need two rounds or more")
    workloads = [*module_calls(), *(w for w in all_workloads(False, "cpu") if not w.small)]
    with scratch_folder(options.folder) as folder:
        samples = measure(workloads, Path(folder), options.rounds)
    for workload in workloads:
        print(f"\n{workload.name}")
        plain = samples[workload.name, "plain"]
        for name in VARIANTS:
            times = samples[workload.name, name]
            added = statistics.median(a - b for a, b in zip(times, plain, strict=True))
            ratio = statistics.median(a / b for a, b in zip(times, plain, strict=True))
            print(f"  {name:9}{statistics.median(times):14,.0f} ns{added:+12,.0f}  x {ratio:.3f}")


def module_calls() -> list[Workload]:
    """A module that runs no op, called alone and as the last of a path of five."""
    path: nn.Module = nn.Identity()
    for _ in range(4):
        path = nn.Sequential(path)
    names = {"one": nn.Identity(), "path": path, "x": torch.ones(1)}
    return [
        Workload("a call of a module without ops", "one(x)", names, 20_000, True, "cpu"),
        Workload("calls of five modules, each in the other", "path(x)", names, 5_000, True, "cpu"),
    ]


def measure(workloads: list[Workload], folder: Path, rounds: int) -> dict[tuple[str, str], list[float]]:
    samples: dict[tuple[str, str], list[float]] = {(w.name, v): [] for w in workloads for v in VARIANTS}
    names = list(VARIANTS)
    gc.collect()
    gc.freeze()
    began = os.times().elapsed
    for number in range(rounds):
        for workload in workloads:
            for place in range(len(names)):
                name = names[(number + place) % len(names)]
                samples[workload.name, name].append(visit(workload, VARIANTS[name], folder / "x.trace"))
        progress(number + 1, rounds, os.times().elapsed - began)
    return samples


def visit(workload: Workload, recorded: dict | None, path: Path) -> float:
    if recorded is None:
        return workload.measure().mean
    with tracer.record(path, force=True, **recorded):
        return workload.measure().mean


if __name__ == "__main__":
    main()
