"""From samples to tables: added time, quartiles, longest calls, and the goals beside them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

ADDED = ["hops", "default", "prof", "prof+", "mode", "stopped"]
RATIOS = {"h/prof": ("hops", "prof"), "d/prof+": ("default", "prof+")}


@dataclass(frozen=True)
class Table:
    """Rows of text under a header; the first column is left-aligned."""

    title: str
    header: list[str]
    rows: list[list[str]]

    def text(self) -> str:
        """Plain text. Each line is ended."""
        lines = [self.header, *self.rows]
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.header))]
        out = [self.title]
        for line in lines:
            cells = [
                line[0].ljust(widths[0]),
                *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True)),
            ]
            out.append(("  " + " ".join(cells)).rstrip())
        return "\n".join(out) + "\n"

    def markdown(self) -> str:
        rule = ["---", *["---:"] * (len(self.header) - 1)]
        lines = ["| " + " | ".join(cells) + " |" for cells in (self.header, rule, *self.rows)]
        return f"**{self.title}**\n\n" + "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Goal:
    """A figure to reach: at most `goal`, better still `aim`."""

    name: str
    value: float | None
    goal: float
    unit: str = ""
    aim: float | None = None

    @property
    def verdict(self) -> str:
        if self.value is None:
            return "not measured"
        if self.value > self.goal:
            return "missed"
        return "met, aim too" if self.aim is not None and self.value <= self.aim else "met"

    def cells(self) -> list[str]:
        def shown(number: float | None) -> str:
            return "-" if number is None else f"{number:,.4g}{self.unit}"

        return [self.name, shown(self.value), "<= " + shown(self.goal), shown(self.aim), self.verdict]


@dataclass(frozen=True)
class Row:
    """What was measured on one workload, in nanoseconds.

    means      variant -> [first quartile, median, third quartile] of a call, over the rounds
    added      variant -> the same of the difference to bare in the same round
    longest    variant -> the longest single call of all rounds
    samples    variant -> a call, by round
    preempted  variant -> visits during which the system gave the core to other work
    hops       hops of one call; `ns_per_hop` what recording one of them adds, without arguments
    ratios     what tracer adds over what torch.profiler adds; None where noise hides either
    settled    after a stop a call takes no longer than bare and than the twin, within their spread
    """

    workload: str
    small: bool
    calls: int
    means: dict[str, list[float]]
    added: dict[str, list[float]]
    longest: dict[str, int]
    samples: dict[str, list[float]]
    preempted: dict[str, int]
    hops: float
    ns_per_hop: float
    ratios: dict[str, float | None]
    settled: bool


def row_of(workload, samples: dict[str, list], hops: float) -> Row:
    """`samples`: variant -> Sample by round; `hops` of one call."""
    means = {key: [sample.mean for sample in column] for key, column in samples.items()}
    added = {
        key: _quartiles([mean - bare for mean, bare in zip(column, means["bare"], strict=True)])
        for key, column in means.items()
        if key != "bare"
    }
    return Row(
        workload=workload.name,
        small=workload.small,
        calls=workload.calls,
        means={key: _quartiles(column) for key, column in means.items()},
        added=added,
        longest={key: max(sample.longest for sample in column) for key, column in samples.items()},
        samples=means,
        preempted={key: sum(sample.preempted for sample in column) for key, column in samples.items()},
        hops=hops,
        ns_per_hop=added["hops"][1] / hops,
        ratios={name: _ratio(added[ours][1], added[theirs][1]) for name, (ours, theirs) in RATIOS.items()},
        settled=all(_no_longer(means["stopped"], means[other]) for other in ("bare", "twin")),
    )


def goals_of(rows: list[Row], once: list[dict]) -> list[Goal]:
    """`once`: what once.py printed, by process; its worst figure counts."""

    def worst(key: str) -> float:
        return max(figures[key] for figures in once)

    return [
        *(
            Goal(f"hops only, {row.workload}, a hop", row.ns_per_hop, 60, " ns", aim=40)
            for row in rows
            if row.small
        ),
        Goal("hops only / profiler, geometric mean", _geometric_mean(rows, "h/prof"), 0.30, aim=0.20),
        Goal("defaults / profiler with shapes and stack", _geometric_mean(rows, "d/prof+"), 0.5),
        Goal("workloads slower after a stop, beyond spread", sum(not row.settled for row in rows), 0),
        Goal("first arming of a process", worst("first_arming_s"), 0.5, " s"),
        Goal("file, a hop without arguments", round(worst("bytes_per_hop"), 1), 56, " B"),
        Goal("file, one torch.mm with defaults", worst("one_mm_bytes") / 1024, 64, " KiB"),
    ]


def tables_of(rows: list[Row], goals: list[Goal]) -> list[Table]:
    variants = list(rows[0].means)
    means = [_two_digits(_geometric_mean(rows, name)) for name in RATIOS]
    return [
        Table(
            "ns a call, bare; ns that each variant adds (median of rounds); ratios of what is added",
            ["", "bare", *ADDED, "hops/call", "ns/hop", *RATIOS],
            [
                [
                    row.workload,
                    short(row.means["bare"][1]),
                    *(short(row.added[key][1], sign=True) for key in ADDED),
                    f"{row.hops:.1f}".removesuffix(".0"),
                    f"{row.ns_per_hop:.0f}",
                    *(_two_digits(row.ratios[name]) for name in RATIOS),
                ]
                for row in rows
            ]
            + [["geometric mean", *[""] * (len(ADDED) + 3), *means]],
        ),
        Table(
            "spread: distance of the quartiles of ns a call",
            ["", *variants],
            [[row.workload, *(short(_spread(row.means[key])) for key in variants)] for row in rows],
        ),
        Table(
            "longest single call, ns (a step is one call)",
            ["", *variants],
            [[row.workload, *(short(row.longest[key]) for key in variants)] for row in rows],
        ),
        Table("goals", ["", "measured", "goal", "aim", "verdict"], [goal.cells() for goal in goals]),
    ]


def as_json(machine: dict, settings: dict, once: list[dict], rows: list[Row], goals: list[Goal]) -> dict:
    """Everything that was measured, ready for JSON."""
    return {
        "machine": machine,
        "settings": settings,
        "once": once,
        "workloads": [asdict(row) for row in rows],
        "geometric_means": {name: _geometric_mean(rows, name) for name in RATIOS},
        "goals": [{**asdict(goal), "verdict": goal.verdict} for goal in goals],
    }


def short(nanoseconds: float, sign: bool = False) -> str:
    """Three digits with k or M: 953, 12.3k, 2.35M."""
    size, suffix = abs(nanoseconds), ""
    for larger in ("k", "M", "G"):
        if size < 999.5:
            break
        size, suffix = size / 1000, larger
    digits = 0 if not suffix or size >= 99.95 else 1 if size >= 9.995 else 2
    mark = "-" if nanoseconds < 0 else "+" if sign else ""
    return f"{mark}{size:.{digits}f}{suffix}"


def _quartiles(numbers: Sequence[float]) -> list[float]:
    return statistics.quantiles(numbers, n=4, method="inclusive")


def _ratio(ours: float, theirs: float) -> float | None:
    return ours / theirs if ours > 0 and theirs > 0 else None


def _spread(quartiles: list[float]) -> float:
    return quartiles[2] - quartiles[0]


def _no_longer(these: list[float], those: list[float]) -> bool:
    first, second = _quartiles(these), _quartiles(those)
    return first[1] - second[1] <= max(_spread(first), _spread(second))


def _geometric_mean(rows: list[Row], name: str) -> float | None:
    ratios = [row.ratios[name] for row in rows if row.ratios[name] is not None]
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else None


def _two_digits(number: float | None) -> str:
    return "-" if number is None else f"{number:.2f}"
