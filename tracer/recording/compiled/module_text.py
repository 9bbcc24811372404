"""What kernels are made of, from the text of the generated module, of code that was not compiled just now."""

from __future__ import annotations

import json
import linecache
import re
from collections.abc import Collection, Iterator
from functools import cache
from itertools import islice
from typing import Any

from tracer.base.this_torch import this_torch
from tracer.recording.compiled.kept_kernels import Uses
from tracer.recording.compiled.kernels_of_module import DEFINED
from tracer.recording.compiled.origins import Node, user_line

_ORIGINS = re.compile(r"\s*# .*Source Nodes: \[(.*)\], Original ATen: \[(.*)\]")
"""Above each call and each definition of a kernel of Triton, and each op: nodes of Dynamo's graph, and ops"""
_HANDLE = re.compile(r"\s*# \[Provenance debug handles\] (\S+):(\d+)$")
"""Below that, with INDUCTOR_PROVENANCE=1: the kernel or op, and the number of this place"""
_CALL = re.compile(r"\s+(\w+)(?:\.run)?\(")
_OP = re.compile(r".*\b(?:extern_kernels|torch\.ops|aten)\.")

_Said = tuple[list[str], list[str]]
"""The nodes of Dynamo's graph, and the ops"""


def stacks_of(code: Any) -> dict[str, list[str]]:
    """The stack traces of each place, `kernel:number`, if torch's own provenance was on."""
    try:
        found = json.loads(getattr(code, "inductor_provenance_stack_traces_str", None) or "{}")
    except ValueError:
        return {}
    several = found.items() if isinstance(found, dict) else ()
    return {place: stacks for place, stacks in several if isinstance(stacks, list)}


def uses_of_text(source: str, stacks: dict[str, list[str]]) -> Uses:
    """For each kernel (with provenance also for each op) what each place that runs it computes."""
    uses: Uses = {}
    for name, said, number in _places(source):
        lines = [line for stack in stacks.get(f"{name}:{number}", ()) if (line := _line_of_this_run(stack))]
        nodes = _nodes(said or ([], _ops_of_name(name)), list(dict.fromkeys(lines)))
        uses.setdefault(name, []).append({"nodes": nodes, "bytes": None})
    return uses


def _places(source: str) -> Iterator[tuple[str, _Said | None, str | None]]:
    """The places that run a kernel, in order: its name, what the comment says, and the place's number."""
    defined: dict[str, _Said | None] = {}
    said: _Said | None = None
    announced = None
    for line in source.splitlines():
        if origins := _ORIGINS.match(line):
            said = _words(origins[1]), [op.replace(".", "::", 1) for op in _words(origins[2])]
        elif handle := _HANDLE.match(line):
            announced = handle[1]
            yield announced, said or defined.get(announced), handle[2]
            said = None
        elif definition := DEFINED.match(line):
            defined[definition[1]], said = said, None
        elif (call := _CALL.match(line)) and call[1] in defined:
            if call[1] != announced:
                yield call[1], said or defined[call[1]], None
            said = announced = None
        elif _OP.match(line):
            said = announced = None


def _words(text: str) -> list[str]:
    return [word for word in text.split(", ") if word]


def _nodes(said: _Said, lines: list[str]) -> list[Node]:
    """The module does not say which op belongs to which of several lines."""
    names, ops = said
    name, line = (several[0] if len(several) == 1 else None for several in (names, lines))
    nodes = [_node(op, line, name) for op in ops]
    if len(names) > 1 or not ops:
        nodes += [_node(None, None, name) for name in names]
    if len(lines) > 1 or not ops:
        nodes += [_node(None, line, None) for line in lines]
    return nodes


def _node(op: str | None, source: str | None, dynamo: str | None) -> Node:
    return {"name": None, "op": op, "source": source, "dynamo": dynamo}


def _line_of_this_run(stack: str) -> str | None:
    """Its user_line; None if Python has not read that text there: it is of another run, from the cache."""
    place = user_line(stack) or ""
    file, _, number = place.rpartition(":")
    said = re.search(rf'File "{re.escape(file)}", line {number}\b.*\n\s*(.+)', stack)
    entry = linecache.cache.get(file)
    if said is None or entry is None or len(entry) != 4 or not 0 < int(number) <= len(entry[2]):
        return None
    return place if entry[2][int(number) - 1].strip() == said[1].strip() else None


def _ops_of_name(name: str) -> list[str]:
    """The ops in the name of a kernel of C++, `cpp_fused_gelu_sum_1`; none if it can be read in two ways.

    Inductor joins the names of different ops, sorted.
    """
    kernel = re.fullmatch(r"cpp_fused_(\w+)_\d+", name)
    ways = list(islice(_ways(kernel[1], _namespaces(), ""), 2)) if kernel else []
    return [f"{_namespaces()[op]}::{op}" for op in ways[0]] if len(ways) == 1 else []


def _ways(words: str, known: Collection[str], after: str) -> Iterator[list[str]]:
    """How words can be read as different names, sorted and joined by `_`."""
    for end in (*(at for at, sign in enumerate(words) if sign == "_"), len(words)):
        first = words[:end]
        if first in known and first > after:
            if end == len(words):
                yield [first]
            yield from ([first, *rest] for rest in _ways(words[end + 1 :], known, first))


@cache
def _namespaces() -> dict[str, str]:
    """The namespace of each operator that torch knows now; of several aten, else prims, else the last."""
    found: dict[str, str] = {}
    for overload in this_torch()._C._dispatch_get_all_op_names():
        namespace, _, name = overload.partition("::")
        name = name.partition(".")[0]
        if _rank(namespace) >= _rank(found.get(name)):
            found[name] = namespace
    return found


def _rank(namespace: str | None) -> int:
    return {"prims": 1, "aten": 2}.get(namespace or "", 0)
