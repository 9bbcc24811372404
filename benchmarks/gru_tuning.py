"""Which plan of the GRU override is fastest for a shape, and where it beats stock. Needs a GPU.

    python benchmarks/gru_tuning.py                        # all cases, about three minutes on an H200
    python benchmarks/gru_tuning.py --only 'T32 B64' --all-plans
    python benchmarks/gru_tuning.py --json tuning.json --measured csrc/overrides/ops/gru_measured.h \
        --tuned csrc/overrides/kernels/gru_tuned.h

For each case and precision the calls of stock and of every plan are captured in a CUDA graph (20 calls, no
host cost) and timed; then the fastest plan is timed against stock one eager call at a time, host cost
included, in pairs of alternating order. The plan of the forward pass is found first, without gradients; then
that of the backward pass, in calls of both. Every result is compared with float64 first, and a wrong one
makes the exit status 1. The rows at the end are those of csrc/overrides/kernels/gru_tuned.h, which --tuned
writes; --measured writes what `auto` uses. Rows of cases that are not measured stay as they are.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

try:
    from tracer import _overrides as native
except ImportError:
    sys.exit(
        "gru_tuning: this tracer was built without the kernels of the overrides; they need a GPU and nvcc"
    )

from override_tuning import On, Outcome, around, fill, graph_us, wall

PRECISIONS = ("tf32", "float32", "bfloat16", "float16")
TYPES = {
    "tf32": torch.float32,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
ENUMERATORS = {"tf32": "kTf32", "float32": "kFloat32", "bfloat16": "kBfloat16", "float16": "kFloat16"}
LARGEST = {"tf32": 5e-3, "float32": 1e-5, "bfloat16": 3e-2, "float16": 4e-3}
GRADIENT = {"tf32": 5e-3, "float32": 1e-4, "bfloat16": 3e-2, "float16": 1e-2}
STEP_TILES = 7  # kStepTiles of gru.h
Plan = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    steps: int
    batch: int
    input: int
    hidden: int

    def __str__(self) -> str:
        return f"T{self.steps} B{self.batch} I{self.input} H{self.hidden}"


CASES = (
    Case(32, 64, 256, 512),
    *(Case(1, batch, 1536, 512) for batch in (1, 2, 4, 8, 16, 32, 64, 128)),
    Case(32, 128, 256, 512),
    Case(32, 16, 256, 512),
    Case(32, 32, 256, 256),
    Case(32, 1, 256, 512),
    Case(50, 128, 512, 1024),
)


class Work:
    """A GRU, and calls of its forward pass and of both passes."""

    def __init__(self, case: Case, precision: str) -> None:
        torch.manual_seed(0)
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
        self.precision = precision
        kind = TYPES[precision]
        self.module = nn.GRU(case.input, case.hidden).to("cuda", kind)
        self.x = torch.randn(case.steps, case.batch, case.input, device="cuda").to(kind)
        self.grad = torch.randn(case.steps, case.batch, case.hidden, device="cuda").to(kind)
        module = nn.GRU(case.input, case.hidden).to("cuda", torch.float64)
        module.load_state_dict(self.module.state_dict())
        with torch.backends.cudnn.flags(enabled=False):
            self.exact = gradients(module, self.x.double(), self.grad.double())

    def forward(self) -> Tensor:
        with torch.no_grad():
            return self.module(self.x)[0]

    def both(self) -> Tensor:
        return gradients(self.module, self.x, self.grad)[-1]

    def why_wrong(self, *, backward: bool) -> str:
        if not backward:
            error = (self.forward().double() - self.exact[0]).abs().max().item()
            return "" if error <= LARGEST[self.precision] else f"off by {error:.1e}"
        for y, y64 in zip(gradients(self.module, self.x, self.grad)[1:], self.exact[1:], strict=True):
            error = ((y.double() - y64).norm() / y64.norm()).item()
            if not error <= GRADIENT[self.precision]:
                return f"a gradient is off by {error:.1e}"
        return ""


def gradients(module: nn.GRU, x: Tensor, grad: Tensor) -> list[Tensor]:
    """The output, and the gradients of x and the weights."""
    x = x.detach().requires_grad_()
    output = module(x)[0]
    return [output.detach(), *torch.autograd.grad(output, [x, *module.parameters()], grad)]


@contextmanager
def pinned(which: str, plan: Plan | None) -> Iterator[None]:
    """`which`: forward, backward, or tile, whose plan is its index alone."""
    if which == "tile":
        native.pin_gru_step_tile(plan[0] if plan else -1)
    else:
        native.pin_gru_plan(which, plan)
    try:
        yield
    finally:
        if which == "tile":
            native.pin_gru_step_tile(-1)
        else:
            native.pin_gru_plan(which, None)


def candidates(which: str, case: Case, precision: str) -> list[Plan]:
    if which == "tile":
        return [(tile,) for tile in range(STEP_TILES)]
    plans: list[Plan] = [tuple(plan) for plan in native.gru_plans(which, precision, case.hidden)]
    waste = [plan for plan in plans if plan[0] * plan[1] < 2 * case.hidden]
    return waste or plans


def label(which: str, plan: Plan) -> str:
    if which == "tile":
        return f"tile {plan[0]}"
    return f"{which} cluster {plan[0]} units {plan[1]} batch {plan[2]}"


def fastest(which: str, work: Work, case: Case, call: Callable[[], Tensor], outcome: Outcome) -> Plan | None:
    """The plan with the least time in a graph; its time and those of the others go to the outcome."""
    best: Plan | None = None
    for plan in candidates(which, case, work.precision):
        name = label(which, plan)
        with pinned(which, plan):
            try:
                with On("gru"):
                    wrong = work.why_wrong(backward=which == "backward")
                    if wrong:
                        outcome.wrong.append(f"{name}: {wrong}")
                        continue
                    outcome.plans_us[name] = graph_us([call])
            except RuntimeError as error:  # more than the GPU has room for
                print(f"    {name}: {str(error).splitlines()[0]}")
                continue
        if best is None or outcome.plans_us[name] < outcome.plans_us[label(which, best)]:
            best = plan
    return best


def tune(which: str, work: Work, case: Case, pairs: int) -> tuple[Outcome, Plan | None]:
    backward = which == "backward"
    call = work.both if backward else work.forward
    outcome = Outcome(f"{'forward and backward' if backward else 'forward'} {case} {work.precision}")
    outcome.stock_us = graph_us([call])
    best = fastest(which, work, case, call, outcome)
    if best is None:  # each time step a kernel of its own
        with On("gru"):
            wrong = work.why_wrong(backward=backward)
            if wrong:
                outcome.wrong.append(wrong)
                return outcome, None
            outcome.plans_us["stepwise"] = graph_us([call])
        outcome.best = "stepwise"
        wall("gru", None, call, pairs, outcome)
    else:
        outcome.best = label(which, best)
        with pinned(which, best):
            wall("gru", None, call, pairs, outcome)
    return outcome, best


def wins(outcome: Outcome) -> bool:
    """Faster with the host's part, and not slower on the GPU alone."""
    return outcome.wall_ratio[1] > 1 and outcome.stock_us >= outcome.plans_us[outcome.best]


def runs_as(case: Case, precision: str) -> str:
    """What the override takes: a single row is multiplied exactly even where TF32 is allowed."""
    return "float32" if precision == "tf32" and case.steps * case.batch == 1 else precision


def tuned_row(which: str, case: Case, precision: str, plan: Plan) -> tuple[str, str]:
    """The table of gru_tuned.h, and a row of it."""
    sizes = f"{around(case.batch)[1:-1]}, {around(case.hidden)[1:-1]}, {', '.join(map(str, plan))}"
    start = f"Precision::{ENUMERATORS[precision]}, {sizes}"
    if which == "tile":
        return "TunedTile", f"    {{{start}}},  // {case} {precision}"
    return "TunedPlan", f"    {{{str(which == 'forward').lower()}, {start}}},  // {case} {precision}"


def measured_row(case: Case, precision: str) -> str:
    ranges = ", ".join(around(size) for size in (case.steps, case.batch, case.input, case.hidden))
    return f"    {{Precision::{ENUMERATORS[precision]}, {ranges}}},  // {case} {precision}"


def write_measured(path: Path, rows: list[str], again: set[str]) -> None:
    head = "// Where the GRU was measured to be faster than the stock one: what `auto` uses.\n"
    fill(path, head, {"MeasuredGru": rows}, again)


def write_tuned(path: Path, tables: dict[str, list[str]], again: set[str]) -> None:
    head = (
        "// Plans and tiles that were measured to be the fastest. Where none fits, the size decides\n"
        "// alone (choose_plan in gru_cluster.cuh, tile_for in gru_step.cu).\n"
    )
    fill(path, head, tables, again)


def show(outcome: Outcome, *, every: bool) -> None:
    if outcome.best:
        best = outcome.plans_us[outcome.best]
        ratio, low, high = outcome.wall_ratio
        print(
            f"| {outcome.name} | {outcome.stock_us:.1f} | {best:.1f} | {outcome.best} "
            f"| {outcome.stock_us / best:.2f} | {outcome.wall_us[0]:.1f} | {outcome.wall_us[1]:.1f} "
            f"| {ratio:.2f} ({low:.2f} to {high:.2f}) |",
            flush=True,
        )
    for wrong in outcome.wrong:
        print(f"WRONG {outcome.name}: {wrong}", flush=True)
    if every:
        for plan, us in sorted(outcome.plans_us.items(), key=lambda item: item[1]):
            print(f"    {us:8.2f}  {plan}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("precisions", nargs="*", choices=[*PRECISIONS, []], help="without one all")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name has this text")
    parser.add_argument("--pairs", type=int, default=50, help="eager calls of each side (50)")
    parser.add_argument("--all-plans", action="store_true", help="print the time of every plan")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--measured", type=Path, metavar="FILE", help="the gru_measured.h to write")
    parser.add_argument("--tuned", type=Path, metavar="FILE", help="the gru_tuned.h to write")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("gru_tuning: needs a CUDA GPU, and there is none here")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; microseconds")
    print("| case | stock | best | plan | ratio | eager stock | best | ratio (95 %) |")
    print("|---|---|---|---|---|---|---|---|")
    outcomes: list[Outcome] = []
    tuned: dict[str, list[str]] = {"TunedPlan": [], "TunedTile": []}
    measured: list[str] = []
    again: set[str] = set()
    for case in (case for case in CASES if options.only in str(case)):
        for precision in options.precisions or PRECISIONS:
            work = Work(case, precision)
            first = "tile" if case.steps == 1 else "forward"
            outcome, plan = tune(first, work, case, options.pairs)
            show(outcome, every=options.all_plans)
            outcomes.append(outcome)
            own = runs_as(case, precision) == precision  # else the rows of the other precision count
            rows = [tuned_row(first, case, precision, plan)] if plan else []
            faster = wins(outcome)
            if case.steps > 1:
                with pinned(first, plan):
                    outcome, plan = tune("backward", work, case, options.pairs)
                show(outcome, every=options.all_plans)
                outcomes.append(outcome)
                if plan:
                    rows.append(tuned_row("backward", case, precision, plan))
                faster = faster and wins(outcome)
            if own:
                again.add(f"{case} {precision}")
                for kind, row in rows:
                    tuned[kind].append(row)
                if faster:
                    measured.append(measured_row(case, precision))
    for kind, lines in tuned.items():
        print("\n".join(["", kind, *lines]))
    if options.json:
        options.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    if options.measured:
        write_measured(options.measured, measured, again)
    if options.tuned:
        write_tuned(options.tuned, tuned, again)
    if any(outcome.wrong for outcome in outcomes):
        sys.exit(1)


if __name__ == "__main__":
    main()
