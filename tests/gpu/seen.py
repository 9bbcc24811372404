"""What a recording holds of CUDA: of a whole run, and of one part of a case (see cases.py), also as text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
from launching import Launcher, Run

import tracer
from tracer.trace.bytes import format as fmt

SLACK_NS = 1_000_000  # less than the programs leave between two parts

# API calls that run one kernel each; a replay of a graph runs those of its nodes.
LAUNCH = r"^(cudaLaunchKernel(ExC)?|cudaLaunchCooperativeKernel|cuLaunch(Cooperative)?Kernel(Ex)?)$"


def launches(api_calls: pl.DataFrame) -> pl.DataFrame:
    """The calls that ran a kernel when they were made; not the driver calls inside runtime calls."""
    ran = api_calls.filter(
        pl.col("name").str.contains(LAUNCH),
        pl.col("result") == 0,
        ~pl.col("captured").fill_null(False),
    )
    runtime = ran.filter(pl.col("domain") == "runtime").sort("start_ns")
    driver = ran.filter(pl.col("domain") == "driver").sort("start_ns")
    enclosing = runtime.select("process", "thread", "start_ns", outer_end="end_ns")
    driver = driver.join_asof(
        enclosing, on="start_ns", by=["process", "thread"], check_sortedness=False
    ).filter((pl.col("outer_end") < pl.col("end_ns")).fill_null(True))
    return pl.concat([runtime, driver.drop("outer_end")]).sort("id")


def of_graph(activities: pl.DataFrame) -> pl.Series:
    """True for the activities of graph replays."""
    return activities.select(pl.col("graph").fill_null(0) != 0).to_series()


class Recorded:
    """One recorded run: what the process said, and its trace."""

    def __init__(self, run: Run, trace: Path, noted: Path | None = None) -> None:
        self.run = run
        self.path = trace
        self._noted = noted

    @cached_property
    def trace(self) -> tracer.Trace:
        assert self.path.exists(), f"there is no trace; the process said:\n{self.run.out}\n{self.run.err}"
        return tracer.load(self.path)

    @cached_property
    def cuda(self) -> dict[str, Any]:
        """The part of the certificate about CUDA."""
        found = self.trace.certificate.get("cuda")
        assert found, f"the certificate says nothing of CUDA: {self.trace.certificate}\n{self.run.err}"
        return found

    @cached_property
    def hops(self) -> pl.DataFrame:
        return plain(self.trace.hops)

    @cached_property
    def api_calls(self) -> pl.DataFrame:
        return plain(self.trace.api_calls)

    @cached_property
    def library_calls(self) -> pl.DataFrame:
        return plain(self.trace.library_calls)

    @cached_property
    def activities(self) -> pl.DataFrame:
        return plain(self.trace.gpu_activities)

    @property
    def kernels(self) -> pl.DataFrame:
        return self.activities.filter(pl.col("kind") == "kernel")

    @cached_property
    def noted(self) -> dict[str, Any]:
        """What the program of cases wrote."""
        assert self._noted is not None
        assert self._noted.exists(), self.about()
        return json.loads(self._noted.read_text())

    def about(self) -> str:
        """The certificate and the end of what the process said, for messages."""
        certificate = self.trace.certificate if self.path.exists() else {}
        return (
            f"status {self.run.status}\n"
            f"verdict: {certificate.get('verdict')}\nwhy: {certificate.get('why')}\n"
            f"cuda: {json.dumps(certificate.get('cuda'), indent=1, default=str)}\n"
            f"stdout: {self.run.out[-2000:]}\nstderr: {self.run.err[-4000:]}"
        )

    def part(self, case: str, part: str = "warm") -> Part:
        noted = self.noted["cases"][case]
        assert part in noted["parts"], f"{case} did not run: {noted['error']}\n{self.about()}"
        times = noted["parts"][part]
        with self.path.open("rb") as file:
            header = fmt.unpack_file_header(file.read(fmt.FILE_HEADER.size))
        begin, end = (moment - header.start_ns for moment in times["host"])
        done = times["done"] - header.start_ns
        called = pl.col("start_ns").is_between(begin - SLACK_NS, end + SLACK_NS)
        ran = pl.col("start_ns").is_between(begin - SLACK_NS, done + SLACK_NS)
        return Part(
            f"{case}, {part}",
            self.hops.filter(called),
            self.library_calls.filter(called),
            # the program waits for the GPU between two parts
            self.api_calls.filter(called, pl.col("name") != "cudaDeviceSynchronize"),
            self.activities.filter(ran),
            self,
        )


@dataclass(frozen=True)
class Part:
    """The rows of one part of a case; str() is the chain that was seen."""

    name: str
    hops: pl.DataFrame
    library_calls: pl.DataFrame
    api_calls: pl.DataFrame
    activities: pl.DataFrame
    recorded: Recorded

    @property
    def kernels(self) -> pl.DataFrame:
        return self.activities.filter(pl.col("kind") == "kernel")

    @property
    def copies(self) -> pl.DataFrame:
        return self.activities.filter(pl.col("kind") == "memcpy")

    def ops(self) -> list[str]:
        """`op [key]` of each hop, in the order they were entered."""
        return [f"{op} [{key}]" for op, key in self.hops.select("op", "key").iter_rows()]

    def only(self, frame: pl.DataFrame, what: str) -> dict[str, Any]:
        """The one row of `frame`."""
        assert len(frame) == 1, f"{len(frame)} {what}, not one\n{self}"
        return frame.row(0, named=True)

    def kernel(self, *families: str) -> dict[str, Any]:
        """The longest kernel whose name has one of `families` in it, whatever the case."""
        pattern = "(?i)" + "|".join(families)
        found = self.kernels.filter(pl.col("name").str.contains(pattern)).sort(
            pl.col("end_ns") - pl.col("start_ns"), descending=True
        )
        assert not found.is_empty(), f"no kernel like {families}\n{self}"
        return found.row(0, named=True)

    def call_of(self, activity: dict[str, Any]) -> dict[str, Any]:
        """The API call that issued the activity."""
        assert activity["api_call"] is not None, f"{activity['name']} has no API call\n{self}"
        return self.recorded.api_calls.row(activity["api_call"], named=True)

    def library_call_of(self, call: dict[str, Any]) -> dict[str, Any]:
        """The recorded library call around the API call."""
        assert call["library_call_id"] is not None, f"{call['name']} is in no library call\n{self}"
        return self.recorded.library_calls.row(call["library_call_id"], named=True)

    def ops_around(self, row: dict[str, Any]) -> list[str]:
        """`op [key]` of the hops around an API call or a GPU activity, the outermost first."""
        chain, hop = [], row["hop"]
        while hop is not None:
            found = self.recorded.hops.row(hop, named=True)
            chain.append(f"{found['op']} [{found['key']}]")
            hop = found["parent"]
        return chain[::-1]

    def stack_of(self, call: dict[str, Any]) -> list[str]:
        """`function (module)` of each frame of the call's native stack, innermost first."""
        assert call["stack"] is not None, f"{call['name']} has no stack\n{self}"
        stacks = self.recorded.trace.stacks.filter(pl.col("id") == call["stack"])
        frames = self.only(stacks, f"stacks {call['stack']}")["frames"]
        return [f"{frame['function']} ({Path(frame['module'] or '?').name})" for frame in frames]

    def __str__(self) -> str:
        lines = [f"---- {self.name}", *self._lines()]
        if len(lines) > 150:
            lines[100:-30] = [f"... {len(lines) - 130} lines left out"]
        return "\n".join([*lines, f"facts: {self.recorded.noted['facts']}", self.recorded.about()])

    def _lines(self) -> Iterator[str]:
        """Each row on a line, nested by time in its thread; GPU activities below their API calls."""
        issued: dict[int | None, list[str]] = {}
        for row in self.activities.iter_rows(named=True):
            issued.setdefault(row["api_call"], []).append(_activity_line(row))
        spans = [
            *_spans(self.hops, lambda r: f"{r['op']} [{r['key']}] {r['kernel']}  (hop {r['id']})"),
            *_spans(self.library_calls, lambda r: f"{r['name']}({r['arguments']}) = {r['result']}"),
            *_spans(self.api_calls, _api_line),
        ]
        open_until: list[tuple[object, int]] = []
        shown = set()
        for place, start, negative_end, _, row, text in sorted(spans, key=lambda span: span[:4]):
            while open_until and (open_until[-1][0] != place or open_until[-1][1] < -negative_end):
                open_until.pop()
            if not open_until:
                yield f"{place} at {start / 1e3:,.1f} us, {row['source']}"
            indent = "  " * (len(open_until) + 1)
            yield indent + text
            if "correlation" in row:
                shown.add(row["id"])
                for line in issued.get(row["id"], []):
                    yield f"{indent}  {line}"
            open_until.append((place, -negative_end))
        rest = [line for call, lines in issued.items() if call not in shown for line in lines]
        if rest:
            yield "GPU activities of no API call in this part:"
            yield from (f"  {line}" for line in rest)


def plain(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with strings for categories."""
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))


def _spans(frame: pl.DataFrame, text: Any) -> Iterator[tuple[Any, ...]]:
    for row in frame.iter_rows(named=True):
        place = f"process {row['process']}, thread {row['thread']}"
        yield place, row["start_ns"], -(row["end_ns"] or row["start_ns"]), row["id"], row, text(row)


def _api_line(row: dict[str, Any]) -> str:
    notes = [
        f"correlation {row['correlation']}",
        f"hop {row['hop']}",
        *(f"{name} {row[name]}" for name in ("library", "library_call", "captured", "role") if row.get(name)),
    ]
    kernel = f" kernel {row['kernel'][:60]}" if row.get("kernel") else ""
    return f"{row['name']}({row['arguments']}) = {row['result']}{kernel}  ({', '.join(notes)})"


def _activity_line(row: dict[str, Any]) -> str:
    took = (row["end_ns"] - row["start_ns"]) / 1e3
    shape = f"grid {row['grid']} block {row['block']}" if row["kind"] == "kernel" else f"{row['bytes']} bytes"
    graph = f", graph {row['graph']} node {row['graph_node']}" if row["graph"] else ""
    return (
        f"* {row['kind']} {(row['name'] or '?')[:110]}: {took:.1f} us, {shape}, "
        f"stream {row['stream']}{graph} (correlation {row['correlation']}, hop {row['hop']})"
    )


def record_cases(
    launcher: Launcher,
    program: Path,
    name: str,
    *cases: str,
    options: Iterable[str] = (),
    extra: dict[str, str] | None = None,
) -> Recorded:
    """Runs a program of cases under `tracer record`; its files are named after `name`."""
    trace, noted = f"{name}.trace", f"{name}.json"
    run = launcher.record("-o", trace, *options, str(program), noted, *cases, extra=extra)
    return Recorded(run, launcher.folder / trace, launcher.folder / noted)


def run_cases(launcher: Launcher, program: Path, *cases: str, extra: dict[str, str] | None = None) -> dict:
    """Runs a program of cases under python, and returns what it noted."""
    run = launcher.python(str(program), "plain.json", *cases, extra=extra)
    noted = launcher.folder / "plain.json"
    assert noted.exists(), f"status {run.status}\n{run.out}\n{run.err}"
    return json.loads(noted.read_text())
