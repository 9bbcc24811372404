"""Registry of overrides."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tracer.overrides.builtin import builtin_overrides
from tracer.overrides.kernel_functions import Kernels, targets_of
from tracer.overrides.override import MODES, Override
from tracer.overrides.override_errors import OverrideError
from tracer.overrides.python_kernel import PythonKernel
from tracer.overrides.target import Target, checked_target

_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_builtin = builtin_overrides()
_own: dict[str, Override] = {}


def register(operator: object, key: object, function: Any = None, *, name: str | None = None) -> Any:
    """Register a kernel function under a name, for `use(name)`. It runs only while it is in use.

    operator  `aten::mm`, `aten::mm.out`, or a torch.ops overload
    key       the dispatch key of a backend, such as CPU or CUDA: below autograd, which stays stock
    function  a Python function (of numpy, Triton, a C++ extension, anything), a torch.ops overload, or
              an object with install, remove, ran, handed_over and operators (kernels.Kernels); without
              it, `register` returns a decorator
    name      default: the function's own name. Several operators may share one; at the same target the
              new function replaces the old one

    The function receives the operator's arguments, keyword-only ones by name. It may raise HandOver to
    leave a call to stock. Inside it, the operator itself runs stock.

    Returns the function. Raises OverrideError, and changes nothing, if the operator or the key does not
    exist, if the function does not take the arguments, and if autograd would silently break.

    Example::

        @tracer.overrides.register("aten::mm", "CPU", name="mine")
        def my_mm(self, mat2):
            if self.dtype != torch.float32:
                raise tracer.overrides.HandOver("not float32")
            return my_extension.mm(self, mat2)
    """
    if function is None:
        return lambda decorated: register(operator, key, decorated, name=name)
    target = checked_target(operator, key)
    called = _checked_name(name or str(getattr(function, "__name__", "")))
    kernels = _kernels(called, target, function)
    override = _own.get(called)
    if override is not None and override.is_on:
        raise OverrideError(f"override {called} is enabled; disable it before you register it again")
    if override is None:
        override = _own[called] = Override(called)
    override.add(kernels)
    return function


def registered() -> dict[str, Override]:
    """All overrides by name, the built-in ones first."""
    return {**_builtin, **_own}


def own() -> dict[str, Override]:
    """The overrides registered in this process, by name."""
    return dict(_own)


def unregister(name: str) -> None:
    """Remove an override. Raises OverrideError if it is unknown, built in or enabled."""
    if name in _builtin:
        raise OverrideError(f"override {name} is built in and cannot be removed")
    if named(name).is_on:
        raise OverrideError(f"override {name} is enabled; disable it first")
    del _own[name]


def named(name: str) -> Override:
    """The override of this name; raises OverrideError, with the known names, for any other one."""
    override = registered().get(name)
    if override is None:
        raise OverrideError(unknown(name))
    return override


def unknown(name: str) -> str:
    """The error message for an unknown name."""
    return (
        f"unknown override {name}; choose {', '.join(registered())}, "
        "or give your own as module:function (or register it first)"
    )


def overrides_with(function: object) -> list[str]:
    """The names of the overrides that contain a function."""
    return [
        override.name
        for override in _own.values()
        if any(getattr(kernels, "function", kernels) is function for kernels in override.kernels())
    ]


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise OverrideError(f"{name!r} is not an override name; use letters, digits, _, - and .")
    if name in _builtin:
        raise OverrideError(f"override {name} is built in; give yours another name")
    if name in MODES:
        raise OverrideError(f"{name} is a mode, not a name; give your override another name")
    return name


def _kernels(name: str, target: Target, function: Any) -> Kernels:
    if isinstance(function, Kernels):
        if target not in targets_of(function):
            raise OverrideError(f"{function!r} does not list {target} in its operators")
        for other in targets_of(function):
            checked_target(*other)
        return function
    if hasattr(function, "overloads") and hasattr(function, "default"):  # torch.ops.library.operator
        function = function.default
    if not isinstance(function, Callable):  # type: ignore[arg-type]
        raise OverrideError(f"{function!r} is not callable; give a function")
    return PythonKernel(name, target, function)
