"""gdb's readings of arguments, compared with what torch's own profiler tells Python of the same op calls.

`pytest tests/gdb/test_session_scripts.py -k hops -rP` prints a row of each session:
script, stops at kernel functions, recorded hops, readings compared, what is not told, differences.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
from launching import Launcher

import tracer

# The profiler has every op call with its tensors, numbers and lists, but no text, generator, device or key.
PROFILE = """
import json, runpy
from torch._C._profiler import _EventType
from torch.profiler import ProfilerActivity, profile

def events(nodes):
    for node in nodes:
        if node.tag == _EventType.TorchOp and "::" in node.name:
            yield node
        yield from events(node.children)

def plain(value):
    if isinstance(value, list):
        return [plain(each) for each in value]
    if not hasattr(value, "sizes"):
        return str(value).strip("()") if isinstance(value, complex) else value
    return {"shape": value.sizes, "stride": value.strides, "dtype": str(value.dtype).removeprefix("torch."),
            "device": str(value.device)}

with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
    runpy.run_path("script.py", run_name="__main__")
results = seen.profiler.kineto_results
trees = sorted(events(results.experimental_event_tree()), key=lambda event: event.start_time_ns)
flat = [event for event in results.events() if "::" in event.name()]
flat.sort(key=lambda event: event.start_ns())
assert [tree.name for tree in trees] == [event.name() for event in flat]
told = [[tree.name, [plain(tensor if number is None else number)
                     for tensor, number in zip(tree.extra_fields.inputs, event.concrete_inputs())]]
        for tree, event in zip(trees, flat)]
with open("told.json", "w") as file:
    json.dump(told, file)
"""
# c10's numbers of types that a number is told of
NUMBERED = {
    "c10::ScalarType": [
        *("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32"),
        *("complex64", "complex128", "bool", "qint8", "quint8", "qint32", "bfloat16"),
    ],
    "c10::Layout": ["strided"],
    "c10::MemoryFormat": ["contiguous_format", "preserve_format", "channels_last", "channels_last_3d"],
}


@dataclass
class Row:
    """A script's stops at kernel functions beside the recorded hops, and its readings."""

    script: str
    stops: list[tuple[str, str]]
    hops: list[tuple[str, str]]
    compared: int = 0
    untold: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def text(self) -> str:
        untold = ", ".join(f"{count} {kind}" for kind, count in sorted(self.untold.items())) or "0"
        wrong = len(self.differences) + (self.stops != self.hops)
        return (
            f"| {self.script} | {len(self.stops)} | {len(self.hops)} | {self.compared} | {untold} | {wrong} |"
        )


def row(launcher: Launcher, script: str, stops: Sequence[dict[str, Any]], operators: set[str]) -> Row:
    """`stops`: of `script.py` in the launcher's folder, which is recorded and profiled here."""
    launcher.write(PROFILE, "ask_torch.py")
    for done in (launcher.record("-o", "run.trace", "script.py"), launcher.python("ask_torch.py")):
        assert done.status == 0, done.err
    hops = calls_of_hops(launcher, operators)
    of_operators = [stop for stop in stops if stop["op"] in operators]
    kernels = [stop for stop in of_operators if "kernel" in stop["kind"]]
    found = Row(script, [(stop["op"], stop["key"]) for stop in kernels], [hop[:2] for hop in hops])
    told = json.loads((launcher.folder / "told.json").read_text())
    waiting: list[
        dict[str, Any]
    ] = []  # calls and redispatches, whose kernel function is the next stop of the op
    for stop in of_operators:
        waiting.append(stop)
        if "kernel" in stop["kind"] and hops:
            op, _, number = hops.pop(0)
            values = [values for name, values in told if name == op.split(".")[0]]
            for each in [stop for stop in waiting if stop["op"] == op]:
                compare(found, each, values[number])
            waiting = [stop for stop in waiting if stop["op"] != op]
    return found


def calls_of_hops(launcher: Launcher, operators: set[str]) -> list[tuple[str, str, int]]:
    """(operator, key, which call of that name it belongs to) of the recorded hops, in order."""
    hops = tracer.load(launcher.folder / "run.trace").hops.sort("start_ns")
    hops = hops.with_columns(pl.col("op", "key", "kind").cast(pl.String))
    counts: Counter[str] = Counter()
    numbers: dict[int, tuple[str, int]] = {}
    found = []
    for hop in hops.iter_rows(named=True):
        name = hop["op"].split(".")[0]
        above = numbers.get(hop["parent"], ("", 0))
        if hop["kind"] == "call" or above[0] != name:
            above = (name, counts[name])
            counts[name] += 1
        numbers[hop["id"]] = above
        if hop["op"] in operators:
            found.append((hop["op"], hop["key"], above[1]))
    return found


def compare(found: Row, stop: dict[str, Any], told: list[Any]) -> None:
    if len(stop["arguments"]) != len(told):
        found.differences.append(f"{stop['op']} {stop['kind']}: {stop['arguments']} for {told}")
    for argument, value in zip(stop["arguments"], told, strict=False):
        read = shown(argument)
        if value is None and isinstance(read, str):
            found.untold[argument["name"]] += 1
            continue
        found.compared += 1
        if read != value:
            found.differences.append(
                f"{stop['op']} {stop['kind']} [{stop['key']}] {argument['name']}: {read} for {value}"
            )


def shown(argument: dict[str, Any]) -> Any:
    """gdb's reading as the profiler tells it."""
    value = argument["value"]
    if isinstance(value, list):
        return [shown({**argument, "value": each}) for each in value]
    if isinstance(value, dict) and value.get("defined"):
        return {name: value[name] for name in ("shape", "stride", "dtype", "device")}
    if isinstance(value, dict) and value.get("defined") is False:
        return None
    for kind, names in NUMBERED.items():
        if kind in argument["type"] and value in names:
            return names.index(value)
    return value
