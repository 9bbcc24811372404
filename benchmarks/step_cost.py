"""What recording costs in a whole training step, and the tables of it in docs/cost.md.

    python benchmarks/step_cost.py                   # on the CPU: some minutes
    python benchmarks/step_cost.py --device cuda     # on a machine with a GPU
    python benchmarks/step_cost.py --docs            # measures nothing: writes the tables

Processes take turns, as in cuda_cost.py: one process differs from the next by more than its rounds do. A
step is what the host needs for it, and what it then waits for the GPU. Results go to measured/steps_cpu.json
and steps_gpu.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cuda_cost import Visited

HERE = Path(__file__).resolve().parent
MEASURED = HERE / "measured"
COUNTS = HERE / "instructions" / "table.json"
PAGE = HERE.parent / "docs" / "cost.md"
BEGIN = "<!-- written by benchmarks/step_cost.py --docs -->\n"
END = "<!-- until here -->\n"
WORKLOADS = {
    "cpu": ["seq2seq step", "transformer step"],
    "cuda": ["resnet34 step", "gpt2 block step", "seq2seq step"],
}
SHOWN = {
    "only": "hops only",
    "full": "defaults",
    "ring": "`--max-size 64M`",
    "prof": "torch.profiler",
}
SHOWN_ON_GPU = {
    "only": "hops only",
    "hops": "`--cuda off`",
    "full": "defaults",
    "ring": "`--max-size 64M`",
    "prof": "torch.profiler",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=WORKLOADS, default="cpu")
    parser.add_argument("--processes", type=int, default=4, help="of each variant and workload (4)")
    parser.add_argument("--rounds", type=int, default=12, help="visits, shared by the processes (12)")
    parser.add_argument("--out", type=Path, default=MEASURED, help="folder of the results")
    parser.add_argument(
        "--docs", action="store_true", help="measure nothing; write the tables of docs/cost.md"
    )
    options = parser.parse_args()
    if options.docs:
        write_page()
        return
    if failed := measure(options):
        sys.exit(failed)


def measure(options: argparse.Namespace) -> str:
    """Writes the results; what failed, or nothing."""
    import cuda_cost

    variants = ["bare", *(SHOWN if options.device == "cpu" else SHOWN_ON_GPU)]
    asked = argparse.Namespace(
        variants=variants,
        device=options.device,
        rounds=options.rounds,
        processes=options.processes,
        quick=False,
        before=None,
    )
    processes: list[Visited] = []
    with tempfile.TemporaryDirectory(prefix="step-cost-", dir=_folder()) as scratch:
        for workload in WORKLOADS[options.device]:
            for number in range(options.processes):
                cuda_cost.measure(asked, workload, number, Path(scratch), processes)
            print(f"{workload}: {options.processes} processes of {len(variants)} variants", flush=True)
    found = {
        "machine": cuda_cost.describe_machine(options.device),
        "rounds": options.rounds,
        "processes": options.processes,
        "steps": {workload: of_steps(workload, processes) for workload in WORKLOADS[options.device]},
    }
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"steps_{'cpu' if options.device == 'cpu' else 'gpu'}.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    print("\n".join(table(found)))
    return "; ".join(
        f"{process.variant}, {process.workload}: {process.error}" for process in processes if process.error
    )


def of_steps(workload: str, processes: list[Visited]) -> dict[str, dict[str, float]]:
    """Variant -> ns (medians; added: to a bare step in the same round), MiB at most, hops of a step."""
    from cuda_cost import figures_of, rounds_of

    rounds = [visits for group in rounds_of(workload, processes) for visits in group]
    found = {}
    for variant in ("bare", *SHOWN_ON_GPU):
        both = [(visits[variant], visits["bare"]) for visits in rounds if {variant, "bare"} <= set(visits)]
        if not both:
            continue
        figures = figures_of(workload, variant, processes)
        found[variant] = {
            "host_ns": statistics.median(one["ns"] for one, _ in both),
            "step_ns": statistics.median(one["ns"] + one["behind_ns"] for one, _ in both),
            "added_host_ns": statistics.median(one["ns"] - bare["ns"] for one, bare in both),
            "added_step_ns": statistics.median(
                one["ns"] + one["behind_ns"] - bare["ns"] - bare["behind_ns"] for one, bare in both
            ),
            "added_mib": max(one["mib"] for one, _ in both) - max(bare["mib"] for _, bare in both),
            "hops": figures.get("hops_per_step", 0),
        }
    return found


def table(found: dict) -> list[str]:
    """A markdown table: a row for each step."""
    on_gpu = found["machine"]["gpu"] != "no GPU"
    shown = SHOWN_ON_GPU if on_gpu else SHOWN
    lines = [
        "| a training step | hops | alone | " + " | ".join(shown.values()) + " |",
        "|---|" + "---:|" * (2 + len(shown)),
    ]
    for workload, variants in found["steps"].items():
        hops = max(figures["hops"] for figures in variants.values())
        bare = variants["bare"]
        cells = [
            _cell(variants[variant], bare, hops if variant != "prof" and not on_gpu else 0)
            for variant in shown
        ]
        name = workload.removesuffix(" step")
        lines.append(f"| {name} | {hops:,.0f} | {bare['step_ns'] / 1e6:.2f} ms | {' | '.join(cells)} |")
    return lines


def _cell(figures: dict[str, float], bare: dict[str, float], hops: float) -> str:
    added = figures["added_step_ns"]
    if added <= 0:
        return "not measurable"
    part = f"+{added / bare['step_ns']:.1%}"
    return f"{part}, {figures['added_host_ns'] / hops:.0f} ns a hop" if hops else part


def memory_line(found: dict) -> str:
    """What a recorded process has more of, in the step that has most."""
    most = {
        variant: max(variants[variant]["added_mib"] for variants in found["steps"].values())
        for variant in ("only", "full", "ring")
    }
    return f"hops only {most['only']:.0f} MiB, defaults {most['full']:.0f}, ring {most['ring']:.0f}"


def of_turns() -> list[str]:
    import in_turns

    found = json.loads(in_turns.MEASURED.read_text())
    return [
        f"`benchmarks/in_turns.py`, {found['date']}, one {found['card']}, torch {found['torch']}; all "
        "variants in turns inside each of two processes, lower quartiles of steps (of the op, a thousand):",
        "",
        *in_turns.table(found),
        "",
    ]


def write_page() -> None:
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    lines = []
    for name in ("cpu", "gpu"):
        path = MEASURED / f"steps_{name}.json"
        if not path.is_file():
            continue
        found = json.loads(path.read_text())
        machine = found["machine"]
        command = "benchmarks/step_cost.py" + (" --device cuda" if name == "gpu" else "")
        where = f"one {machine['gpu']}" if name == "gpu" else f"{machine['cores']} cores, one thread"
        lines += [
            f"`{command}`, {machine['date'][:10]}, {where}, torch {machine['torch']}; medians of "
            f"{found['rounds']} rounds of {found['processes']} processes in turns:",
            "",
            *table(found),
            "",
            f"Memory that a recorded process has more (no file's): {memory_line(found)}.",
            "",
        ]
    lines += of_turns()
    sys.path.insert(0, str(COUNTS.parent))
    from count import MEANINGS

    counts = json.loads(COUNTS.read_text())
    made = counts["made_with"]
    lines += [
        f"Instructions of tracer's own code, `make bench-instructions` (valgrind; g++ {made['compiler']}, "
        f"torch {made['torch']}, Python {made['python']}). They do not change with the load of the machine; "
        "CI holds them within 2 %:",
        "",
        "| | instructions |",
        "|---|---:|",
        *(f"| {MEANINGS[key]} | {count:.0f} |" for key, count in counts["instructions"].items()),
        "",
    ]
    PAGE.write_text(before + BEGIN + "\n" + "\n".join(lines) + END + after)


def _folder() -> Path:
    folder = Path("build")
    folder.mkdir(exist_ok=True)
    return folder.absolute()


if __name__ == "__main__":
    main()
