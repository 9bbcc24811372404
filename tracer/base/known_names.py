"""Lists of names that tell nothing of a user: of torch, of Python, of the system.

They come from what is installed where they are asked for. What another version has besides is not on them.
A name must be on a list as it is: that it begins as one of torch's says nothing.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import posixpath
import re
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType, ModuleType

_SYSTEM = re.compile(
    r"(?:linux-vdso|linux-gate|ld-linux-x86-64|ld-linux-aarch64|libc|libm|libdl|librt|libpthread|libutil|"
    r"libstdc\+\+|libgcc_s|libgomp|libnuma|libz|libbz2|liblzma|libffi|libexpat|libcrypto|libssl|libuuid|libcuda|libnvidia-ml|"
    r"libpython3)\.so|python3?"
)
"""Without the numbers of versions"""
_VERSION = re.compile(r"(\.\d+)+(?=\.|$)")
_DEFINED = re.compile(r"\b(?:def|class)\s+(\w+)")
_OF_PYTHON = frozenset(
    f"<{word}>" for word in ("module", "lambda", "locals", "genexpr", "listcomp", "dictcomp", "setcomp")
)
_MOST_KEYS = 400
"""More than torch has: it says the same of all others"""
_FROZEN = re.compile(r"<frozen ([\w.]+)>")


@dataclass(frozen=True)
class KnownNames:
    """operators  with overloads
    keys       dispatch keys
    types      dtypes, layouts and types of devices
    nodes      classes of autograd nodes
    sources    paths of the files of C++ that registered torch's kernels, where torch was built
    files      names relative to Python's library or to the installed packages -> paths here
    """

    operators: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    sources: frozenset[str] = frozenset()
    files: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def has_file(self, path: str, short: str) -> bool:
        if frozen := _FROZEN.fullmatch(short):
            module = frozen[1].replace(".", "/")
            return bool(self.files.keys() & {f"{module}.py", f"{module}/__init__.py"})
        is_of_system = _SYSTEM.fullmatch(_VERSION.sub("", posixpath.basename(path))) is not None
        return posixpath.normpath(short) in self.files or path in self.sources or is_of_system

    def has_function(self, name: str, short: str) -> bool:
        """Whether the file, in Python, defines all parts of the name, here too."""
        return short in self.files and set(re.split(r"\.|::", name)) <= _defined(self.files[short])


@cache
def _defined(path: str) -> frozenset[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return _OF_PYTHON.union(_DEFINED.findall(file.read()))
    except (OSError, UnicodeError):
        return _OF_PYTHON


@cache
def known_here() -> KnownNames:
    """Imports torch, without extensions that would add names of theirs; without torch the lists are short."""
    files = dict([*_standard_library(), *_packages()])
    before = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD")
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    try:
        import torch
    except (ImportError, OSError):
        return KnownNames(files=files)
    finally:
        del os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"]
        os.environ.update({} if before is None else {"TORCH_DEVICE_BACKEND_AUTOLOAD": before})
    operators = frozenset(torch._C._dispatch_get_all_op_names())
    return KnownNames(
        operators=operators,
        keys=frozenset(_keys(torch)),
        types=frozenset(_types(torch)),
        nodes=frozenset(_nodes()),
        sources=frozenset(_sources(torch, operators)),
        files=files,
    )


def _keys(torch: ModuleType) -> Iterator[str]:
    for number in range(_MOST_KEYS):
        yield torch._C._dispatch_key_name(torch._C.DispatchKey(number))
    yield from torch._C.DispatchKey.__members__


def _types(torch: ModuleType) -> Iterator[str]:
    from tracer.base.boundary import DEVICES

    yield from (*DEVICES, "metal", "UNKNOWN_SCALAR")
    for value in vars(torch).values():
        if isinstance(value, (torch.dtype, torch.layout)):
            yield str(value)


def _nodes() -> Iterator[str]:
    from torch._C import _functions

    for name in vars(_functions):
        yield from (f"torch::autograd::{name}", f"torch::autograd::generated::{name}")
    yield "torch::autograd::CopySlices"


def _sources(torch: ModuleType, operators: Iterable[str]) -> Iterator[str]:
    of_all_operators = torch._C._dispatch_dump_table("aten::mm")  # also the fallbacks
    for text in (of_all_operators, *map(torch._C._dispatch_dump, operators)):
        yield from re.findall(r"registered at (.+?):\d+", text)


def _standard_library() -> Iterator[tuple[str, str]]:
    top = sysconfig.get_path("stdlib")
    for folder, folders, files in os.walk(top):
        folders[:] = [name for name in folders if name not in ("site-packages", "dist-packages")]
        for file in files:
            path = os.path.join(folder, file)
            yield os.path.relpath(path, top), path


def _packages() -> Iterator[tuple[str, str]]:
    """Of torch, of tracer, and of what they need."""
    done: set[str] = set()
    wanted = ["torch", "tracer", "numpy"]
    while wanted:
        name = wanted.pop()
        if name in done:
            continue
        done.add(name)
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            package = importlib.metadata.distribution(name)
            yield from ((str(file), str(file.locate())) for file in package.files or ())
            wanted += [re.split(r"[^\w.-]", each)[0] for each in package.requires or ()]
