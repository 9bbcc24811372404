"""Which plan of the GRU override is fastest for a shape, and where it beats stock. Needs a GPU.

    python benchmarks/gru_tuning.py                        # all cases, about four minutes on an H200
    python benchmarks/gru_tuning.py --only 'T32 B64' --all-plans
    python benchmarks/gru_tuning.py --json tuning.json --measured csrc/overrides/ops/gru_measured.h \
        --tuned csrc/overrides/kernels/gru_tuned.h

The cases are those of `tracer compare --tune` (tracer/compare/tuning_cases.py), and they are measured as it
measures them; here every plan is timed first, its calls captured in a CUDA graph. The plan of the forward
pass is found without gradients; then that of the backward pass, in calls of both. The fastest plans are then
measured against stock. Every result is compared with float64 first, and a wrong one makes the exit status 1.
The rows at the end are those of csrc/overrides/kernels/gru_tuned.h, which --tuned writes; --measured writes
what `auto` uses. Rows of cases that are not measured stay as they are.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from override_tuning import (
    HEAD,
    SETTINGS,
    Outcome,
    Prepared,
    fill,
    finish,
    native,
    on,
    parser_of,
    show,
    written,
)

from tracer.compare.measurement import Settings
from tracer.compare.switch import Switch
from tracer.compare.timing import graph_ns
from tracer.compare.tuning_cases import TuningCase, row_of, tuning_cases
from tracer.compare.workload import precision, without_warnings

PRECISIONS = ("tf32", "float32", "bfloat16", "float16")
ENUMERATORS = {"tf32": "kTf32", "float32": "kFloat32", "bfloat16": "kBfloat16", "float16": "kFloat16"}
STEP_TILES = 7  # kStepTiles of gru.h
Plan = tuple[int, ...]


@contextmanager
def pinned(which: str, plan: Plan | None) -> Iterator[None]:
    """`which`: forward, backward, or tile, whose plan is its index alone."""
    pin(which, plan)
    try:
        yield
    finally:
        pin(which, None)


def pin(which: str, plan: Plan | None) -> None:
    if which == "tile":
        native.pin_gru_step_tile(plan[0] if plan else -1)
    else:
        native.pin_gru_plan(which, plan)


def candidates(which: str, case: TuningCase) -> list[Plan]:
    if which == "tile":
        return [(tile,) for tile in range(STEP_TILES)]
    hidden = case.cases[0].shapes[1][0]
    plans: list[Plan] = [tuple(plan) for plan in native.gru_plans(which, case.sizes["precision"], hidden)]
    waste = [plan for plan in plans if plan[0] * plan[1] < 2 * hidden]
    return waste or plans


def label(which: str, plan: Plan) -> str:
    if which == "tile":
        return f"tile {plan[0]}"
    return f"{which} cluster {plan[0]} units {plan[1]} batch {plan[2]}"


def fastest(which: str, prepared: Prepared, outcome: Outcome) -> Plan | None:
    """The plan with the least time in a graph; None if each time step has a kernel of its own."""
    best: Plan | None = None
    for plan in candidates(which, outcome.case):
        name = label(which, plan)
        try:
            with pinned(which, plan), on("gru"):
                if wrong := prepared.why_wrong():
                    outcome.wrong.append(f"{name}: {wrong}")
                    continue
                outcome.plans_us[name] = graph_ns(prepared.hot) / 1e3
        except RuntimeError as error:  # more than the GPU has room for
            print(f"    {name}: {str(error).splitlines()[0]}")
            continue
        if best is None or outcome.plans_us[name] < outcome.plans_us[label(which, best)]:
            best = plan
    return best


def tune(case: TuningCase, switch: Switch, settings: Settings) -> tuple[Outcome, dict[str, Plan]]:
    """The outcome, and the plan of each pass that has one."""
    outcome, plans = Outcome(case), dict[str, Plan]()
    passes = ("forward", "backward") if len(case.cases) > 1 else ("tile",)
    try:
        for which, one in zip(passes, case.cases, strict=True):
            with precision(one):
                plan = fastest(which, Prepared(one), outcome)
            if plan is not None:
                plans[which] = plan
                pin(which, plan)
        outcome.best = ", ".join(label(*plan) for plan in plans.items()) or "stepwise"
        finish(outcome, switch, settings)
    finally:
        for which in passes:
            pin(which, None)
    return outcome, plans


def comment(case: TuningCase) -> str:
    """By which a row of the headers names its case."""
    return case.name.removeprefix("gru ")


def tuned_row(which: str, case: TuningCase, plan: Plan) -> tuple[str, str]:
    """The table of gru_tuned.h, and a row of it."""
    batch, hidden = case.sizes["batch"], case.sizes["hidden"]
    numbers = ", ".join(map(str, (*batch, *hidden, *plan)))
    start = f"Precision::{ENUMERATORS[case.sizes['precision']]}, {numbers}"
    if which == "tile":
        return "TunedTile", f"    {{{start}}},  // {comment(case)}"
    return "TunedPlan", f"    {{{str(which == 'forward').lower()}, {start}}},  // {comment(case)}"


def measured_row(case: TuningCase) -> str:
    first, *ranges = row_of(case)
    return f"    {{Precision::{ENUMERATORS[first]}, {written(ranges)}}},  // {comment(case)}"


def write_measured(path: Path, rows: list[str], again: set[str]) -> None:
    head = "// Where the GRU was measured to be faster than the stock one: what `auto` uses.\n"
    fill(path, head, {"MeasuredGru": rows}, again)


def write_tuned(path: Path, tables: dict[str, list[str]], again: set[str]) -> None:
    head = (
        "// Plans and tiles that were measured to be the fastest. Where none fits, the size decides\n"
        "// alone (choose_plan in gru_cluster.cuh, tile_for in gru_step.cu).\n"
    )
    fill(path, head, tables, again)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("precisions", nargs="*", choices=[*PRECISIONS, []], help="without one all")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("gru_tuning: needs a CUDA GPU, and there is none here")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; microseconds\n{HEAD}")
    settings = Settings(options.pairs, SETTINGS.seconds, graph_backward=True, clocks_ns=SETTINGS.clocks_ns)
    outcomes: list[Outcome] = []
    tuned: dict[str, list[str]] = {"TunedPlan": [], "TunedTile": []}
    measured: list[str] = []
    switch = Switch(["gru"])
    for case in tuning_cases("gru", options.only.split("|")):
        if case.sizes["precision"] not in (options.precisions or PRECISIONS):
            continue
        with without_warnings():
            outcome, plans = tune(case, switch, settings)
        show(outcome, every=options.all_plans)
        outcomes.append(outcome)
        for which, plan in plans.items():
            kind, row = tuned_row(which, case, plan)
            tuned[kind].append(row)
        if outcome.wins:
            measured.append(measured_row(case))
    again = {comment(outcome.case) for outcome in outcomes}
    for kind, lines in tuned.items():
        print("\n".join(["", kind, *lines]))
    if options.json:
        options.json.write_text(json.dumps([outcome.facts for outcome in outcomes], indent=1))
    if options.measured:
        write_measured(options.measured, measured, again)
    if options.tuned:
        write_tuned(options.tuned, tuned, again)
    if any(outcome.wrong for outcome in outcomes):
        sys.exit(1)


if __name__ == "__main__":
    main()
