"""The table of goals of the override kernels, measured: reports/kernels_h200.md. Needs a GPU.

    python benchmarks/kernels_report.py -o reports/kernels_h200.md     # about two minutes on an H200
    python benchmarks/kernels_report.py --only 'mm bf16' --pairs 10

Each row is a case of `tracer compare`, measured as it measures: stock and override in turns, GPU time of a
call in a CUDA graph with the same inputs each time (warm) and with inputs that take turns (cold, larger than
L2), and wall time with host cost. The overrides are forced, so rows that `auto` leaves to stock are measured
too. Every result is compared with float64 first. The exit status is 1 if one is wrong, or if a second run
gives other bits.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from tracer.compare.cases import CUDA, STRICT, TF32, TRANSPOSED, Case
from tracer.compare.measurement import Settings, compare_one
from tracer.compare.model import CaseResult, Timing
from tracer.compare.switch import Switch

WARM, COLD, WALL = "warm", "cold", "wall"


@dataclass(frozen=True)
class Row:
    """A case, the time that its goal is for, the limit, and the least and the aimed ratio."""

    case: Case
    kind: str
    least: float
    aim: float
    limit: str = ""


def gru(length: int, batch: int, size: int, hidden: int, mode: str = "", **more: object) -> Case:
    return Case("gru", "gru", ((length, batch, size), (hidden,)), mode=mode, **more)  # type: ignore[arg-type]


def mm(m: int, k: int, n: int, dtype: str, layout: str = "") -> Case:
    return Case("mm", "mm", ((m, k), (k, n)), dtype, STRICT if dtype == "float32" else "", layout)


def cat(shapes: list[tuple[int, ...]], dim: int, dtype: str = "float32") -> Case:
    return Case("cat", "cat", tuple(shapes), dtype, dim=dim)


BF16 = "bfloat16"
FIRST, SECOND = (32, 64, 256, 512), (50, 128, 512, 1024)
ROWS = [
    Row(gru(*FIRST, dtype=BF16), WARM, 2.5, 5, "30 us"),
    Row(gru(*FIRST, mode=TF32), WARM, 2.0, 4, "40 us"),
    Row(gru(*FIRST, mode=STRICT), WARM, 2.0, 2.5, "80 us"),
    Row(gru(*FIRST, mode=TF32), WALL, 4, 6),
    Row(gru(*SECOND, dtype=BF16), WARM, 1.5, 3, "77 us"),
    Row(gru(*SECOND, mode=TF32), WARM, 1.2, 1.8, "153 us"),
    Row(gru(*SECOND, mode=STRICT), WARM, 1.0, 1.1, "1007 us"),
    Row(gru(*FIRST, dtype=BF16, backward=True), WALL, 3.5, 5),
    Row(gru(*FIRST, mode=TF32, backward=True), WALL, 3.0, 4),
    Row(gru(*SECOND, dtype=BF16, backward=True), WALL, 1.2, 2),
    Row(gru(*FIRST, mode=TF32, layers=2, bidirectional=True), WARM, 1.3, 2),
    Row(gru(1, 1, 1536, 512, mode=TF32), WARM, 2.5, 3, "5 us"),
    Row(gru(1, 64, 1536, 512, mode=TF32), WARM, 1.5, 2, "5 us"),
    Row(gru(1, 128, 1536, 512, mode=TF32), WARM, 1.2, 1.8, "5 us"),
    Row(mm(8, 1536, 5893, "float32", TRANSPOSED), COLD, 2.2, 3, "9 us"),
    Row(mm(64, 1536, 5893, "float32", TRANSPOSED), COLD, 1.4, 2, "18 us"),
    Row(mm(128, 1536, 5893, "float32", TRANSPOSED), COLD, 1.3, 1.5, "36 us"),
    Row(mm(8, 1536, 5893, BF16, TRANSPOSED), COLD, 3.3, 5, "4.5 us"),
    Row(mm(64, 1536, 5893, BF16, TRANSPOSED), COLD, 3.0, 5, "4.5 us"),
    Row(mm(128, 1536, 5893, BF16, TRANSPOSED), COLD, 2.5, 5, "4.5 us"),
    Row(mm(1, 4096, 4096, "float32"), COLD, 1.0, 1.1, "16 us"),
    Row(mm(16, 4096, 4096, "float32"), COLD, 3.0, 3.0, "16 us"),
    Row(mm(1, 4096, 4096, BF16), COLD, 1.0, 1.1, "8 us"),
    Row(mm(16, 4096, 4096, BF16), COLD, 1.0, 1.1, "8 us"),
    Row(cat([(4096, 4096)] * 2, 0), COLD, 1.0, 1.05, "64 us"),
    Row(cat([(4096, 4096)] * 2, 1), COLD, 1.0, 1.05, "64 us"),
    Row(cat([(16384, 8192)] * 4, 0), COLD, 1.0, 1.02, "1.0 ms"),
    Row(cat([(4096, 4097)] * 2, 1, BF16), COLD, 1.6, 1.8, "32 us"),
    Row(cat([(8, 16, 32, 32, 64)] * 4, 2), COLD, 1.5, 2, "64 us"),
]

HEAD = """# The override kernels beside cuDNN, cuBLAS and stock cat

Made by `python benchmarks/kernels_report.py`: {device}, torch {torch}. {met} of {all} goals are met.

- Ratios are stock / override: above 1 the override is faster. Each is of the medians of {pairs} pairs of
  samples, stock and override in turns, with the 95 % interval of a bootstrap in the list below the table.
- Warm and cold are GPU times of a call in a CUDA graph, without the host. Warm: the same inputs in every
  call, so they come from the L2 cache if they fit. Cold: calls take turns with copies of their inputs,
  more than the L2 cache holds. Wall: one call with its host cost, between CUDA events.
- The goal of a row is for the kind of time that it names. Both sides compute in the same precision.
- The error is the override's / stock's, against float64: the largest over the results.
- The overrides are forced. By default (`auto`) they run only where they were measured to be faster.
"""


def timing_of(result: CaseResult, kind: str) -> Timing | None:
    if kind == WALL:
        return result.wall
    return result.cold or result.gpu if kind == COLD else result.gpu


def ratio(timing: Timing | None) -> str:
    return f"{timing.ratio.value:.2f}" if timing else ""


def microseconds(timing: Timing | None) -> str:
    if timing is None:
        return ""
    return f"{timing.stock.median / 1000:.1f} -> {timing.override.median / 1000:.1f}"


def error_of(result: CaseResult) -> str:
    checks = [check for check in result.checks if check.bound is not None]
    ratios = [
        c.override.relative / c.stock.relative for c in checks if c.override and c.stock and c.stock.relative
    ]
    return f"{max(ratios):.2f}" if ratios else "same bytes"


def line_of(row: Row, result: CaseResult) -> str:
    timing = timing_of(result, row.kind)
    value = timing.ratio.value if timing else 0.0
    met = "aim" if value >= row.aim else "yes" if value >= row.least else "no"
    if result.failed or not result.passed or not result.repeats:
        met = "WRONG"
    cells = [
        row.case.name,
        row.limit,
        microseconds(result.wall),
        ratio(result.wall),
        microseconds(result.gpu),
        ratio(result.gpu),
        microseconds(result.cold),
        ratio(result.cold),
        error_of(result),
        f"{row.kind} {row.least:g}, {row.aim:g}",
        met,
    ]
    return "| " + " | ".join(cells) + " |"


def interval_of(row: Row, result: CaseResult) -> str:
    timing = timing_of(result, row.kind)
    if timing is None:
        return f"- {row.case.name}: {result.raised or result.why_no_gpu or 'not measured'}"
    found = timing.ratio
    return f"- {row.case.name}, {row.kind}: {found.value:.3f} ({found.low:.3f} to {found.high:.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="the page to write")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose case has this text")
    parser.add_argument("--pairs", type=int, default=50, help="pairs of samples a case (50)")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("kernels_report: needs a CUDA GPU, and there is none here")
    switches = {name: Switch([name]) for name in ("mm", "gru", "cat")}
    rows = [row for row in ROWS if options.only in row.case.name]
    done: dict[Case, CaseResult] = {}
    lines, met = [], 0
    for row in rows:
        if row.case not in done:
            done[row.case] = compare_one(row.case, switches[row.case.family], Settings(pairs=options.pairs))
        lines.append(line_of(row, done[row.case]))
        met += lines[-1].endswith(("| yes |", "| aim |"))
        print(lines[-1], flush=True)
    head = HEAD.format(
        device=torch.cuda.get_device_name(CUDA),
        torch=torch.__version__,
        pairs=options.pairs,
        met=met,
        all=len(rows),
    )
    titles = "| case | limit | wall us | ratio | warm us | ratio | cold us | ratio | error | goal | met |"
    table = "\n".join([titles, "|---|---|--:|--:|--:|--:|--:|--:|--:|---|---|", *lines])
    notes = "\n".join(interval_of(row, done[row.case]) for row in rows)
    if options.output:
        options.output.write_text(f"{head}\n{table}\n\n## Intervals\n\n{notes}\n")
    if any(result.failed or not result.passed or not result.repeats for result in done.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
