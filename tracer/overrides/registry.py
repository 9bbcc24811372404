"""Overrides by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tracer.overrides.builtin import builtin_overrides
from tracer.overrides.errors import OverrideError
from tracer.overrides.kernels import Kernels, targets_of
from tracer.overrides.override import MODES, Override
from tracer.overrides.python_kernel import PythonKernel
from tracer.overrides.target import Target, checked_target

_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_builtin = builtin_overrides()
_own: dict[str, Override] = {}


def register(operator: object, key: object, function: Any = None, *, name: str | None = None) -> Any:
    """Make a kernel function known under a name, for `use(name)`. Nothing runs it before that.

    operator  `aten::mm`, `aten::mm.out`, or a torch.ops overload
    key       the dispatch key of a backend, such as CPU or CUDA: below autograd, which stays stock
    function  a Python function (of numpy, Triton, a C++ extension, anything), a torch.ops overload, or
              an object with install, remove, ran, handed_over and operators (kernels.Kernels); left
              out, a decorator is returned
    name      otherwise the function's own. Several operators may share one; at the same target the new
              function takes the old one's place

    The function is handed the operator's arguments, keyword-only ones by name. It may raise HandOver to
    leave a call to stock, and the operator itself is stock's inside it.

    Returns the function. Raises OverrideError, and changes nothing then, for an operator or key that
    there is not, a function that does not take the arguments, and where autograd would silently break.

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
        raise OverrideError(f"override {called} is switched on; switch it off before it is registered anew")
    if override is None:
        override = _own[called] = Override(called)
    override.add(kernels)
    return function


def registered() -> dict[str, Override]:
    """All overrides by name, the built-in ones first."""
    return {**_builtin, **_own}


def own() -> dict[str, Override]:
    """Those that were registered here, by name."""
    return dict(_own)


def unregister(name: str) -> None:
    """Forget an override. Raises OverrideError where there is none, or it is built in or switched on."""
    if name in _builtin:
        raise OverrideError(f"override {name} is built in and stays")
    if named(name).is_on:
        raise OverrideError(f"override {name} is switched on; switch it off first")
    del _own[name]


def named(name: str) -> Override:
    """Raises OverrideError, with the names that there are, for any other one."""
    override = registered().get(name)
    if override is None:
        raise OverrideError(unknown(name))
    return override


def unknown(name: str) -> str:
    """What is said of a name that there is not."""
    return (
        f"there is no override {name}; there is {', '.join(registered())}, "
        "and one of your own is registered first or named as module:function"
    )


def overrides_with(function: object) -> list[str]:
    """The names of the overrides in which a function is registered."""
    return [
        override.name
        for override in _own.values()
        if any(getattr(kernels, "function", kernels) is function for kernels in override.kernels())
    ]


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise OverrideError(f"{name!r} is no name of an override; give one of letters, digits, _, - and .")
    if name in _builtin:
        raise OverrideError(f"override {name} is built in; give yours another name")
    if name in MODES:
        raise OverrideError(f"{name} is a mode of overrides; give yours another name")
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
        raise OverrideError(f"{function!r} cannot be called; give a function")
    return PythonKernel(name, target, function)
