"""Which plan of the mm override is fastest for a product, and where mm and cat beat stock. Needs a GPU.

    python benchmarks/override_tuning.py                       # all cases, about three minutes on an H200
    python benchmarks/override_tuning.py mm --only '8x1536x5893 NT float32' --all-plans
    python benchmarks/override_tuning.py --json tuning.json --measured csrc/overrides/measured.h
    python benchmarks/override_tuning.py mm --plans-only --tuned csrc/overrides/kernels/mm_tuned.h

The cases are those of `tracer compare --tune` (tracer/compare/tuning_cases.py), and they are measured as it
measures them; here each plan of a product is timed first. Its calls are captured in a CUDA graph, with the
same tensors again and again, so that what fits stays in L2, and "cold", with copies that do not fit. The plan
that is fastest cold is then measured against stock. Every result is compared with float64 first, and a wrong
one makes the exit status 1.

--tuned writes the plans, csrc/overrides/kernels/mm_tuned.h, and --measured what `auto` uses,
csrc/overrides/measured.h: each line holds for sizes within a factor of 1.41 of its case, and for as many
columns down to more than half; --measured has those where Tried.why_not says nothing. Lines of cases that are
not measured stay.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tracer.compare.accuracy import check
from tracer.compare.bounds import bound_of
from tracer.compare.cases import CUDA, STRICT, Case
from tracer.compare.measurement import Settings
from tracer.compare.model import Timing
from tracer.compare.switch import Switch
from tracer.compare.timing import graph_ns
from tracer.compare.tuning import Tried, gpu_time, measured
from tracer.compare.tuning_cases import TuningCase, row_of, tuning_cases
from tracer.compare.workload import Workload, cold_runs, precision, prepare, without_warnings

try:
    from tracer import _overrides as native
except ImportError:
    sys.exit("tuning: this tracer was built without the kernels of the overrides; they need a GPU and nvcc")

ENUMERATORS = {"float32": "kFloat", "bfloat16": "kBfloat16", "float16": "kHalf"}
SETTINGS = Settings(seconds=1.0, graph_backward=True, clocks_ns=100_000_000)


@dataclass
class Outcome:
    """The plans of a case with their times in a graph, in microseconds, and the best one against stock."""

    case: TuningCase
    plans_us: dict[str, float] = field(default_factory=dict)
    plans_cold_us: dict[str, float] = field(default_factory=dict)
    best: str = ""
    tried: Tried | None = None
    wrong: list[str] = field(default_factory=list)

    @property
    def wins(self) -> bool:
        return self.tried is not None and not self.tried.why_not

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "case": self.case.name,
            "best": self.best,
            "plans_us": self.plans_us,
            "plans_cold_us": self.plans_cold_us,
            "wrong": self.wrong,
            **(self.tried.row if self.tried else {}),
        }


class Prepared:
    """A case with its tensors, what stock makes of them, and what is right."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.work: Workload = prepare(case, CUDA)
        self.exact = self.work.exact()
        self.stock = self.work.named(self.work.run())
        self.hot = [self.work.run]
        self.cold = [] if case.backward else cold_runs(self.work, CUDA)

    def why_wrong(self) -> str:
        """What is wrong with the results of the kernels that are enabled; "" if nothing is."""
        found = self.work.named(self.work.run())
        for name, (wide, scale) in self.exact.items():
            bound = bound_of(self.case, name)
            if wrong := check(name, bound, self.stock[name], found[name], wide, scale).wrong:
                return f"{name}: {wrong}"
        return ""


@contextmanager
def on(name: str) -> Iterator[None]:
    """The override switched on; none of the calls of the body may be handed over."""
    native.reset_counts(name)
    native.install(name, True)
    try:
        yield
    finally:
        native.remove(name)
    reasons = [reasons for reasons in native.handed_over(name).values() if reasons]
    if reasons:
        raise RuntimeError(f"{name} handed over: {reasons}")


@contextmanager
def pinned(plan: str | None) -> Iterator[None]:
    native.pin_mm_plan(plan)
    try:
        yield
    finally:
        native.pin_mm_plan(None)


def tune_mm(case: TuningCase, switch: Switch, settings: Settings | None) -> Outcome:
    outcome = Outcome(case)
    with precision(case.cases[0]):
        prepared = Prepared(case.cases[0])
        for plan in native.mm_plans(*prepared.work.inputs[-2:]):
            with pinned(plan), on("mm"):
                if wrong := prepared.why_wrong():
                    outcome.wrong.append(f"{plan}: {wrong}")
                    continue
                outcome.plans_us[plan] = graph_ns(prepared.hot) / 1e3
                outcome.plans_cold_us[plan] = graph_ns(prepared.cold or prepared.hot) / 1e3
    if outcome.plans_us:
        outcome.best = min(outcome.plans_cold_us, key=outcome.plans_cold_us.__getitem__)
        if settings:
            with pinned(outcome.best):
                finish(outcome, switch, settings)
    return outcome


def tune_cat(case: TuningCase, switch: Switch, settings: Settings) -> Outcome:
    outcome = Outcome(case, best="cat")
    finish(outcome, switch, settings)
    return outcome


def finish(outcome: Outcome, switch: Switch, settings: Settings) -> None:
    """Measures the plan that is pinned against stock."""
    outcome.tried = measured(outcome.case, switch, settings)
    for result in outcome.tried.results:
        if result.failed:
            print(f"    {result.name}: {result.raised}", flush=True)
    if outcome.tried.why_not == "WRONG":
        outcome.wrong.append(outcome.best)


def tuned_line(case: TuningCase, plan: str) -> str:
    """The line of kTunedMm that takes this plan for products like the case."""
    words = plan.split()
    others = "kGroups" if words[0].endswith("-groups") else "kTensor"
    method = {"dot": "kDot", "ffma": "kFfma", "direct": "kDirect"}.get(words[0], others)
    rows, columns = words[1].split("x")
    split = words[3] if len(words) > 2 else "1"
    product = case.cases[0]
    kind = "kTwoBytes" if product.dtype != "float32" else "kStrict" if product.mode == STRICT else "kTf32"
    sizes = written(row_of(case)[2:])
    return (
        f"    {{ProductKind::{kind}, {sizes}, {{Method::{method}, {rows}, {columns}, {split}}}}},"
        f"  // {case.name}"
    )


def measured_line(case: TuningCase) -> str:
    """The line of the built-in table in measured.h."""
    first, *others = row_of(case)
    start = f"Element::{ENUMERATORS[first]}" if case.family == "mm" else written([first])
    return f"    {{{start}, {written(others)}}},  // {case.name}"


def written(values: Any) -> str:
    """Ranges and truth values as C++ has them."""
    return ", ".join(
        f"{{{value[0]}, {value[1]}}}" if isinstance(value, tuple) else str(value).lower() for value in values
    )


def write_measured(path: Path, outcomes: list[Outcome]) -> None:
    """The header anew, its two tables filled."""
    lines = {
        family: [measured_line(each.case) for each in outcomes if each.case.family == family and each.wins]
        for family in ("mm", "cat")
    }
    head = "// Where the overrides were measured to be faster than the stock kernels: what `auto` uses.\n"
    again = {each.case.name for each in outcomes if each.tried}
    fill(path, head, {"MeasuredMm": lines["mm"], "MeasuredCat": lines["cat"]}, again)


def write_tuned(path: Path, outcomes: list[Outcome]) -> None:
    products = [each for each in outcomes if each.case.family == "mm" and each.best]
    head = (
        "// The plans that were measured to be the fastest for their products; others:\n"
        "// plan_for() in mm_plans.cpp.\n"
    )
    lines = [tuned_line(each.case, each.best) for each in products]
    fill(path, head, {"TunedMm": lines}, {each.case.name for each in products})


def fill(path: Path, head: str, tables: dict[str, list[str]], again: set[str]) -> None:
    """The header with another head, and with these rows in its arrays of NAME. The comment of a row names its
    case; rows there of cases that are not measured `again` stay."""
    text = path.read_text()
    for kind, rows in tables.items():
        start = text.index(f"inline constexpr std::array<{kind}, ")
        name = text[text.index("> ", start) + 2 : text.index("{", start)]
        end = text.index(";\n", start) + 2
        before = [line for line in text[start:end].splitlines() if line.startswith("    {")]
        # New rows first: the first that fits a product counts.
        rows += [line for line in before if line.partition("  // ")[2] not in again]
        filled = "{{\n" + "\n".join(rows) + "\n}}" if rows else "{}"
        text = f"{text[:start]}inline constexpr std::array<{kind}, {len(rows)}> {name}{filled};\n{text[end:]}"
    gpu = torch.cuda.get_device_name()
    text = re.sub(r'(kMeasuredOn = ")[^"]*', rf"\g<1>{gpu}", text)
    made = f"// Written by benchmarks/{Path(sys.argv[0]).name}: {gpu}, torch {torch.__version__}.\n"
    path.write_text(head + made + text[text.index("#pragma once") :])


HEAD = (
    "| case | plan | warm us | ratio | cold us | ratio | wall us | ratio (95 %) | auto |\n" + "|---" * 9 + "|"
)


def show(outcome: Outcome, *, every: bool) -> None:
    if not outcome.tried and outcome.best:
        print(f"| {outcome.case.name} | {outcome.best} | {outcome.plans_us[outcome.best]:.1f} | | ", end="")
        print(f"{outcome.plans_cold_us[outcome.best]:.1f} | | | | |", flush=True)
    if outcome.tried:
        for case, result in zip(outcome.case.cases, outcome.tried.results, strict=True):
            cells = [
                outcome.case.name + (" +bwd" if case.backward else ""),
                outcome.best,
                *times(result.gpu),
                *times(gpu_time(result)),
                *times(result.wall),
                outcome.tried.why_not or "yes",
            ]
            if result.wall:
                cells[-2] += f" ({result.wall.ratio.low:.2f} to {result.wall.ratio.high:.2f})"
            print("| " + " | ".join(cells) + " |", flush=True)
    for wrong in outcome.wrong:
        print(f"WRONG {outcome.case.name}: {wrong}", flush=True)
    if every:
        for plan, us in sorted(outcome.plans_us.items(), key=lambda item: item[1]):
            print(f"    {us:8.2f}  {plan}")


def times(timing: Timing | None) -> list[str]:
    if timing is None:
        return ["", ""]
    return [
        f"{timing.stock.median / 1e3:.1f} / {timing.override.median / 1e3:.1f}",
        f"{timing.ratio.value:.2f}",
    ]


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="cases whose name has this text, or one of those between |"
    )
    parser.add_argument("--pairs", type=int, default=50, help="pairs of samples a case (50)")
    parser.add_argument("--all-plans", action="store_true", help="print the time of every plan")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--tuned", type=Path, metavar="FILE", help="the header of plans to write")
    parser.add_argument("--measured", type=Path, metavar="FILE", help="the header for auto to write")
    return parser


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("ops", nargs="*", metavar="OP", help="mm, cat; without one both")
    parser.add_argument("--plans-only", action="store_true", help="the plans of mm, not beside stock")
    options = parser.parse_args()
    if unknown := set(options.ops) - {"mm", "cat"}:
        parser.error(f"there are no cases of {', '.join(sorted(unknown))}: name mm, cat or nothing")
    if not torch.cuda.is_available():
        sys.exit("override_tuning: needs a CUDA GPU, and there is none here")
    settings = Settings(options.pairs, SETTINGS.seconds, clocks_ns=SETTINGS.clocks_ns)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; microseconds\n{HEAD}")
    outcomes: list[Outcome] = []
    for op in ["mm"] if options.plans_only else options.ops or ["mm", "cat"]:
        switch, tune = Switch([op]), {"mm": tune_mm, "cat": tune_cat}[op]
        for case in tuning_cases(op, options.only.split("|")):
            with without_warnings():
                outcomes.append(tune(case, switch, None if options.plans_only else settings))
            show(outcomes[-1], every=options.all_plans)
    if options.json:
        options.json.write_text(json.dumps([each.facts for each in outcomes], indent=1))
    if options.measured:
        write_measured(options.measured, outcomes)
    if options.tuned:
        write_tuned(options.tuned, outcomes)
    if any(each.wrong for each in outcomes):
        sys.exit(1)


if __name__ == "__main__":
    main()
