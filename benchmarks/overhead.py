"""What recording costs, beside torch.profiler and an empty TorchDispatchMode.

    python benchmarks/overhead.py                 # about three minutes
    python benchmarks/overhead.py --quick         # under half a minute, rougher

In each round every workload is visited once by every variant, in rotating order, so that the noise
of the machine meets all of them. README.md in this folder says what the columns mean.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler announces each start and stop
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # CPU ops; with a GPU a forked process (the twin) runs no backward

from report import Row, as_json, goals_of, row_of, tables_of
from variants import Twin, all_variants
from workloads import CLOCKS, all_workloads

from tracer.recording import environment

IN_MEMORY = {"tmpfs", "ramfs"}


def main() -> None:
    options = parse()
    machine = describe_machine()
    with scratch_folder(options.folder) as name:
        folder = Path(name)
        file_system = file_system_of(folder)
        if file_system in IN_MEMORY:
            sys.exit(f"{folder} is in memory ({file_system}): name a folder on a disk with --folder")
        settings = {
            "rounds": options.rounds,
            "quick": options.quick,
            "clock": options.clock,
            "threads": 1,
            "file_system": file_system,
        }
        began = time.perf_counter()
        once = [measure_once(folder) for _ in range(1 if options.quick else 3)]
        rows, meanings = measure(folder, options.rounds, options.quick, options.clock)
        settings["seconds"] = round(time.perf_counter() - began, 1)
    goals = goals_of(rows, once)
    result = as_json(machine, settings, once, rows, goals)
    for line in headline(machine, settings, once, rows):
        print(line)
    for table in tables_of(rows, goals):
        print()
        print(table.markdown() if options.markdown else table.text(), end="")
    print()
    for key, meaning in meanings.items():
        print(f"- `{key}`: {meaning}" if options.markdown else f"{key:9}{meaning}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, help="visits of each variant to each workload (25; quick 5)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, a quarter of the calls")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="of batches (wall)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="save everything that was measured")
    parser.add_argument("--markdown", action="store_true", help="print markdown")
    parser.add_argument("--folder", type=Path, help="where traces go while measuring (build/)")
    options = parser.parse_args()
    if options.rounds is None:
        options.rounds = 5 if options.quick else 25
    if options.rounds < 2:
        parser.error("quartiles need two rounds or more")
    if options.json and not options.json.absolute().parent.is_dir():
        parser.error(f"{options.json} cannot be written: there is no such folder")
    return options


def measure(folder: Path, rounds: int, quick: bool, clock: str) -> tuple[list[Row], dict[str, str]]:
    """The rows of the table, and what each variant means."""
    workloads = all_workloads(quick, clock)
    for workload in workloads:
        workload.measure()
    gc.collect()
    gc.freeze()  # the collections between samples look at what the samples made only
    twin = Twin(workloads)
    variants = all_variants(folder, twin)
    samples = {(w.name, v.key): [] for w in workloads for v in variants}
    hops: dict[str, float] = {}
    for variant in variants:  # first uses load and build things
        variant.visit(workloads[0])
    began = time.perf_counter()
    for number in range(rounds):
        for workload in workloads:
            for place in range(len(variants)):
                variant = variants[(number + place) % len(variants)]
                visit = variant.visit(workload)
                samples[workload.name, variant.key].append(visit.sample)
                if visit.hops is not None:
                    hops[workload.name] = visit.hops
        progress(number + 1, rounds, time.perf_counter() - began)
    twin.close()
    gc.unfreeze()  # what stays frozen is not freed at exit, and nanobind (triton 3.9) prints that as leaks
    rows = [row_of(w, {v.key: samples[w.name, v.key] for v in variants}, hops[w.name]) for w in workloads]
    return rows, {variant.key: variant.meaning for variant in variants}


def measure_once(folder: Path) -> dict:
    """once.py in a process of its own."""
    command = [sys.executable, str(Path(__file__).with_name("once.py")), str(folder)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def scratch_folder(given: Path | None) -> tempfile.TemporaryDirectory:
    """A folder in `given` or ./build that is removed at the end. Never /tmp, which may be memory."""
    if given is None:
        given = Path("build")
        given.mkdir(exist_ok=True)
    if not given.is_dir():
        sys.exit(f"{given} is no folder: name one with --folder")
    return tempfile.TemporaryDirectory(prefix="overhead-", dir=given.absolute())


def file_system_of(folder: Path) -> str:
    """The type of the file system that `folder` is on, as the kernel names it."""
    found = ("", "unknown")
    here = os.path.join(folder.resolve(), "")
    with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            _, point, kind, *_ = line.split()
            point = os.path.join(point.replace("\\040", " "), "")
            if here.startswith(point) and len(point) >= len(found[0]):
                found = (point, kind)
    return found[1]


def describe_machine() -> dict[str, object]:
    noted = environment.snapshot({"shapes": True, "source": True})
    kept = {key: noted[key] for key in ("cpu", "cores", "platform", "python", "torch", "tracer")}
    return kept | {"date": datetime.now(timezone.utc).isoformat(timespec="seconds")}


def headline(machine: dict, settings: dict, once: list[dict], rows: list[Row]) -> list[str]:
    later = sorted(seconds for figures in once for seconds in figures["later_armings_s"])
    preempted = sum(sum(row.preempted.values()) for row in rows)
    visits = sum(len(column) for row in rows for column in row.samples.values())
    first = max(figures["first_arming_s"] for figures in once)
    return [
        f"tracer {machine['tracer']}, torch {machine['torch']}, Python {machine['python']}",
        f"{machine['cpu']}, {machine['cores']} cores",
        f"{machine['platform']}, {machine['date']}",
        f"{settings['rounds']} rounds in {settings['seconds']:.0f} s; 1 thread (torch.set_num_threads(1)); "
        f"{settings['clock']} clock; traces on {settings['file_system']}",
        f"arming: first of a process {first:.3f} s, later ones {later[len(later) // 2]:.3f} s",
        f"other work took the core in {preempted / visits:.0%} of the visits"
        + (": the machine is busy, the figures are rough" if preempted > visits / 20 else ""),
    ]


def progress(done: int, rounds: int, seconds: float) -> None:
    if sys.stderr.isatty():
        left = seconds / done * (rounds - done)
        end = "\n" if done == rounds else ""
        print(f"\rround {done} of {rounds}, {left:.0f} s left  ", end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
