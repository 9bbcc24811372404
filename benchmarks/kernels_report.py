"""The table of goals of the override kernels, measured: reports/kernels_h200.md. Needs a GPU.

    python benchmarks/kernels_report.py -o reports/kernels_h200.md     # two minutes on an H200
    python benchmarks/kernels_report.py --only 'mm bf16' --pairs 10
    python benchmarks/kernels_report.py --only 'end to end' --json end_to_end.json

Each row is a case of `tracer compare`, measured as it measures: stock and override in turns, GPU time of a
call in a CUDA graph with the same inputs each time (warm) and with inputs that take turns (cold, larger than
L2), and wall time with host cost. The overrides are forced, so rows that `auto` leaves to stock are measured
too. Every result is compared with float64 first. The rows at the end are a whole translator (end_to_end.py).

The files are written anew after each row, so a run that is ended early has all rows until then. A row that
raises says why, and the next one goes on. The exit status is 1 if a row failed, if a result is wrong, or if a
second run gives other bits.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from end_to_end import DECODING, TRAINING, EndToEnd

from tracer.compare.cases import CUDA, STRICT, TF32, TRANSPOSED, Case
from tracer.compare.measurement import Settings, compare_one
from tracer.compare.model import CaseResult, Timing
from tracer.compare.switch import CannotCompareError, Switch
from tracer.overrides import OverrideError
from tracer.overrides.override import AUTO, FORCE

WARM, COLD, WALL = "warm", "cold", "wall"


@dataclass(frozen=True)
class Row:
    """A case, the time that its goal is for, the limit, and the least and the aimed ratio."""

    case: Case | EndToEnd
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
    *(
        Row(EndToEnd(what, mode), WALL, least, aim)
        for what, least, aim in ((TRAINING, 1.3, 2), (DECODING, 2, 3))
        for mode in (FORCE, AUTO)
    ),
]

HEAD = """# The override kernels beside cuDNN, cuBLAS and stock cat

Made by `python benchmarks/kernels_report.py`: {device}, torch {torch}. {met} of {all} goals are met{open}.

- Ratios are stock / override: above 1 the override is faster. Each is of the medians of {pairs} pairs of
  samples, stock and override in turns, with the 95 % interval of a bootstrap in the list below the table.
- Warm and cold are GPU times of a call in a CUDA graph, without the host. Warm: the same inputs in every
  call, so they come from the L2 cache if they fit. Cold: calls take turns with copies of their inputs,
  more than the L2 cache holds. Wall: one call with its host cost, between CUDA events.
- The goal of a row is for the kind of time that it names. Both sides compute in the same precision.
- The error is the override's / stock's, against float64: the largest over the results.
- The overrides are forced. By default (`auto`) they run only where they were measured to be faster.
- End to end: a translator with bidirectional encoder and attention (`benchmarks/end_to_end.py`), batches of
  128 in training, until the GPU is done. Its error is the distance of the losses from stock's, divided by
  that of stock without TF32; of decoding it is the number of sentences whose words are stock's.
"""


@dataclass
class Measured:
    """What became of a row. `error` is its cell; `failed` says in a phrase why there is no result."""

    row: Row
    result: CaseResult | None = None
    error: str = ""
    failed: str = ""

    @property
    def timing(self) -> Timing | None:
        """The time that the goal is for."""
        return timing_of(self.result, self.row.kind) if self.result else None

    @property
    def met(self) -> str:
        if self.failed:
            return f"failed: {self.failed}"
        if self.result is None or not self.result.passed or not self.result.repeats:
            return "WRONG"
        value = self.timing.ratio.value if self.timing else 0.0
        return "aim" if value >= self.row.aim else "yes" if value >= self.row.least else "no"


def timing_of(result: CaseResult, kind: str) -> Timing | None:
    if kind == WALL:
        return result.wall
    return result.cold or result.gpu if kind == COLD else result.gpu


def ratio(timing: Timing | None) -> str:
    return f"{timing.ratio.value:.2f}" if timing else ""


def microseconds(timing: Timing | None) -> str:
    return f"{timing.stock.median / 1e3:.1f} -> {timing.override.median / 1e3:.1f}" if timing else ""


def error_of(result: CaseResult) -> str:
    checks = [check for check in result.checks if check.bound is not None]
    ratios = [
        c.override.relative / c.stock.relative for c in checks if c.override and c.stock and c.stock.relative
    ]
    return f"{max(ratios):.2f}" if ratios else "same bytes"


def line_of(measured: Measured) -> str:
    row, result = measured.row, measured.result
    times = [result.wall, result.gpu, result.cold] if result else [None] * 3
    cells = [
        row.case.name,
        row.limit,
        *(text for timing in times for text in (microseconds(timing), ratio(timing))),
        measured.error,
        f"{row.kind} {row.least:g}, {row.aim:g}",
        measured.met,
    ]
    return "| " + " | ".join(cells) + " |"


def interval_of(measured: Measured) -> str:
    name, timing, result = measured.row.case.name, measured.timing, measured.result
    if timing is None:
        return f"- {name}: {measured.failed or (result and result.why_no_gpu) or 'not measured'}"
    found = timing.ratio
    note = f"; {result.note}" if isinstance(measured.row.case, EndToEnd) and result and result.note else ""
    return f"- {name}, {measured.row.kind}: {found.value:.3f} ({found.low:.3f} to {found.high:.3f}){note}"


class Measurement:
    """Measures rows; a case that several rows have is measured once."""

    def __init__(self, pairs: int) -> None:
        self._pairs = pairs
        self._switches: dict[str, Switch] = {}
        self._done: dict[Case | EndToEnd, tuple[CaseResult, str]] = {}

    def of(self, row: Row) -> Measured:
        """Never raises: a row that fails says why."""
        try:
            if row.case not in self._done:
                self._done[row.case] = self._measure(row.case)
            result, error = self._done[row.case]
        except Exception as raised:
            return Measured(row, failed=reason_of(raised))
        finally:
            gc.collect()
            if torch.cuda.is_available():
                release()
        if result.failed:
            return Measured(row, result, error, shortened(result.raised))
        return Measured(row, result, error)

    def _measure(self, case: Case | EndToEnd) -> tuple[CaseResult, str]:
        if isinstance(case, EndToEnd):
            return case.measure(self._pairs)
        if case.family not in self._switches:
            self._switches[case.family] = Switch([case.family])
        result = compare_one(case, self._switches[case.family], Settings(pairs=self._pairs))
        return result, "" if result.failed else error_of(result)


def release() -> None:
    """Memory for the next row. After an error that lasts, CUDA refuses this too."""
    try:
        torch.cuda.empty_cache()
    except RuntimeError:
        pass


def reason_of(error: Exception) -> str:
    return shortened(f"{type(error).__name__}: {error}")


def shortened(text: str) -> str:
    """The first line, for a cell of the table."""
    return next(iter(text.splitlines()), "").replace("|", "/")[:120]


def page(done: Sequence[Measured], count: int, pairs: int, device: str) -> str:
    """The report of the rows that were measured, out of `count`."""
    head = HEAD.format(
        device=device,
        torch=torch.__version__,
        pairs=pairs,
        met=sum(each.met in ("yes", "aim") for each in done),
        all=len(done),
        open=f"; {count - len(done)} rows were not measured" if len(done) < count else "",
    )
    titles = "| case | limit | wall us | ratio | warm us | ratio | cold us | ratio | error | goal | met |"
    table = "\n".join([titles, "|---|---|--:|--:|--:|--:|--:|--:|--:|---|---|", *map(line_of, done)])
    notes = "\n".join(map(interval_of, done))
    return f"{head}\n{table}\n\n## Intervals\n\n{notes}\n"


def facts_of(measured: Measured) -> dict[str, Any]:
    """The row with its raw medians, in nanoseconds."""
    result = measured.result
    times = {WALL: result.wall, WARM: result.gpu, COLD: result.cold} if result else {}
    return {
        "case": measured.row.case.name,
        "kind": measured.row.kind,
        "least": measured.row.least,
        "aim": measured.row.aim,
        "met": measured.met,
        "error": measured.error,
        "note": result.note if result else "",
        "times": {kind: asdict(timing) for kind, timing in times.items() if timing},
    }


def write(path: Path | None, text: str) -> None:
    """All or nothing: the file of the row before stays until this one is complete."""
    if path is not None:
        partial = path.with_name(f".{path.name}.partial")
        partial.write_text(text)
        partial.replace(path)


def gpu() -> str | None:
    """Name of the GPU to measure on; None if torch cannot use one."""
    return torch.cuda.get_device_name(CUDA) if torch.cuda.is_available() else None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="the page to write")
    parser.add_argument("--json", type=Path, metavar="FILE", help="medians, quartiles and intervals to write")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose case has this text")
    parser.add_argument("--pairs", type=int, default=50, help="pairs of samples a case (50)")
    options = parser.parse_args()
    device = gpu()
    if device is None:
        sys.exit("kernels_report: needs a CUDA GPU, and there is none here")
    try:
        Switch(["mm"])
    except (OverrideError, CannotCompareError) as error:
        sys.exit(f"kernels_report: {error}")
    rows = [row for row in ROWS if options.only in row.case.name]
    measurement = Measurement(options.pairs)
    done: list[Measured] = []
    for row in rows:
        done.append(measurement.of(row))
        print(line_of(done[-1]), flush=True)
        write(options.output, page(done, len(rows), options.pairs, device))
        write(options.json, json.dumps([facts_of(each) for each in done], indent=1))
    if any(each.met == "WRONG" or each.failed for each in done):
        sys.exit(1)


if __name__ == "__main__":
    main()
