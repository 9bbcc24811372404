"""A replay as text: the arguments, times and errors side by side, the chains."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from tracer.analysis.recorded_call import RecordedCall
from tracer.compare.both_chains import both_chains
from tracer.compare.chains import Chain
from tracer.compare.model import Chains
from tracer.compare.spread import Spread, ratio_text
from tracer.replay.arguments import Argument, FromFile, TensorPlan
from tracer.replay.call import Call
from tracer.replay.make import integers_below, plans, tensors
from tracer.replay.run import BUSY_ABOVE, BUSY_BELOW, Replay, Side
from tracer.replay.script import code_of
from tracer.report.text import duration

_NOTES = {
    "default": "not recorded: this is the default of the schema",
    "dropped": "left out: a generator cannot be recorded",
    "user": "given with --arg",
}


def heading(recorded: RecordedCall, call: Call, here: str) -> Iterator[str]:
    """What is replayed, and with which arguments. `here`: the version of the installed torch."""
    place = f"  {recorded.line}" if recorded.line else ""
    yield f"hop {recorded.call}: {recorded.op} [{recorded.key}]{place}  {recorded.text}".rstrip()
    if recorded.hop != recorded.call:
        yield f"  (hop {recorded.hop} is a redispatch in this op call)"
    if recorded.torch != here:
        yield f"  recorded with torch {recorded.torch or 'unknown'}, replayed with torch {here}"
    for argument in call.arguments:
        yield f"  {argument.name} = {_value(argument)}"
    if recorded.scalars is None and sum(plan.elements > 0 for plan in plans(call.values)) > 1:
        yield "  whether tensors shared memory was not recorded; record with --values scalars"
    if any(not _is_wide(plan.dtype) for plan in plans(call.values)):
        yield f"  integers in tensors are random, from 0 to {integers_below(call.values) - 1}"


def _value(argument: Argument) -> str:
    note = f"  ({_NOTES[argument.given]})" if argument.given in _NOTES else ""
    return f"{shown(argument.value)}{note}"


def shown(value: Any) -> str:
    """A value of an argument as Python code; of a tensor what it is like."""
    if isinstance(value, TensorPlan):
        more = ", requires grad" if value.requires_grad else ""
        if value.memory is not None:
            number, before = value.memory
            more += f", in shared memory {number}" + (f" from element {before}" if before else "")
        more += f", values {value.fit}" if value.fit else ""
        return f"{value.dtype} {list(value.shape)} strides {list(value.stride)} on {value.device}{more}"
    if isinstance(value, FromFile):
        return f"{value.text} of {value.path}"
    if isinstance(value, list) and any(True for _ in tensors(value)):
        return f"[{'; '.join(shown(one) for one in value)}]"
    return code_of(value, 2)


def _is_wide(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "complex", "bool"))


def compared(found: Replay, recorded_chain: Chain | None) -> Iterator[str]:
    """Times, errors and chains. `recorded_chain`: that of the trace, if it is of the same torch."""
    if found.stock.why:
        yield f"not run as it was: {found.stock.why}"
    yield ""
    titles = [side.title for side in found.ran]
    width = max(12, *(len(title) + 2 for title in titles))
    yield (
        f"{'':22}"
        + "".join(f"{title:>{width}}" for title in titles)
        + ("     ratio" if len(titles) > 1 else "")
    )
    yield from _time_rows(found, width)
    yield from _again(found)
    yield from _error_rows(found, width)
    if any(side.repeats is False for side in found.ran):
        yield "two runs of it differ: the results are random, or not initialised"
    if found.same is not None:
        yield "the results are equal" if found.same else "the results differ"
    yield from _as_recorded(found)
    if found.tf32_on_cpu and found.same:
        yield "TF32 is a mode of GPUs: it has no effect on this call, which ran on the CPU"
    yield ""
    if len(found.ran) == 2:
        stock, changed = found.ran
        assert stock.chain is not None
        assert changed.chain is not None
        yield from _both(stock.chain, changed.chain)
    else:
        chain = found.ran[0].chain
        assert chain is not None
        yield from _one(chain)
    if recorded_chain is not None and found.stock.chain is not None:
        yield ""
        yield _chain_line(recorded_chain, found.stock.chain)


def _again(found: Replay) -> Iterator[str]:
    """What the same call differs from itself by, here and now."""
    if found.again is None:
        return
    low, high = found.again.low, found.again.high
    within = f"(95 %: {ratio_text(low)} to {ratio_text(high)})"
    said = f"the same call twice: {ratio_text(found.again.value)} x {within}"
    busy = low < BUSY_BELOW or high > BUSY_ABOVE
    yield said + ("; the machine is busy, so the ratio above says nothing" if busy else "")


def _as_recorded(found: Replay) -> Iterator[str]:
    """Of each side whose results could be compared with the recorded hash."""
    for side in found.ran:
        if side.as_recorded is not None:
            of = "" if side is found.stock and found.changed is None else f" of {side.title}"
            equal = "have the recorded hash" if side.as_recorded else "do not have the recorded hash"
            yield f"the results{of} {equal}"


def _chain_line(recorded: Chain, replayed: Chain) -> str:
    """Whether both are the same, and the first line that differs."""
    for there, here in zip_longest(recorded.links, replayed.links):
        if there != here:
            one, other = (link.line if link else "nothing more" for link in (there, here))
            first = f"recorded was {one}, replayed is {other}"
            return f"the chain is not that of the recording: {first}"
    return "the chain is that of the recording"


def _both(stock: Chain, changed: Chain) -> list[str]:
    lines = both_chains(Chains.of(stock, changed)).splitlines()
    lines[0] = lines[0].replace("override", " changed")
    return lines


def _one(chain: Chain) -> Iterator[str]:
    from tracer.report.tree import plain, title_line, tree_lines

    yield plain(title_line(chain.nodes, None)).rstrip()
    for line in tree_lines(chain.nodes, chain.signatures, details=chain.details):
        yield plain(line).rstrip()


def _time_rows(found: Replay, width: int) -> Iterator[str]:
    both = len(found.ran) == 2
    times = found.timings
    kinds = {"time": times["wall"]}
    if times["gpu"]:
        kinds = {
            "host time": times["host"],
            "until the GPU is done": times["wall"],
            "GPU time": times["gpu"],
        }
    for name, timing in kinds.items():
        if timing is None:
            continue
        spreads: list[Spread] = [timing.stock, timing.override] if both else [timing.stock]
        row = f"{name:22}" + "".join(f"{duration(round(spread.median)):>{width}}" for spread in spreads)
        if both:
            ratio = timing.ratio
            row += f"{ratio_text(ratio.value):>9} x "
            row += f"(95 %: {ratio_text(ratio.low)} to {ratio_text(ratio.high)})"
        yield row


def _error_rows(found: Replay, width: int) -> Iterator[str]:
    for number in range(max(len(side.errors) for side in found.ran)):
        cells = [_error(side, number) for side in found.ran]
        name = "error from float64" + (f", {number}" if len(found.ran[0].errors) > 1 else "")
        yield f"{name:22}" + "".join(f"{cell:>{width}}" for cell in cells)
    unknown = [side.no_error for side in found.ran if side.no_error and None in side.errors]
    for why in dict.fromkeys(unknown):
        yield f"error from float64 is unknown: {why}"


def _error(side: Side, number: int) -> str:
    found = side.errors[number] if number < len(side.errors) else None
    return "unknown" if found is None else f"{found.relative:.2g}"
