"""What each kernel of compiled code was made of: the nodes of the graph, their ops and Python lines."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

from tracer.base.interrupts import is_of_the_program
from tracer.base.this_torch import this_torch

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')

Node = dict[str, Any]
"""name; or null: op (`aten::gelu`), source (`file:line` of the run that compiled), dynamo (its name there)"""


def user_line(stack: str | None) -> str | None:
    """`file:line` of the innermost frame of a stack trace outside of torch; if there is none, of the last."""
    frames = _FRAME.findall(stack or "")
    own = [frame for frame in frames if not is_of_torch(frame[0])]
    file, line = (own or frames or [(None, None)])[-1]
    return None if file is None else f"{file}:{line}"


def is_of_torch(file: str) -> bool:
    return file.startswith(os.path.join(os.path.dirname(str(this_torch().__file__)), ""))


def nodes_of_kernel(scheduled: Any, *, is_extern: bool) -> list[Node]:
    """The nodes that Inductor's scheduler put into one kernel."""
    parts = [scheduled] if is_extern else [getattr(one, "node", None) for one in scheduled]
    nodes: dict[str, Node] = {}
    for part in parts:
        for origin in getattr(part, "origins", None) or ():
            nodes.setdefault(origin.name, _node(origin))
    return list(nodes.values())


def bytes_of_kernel(scheduled: Any) -> int | None:
    """Bytes that a kernel reads and writes, each buffer once; None: not known.

    Buffers that Inductor keeps out of memory are left out.
    """
    try:
        graph = sys.modules["torch._inductor.virtualized"].V.graph
        gone = set(graph.removed_buffers) | set(graph.inplaced_to_remove)
        accesses = {
            dependency.name: dependency
            for one in scheduled
            if getattr(one, "node", None) is not None
            for dependency in (*one.read_writes.reads, *one.read_writes.writes)
            if dependency.name not in gone
        }
        return sum(dependency.numbytes_hint() for dependency in accesses.values()) or None
    except Exception as error:  # this torch's scheduler says it otherwise
        if is_of_the_program(error):
            raise
        return None


def _node(origin: Any) -> Node:
    meta = origin.meta
    made_of = meta.get("from_node")
    return {
        "name": origin.name,
        "op": _op(meta.get("original_aten")) or _op(origin.target if origin.op == "call_function" else None),
        "source": user_line(meta.get("stack_trace")),
        "dynamo": made_of[0].name if made_of else None,
    }


def _op(overload: Any) -> str | None:
    """`aten::gelu`: of an overload its packet."""
    packet = getattr(overload, "_overloadpacket", overload)
    name = getattr(packet, "_qualified_op_name", None)
    if name is None and any(base.__name__ == "HigherOrderOperator" for base in type(overload).__mro__):
        name = overload.__name__
    return name if isinstance(name, str) else None
