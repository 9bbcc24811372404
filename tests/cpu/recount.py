"""Counts the tables of a report once more, row by row, from what `tracer export --to parquet` wrote.

It shares no code with tracer; docs/time.md says what the words mean. A table is a list of rows: what names
the row in the report, and its figures by the titles of their columns. Times are in ns, shares in percent.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl
from recounted_phases import Process, Row, length, span, union, within

Table = list[tuple[tuple[str, ...], Row]]
_NUMBERS = ("calls", "op calls", "times", "runs", "gaps")  # how the tables call the number of rows
_OF_SHAPE = ("op", "key", "kernel", "kind", "raised", "open")


def figures(rows: Iterable[Row]) -> Row:
    """The median is of those that ended, if any did."""
    rows = list(rows)
    times, ended = sorted(map(length, rows)), [length(row) for row in rows if not row.get("open")]
    found = dict.fromkeys(_NUMBERS, len(rows)) | {"total": sum(times)}
    if not times:
        return found
    p95 = times[-(-95 * (len(times) - 1) // 100)]
    return found | {"median": median(ended or times), "p95": p95, "longest": times[-1]}


def grouped(rows: Iterable[Row], *columns: str) -> dict[Any, list[Row]]:
    """By the values of the columns: a tuple, or of one column the value."""
    found = defaultdict(list)
    for row in rows:
        values = tuple(row[name] for name in columns)
        found[values if len(columns) > 1 else values[0]].append(row)
    return found


class Recount:
    def __init__(self, folder: Path) -> None:
        self.tables = {path.stem: pl.read_parquet(path).to_dicts() for path in folder.glob("*.parquet")}
        self.cwd = json.loads((folder / "about.json").read_text())["environment"].get("cwd")
        self.hops, self.ranges = self.tables["hops"], self.tables["ranges"]
        self.inside = grouped(self.hops, "parent")
        for hop in self.hops:
            hop["root"] = hop if hop["parent"] is None else self.hops[hop["parent"]]["root"]
            hop["line"] = hop["called_from"] or ("backward" if hop["backward_node"] else hop["source"])
        self.roots, self.sizes = self.inside[None], Counter(hop["root"]["id"] for hop in self.hops)
        self.modules = {row["module"]: row["around"] for row in self.tables["modules"]}
        self.processes = {number: Process(self.tables, number) for number in grouped(self.hops, "process")}
        ops = [op for process in self.processes.values() for op in process.ops]
        self.phase = {op["id"]: op["phase"] for op in ops if not op["compiled"]}

    def line(self, line: str | None) -> str:
        shown = (line or "no Python line").removeprefix(f"{self.cwd}/")
        return shown.rpartition("/site-packages/")[2]

    # ---- ops, keys, lines, modules, ranges ---------------------------------------------------------
    def by(self, column: str, none: str = "") -> Table:
        counted, in_ops = defaultdict(list), sum(map(length, self.roots))
        for hop in self.hops:
            for name in self.names(hop, column) - self.names_around(hop, column):
                counted[name].append(hop)
        groups = grouped(self.hops, column)
        wall: Counter[str] = Counter()
        for one in self.ranges if column == "range" else ():
            around = {outer["name"] for outer in self.ranges_around(one)}
            wall[one["name"]] += 0 if one["name"] in around else length(one)
        table = []
        for name in {*counted, *groups, *wall}:
            hops, row = groups[name], figures(counted[name])
            ended = [hop["self_ns"] for hop in hops if not hop["open"]] or [hop["self_ns"] for hop in hops]
            own = {"self": sum(hop["self_ns"] for hop in hops), "median self": median(ended or [0])}
            own |= {
                "calls": sum(hop["kind"] == "call" for hop in hops),
                "hops": len(hops),
                "wall": wall[name],
            }
            shares = {"share": 100 * row["total"] / in_ops, "self share": 100 * own["self"] / in_ops}
            more = self.phases(counted[name]) | shares | {"ops": len({hop["op"] for hop in hops})}
            table.append(((none if name is None else name,), row | own | more))
        return table

    def phases(self, hops: list[Row]) -> Row:
        parts = dict.fromkeys(("forward", "backward", "optimizer", "rest"), 0)
        for hop in hops:
            phase = self.phase[hop["root"]["id"]]
            parts[phase if phase in parts else "rest"] += length(hop)
        return parts

    def lines(self) -> Table:
        return [((self.line(name or None),), row) for (name,), row in self.by("source")]

    def names(self, hop: Row, column: str) -> set[Any]:
        """What the hop counts in: its own, and the modules or ranges around."""
        name = hop[column]
        if column == "range" and name is not None:
            open_ = [one for one in self.ranges if one["name"] == name and during(hop, one)]
            inner = max(open_, key=lambda one: one["start_ns"])
            return {name, *(outer["name"] for outer in self.ranges_around(inner))}
        found = {name}
        while column == "module" and name is not None and (name := self.modules.get(name)) is not None:
            found.add(name)
        return found

    def names_around(self, hop: Row, column: str) -> set[Any]:
        found = set()
        while hop["parent"] is not None:
            hop = self.hops[hop["parent"]]
            found |= self.names(hop, column)
        return found

    def ranges_around(self, one: Row) -> Iterator[Row]:
        while one["parent"] is not None:
            yield (one := self.ranges[one["parent"]])

    def range_paths(self) -> Table:
        inner = grouped(self.ranges, "parent")
        for one in self.ranges:
            one["path"] = (one["name"], *(outer["name"] for outer in self.ranges_around(one)))
            one["own"] = length(one) - within(union(map(span, inner[one["id"]])), *span(one))
        groups = grouped(self.ranges, "path").items()
        return [
            (("-> " * (len(path) - 1) + path[0],), figures(rows) | {"own": sum(row["own"] for row in rows)})
            for path, rows in groups
        ]

    # ---- steps -------------------------------------------------------------------------------------
    def windows(self) -> Iterator[tuple[int, str, str | None, int, int]]:
        """Process, name, phase, begin and end of each step, and of what comes after the last one."""
        for process, hops in grouped(self.hops, "process").items():
            steps = [row for row in self.tables["steps"] if row["process"] == process]
            last, first = max(hop["end_ns"] for hop in hops), min(hop["start_ns"] for hop in hops)
            for row in steps:
                yield process, str(row["step"]), row["phase"], *span(row)
            if not steps:
                yield process, "whole recording", None, first, last
            elif steps[-1]["end_ns"] < last:
                yield process, "after the last step", None, steps[-1]["end_ns"], last

    def steps(self) -> Table:
        table = []
        for process, name, _, begin, end in self.windows():
            steps = [one for one in self.windows() if one[0] == process and one[1].isdecimal()]
            walls = [one[4] - one[3] for one in steps if one[2] == "steady"] or [
                one[4] - one[3] for one in steps
            ]
            known = len(steps) > 1 and name.isdecimal()
            ratio = {"of median": (end - begin) / median(walls) if known else None}
            table.append(((str(process), name), self.processes[process].step(begin, end) | ratio))
        return table

    def gaps(self) -> Table:
        """Of the steady steps; of all steps where none is, and of the recording where none ended."""
        every = list(self.windows())
        steps = [window for window in every if window[1].isdecimal()]
        chosen = [window for window in steps if window[2] == "steady"] or steps or every
        pieces = defaultdict(list)
        for number, process in self.processes.items():
            spans = union((begin, end) for of, *_, begin, end in chosen if of == number)
            for *lines, start, end in process.between():
                if ns := within(spans, start, end):
                    pieces[" -> ".join(map(self.line, lines))].append({"start_ns": 0, "end_ns": ns})
        table = [((lines,), figures(rows)) for lines, rows in pieces.items()]
        wall = sum(end - begin for *_, begin, end in chosen)
        return [(lines, row | {"share of wall": 100 * row["total"] / wall}) for lines, row in table]

    # ---- paths -------------------------------------------------------------------------------------
    def shape(self, hop: Row) -> tuple[Any, ...]:
        return (*(hop[name] for name in _OF_SHAPE), *map(self.shape, self.inside[hop["id"]]))

    @cached_property
    def paths(self) -> list[tuple[list[Row], list[Row]]]:
        """Of each path of op calls (not the compiler's) those that count, and slow first ones."""
        phases, groups = self.tables["compile_phases"], defaultdict(list)
        for hop in self.roots:
            if not any(during(hop, one) for one in phases):
                groups[self.shape(hop)].append(hop)
        first = [first_calls(calls) for calls in groups.values()]
        calls = [
            [call for call in calls if call not in once]
            for calls, once in zip(groups.values(), first, strict=True)
        ]
        return list(zip(calls, first, strict=True))

    @cached_property
    def program(self) -> list[Row]:
        return [call for calls, first in self.paths for call in calls + first]

    def with_share(self, calls: list[Row]) -> Row:
        row = figures(calls)
        return row | {"share": 100 * row["total"] / sum(map(length, self.program))}

    def hottest(self) -> Table:
        return [
            (
                (f"{op['op']} [{op['key']}]", str(len(calls)), str(self.sizes[op["id"]])),
                self.with_share(calls),
            )
            for calls, _ in self.paths
            for op in calls[:1]
        ]

    def once(self) -> Table:
        return [
            (
                (first[0]["op"],),
                figures(first) | {"first call": sum(map(length, first)), "median": figures(calls)["median"]},
            )
            for calls, first in self.paths
            if first
        ]

    def look(self) -> Table:
        """Of each path the calls with the inputs that cost most in the steady steps (ns)."""
        steady = any(call["phase"] == "steady" for call in self.program)

        def cost(same: list[Row]) -> tuple[float, int]:
            row = figures(call for call in same if call["phase"] == "steady" or not steady)
            return row["calls"] * round(row.get("median", 0)), figures(same)["total"]

        most = [max(grouped(calls, "inputs").values(), key=cost) for calls, _ in self.paths]
        return [((calls[0]["op"], str(len(calls))), self.with_share(calls)) for calls in most]

    # ---- the other tables --------------------------------------------------------------------------
    def backward(self) -> Table:
        """A row for each line that ran it."""
        nodes = [hop for hop in self.roots if hop["backward_node"]]
        for hop in nodes:
            known = hop["forward_hop"] is not None or hop["source"] != hop["called_from"]
            hop["shown"] = (hop["source"] if known else None) or hop["called_from"]
            hop["made by"] = "" if hop["forward_hop"] is None else self.hops[hop["forward_hop"]]["op"]
        groups = grouped(nodes, "shown", "made by", "backward_node", "called_from")
        return [
            (
                (self.line(line), op, node),
                figures(hops) | {"hops": sum(self.sizes[hop["id"]] for hop in hops)},
            )
            for (line, op, node, _), hops in groups.items()
        ]

    def threads(self) -> Table:
        table = []
        for thread, hops in grouped(self.hops, "process", "thread").items():
            row = figures(hop for hop in hops if hop["parent"] is None)
            ends = {"first": min(hop["start_ns"] for hop in hops), "last": max(hop["end_ns"] for hop in hops)}
            table.append((tuple(map(str, thread)), row | ends | {"hops": len(hops), "in ops": row["total"]}))
        return table

    def exceptions(self) -> Table:
        """Those of hops whose last hop below did not raise."""
        last = {number: hops[-1]["raised"] for number, hops in self.inside.items() if hops}
        raised = [hop for hop in self.hops if hop["raised"] and not last.get(hop["id"])]
        return [(names, figures(hops)) for names, hops in grouped(raised, "op", "key").items()]

    def memory(self) -> Table:
        known = [
            row for row in self.tables["memory"] if (row["bytes"] or 0) > 0 or row["allocated_by"] is not None
        ]
        return [
            row for blocks in grouped(known, "process", "device").values() for row in self.of_device(blocks)
        ]

    def of_device(self, blocks: list[Row]) -> Table:
        titles = ("at the peak", "own peak", "allocated", "freed", "blocks", "now")
        now, peak, lines = 0, 0, defaultdict[Any, Row](lambda: dict.fromkeys(titles, 0))
        for row in blocks:
            first = row if row["allocated_by"] is None else self.tables["memory"][row["allocated_by"]]
            root = {} if first["hop"] is None else self.hops[first["hop"]]["root"]
            of_autograd = root.get("backward_node") and not root["source"]
            line = "backward" if of_autograd else root.get("source") or root.get("called_from")
            line = line if root else first["source"]
            of = lines[self.line(line), root.get("op", "no op")]
            now, of["now"] = now + row["bytes"], of["now"] + row["bytes"]
            of["own peak"] = max(of["own peak"], of["now"])
            of["allocated" if row["bytes"] > 0 else "freed"] += abs(row["bytes"])
            of["blocks"] += row["bytes"] > 0
            if now > peak:
                peak = now
                for one in lines.values():
                    one["at the peak"] = one["now"]
        return list(lines.items())

    def compiled_kernels(self) -> Table:
        return [
            ((name,), figures(rows))
            for name, rows in grouped(self.tables["compiled_kernels"], "name").items()
        ]

    def regions(self) -> Table:
        groups = grouped(self.tables["compiled_calls"], "function", "direction", "compile_id").items()
        return [
            ((name, f"{direction} {number}"), figures(calls)) for (name, direction, number), calls in groups
        ]

    def compiler_phases(self) -> Table:
        phases = self.tables["compile_phases"]
        inner = grouped(phases, "parent")
        for one in phases:
            one["own"] = length(one) - sum(map(length, inner[one["id"]]))
        return [
            ((name,), figures(rows) | {"own": sum(row["own"] for row in rows)})
            for name, rows in grouped(phases, "name").items()
        ]

    def api_functions(self) -> Table:
        """A call inside another one counts, but its time is in the outer call's."""
        groups = grouped(self.tables["api_calls"], "name").items()
        host = {name: sum(length(call) for call in calls if call["parent"] is None) for name, calls in groups}
        return [((name,), figures(calls) | {"host time": host[name]}) for name, calls in groups]


def during(hop: Row, one: Row) -> bool:
    same = (hop["process"], hop["thread"]) == (one["process"], one["thread"])
    return bool(same and one["start_ns"] <= hop["start_ns"] <= one["end_ns"])


def first_calls(calls: list[Row]) -> list[Row]:
    """The first in each process that took three medians of the others: of those with its inputs, if any."""
    first = [min(of, key=lambda call: call["start_ns"]) for of in grouped(calls, "process").values()]
    others = [call for call in calls if call not in first and not call["open"]]
    found = []
    for call in first:
        alike = [one for one in others if one["inputs"] == call["inputs"]] or others
        if alike and not call["open"] and length(call) > 3 * median(map(length, alike)):
            found.append(call)
    return found
