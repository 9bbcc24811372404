"""The JSON documents of a trace, checked once, when they are read.

A trace may be damaged or somebody else's, so a document may hold anything. What is of another type than
readers expect is taken out, so that they find it absent, and counted as damage.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tracer.base.visible import printable
from tracer.trace.bytes.records import LONGEST_MEMBER, LONGEST_NAME
from tracer.trace.bytes.trace_errors import TraceError

_SPARE_BYTES, _BYTES = 8 << 20, 16
_SPARE_MARKS = 1 << 19
"""For each byte of the packed ones, JSON of the recorder has 3 to 12 bytes, and 0.2 marks of values"""
_SPARE_PACKED = 4 << 20
_TRUST = "; if you trust it, unpack it with xz -d and read the result"
_VALUE_MARKS = b"[{,:"
"""Each value has one before it, but the outermost. `[]` is two bytes of JSON, and a list in memory"""


@dataclass
class Budget:
    """How much the documents of a file may become when they are unpacked.

    Without it a file of some kilobytes could unpack to gigabytes.
    """

    file: int | None = None
    """Bytes of a packed file, in which packed documents may take no room: they do if they are honest"""
    packed: int = 0
    size: int = 0
    marks: int = 0

    def unpacked(self, packed: bytes, path: str) -> bytes:
        """A document of the file at `path`. Raises zlib.error if it is damaged, TraceError if too large."""
        self.packed += len(packed)
        if self.file is not None:
            self.packed = min(self.packed, _SPARE_PACKED + self.file)
        most = _SPARE_BYTES + _BYTES * self.packed
        unpacker = zlib.decompressobj()
        content = unpacker.decompress(packed, most - self.size + 1)
        self.size += len(content)
        self.marks += sum(map(content.count, _VALUE_MARKS))
        if self.size > most or self.marks > _SPARE_MARKS + self.packed:
            raise TraceError(
                f"cannot read {path}: its documents unpack to more than {_SPARE_BYTES >> 20} MiB and "
                f"{_BYTES} times their size, or to more than {_SPARE_MARKS:,} values and one for each byte; "
                f"it is damaged, or made to use up memory{'' if self.file is None else _TRUST}"
            )
        if not unpacker.eof:
            raise zlib.error("a document that is cut")
        return content


def read_document(kind: str, content: bytes) -> tuple[Any, bool]:
    """The document of this kind, and whether something was taken out of it; None if that is all of it.

    Raises ValueError or RecursionError if it is not JSON.
    """
    check = _Check()
    document = check.fitted(json.loads(content), _DOCUMENTS.get(kind.partition(":")[0], Any))
    return (None, True) if document is _WRONG else (document, check.damaged)


_WRONG = object()


class _Check:
    def __init__(self) -> None:
        self.damaged = False

    def fitted(self, value: Any, wanted: Any) -> Any:
        """`value` as far as it is of the wanted form, else _WRONG.

        A form is one of:
            a function that says whether a value fits, or Any
            a list of one form, which each element must have
            a tuple of one form: a list, from which elements of other forms are taken out
            a dictionary of forms, by the name of the field, or by `str` for all that are not named; fields
            that are wrong are taken out

        A field may be null, which says that its value is not known. A null in the place of a dictionary or
        a tuple is taken out, so that readers find one or nothing.
        """
        if isinstance(wanted, (list, tuple)):
            return self._list(value, wanted[0], all_of=isinstance(wanted, list))
        if isinstance(wanted, dict):
            return self._fields(value, wanted) if isinstance(value, dict) else _WRONG
        value = self._anything(value)
        if wanted is Any or value is _WRONG:
            return value
        return _cut(value, _LONGEST.get(wanted)) if wanted(value) else _WRONG

    def _list(self, value: Any, wanted: Any, *, all_of: bool) -> Any:
        if not isinstance(value, list):
            return _WRONG
        for place, element in enumerate(value):  # in place: a document may fill a good part of memory
            value[place] = self.fitted(element, wanted)
        fitting = [element for element in value if element is not _WRONG]
        if len(fitting) == len(value):
            return value
        self.damaged = True
        return _WRONG if all_of else fitting

    def _fields(self, value: dict[str, Any], wanted: dict[Any, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, field in value.items():
            form = wanted.get(name, wanted.get(str, Any))
            if field is None:
                if not isinstance(form, (dict, tuple)):
                    found[printable(name)] = None
                continue
            fitted = self.fitted(field, form)
            if fitted is _WRONG:
                self.damaged = True
            else:
                found[printable(name)] = fitted
        return found

    def _anything(self, value: Any) -> Any:
        """What JSON can hold and a table or a text cannot is wrong: numbers without end."""
        if isinstance(value, str):
            return printable(value)
        if isinstance(value, bool) or value is None:
            return value
        if isinstance(value, int):
            return value if -(1 << 63) <= value < 1 << 64 else _WRONG
        if isinstance(value, float):
            return value if math.isfinite(value) else _WRONG
        if isinstance(value, dict):
            return self._fields(value, {})
        return self._list(value, Any, all_of=False)


def _cut(value: Any, longest: int | None) -> Any:
    """A text, or a list of texts."""
    if longest is None:
        return value
    return value[:longest] if isinstance(value, str) else [text[:longest] for text in value]


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _name(value: Any) -> bool:
    return isinstance(value, str)


def _path(value: Any) -> bool:
    return isinstance(value, str)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value < 1 << 63  # as columns have it


def _count(value: Any) -> bool:
    return _whole(value) and value >= 0


def _small(value: Any) -> bool:
    return _count(value) and value < 1 << 32


def _key_set(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _place(value: Any) -> bool:
    return _count(value) and value <= 1 << 20  # of a job: what says which ranks are missing, counts them


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _backends(value: Any) -> bool:
    return _count(value) and value <= 64  # bits of a key set


def _whole_or_null(value: Any) -> bool:
    return value is None or _whole(value)


def _key(value: Any) -> bool:
    """Of a functionality with several backends a list: its own name comes first."""
    return _text(value) or (isinstance(value, list) and len(value) > 0 and all(map(_text, value)))


_LONGEST: dict[Callable[[Any], bool], int] = {
    **dict.fromkeys((_name, _key), LONGEST_MEMBER),
    _path: LONGEST_NAME,
}
"""Characters. Many rows have these names; the recorder's are shorter"""


def _flags_or_text(value: Any) -> bool:
    return isinstance(value, (bool, str))


def _option(value: Any) -> bool:
    """Of an optimizer: a number or a flag; of its learning rate, what it is."""
    return value is None or isinstance(value, bool) or _number(value) or value in ("tensor", "number")


_COUNTS: dict[str, Callable[[Any], bool]] = dict.fromkeys(
    (
        *("api_calls", "launches", "graph_launches", "kernels", "memcpys", "memsets", "graph_kernels"),
        *("dropped_activities", "stacks_not_taken", "buffers", "buffer_bytes"),
        *("cupti", "driver_version"),
    ),
    _count,
)
_EVENTS = {**dict.fromkeys(("events", "slow"), _count), **dict.fromkeys(("before_ns", "after_ns"), _number)}
_TIMED = dict.fromkeys(("outermost", "inner", "exit"), _EVENTS)
_DOCUMENTS: dict[str, Any] = {
    "settings": {
        **dict.fromkeys(("threads", "interop_threads"), _count),
        "float32_matmul_precision": _text,
        **dict.fromkeys(
            ("deterministic", "cudnn_allow_tf32", "cudnn_benchmark", "cudnn_deterministic"), _flag
        ),
        "variables": {str: _text},
    },
    "source_lines": {str: {"cell": _text, "lines": {str: _text}}},
    "environment": {
        **dict.fromkeys(("tracer", "python", "torch", "torch_cuda", "platform", "own", "cpu"), _text),
        "cores": _count,
        "argv": [_text],
        "command": [_text],
        "cwd": _text,
        "started_at": _text,
        **dict.fromkeys(("attached", "launched"), _flag),
        "options": {
            **dict.fromkeys(("shapes", "source", "modules", "why", "memory", "then_stop"), _flag),
            "ops": [_text],
            "steps": [_whole_or_null],
            **dict.fromkeys(("max_size", "max_dumps"), _count),
        },
    },
    "rank": {
        **dict.fromkeys(("rank", "ranks", "restarts"), _place),
        **dict.fromkeys(("host", "boot"), _text),
        "groups": {str: {"ranks": [_place], "description": _text}},
    },
    "optimizers": ({"class": _text, "groups": ({"parameters": _small, "options": {str: _option}},)},),
    "loaders": (
        {
            **dict.fromkeys(("num_workers", "batch_size", "prefetch_factor"), _small),
            **dict.fromkeys(("pin_memory", "persistent_workers"), _flag),
        },
    ),
    "libraries": ({"path": _path, "base": _count, "end": _count, "build_id": _name},),
    "enums": {
        "num_backends": _backends,
        **dict.fromkeys(("included_by_default", "excluded_by_default"), _key_set),
        "keys": [_key],
        **{name: {str: _name} for name in ("dtypes", "device_types", "layouts")},
    },
    "certificate": {
        **dict.fromkeys(("entries", "hooked", "rearmed", "lost_hops"), _count),
        **{name: ({str: _text},) for name in ("not_hooked", "lost_entries")},
        **dict.fromkeys(("call_sites", "source_lines", "modules", "greenlets_lost", "full"), _flag),
        "other_signatures": [_text],
        "guards": {str: _flag},
        "out_of_space": _text,
        "ns_per_hop": _number,
        "own_cost": {
            "program": _TIMED,
            "loop": {"outermost": {**_TIMED, "ns": _number}, "inner": {**_TIMED, "ns": _number}},
            "boxed": _flag,
        },
        "steps": {"wanted": [_whole_or_null], "ended": _count, "counted_by": _text},
        "compiled": {
            "breaks": ({**dict.fromkeys(("reason", "source", "not_compiled"), _text), "times": _count},),
            "missing": [_text],
            "errors": [_text],
        },
        "cuda": {
            **_COUNTS,
            **dict.fromkeys(("state", "why", "driver_calls", "queries"), _text),
            "library_hooks": {str: _flags_or_text},
        },
    },
    "not_joined": {"count": _count},
    "compiled": {
        **dict.fromkeys(
            (
                *("function", "defined_at", "decorated_at", "direction", "compile_id", "cache"),
                *("recompiled", "generated", "artifact", "kind", "how", "hidden"),
            ),
            _text,
        ),
        "graph_id": _whole,
        "cpp_wrapper": _flag,
        "kernels": {str: {"language": _text, "line": _count, "threads": _small}},
        "uses": {
            str: ({"nodes": (dict.fromkeys(("name", "op", "source", "dynamo"), _text),), "bytes": _count},)
        },
    },
    "launch": {
        **dict.fromkeys(("file", "defined_at"), _text),
        **dict.fromkeys(("configs", "registers", "spills", "num_warps", "num_stages"), _count),
    },
    "overrides": {
        "compiled_frames": _count,
        "overrides": (
            {
                **dict.fromkeys(("name", "mode", "operator", "key", "kernel", "registered_at"), _text),
                **dict.fromkeys(("from_ns", "to_ns", "times", "ran"), _count),
                "handed_over": {str: _count},
            },
        ),
    },
}
