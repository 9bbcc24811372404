"""`tracer explain OP --from FILE --hop ID`: why one hop ran at its dispatch key."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from tracer.cli.common import USAGE, analysing, fail, progress, writing
from tracer.cli.documents import print_json

if TYPE_CHECKING:
    from tracer.analysis.why import Why
    from tracer.dispatch.attention import Choice
    from tracer.trace import Trace


def explain_hop(operator: str, file: Path, hop: int, *, as_json: bool) -> None:
    """Prints about ten lines, or a document."""
    from tracer.analysis.inputs_text import signature_texts
    from tracer.analysis.source_lines import SourceLines
    from tracer.analysis.why import why
    from tracer.base.visible import visible
    from tracer.dispatch.attention import choice_lines
    from tracer.dispatch.operators import Operators
    from tracer.report.handed_over import with_handed_over
    from tracer.report.why_lines import why_lines

    with analysing(file) as trace:
        try:
            found = why(trace, hop, _has_kernel)
        except LookupError as error:
            fail(f"{file} has {error}; to see the ids: tracer tree {file} --ids", USAGE)
        op = str(found.hop["op"])
        if op not in Operators(pl.Series([op])).named(operator):
            fail(f"hop {hop} is {op}, not {operator}; to see the ids: tracer tree {file} --ids", USAGE)
        choice = _attention(trace, found)
        if as_json:
            print_json({**asdict(found), "attention": choice and asdict(choice)})
            return
        override = with_handed_over(trace.hops[hop : hop + 1], trace.certificate)["override"][0]
        found = replace(found, hop=found.hop | {"override": override})
        number = found.hop["inputs"]
        shapes = signature_texts(trace.signatures, [number]).get(number, "")
        sources = SourceLines.of(trace)
        source = found.hop["source"]
        line = f"{sources.name(source)}: {sources.text(source)}".rstrip(": ") if source else ""
        with writing():
            for text in why_lines(found, shapes, line, _names(op)):
                print(visible(text))
            if choice is not None:
                for text in choice_lines(choice):
                    print(visible(text))


def _has_kernel(op: str, key: str) -> bool:
    """As the torch here says; True if there is none, or if it knows neither the op nor the device."""
    from tracer.base.torch_build import installed_torch

    if installed_torch() is None:
        return True
    import torch

    if "PrivateUse1" in key and torch._C._get_privateuse1_backend_name() == "privateuseone":
        return True
    try:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(op, key))
    except RuntimeError:
        return True


def _attention(trace: Trace, found: Why) -> Choice | None:
    """What torch says of the backends, of an op call of scaled_dot_product_attention."""
    from tracer.analysis.recorded_call import recorded_call
    from tracer.base.torch_build import installed_torch
    from tracer.dispatch import attention

    if found.hop["op"] != attention.OP:
        return None
    first = found.hop["id"]
    below = trace.hops.slice(first + 1).filter(
        (pl.col("process") == found.hop["process"])
        & (pl.col("thread") == found.hop["thread"])
        & (pl.col("start_ns") <= found.hop["end_ns"])
    )
    ran = attention.backend_that_ran(below["op"].cast(pl.String).to_list())
    if installed_torch() is None:
        return attention.Choice(ran, {}, "torch is not installed here")
    with progress("asking torch"):
        return attention.ask(recorded_call(trace, first), ran)


def _names(op: str) -> dict[int, str]:
    """The names of an operator's arguments by position; none where the torch here does not know it."""
    from tracer.base.torch_build import installed_torch

    if installed_torch() is None:
        return {}
    import torch

    name, _, overload = op.partition(".")
    try:
        schema: Any = torch._C._get_schema(name, overload)
    except RuntimeError:
        return {}
    return {number: argument.name for number, argument in enumerate(schema.arguments)}
