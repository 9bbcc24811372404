"""Which plan of the mm override is fastest for a product, and where mm and cat beat stock. Needs a GPU.

    python benchmarks/override_tuning.py                       # all cases, about two minutes on an H200
    python benchmarks/override_tuning.py mm --only '8x1536x5893 NT float32' --all-plans
    python benchmarks/override_tuning.py --json tuning.json --measured csrc/overrides/measured.h

For each case the calls of stock and of every plan are captured in a CUDA graph (20 calls, no host cost) and
timed, with the same tensors again and again, so that what fits stays in L2, and "cold", with copies of the
weight that do not fit. The plan that is fastest cold is then timed against stock one eager call at a time,
between CUDA events and so with host cost, in pairs of alternating order. Every result is compared with
float64 first, and a wrong one makes the exit status 1.

--tuned writes the plans, csrc/overrides/kernels/mm_tuned.h, and --measured what `auto` uses,
csrc/overrides/measured.h: each line holds for sizes within a factor of 1.41 of its case, and for as many
columns down to more than half; --measured has those that were faster with their whole 95 % interval, and not
slower on the GPU alone. Lines of cases that are not measured stay.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tracer import _overrides as overrides

CALLS = 20  # in a graph
COLD_BYTES = 200 << 20
BOUNDS = {torch.float32: 2e-6, torch.bfloat16: 3e-3, torch.float16: 4e-4}
Call = Callable[[], Tensor]


@dataclass
class MmCase:
    m: int
    k: int
    n: int
    layout: str  # NT: b is a transposed weight
    dtype: torch.dtype
    tf32: bool = False
    bias: bool = False

    @property
    def name(self) -> str:
        dtype = "tf32" if self.tf32 else str(self.dtype).removeprefix("torch.")
        return f"{'addmm' if self.bias else 'mm'} {self.m}x{self.k}x{self.n} {self.layout} {dtype}"


@dataclass
class CatCase:
    shapes: list[tuple[int, ...]]
    dim: int
    dtype: torch.dtype

    @property
    def name(self) -> str:
        shapes = " ".join("x".join(map(str, shape)) for shape in self.shapes[:3])
        more = f" and {len(self.shapes) - 3} more" if len(self.shapes) > 3 else ""
        return f"cat dim {self.dim} {shapes}{more} {str(self.dtype).removeprefix('torch.')}"


@dataclass
class Outcome:
    name: str
    stock_us: float = 0.0  # in a graph, hot
    plans_us: dict[str, float] = field(default_factory=dict)  # in a graph, hot
    plans_cold_us: dict[str, float] = field(default_factory=dict)  # empty: those of plans_us count
    best: str = ""
    cold_us: tuple[float, float] = (0.0, 0.0)  # in a graph: stock, best
    wall_us: tuple[float, float] = (0.0, 0.0)  # eager: stock, best; medians
    wall_ratio: tuple[float, float, float] = (0.0, 0.0, 0.0)  # median of the pairs, and its 95 % interval
    wrong: list[str] = field(default_factory=list)

    @property
    def loses_gpu_time(self) -> bool:
        stock, ours = self.cold_us if self.cold_us[0] else (self.stock_us, self.plans_us[self.best])
        return ours > stock


def mm_cases() -> list[MmCase]:
    f32, bf16, f16 = torch.float32, torch.bfloat16, torch.float16
    cases = []
    for m in (1, 2, 4, 8, 16, 32, 64, 128):
        for dtype in (f32, bf16):
            cases.append(MmCase(m, 1536, 5893, "NT", dtype))  # a vocabulary
            cases.append(MmCase(m, 4096, 4096, "NT", dtype))
            cases.append(MmCase(m, 5893, 1536, "NN", dtype))  # its gradient by the input
            if m <= 16 and not (m == 8 and dtype == f32):
                cases.append(MmCase(m, 4096, 4096, "NN", dtype))
    for m in (8, 32, 128):
        cases.append(MmCase(m, 1536, 5893, "NT", f32, tf32=True))
        cases.append(MmCase(m, 1536, 5893, "NT", f16))
        cases.append(MmCase(m, 512, 1536, "NT", f32))
        cases.append(MmCase(m, 4096, 4096, "NN", f32))
    for m in (1, 64, 128):
        cases += [MmCase(m, 1792, 7853, "NT", dtype, bias=True) for dtype in (f32, bf16)]
    cases += [MmCase(3200, 512, 1, "NT", dtype) for dtype in (f32, bf16)]  # a score for each position
    return cases


def cat_cases() -> list[CatCase]:
    f32, bf16 = torch.float32, torch.bfloat16
    return [
        *(CatCase([(64, 512)] * count, 1, f32) for count in (2, 3, 4)),
        CatCase([(64, 512)] * 2, 0, f32),
        CatCase([(64, 512), (64, 1024)], 1, f32),
        CatCase([(4096, 4096)] * 2, 0, f32),
        CatCase([(4096, 4096)] * 2, 1, f32),
        CatCase([(16384, 8192)] * 4, 1, f32),
        CatCase([(8192, 4097)] * 2, 1, bf16),
        CatCase([(20000, 30108), (20000, 624), (20000, 772)], 1, f32),
        CatCase([(64, 32, 56, 56)] * 6, 1, bf16),
        CatCase([(1 << 22, 1)] * 4, 1, f32),
        CatCase([(16, 100, 40)] * 30, 2, f32),
    ]


def graph_us(calls: list[Call]) -> float:
    """Microseconds a call: the median of 9 replays of a graph of CALLS calls, which take turns."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    count = max(CALLS, len(calls))
    with torch.cuda.graph(graph, stream=stream):
        for i in range(count):
            calls[i % len(calls)]()
    times = []
    for _ in range(11):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1000 / count)
    return statistics.median(times[2:])


def eager_us(call: Call) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1000


class On:
    """The override switched on, and the calls of its body counted: none may be handed over."""

    def __init__(self, name: str, plan: str | None = None) -> None:
        self.name, self.plan = name, plan

    def __enter__(self) -> None:
        overrides.pin_mm_plan(self.plan)
        overrides.reset_counts(self.name)
        overrides.install(self.name, True)

    def __exit__(self, *raised: object) -> None:
        overrides.remove(self.name)
        overrides.pin_mm_plan(None)
        reasons = [reasons for reasons in overrides.handed_over(self.name).values() if reasons]
        if reasons and not raised[0]:
            raise RuntimeError(f"{self.name} handed over: {reasons}")


def wall(name: str, plan: str | None, call: Call, pairs: int, outcome: Outcome) -> None:
    stock, ours = [], []
    for i in range(pairs + 5):
        for side in (0, 1) if i % 2 else (1, 0):
            if side == 0:
                stock.append((call(), eager_us(call))[1])
            else:
                with On(name, plan):
                    ours.append((call(), eager_us(call))[1])
    first, second = np.array(stock[5:]), np.array(ours[5:])
    outcome.wall_us = float(np.median(first)), float(np.median(second))
    picks = np.random.default_rng(0).integers(0, pairs, (2000, pairs))
    ratios = np.median(first[picks], axis=1) / np.median(second[picks], axis=1)
    outcome.wall_ratio = (
        outcome.wall_us[0] / outcome.wall_us[1],
        *map(float, np.percentile(ratios, [2.5, 97.5])),
    )


def stored(rows: int, columns: int, transposed: bool, dtype: torch.dtype) -> Tensor:
    shape = (columns, rows) if transposed else (rows, columns)
    tensor = torch.randn(shape, device="cuda").to(dtype)
    return tensor.t() if transposed else tensor


def tune_mm(case: MmCase, pairs: int) -> Outcome:
    torch.backends.cuda.matmul.allow_tf32 = case.tf32
    outcome = Outcome(case.name)
    a = stored(case.m, case.k, case.layout[0] == "T", case.dtype)
    b = stored(case.k, case.n, case.layout[1] == "T", case.dtype)
    bias = torch.randn(case.n, device="cuda").to(case.dtype)
    long = a if case.m > case.n else b
    copies = [long.clone() for _ in range(min(40, 1 + COLD_BYTES // (long.numel() * long.element_size())))]

    def product(weight: Tensor) -> Tensor:
        x, y = (weight, b) if long is a else (a, weight)
        return torch.addmm(bias, x, y) if case.bias else torch.mm(x, y)

    hot = [lambda: product(long)]
    cold = [lambda weight=weight: product(weight) for weight in copies]
    exact = a.double() @ b.double() + (bias.double() if case.bias else 0)
    outcome.stock_us = graph_us(hot)
    for plan in overrides.mm_plans(a, b):
        with On("mm", plan):
            error = ((hot[0]().double() - exact).norm() / exact.norm()).item()
            if not error <= (1e-3 if case.tf32 else BOUNDS[case.dtype]):
                outcome.wrong.append(f"{plan}: off by {error:.1e}")
                continue
            outcome.plans_us[plan] = graph_us(hot)
            outcome.plans_cold_us[plan] = graph_us(cold)
    if not outcome.plans_us:
        return outcome
    outcome.best = min(outcome.plans_cold_us, key=outcome.plans_cold_us.__getitem__)
    outcome.cold_us = graph_us(cold), outcome.plans_cold_us[outcome.best]
    wall("mm", outcome.best, hot[0], pairs, outcome)
    return outcome


def tune_cat(case: CatCase, pairs: int) -> Outcome:
    outcome = Outcome(case.name)
    tensors = [torch.randn(shape, device="cuda").to(case.dtype) for shape in case.shapes]

    def call() -> Tensor:
        return torch.cat(tensors, case.dim)

    expected = call()
    outcome.stock_us = graph_us([call])
    with On("cat"):
        if not torch.equal(call().view(torch.uint8), expected.view(torch.uint8)):
            outcome.wrong.append("other bytes than stock")
            return outcome
        outcome.best = "cat"
        outcome.plans_us = {"cat": graph_us([call])}
    wall("cat", None, call, pairs, outcome)
    return outcome


def tuned_line(case: MmCase, plan: str) -> str:
    """The line of kTunedMm that takes this plan for products like the case."""
    words = plan.split()
    method = {"dot": "kDot", "ffma": "kFfma", "direct": "kDirect"}.get(words[0], "kTensor")
    rows, columns = words[1].split("x")
    split = words[3] if len(words) > 2 else "1"
    kind = "kTf32" if case.tf32 else "kStrict" if case.dtype == torch.float32 else "kTwoBytes"
    return (
        f"    {{ProductKind::{kind}, {shape_of(case)}, {{Method::{method}, {rows}, {columns}, {split}}}}},"
        f"  // {case.name}"
    )


def shape_of(case: MmCase) -> str:
    """inner_major, and the ranges of columns, rows and the inner dimension."""
    weight_is_b = case.m <= case.n
    inner_major = (case.layout[1] == "T") if weight_is_b else (case.layout[0] == "N")
    columns, rows = sorted((case.m, case.n))
    columns_range = f"{{{columns // 2 + 1}, {columns}}}"
    return f"{str(inner_major).lower()}, {columns_range}, {around(rows)}, {around(case.k)}"


def around(size: int) -> str:
    return f"{{{max(1, math.ceil(size / math.sqrt(2)))}, {math.floor(size * math.sqrt(2))}}}"


def measured_mm(case: MmCase) -> str:
    element = {torch.float32: "kFloat", torch.bfloat16: "kBfloat16", torch.float16: "kHalf"}[case.dtype]
    return f"    {{Element::{element}, {str(case.tf32).lower()}, {shape_of(case)}}},  // {case.name}"


def measured_cat(case: CatCase) -> str:
    total = sum(math.prod(shape) for shape in case.shapes) * case.dtype.itemsize
    runs = [math.prod(shape[case.dim :]) * case.dtype.itemsize for shape in case.shapes]
    aligned = all(run % 16 == 0 for run in runs)
    return f"    {{{around(len(runs))}, {around(total)}, {str(aligned).lower()}}},  // {case.name}"


def write_measured(path: Path, cases: list[tuple[MmCase | CatCase, Outcome]]) -> None:
    """The header anew, its two tables filled."""
    won = [case for case, outcome in cases if outcome.wall_ratio[1] > 1.0 and not outcome.loses_gpu_time]
    mm = [measured_mm(case) for case in won if isinstance(case, MmCase)]
    cat = [measured_cat(case) for case in won if isinstance(case, CatCase)]
    head = "// Where the overrides were measured to be faster than the stock kernels: what `auto` uses.\n"
    fill(path, head, {"MeasuredMm": mm, "MeasuredCat": cat}, {case.name for case, _ in cases})


def write_tuned(path: Path, cases: list[tuple[MmCase | CatCase, Outcome]]) -> None:
    lines = [tuned_line(c, outcome.best) for c, outcome in cases if isinstance(c, MmCase) and outcome.best]
    head = (
        "// The plans that were measured to be the fastest for their products; others:\n"
        "// plan_for() in mm_plans.cpp.\n"
    )
    fill(path, head, {"TunedMm": lines}, {case.name for case, outcome in cases if outcome.best})


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
    where = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    made = f"// Written by benchmarks/{Path(sys.argv[0]).name}: {where}.\n"
    path.write_text(head + made + text[text.index("#pragma once") :])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ops", nargs="*", metavar="OP", help="mm, cat; without one both")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="cases whose name has this text, or one of those between |"
    )
    parser.add_argument("--pairs", type=int, default=50, help="eager calls of each side (50)")
    parser.add_argument("--all-plans", action="store_true", help="print the time of every plan")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--tuned", type=Path, metavar="FILE", help="the mm_tuned.h to write")
    parser.add_argument("--measured", type=Path, metavar="FILE", help="the measured.h to write")
    options = parser.parse_args()
    if unknown := set(options.ops) - {"mm", "cat"}:
        parser.error(f"there are no cases of {', '.join(sorted(unknown))}: name mm, cat or nothing")
    if not torch.cuda.is_available():
        sys.exit("override_tuning: needs a CUDA GPU, and there is none here")
    ops = options.ops or ["mm", "cat"]
    cases: list[MmCase | CatCase] = [
        *(mm_cases() if "mm" in ops else []),
        *(cat_cases() if "cat" in ops else []),
    ]
    cases = [case for case in cases if any(text in case.name for text in options.only.split("|"))]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; microseconds")
    print("| case | stock | best | plan | ratio | cold | eager stock | best | ratio (95 %) |")
    print("|---|---|---|---|---|---|---|---|---|")
    done: list[tuple[MmCase | CatCase, Outcome]] = []
    for case in cases:
        outcome = tune_mm(case, options.pairs) if isinstance(case, MmCase) else tune_cat(case, options.pairs)
        done.append((case, outcome))
        if outcome.best:
            best = outcome.plans_us[outcome.best]
            cold = f"{outcome.cold_us[0]:.1f} / {outcome.cold_us[1]:.1f}" if outcome.cold_us[0] else ""
            ratio, low, high = outcome.wall_ratio
            eager_stock, eager = outcome.wall_us
            print(
                f"| {case.name} | {outcome.stock_us:.1f} | {best:.1f} | {outcome.best} "
                f"| {outcome.stock_us / best:.2f} | {cold} "
                f"| {eager_stock:.1f} | {eager:.1f} | {ratio:.2f} ({low:.2f} to {high:.2f}) |",
                flush=True,
            )
        for wrong in outcome.wrong:
            print(f"WRONG {case.name}: {wrong}", flush=True)
        if options.all_plans:
            for plan, us in sorted(outcome.plans_us.items(), key=lambda item: item[1]):
                print(f"    {us:8.2f}  {plan}")
    if options.json:
        options.json.write_text(json.dumps([asdict(outcome) for _, outcome in done], indent=1))
    if options.measured:
        write_measured(options.measured, done)
    if options.tuned:
        write_tuned(options.tuned, done)
    if any(outcome.wrong for _, outcome in done):
        sys.exit(1)


if __name__ == "__main__":
    main()
