"""The kernels in the module that Inductor generated for one region, and which of them are followed."""

from __future__ import annotations

import re
import sys
from types import BuiltinFunctionType, ModuleType
from typing import Any

DEFINED = re.compile(r"^(\w+) = async_compile\.(\w+)\(", re.MULTILINE)
_THREADS = re.compile(r"#pragma omp parallel num_threads\((\d+)\)")
LAUNCHES = "torch._inductor.runtime.triton_heuristics", "CachingAutotuner"
"""The module and the class through which Inductor's Python code launches Triton kernels"""
_LANGUAGES = {"cpp_pybinding": "C++", "cpp": "C++", "triton": "Triton"}


def describe(code: Any, native: ModuleType) -> dict[str, Any]:
    """The part of a region's document about its generated module; begins to follow its kernels of C++."""
    source = getattr(code, "source_code", None)
    source = source if isinstance(source, str) else ""
    names = _globals(code)
    defined = _defined(source)
    followed = [
        name
        for name, value in names.items()
        if name.startswith("cpp_")
        and isinstance(value, BuiltinFunctionType)
        and native.follow_kernel(value, name)
    ]
    return {
        "generated": names.get("__file__"),
        "kernels": defined,
        "hidden": _why_hidden(code, names, defined, followed),
    }


def _why_hidden(code: Any, names: dict[str, Any], defined: dict[str, Any], followed: list[str]) -> str | None:
    """Why the calls of kernels of this region are not recorded; None: they are."""
    arguments = getattr(code, "fx_kwargs", None) or {}
    if type(code).__name__ != "CompiledFxGraph":
        return "AOTInductor calls its kernels from C++"
    if arguments.get("cpp_wrapper"):
        return "cpp_wrapper calls its kernels from C++"
    if not names:
        return "the generated module was not found"
    if any(facts["language"] == "C++" and name not in followed for name, facts in defined.items()):
        return "the C++ kernels of this torch take their arguments another way"
    autotuner = getattr(sys.modules.get(LAUNCHES[0]), LAUNCHES[1], None)
    if any(facts["language"] == "Triton" for facts in defined.values()) and not hasattr(
        getattr(autotuner, "run", None), "__wrapped__"
    ):
        return "this torch launches its Triton kernels another way"
    return None


def _globals(code: Any) -> dict[str, Any]:
    """The names of the generated module; none where what is called is no Python."""
    runner = getattr(code, "compiled_fn_runner", None)
    for call in (getattr(type(runner), "call", None), getattr(code, "current_callable", None)):
        found = getattr(getattr(call, "__func__", call), "__globals__", None)
        if isinstance(found, dict) and "async_compile" in found:
            return found
    path = getattr(code, "cache_key", None)
    modules = getattr(
        getattr(sys.modules.get("torch._inductor.codecache"), "PyCodeCache", None), "modules", ()
    )
    for module in modules:
        if path and getattr(module, "key", None) == path:
            return vars(module)
    return {}


def _defined(source: str) -> dict[str, Any]:
    """Of each kernel its language, the line of its definition in the generated module, and its threads."""
    kernels: dict[str, Any] = {}
    matches = list(DEFINED.finditer(source))
    for match, following in zip(matches, [*matches[1:], None], strict=False):
        end = len(source) if following is None else following.start()
        language = _LANGUAGES.get(match[2])
        if language is None:
            continue
        threads = _THREADS.search(source, match.start(), end)
        kernels[match[1]] = {
            "language": language,
            "line": source.count("\n", 0, match.start()) + 1,
            "threads": (int(threads[1]) if threads else 1) if language == "C++" else None,
        }
    return kernels
