"""The list of what stays in a redacted trace: fields of documents. All else goes."""

from __future__ import annotations

import builtins
import errno
import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tracer.trace.bytes.kept_names import Names

LEFT_OUT = "left out"
GONE = object()
"""In the place of a field that goes"""

_VERSION = re.compile(r"\d+(\.\d+)*((a|b|rc|\.dev|\.post)\d+)?(\+(cpu|cu\d+|xpu|rocm[\d.]+|git[0-9a-f]+))?")
_WHY_OF_CUDA = (
    "",
    "--cuda off",
    "this machine has no NVIDIA driver (libcuda.so.1)",
    "tracer was built with a torch that has no CUDA",
    "torch has no CUDA",
)
_WHY_OF_ENTRY = ("it holds the hop of another entry", "registered without being seen")
_WHY_HIDDEN = (
    "AOTInductor calls its kernels from C++",
    "cpp_wrapper calls its kernels from C++",
    "the generated module was not found",
    "the C++ kernels of this torch take their arguments another way",
    "this torch launches its Triton kernels another way",
)
_FIGURES = frozenset(
    (
        *("updateDispatchTableEntry_", "checkInvariants", "wanted", "cpu", "cuda", "program", "loop", "ns"),
        *("outermost", "inner", "exit", "events", "slow", "before_ns", "after_ns"),
    )
)
Keep = Callable[[Names, Any], Any]
"""What stays of a field; GONE: nothing"""


def plain(_: Names, value: Any) -> Any:
    return value if isinstance(value, (bool, int, float)) else GONE


def figures(names: Names, value: Any) -> Any:
    """Numbers and flags, at any depth, by names that tracer gives them."""
    if isinstance(value, dict):
        found = {key: figures(names, each) for key, each in value.items() if key in _FIGURES}
        return {key: each for key, each in found.items() if each is not GONE}
    if isinstance(value, list):
        return [each for each in (figures(names, each) for each in value) if each is not GONE]
    return value if value is None else plain(names, value)


def gone(what: str) -> Keep:
    def count(names: Names, value: Any) -> Any:
        names.done.removed[what] += len(value) if isinstance(value, (list, dict)) else 1
        return GONE

    return count


def _pattern(names: Names, _: Any) -> str:
    """Left out, and still known to be there: readers must know that other ops were not recorded."""
    names.done.removed["options"] += 1
    return LEFT_OUT


def one_of(*words: str) -> Keep:
    return lambda names, value: value if value in words else names_left_out(names)


def names_left_out(names: Names) -> str:
    names.done.removed["texts"] += 1
    return LEFT_OUT


def matching(pattern: str) -> Keep:
    """Texts of a form that says nothing of the user"""
    form = re.compile(pattern)
    return lambda _, value: value if isinstance(value, str) and form.fullmatch(value) else GONE


def told(what: str, begin: str = "") -> Keep:
    """`left out` in the place of a text; of what begins with the pattern, that stays."""
    form = re.compile(begin)

    def replace(names: Names, value: Any) -> Any:
        names.done.removed[what] += 1
        known = form.match(value) if begin and isinstance(value, str) else None
        return f"{known[0]} {LEFT_OUT}" if known else LEFT_OUT

    return replace


def by(change: Callable[[Names, str], str]) -> Keep:
    return lambda names, value: change(names, value) if isinstance(value, str) else GONE


def _version(_: Names, text: str) -> Any:
    known = _VERSION.match(text)
    return known[0] if known else GONE


def _error(names: Names, text: str) -> Any:
    names.done.removed["texts of errors"] += 1
    kind = text.partition(":")[0]
    if not re.fullmatch(r"\w+", kind):
        return LEFT_OUT
    return names.chosen("errors", kind, known=hasattr(builtins, kind))


def _function(names: Names, text: str) -> str:
    return names.chosen("Python functions", text)


def _override(names: Names, text: str) -> str:
    """`mm`, `package.module:function` or `path/of/file.py:function`"""
    file, colon, function = text.rpartition(":")
    begin = (
        (names.file(file) if file.endswith(".py") else names.chosen("overrides", file)) + colon
        if colon
        else ""
    )
    return begin + names.chosen("overrides", function)


def _no_space(_: Names, text: str) -> str:
    return text if text in map(os.strerror, errno.errorcode) else LEFT_OUT


def _hashed(_: Names, text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]  # equal if it was, e.g. for the ranks of one host


def _source_lines(names: Names, value: Any) -> Any:
    lines = (known.get("lines") or {} for known in value.values() if isinstance(known, dict))
    names.done.removed["texts of source lines"] += sum(map(len, lines))
    return {}


def _keys(names: Names, value: Any) -> Any:
    """Dispatch keys, whose places count."""
    if isinstance(value, list):
        return [_keys(names, each) for each in value]
    return names.key(value) if isinstance(value, str) and re.fullmatch(r"\w+", value) else LEFT_OUT


@dataclass(frozen=True)
class Each:
    """A dictionary whose keys are no fields."""

    key: Keep
    value: Any


_ENTRY = {"op": by(Names.op), "key": by(Names.key), "why": one_of(*_WHY_OF_ENTRY)}
_NODE = {
    "op": by(Names.op),
    "source": by(Names.place),
    "dynamo": gone("names of variables"),
    "name": gone("names of nodes"),
}
_COUNTS_OF_CUDA = (
    *("cupti", "driver_version", "api_calls", "launches", "graph_launches", "kernels", "memcpys", "memsets"),
    *("graph_kernels", "dropped_activities", "stacks_not_taken", "buffers", "buffer_bytes"),
)
DOCUMENTS: dict[str, Any] = {
    "environment": {
        **dict.fromkeys(("tracer", "python", "torch", "torch_cuda"), by(_version)),
        **dict.fromkeys(
            ("platform", "own", "cpu", "cores", "argv", "command", "cwd", "started_at"),
            lambda names, _: gone("facts of the environment")(names, ""),
        ),
        **dict.fromkeys(("attached", "launched"), plain),
        "options": {
            **dict.fromkeys(("shapes", "source", "stack", "torch_frames", "modules", "why", "memory"), plain),
            **dict.fromkeys(("then_stop", "max_size", "max_dumps"), plain),
            "steps": figures,
            "cuda": one_of("auto", "on", "off"),
            "driver": one_of("launches", "all", "none"),
            "queries": one_of("all", "torch"),
            "values": one_of("none", "hash", "scalars", "all"),
            "ops": [_pattern],
            "override": gone("options"),
        },
    },
    "settings": {
        **dict.fromkeys(("threads", "interop_threads", "deterministic"), plain),
        **dict.fromkeys(("cudnn_allow_tf32", "cudnn_benchmark", "cudnn_deterministic"), plain),
        "float32_matmul_precision": one_of("highest", "high", "medium"),
        "variables": gone("environment variables"),
    },
    "source_lines": _source_lines,
    "optimizers": [
        {
            "class": matching(r"torch\.optim\.\w+\.\w+"),
            "groups": [
                {
                    "parameters": plain,
                    "options": {
                        **dict.fromkeys(
                            ("foreach", "fused", "capturable", "differentiable", "maximize"), plain
                        ),
                        **dict.fromkeys(("amsgrad", "nesterov", "centered", "momentum", "dampening"), plain),
                        **dict.fromkeys(("weight_decay", "decoupled_weight_decay"), plain),
                        "lr": one_of("number", "tensor"),
                    },
                }
            ],
        }
    ],
    "loaders": [
        dict.fromkeys(
            ("num_workers", "batch_size", "prefetch_factor", "pin_memory", "persistent_workers"), plain
        )
    ],
    "rank": {
        **dict.fromkeys(("rank", "ranks", "restarts"), plain),
        "boot": by(_hashed),
        "host": gone("names of hosts"),
        "groups": Each(by(Names.group), {"ranks": figures, "description": gone("names of process groups")}),
    },
    "libraries": [
        {"path": by(Names.library), "base": plain, "end": plain, "build_id": matching("[0-9a-f]*")}
    ],
    "enums": {
        **dict.fromkeys(("num_backends", "included_by_default", "excluded_by_default"), plain),
        "keys": _keys,
        "dtypes": Each(matching(r"\d+"), by(Names.type)),
        "device_types": Each(matching(r"\d+"), by(Names.type)),
        "layouts": Each(matching(r"\d+"), by(Names.type)),
    },
    "certificate": {
        **dict.fromkeys(("entries", "hooked", "rearmed", "lost_hops", "ns_per_hop", "compiled_calls"), plain),
        **dict.fromkeys(
            ("call_sites", "source_lines", "modules", "greenlets_lost", "full", "outlived"), plain
        ),
        **dict.fromkeys(("guards", "memory", "own_cost"), figures),
        "not_hooked": [_ENTRY],
        "lost_entries": [_ENTRY],
        "other_signatures": [by(Names.op)],
        "out_of_space": by(_no_space),
        "steps": {
            "wanted": figures,
            "ended": plain,
            "counted_by": one_of("tracer.step()", "optimizer.step()"),
        },
        "compiled": {
            "breaks": [
                {
                    "reason": told("reasons of graph breaks"),
                    "source": by(Names.place),
                    "not_compiled": by(_function),
                    "times": plain,
                }
            ],
            "missing": [by(lambda names, text: names.chosen("functions of torch that are missing", text))],
            "errors": [by(_error)],
        },
        "cuda": {
            **dict.fromkeys(_COUNTS_OF_CUDA, plain),
            "state": one_of("recorded", "failed", "held", "no driver", "not built", "off", "not used"),
            "why": one_of(*_WHY_OF_CUDA),
            "driver_calls": one_of("launches", "all", "none"),
            "queries": one_of("all", "torch"),
            "library_hooks": Each(
                by(Names.cuda_function),
                lambda _, value: value is True,
            ),
            "torch_profiler": told("texts"),
        },
    },
    "compiled": {
        "called": plain,
        "function": by(_function),
        "defined_at": by(Names.place),
        "decorated_at": by(Names.place),
        "direction": one_of("forward", "backward", "inference"),
        "compile_id": matching(r"[\d/_!]*"),
        "cache": one_of("hit", "miss", "bypass"),
        "recompiled": told("reasons of recompilations", r"\d+/\d+:"),
        "generated": by(Names.library),
        "artifact": by(_hashed),
        "kind": by(lambda names, text: names.chosen("classes of compiled code", text)),
        "how": one_of("compiled", "kept"),
        "hidden": one_of(*_WHY_HIDDEN),
        "graph_id": plain,
        "process": plain,
        "cpp_wrapper": plain,
        "kernels": Each(
            by(Names.compiled_kernel),
            {"language": one_of("C++", "Triton"), "line": plain, "threads": plain},
        ),
        "uses": Each(by(Names.compiled_kernel), [{"nodes": [_NODE], "bytes": plain}]),
    },
    "compiled_hidden": {},
    "not_joined": {"count": plain},
    "launch": {
        "file": by(Names.library),
        "defined_at": by(Names.place),
        **dict.fromkeys(("configs", "registers", "spills", "num_warps", "num_stages"), plain),
    },
    "overrides": {
        "compiled_frames": plain,
        "overrides": [
            {
                "name": by(_override),
                "mode": one_of("auto", "force"),
                "operator": by(Names.op),
                "key": by(Names.key),
                "kernel": by(lambda names, text: names.chosen("kernels of overrides", text)),
                "registered_at": by(Names.registered_at),
                **dict.fromkeys(("from_ns", "to_ns", "times", "ran"), plain),
                "handed_over": Each(by(Names.reason), plain),
            }
        ],
    },
}
"""By the kind of the document, which ends at a colon: its fields, and what stays of each"""


def document(names: Names, kind: str, content: Any) -> Any:
    """What stays of a document; GONE: nothing."""
    form = DOCUMENTS.get(kind.partition(":")[0])
    if form is None or kind.count(":") > 1 or not re.fullmatch(r"\w+(:\d+)?", kind):
        names.done.removed["documents that are not known"] += 1
        return GONE
    return _fitted(names, content, form)


def _fitted(names: Names, value: Any, form: Any) -> Any:
    if isinstance(form, list):
        if not isinstance(value, list):
            return GONE
        return [kept for each in value if (kept := _fitted(names, each, form[0])) is not GONE]
    if isinstance(form, (dict, Each)):
        if not isinstance(value, dict):
            return GONE
        return _mapped(names, value, form) if isinstance(form, Each) else _fields(names, value, form)
    return form(names, value)


def _fields(names: Names, value: dict[str, Any], form: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, each in value.items():
        if name not in form:
            names.done.removed["fields that are not known"] += 1
        elif each is None:
            found[name] = None
        elif (kept := _fitted(names, each, form[name])) is not GONE:
            found[name] = kept
    return found


def _mapped(names: Names, value: dict[str, Any], form: Each) -> dict[str, Any]:
    pairs = ((form.key(names, name), _fitted(names, each, form.value)) for name, each in value.items())
    return {name: each for name, each in pairs if GONE not in (name, each)}
