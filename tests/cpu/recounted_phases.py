"""The phases of a process once more, for recount.py: docs/time.md in plain loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

Row = dict[str, Any]
Span = tuple[int, int]
PHASES = ("data", "compile", "communication", "optimizer", "backward", "forward", "other")
MARK = "profiler::_record_function"


def span(row: Row) -> Span:
    return row["start_ns"], row["end_ns"]


def length(row: Row) -> int:
    return int(row["end_ns"] - row["start_ns"])


def union(spans: Iterable[Span]) -> list[Span]:
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif end > start:
            found.append((start, end))
    return found


def within(spans: Iterable[Span], begin: int, end: int) -> int:
    return sum(max(0, min(stop, end) - max(start, begin)) for start, stop in spans)


class Process:
    """`ops`: its outermost ops and calls of compiled code in the order of time, with `phase`."""

    def __init__(self, tables: dict[str, list[Row]], number: int) -> None:
        def named(*begins: str) -> list[Row]:
            return [
                row for row in tables["ranges"] if row["process"] == number and row["name"].startswith(begins)
            ]

        self.workers = {
            row["thread"]
            for row in tables["threads"]
            if row["process"] == number and row["name"] == "pt_data_worker"
        }
        self.loaders, self.optimizers = named("enumerate(DataLoader)#"), named("Optimizer.")
        self.closures, self.transfers = (
            named("Optimizer.step#"),
            named("gloo:", "nccl:", "mpi:", "ucc:", "xccl:"),
        )
        self.compiling, self.modules = (
            [row for row in tables[name] if row["process"] == number]
            for name in ("compile_phases", "module_calls")
        )
        made = {hop["forward_hop"] for hop in tables["hops"]} - {None}
        linked = {tables["hops"][forward]["root"]["id"] for forward in made}
        outermost = [hop for hop in tables["hops"] if hop["parent"] is None]
        calls = [self.compiled(call) for call in tables["compiled_calls"]]
        self.ops = [
            {"compiled": False, "node": bool(op["backward_node"]), "linked": op["id"] in linked} | op
            if "node" not in op
            else op
            for op in outermost + calls
            if op["process"] == number
        ]
        self.ops.sort(key=lambda op: op["start_ns"])
        self.hooked = [one for one in self.optimizers if self.began_in_node(one)]
        self.give_phases()
        self.told = [op for op in self.ops if not op["op"].startswith(MARK)]

    @staticmethod
    def compiled(call: Row) -> Row:
        backward = call["direction"] == "backward"
        line = call["called_from"] or ("backward" if backward else None)
        flags = {"compiled": True, "node": backward, "linked": call["direction"] == "forward"}
        return call | flags | {"op": "", "line": line, "module": None, "range": None}

    def began_in_node(self, one: Row) -> bool:
        before = [
            op for op in self.ops if op["thread"] == one["thread"] and op["start_ns"] <= one["start_ns"]
        ]
        return bool(before) and before[-1]["node"] and before[-1]["end_ns"] >= one["start_ns"]

    def give_phases(self) -> None:
        passes, begun, last = 0, dict[int, int](), dict[int, int]()
        for at, op in enumerate(self.ops):
            op["hooked"], op["data"], op["compile"] = (
                around(op, rows) is not None for rows in (self.hooked, self.loaders, self.compiling)
            )
            op["data"] |= op["thread"] in self.workers
            op["backward"] = op["node"] and not (op["hooked"] or op["data"] or op["compile"])
            op["pass"] = passes = passes + op["backward"]
            if op["linked"] and not op["node"]:
                last[passes] = at
                begun.setdefault(passes, at)
        apart = any((op["linked"] or op["module"]) and not op["node"] for op in self.ops)
        for at, op in enumerate(self.ops):
            op["phase"] = self.phase(
                at, op, begun.get(op["pass"], len(self.ops)), last.get(op["pass"], -1), apart
            )

    def phase(self, at: int, op: Row, begun: int, last: int, apart: bool) -> str:
        after = self.ops[at + 1] if at + 1 < len(self.ops) else {"backward": False}
        forward = (op["linked"] or op["module"]) and not op["node"]
        first_gradient = (
            op["op"] == "aten::ones_like" and after["backward"] and after["thread"] == op["thread"]
        )
        optimizer = around(op, self.optimizers) is not None or (op["range"] or "").startswith("Optimizer.")
        between = self.in_closure(at, op, begun) if optimizer else begun < at < last
        rules = (
            ("data", op["data"]),
            ("compile", op["compile"]),
            ("optimizer", op["hooked"]),
            ("backward", op["backward"] or (first_gradient and not forward)),
            ("communication", op["op"].startswith(("c10d::", "c10d_functional::", "_c10d_functional::"))),
            ("forward", forward or between),
            ("optimizer", optimizer),
            ("other", apart),
        )
        return next((phase for phase, holds in rules if holds), "forward")

    def in_closure(self, at: int, op: Row, begun: int) -> bool:
        step = around(op, self.closures)
        after = next((one["start_ns"] for one in self.ops[at:] if one["backward"]), None)
        if step is None or after is None or begun == len(self.ops):
            return False
        return step[0] <= self.ops[begun]["start_ns"] < op["start_ns"] and after < step[1]

    def step(self, begin: int, end: int) -> Row:
        """The parts of its wall time, each without what those before it have."""
        taken, parts = list[Span](), Counter[str]()
        ops = [(phase, [span(op) for op in self.told if op["phase"] == phase]) for phase in PHASES]
        for at, (phase, spans) in enumerate([*ops, *self.enclosed()]):
            more = union([*taken, *spans])
            parts[phase] += within(more, begin, end) - within(taken, begin, end)
            taken = more
            if at + 1 == len(ops):
                parts["outside ops"] = end - begin - within(taken, begin, end)
        parts["elsewhere"] = parts["other"] + end - begin - within(taken, begin, end)
        return {**parts, "compiling": parts["compile"], "wall": end - begin}

    def enclosed(self) -> Iterator[tuple[str, list[Span]]]:
        minor = ("data", "communication", "other")
        major = {op["thread"] for op in self.told if op["phase"] not in minor}
        ops = [op for op in self.told if op["phase"] not in minor or op["thread"] in major]
        yield "data", list(map(span, self.loaders))
        yield "compile", list(map(span, self.compiling))
        yield "communication", list(map(span, self.transfers))
        yield "optimizer", list(map(span, self.hooked))
        yield "backward", stretches(ops, lambda op: op["phase"] == "backward" or op["hooked"])
        yield "forward", list(map(span, self.modules))
        yield "forward", stretches(ops, lambda op: op["phase"] == "forward", lambda op: op["linked"])
        turns = [
            (one["end_ns"], other["start_ns"])
            for one, other in pairwise(ops)
            if (one["phase"], other["phase"]) == ("forward", "backward")
            and around(other | {"thread": one["thread"]}, self.closures)
        ]
        yield "backward", turns
        yield "optimizer", list(map(span, self.optimizers))

    def between(self) -> Iterator[tuple[str | None, str | None, int, int]]:
        """Where no op is: the lines before and after, begin and end."""
        latest = self.told[0] if self.told else {}
        for op in self.told:
            if op["start_ns"] > latest["end_ns"]:
                yield latest["line"], op["line"], latest["end_ns"], op["start_ns"]
            latest = op if op["end_ns"] > latest["end_ns"] else latest


def around(op: Row, rows: list[Row]) -> Span | None:
    """What these cover on the thread of the op around its start."""
    covered = union(span(row) for row in rows if row["thread"] == op["thread"])
    return next((one for one in covered if one[0] <= op["start_ns"] < one[1]), None)


def stretches(ops: list[Row], mine: Callable[[Row], bool], ends: Callable[[Row], bool] = bool) -> list[Span]:
    """From the first to the last of ops that follow one another, of which those at the ends hold `ends`."""
    found, run = list[Span](), list[Row]()
    for op in [*ops, {}]:
        if op and mine(op):
            run.append(op)
            continue
        if places := [at for at, one in enumerate(run) if ends(one)]:
            part = run[places[0] : places[-1] + 1]
            found.append((part[0]["start_ns"], max(one["end_ns"] for one in part)))
        run = []
    return found
