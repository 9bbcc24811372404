"""What the build adds to the package: the C++ extension, and how it was built.

A build beside a torch has one extension, `tracer/_C.*.so`, and one account of it, `tracer/_build_info.py`.
A wheel has both for each minor version of torch, in `tracer/_native/torch2.13` and its like.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

from tracer.base.package import FOLDER
from tracer.base.torch_build import TorchBuild, installed_torch

NATIVE = os.path.join(FOLDER, "_native")
_EXTENSION = "_C" + EXTENSION_SUFFIXES[0]
_native: ModuleType | None = None  # once it is loaded: a script may take it out of sys.modules


def builds() -> list[ModuleType]:
    """The accounts of the extensions for this Python, the one that was built here alone if there is one."""
    try:
        from tracer import _build_info
    except ImportError:
        return [_loaded("_build_info", folder, "_build_info.py") for folder in _folders()]
    return [_build_info]


def build_info() -> ModuleType:
    """How tracer was built; of a wheel the extension for the torch that is installed, else its newest.

    Raises ImportError if tracer was not built.
    """
    found = builds()
    if not found:
        raise ImportError("tracer was not built")
    torch = installed_torch() if len(found) > 1 else None
    return (torch and build_for(torch, found)) or found[-1]


def build_for(torch: TorchBuild, found: Iterable[ModuleType]) -> ModuleType | None:
    """That of some builds which runs with a torch."""
    return next((build for build in found if torch_of(build).runs_with(torch)), None)


def torch_of(build: ModuleType) -> TorchBuild:
    return TorchBuild(build.TORCH_VERSION, build.TORCH_GIT)


def is_wheel() -> bool:
    return bool(_folders())


def native(build: ModuleType) -> ModuleType:
    """The module `tracer._C` of a build. Raises ImportError if it does not load with this torch."""
    global _native
    folder = os.path.dirname(str(build.__file__))
    if _native is None and folder.startswith(NATIVE):
        _native = sys.modules["tracer._C"] = sys.modules["tracer"]._C = _loaded("_C", folder, _EXTENSION)  # type: ignore[attr-defined]
    elif _native is None:
        from tracer import _C

        _native = _C
    return _native


def loaded_native() -> ModuleType | None:
    """The same if a recording, or what asks for one, has loaded it."""
    return _native


def _folders() -> list[str]:
    """Those of a wheel that have an extension for this Python, in the order of torch's versions."""
    names = os.listdir(NATIVE) if os.path.isdir(NATIVE) else []
    folders = [os.path.join(NATIVE, name) for name in sorted(names, key=lambda name: (len(name), name))]
    return [folder for folder in folders if os.path.exists(os.path.join(folder, _EXTENSION))]


def _loaded(name: str, folder: str, file: str) -> ModuleType:
    spec = spec_from_file_location(f"tracer.{name}", os.path.join(folder, file))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
