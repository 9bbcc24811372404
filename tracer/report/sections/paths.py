"""The hottest dispatch paths: a row each."""

from __future__ import annotations

from typing import Any

from tracer.analysis.device_kernels import table_name
from tracer.analysis.paths import ONCE
from tracer.report.cells import code, table, wrapped
from tracer.report.chain import chain_nodes
from tracer.report.hot_paths import NAME_WIDTH, Path, Paths, compiler_text, hottest_of, near_equal
from tracer.report.page import Page, paragraphs, percent, times
from tracer.report.reading import Reading
from tracer.report.text import count, package_relative, shorten_kernel, steady_steps
from tracer.report.tree import arguments_text, time_text
from tracer.trace.tables.schema import GPU_KINDS, HOP_KINDS

title = "Hottest paths"
level = 2

_CHAIN = 6
_SAME = " Paths with the same number ran the same ops, but other kernels or CUDA calls, or raised."
_VARIES = 3


def wanted(reading: Reading) -> bool:
    return True


def data(reading: Reading) -> Paths:
    return hottest_of(reading)


def markdown(data: Paths, page: Page) -> str:
    left_out = wrapped(compiler_text(data.compiler))
    return paragraphs(_which(data), left_out, _overview(data) if data.paths else "")


def _which(data: Paths) -> str:
    """Which paths follow."""
    if not (data.among or data.patterns or data.steady):
        return "No op call was recorded."
    steady = ""
    if data.steady:
        steady = f" in {steady_steps(data.steps)}" if data.steps.steady else " in steady steps"
    if data.fitting and not data.paths:
        return f"{count(data.fitting, 'dispatch path')}{steady}; none is shown."
    words = " or ".join(map(code, data.patterns))
    if not data.paths:
        return wrapped(f"No dispatch path{f' with {words} in it' if words else ''} was recorded{steady}.")
    text = (
        "Outermost op calls that ran the same hops are one dispatch path. Shown: the "
        f"{len(data.paths)} hottest of {data.fitting:,}"
    )
    text += f" that have {words} in them, of {data.among:,} in all" if words else ""
    share = percent(sum(path.share for path in data.paths))
    return wrapped(
        f"{text}{steady}, by cost in steady steps. They take {share} of the time in ops"
        f"{' there' if steady else ''}. Cost: the median x calls, for each set of inputs. Hops: those of one "
        f"call.{_SAME if len(near_equal(data.paths)) < len(data.paths) else ''}"
    )


def _overview(data: Paths) -> str:
    """A row for each path, with the chain of hops and calls that the time goes to."""
    paths = [path for group in near_equal(data.paths) for path in group]
    numbers = [number for number, group in enumerate(near_equal(data.paths), 1) for _ in group]
    longest = times(path.longest_ns for path in paths)
    columns = {
        "total:": times(path.total_ns for path in paths),
        "share:": [percent(path.share) for path in paths],
        "on GPU:": times(path.gpu_ns for path in paths),
        "median:": times(path.median_ns for path in paths),
        "longest:": [_marked(text, path) for text, path in zip(longest, paths, strict=True)],
        "calls:": [f"{path.calls:,}" for path in paths],
        "hops:": [f"{path.hops:,}" for path in paths],
        "path": list(map(str, numbers)),
        "where the time goes": [_chain(path, data.details) for path in paths],
    }
    if not data.has_cuda:
        del columns["on GPU:"]
    varies = any(_varies(path) for path in data.paths)
    said = f"**Bold**: the mean is above {_VARIES} medians, because of slow calls."
    return paragraphs(
        table(list(columns), zip(*columns.values(), strict=True)), said if varies else "", _once(data)
    )


def _once(data: Paths) -> str:
    """First calls that took much longer than the others of their path."""
    found = [
        (number, path)
        for number, group in enumerate(near_equal(data.paths), 1)
        for path in group
        if path.once_ns
    ]
    if not found:
        return ""
    found.sort(key=lambda item: -item[1].once_ns)
    first = times(path.once_ns for _, path in found)
    medians = times(path.median_ns for _, path in found)
    rows = [
        [once, median, f"{path.once_calls:,}", code(path.op), str(number)]
        for (number, path), once, median in zip(found, first, medians, strict=True)
    ]
    return paragraphs(
        wrapped(
            f"**Once**: the first call of these paths took more than {ONCE} medians of the others. First "
            "calls load code, make handles, allocate and compile. They are in no other number of these paths."
        ),
        table(["first call:", "median:", "times:", "op", "path"], rows),
    )


def _varies(path: Path) -> bool:
    return path.total_ns > _VARIES * path.median_ns * path.calls


def _marked(text: str, path: Path) -> str:
    return f"**{text}**" if _varies(path) else text


def _chain(path: Path, texts: dict[int, str]) -> str:
    """The chain as text: hops with their keys, then calls with their arguments and the device kernel."""
    chain = chain_nodes(path.nodes)
    hops = [node for node in chain if node["kind"] in HOP_KINDS]
    words = [code(f"{node['op']} [{node['key']}]") for node in hops]
    if len(words) > _CHAIN:
        words[2:-2] = [f"... {len(words) - 4:,} more ..."]
    kernel = package_relative(hops[-1]["kernel"] or "")
    links = [code(_link(node, texts)) for node in chain[len(hops) :]]
    time = "" if chain[-1]["kind"] in HOP_KINDS else f" {time_text(chain[-1])}"
    return " -> ".join([*words[:-1], words[-1] + (f" {code(kernel)}" if kernel else ""), *links]) + time


def _link(node: dict[str, Any], texts: dict[int, str]) -> str:
    """`cublasSgemm_v2(N, N, m=64, n=64, k=64)` of a call, the name of what the GPU did."""
    arguments = "" if node["kind"] in GPU_KINDS else arguments_text(node, texts)
    return shorten_kernel(table_name(node["op"]), NAME_WIDTH) + arguments
