"""A replay as a document for `--json`: plain dicts, times in nanoseconds, null for what is not known."""

from __future__ import annotations

from typing import Any

from tracer.analysis.recorded_call import RecordedCall
from tracer.compare.chains import Chain
from tracer.compare.document import as_document
from tracer.compare.model import Timing
from tracer.replay.call import Call
from tracer.replay.make import plans
from tracer.replay.run import Replay
from tracer.replay.text import shown

_OF_A_CALL = ("hop", "call", "op", "key", "line", "text")


def replay_document(
    file: str, recorded: RecordedCall, call: Call, here: str, found: Replay, recorded_chain: Chain | None
) -> dict[str, Any]:
    """`stock` is the call as it was, `changed` the call with the change. `here`: the installed torch."""
    stock = found.stock.chain
    return {
        "trace": file,
        **{name: getattr(recorded, name) for name in _OF_A_CALL},
        "torch": {"recorded": recorded.torch, "here": here},
        "arguments": [
            {
                "name": argument.name,
                "given": argument.given,
                "value": shown(argument.value),
                "tensors": as_document(list(plans([argument.value]))),
            }
            for argument in call.arguments
        ],
        "stock": as_document(found.stock),
        "changed": as_document(found.changed),
        "times": {name: _times(timing, found) for name, timing in found.timings.items()},
        "again": as_document(found.again),
        "same_results": found.same,
        "results_as_recorded": {
            "stock": found.stock.as_recorded,
            "changed": found.changed.as_recorded if found.changed else None,
        },
        "chain_as_recorded": recorded_chain.links == stock.links if recorded_chain and stock else None,
    }


def _times(timing: Timing | None, found: Replay) -> dict[str, Any] | None:
    """Of each side that ran; the ratio if both did."""
    if timing is None:
        return None
    known = {"stock": timing.stock, "changed": timing.override, "ratio": timing.ratio}
    for name, side in (("stock", found.stock), ("changed", found.changed)):
        if side is None or side.chain is None:
            known |= {name: None, "ratio": None}
    return {name: as_document(value) for name, value in known.items()}
