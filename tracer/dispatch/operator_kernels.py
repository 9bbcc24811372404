"""Names of kernel functions that torchgen made, for registrations in the files that it writes.

The table says where a kernel was registered and not which function it is. torchgen names its functions by
rule, so the name follows from operator and file; it is given only where libtorch has a dispatcher's
wrapper for just that function in its symbol table. Kernels written by hand have no such rule: a trace
names them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from tracer.base import torch_abi
from tracer.trace.names.kernels import WRAPPER, method_names, wrapper_names
from tracer.trace.names.symbols import Symbols

_LIBRARIES = ("libtorch_cpu.so", "libtorch_cuda.so")
_BACKEND_FILE = re.compile(r"Register(?P<key>\w+?)(_\d+)?\.cpp:\d+$")
_NAMESPACE_FILE = re.compile(rf"(?P<kind>{'|'.join(torch_abi.GENERATED_NAMESPACES)})(_\d+)?\.cpp:\d+$")


class GeneratedKernels:
    """The functions of the libraries in a folder, torch's `lib`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def name(self, op: str, registered_at: str, key: str = "") -> str | None:
        """`wrapper_CPU_mm` for `aten::mm` and `.../RegisterCPU_0.cpp:3234`; None where it is not known."""
        file = registered_at.rpartition("/")[2]
        for name, mangled in _candidates(op, file, key):
            if mangled in self._symbols:
                return name
        return None

    @cached_property
    def _symbols(self) -> str:
        """The dispatcher's wrappers, a mangled symbol a line; a template argument names the function."""
        found = []
        for library in _LIBRARIES:
            try:
                symbols = Symbols(self._folder / library)
            except (OSError, ValueError):
                continue  # a build without CUDA, or libtorch in one static piece
            found += [symbol for symbol, _ in symbols.search(torch_abi.UNBOXED_WRAPPERS)]
        return "\n".join(found)


def _candidates(op: str, file: str, key: str) -> Iterator[tuple[str, str]]:
    """(name as reports show it, text in the mangled symbol); torchgen has one rule for each kind of file."""
    if namespace_file := _NAMESPACE_FILE.match(file):
        shown, mangled = torch_abi.GENERATED_NAMESPACES[namespace_file["kind"]]
        for name in method_names(op):
            for variant in (f"{name}_{key}", name) if key else (name,):
                yield shown + variant, f"{mangled}{len(variant)}{variant}E"
    elif backend_file := _BACKEND_FILE.match(file):
        for name in wrapper_names(op):
            function = f"{WRAPPER}{backend_file['key']}_{name}"
            yield function, f"{torch_abi.ANONYMOUS}{len(function)}{function}E"
