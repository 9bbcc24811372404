"""A Python function as the kernel function of one operator at one key."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from tracer.base.build import loaded_native
from tracer.base.this_torch import this_torch
from tracer.overrides.counts import BY_ITSELF, Counts, HandedOver, Ran, say_handed_over
from tracer.overrides.file_module import shown
from tracer.overrides.override_errors import HandOver, OverrideError
from tracer.overrides.registration import Registration
from tracer.overrides.signature import Defaults, check_signature
from tracer.overrides.stock import call_stock, stock_kernel
from tracer.overrides.target import Target, schema_of


class PythonKernel:
    """Calls `function` with the operator's arguments, and stock if that raises HandOver.

    While the function runs, the operator runs stock in that thread: the function may call it.
    """

    def __init__(self, name: str, target: Target, function: Callable[..., Any]) -> None:
        torch = this_torch()
        schema = schema_of(target.operator)
        self.name = name
        self.target = target
        self.function = function
        self.counts = Counts()
        self._defaults = Defaults(schema) if check_signature(function, schema) else None
        self._returns = [str(value.type) for value in schema.returns]
        self._tensor = torch.Tensor
        self._of_tensors = [n for n, one in enumerate(schema.arguments) if str(one.type) == "Tensor"]
        self._inside = threading.local()
        self._registration: Registration | None = None
        self._stock: Any = (
            None  # kept: a thread may be inside when the override is removed, and hand over then
        )

    @property
    def operators(self) -> list[Target]:
        return [self.target]

    @property
    def kernel(self) -> str:
        """The kernel function as traces name it: `module.qualname (file:line)`."""
        place = _place(self.function)
        return f"{'.'.join(_names(self.function))}" + (f" ({place})" if place else "")

    def install(self) -> None:
        """Register it with the dispatcher."""
        self._stock = stock_kernel(self.target)
        where = _place(self.function) or f"{type(self.function).__name__}:0"
        self._registration = Registration(self.target, self._entry(), f"override {self.name}, {where}")

    def remove(self) -> None:
        """Deregister it."""
        if self._registration is not None:
            self._registration.deregister()
            self._registration = None

    def ran(self) -> Ran:
        return {self.target.operator: self.counts.ran}

    def handed_over(self) -> HandedOver:
        return {self.target.operator: dict(self.counts.handed_over)}

    def reset_counts(self) -> None:
        self.counts.reset()

    def _entry(self) -> Callable[..., Any]:
        """The function that the dispatcher calls; it has the user function's name, which traces show."""

        def entry(keys: Any, *args: Any, **kwargs: Any) -> Any:
            return self._call(keys, args, kwargs)

        update_wrapper(entry, self.function)
        entry.__module__, entry.__qualname__ = _names(self.function)
        return entry

    def _call(self, keys: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        inside = self._inside
        if getattr(inside, "running", False):
            return self._hand_over(BY_ITSELF, keys, args, kwargs)
        inside.running = True
        given = (args, kwargs) if self._defaults is None else self._defaults.filled(args, kwargs)
        try:
            result = self.function(*given[0], **given[1])
        except HandOver as wish:
            reason = wish.reason
        except Exception as error:
            self._note(error)
            raise
        else:
            self._check(result)
            self.counts.add()
            return result
        finally:
            inside.running = False
        return self._hand_over(reason, keys, args, kwargs)

    def _hand_over(self, reason: str, keys: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Stock's result. A recording has the reason at this call."""
        reason, is_new = self.counts.hand_over(reason)
        if is_new:
            say_handed_over(self.name, self.target.operator, [reason])
        native = loaded_native()  # no recording without it
        mark = native.enter_range(f"handed over:{reason}") if native else 0
        try:
            return call_stock(self._stock, keys, args, kwargs, self._of_tensors)
        finally:
            if native and mark:
                native.leave_range(mark)

    def _note(self, error: Exception) -> None:
        if hasattr(error, "add_note"):  # Python 3.11
            error.add_note(f"raised by the override {self.name} of {self.target}")

    def _check(self, result: Any) -> None:
        """Torch's own message for a result of the wrong type does not name the operator."""
        if self._returns == ["Tensor"]:
            fits = isinstance(result, self._tensor)
        elif len(self._returns) > 1:
            fits = isinstance(result, (tuple, list)) and len(result) == len(self._returns)
        else:
            fits = bool(self._returns) or result is None
        if not fits:
            wanted = " and ".join(self._returns) or "nothing"
            raise OverrideError(
                f"the override {self.name} of {self.target} returned {type(result).__name__}, "
                f"but the operator returns {wanted}; to leave a call to stock: "
                'raise tracer.overrides.HandOver("why")'
            )


def _names(function: Any) -> tuple[str, str]:
    """The module and the qualified name of a function, an operator, or an object that can be called."""
    if hasattr(function, "_schema"):
        return "torch.ops", str(function.name())
    named = function if hasattr(function, "__qualname__") else type(function)
    return shown(str(named.__module__)), str(named.__qualname__)


def _place(function: Any) -> str:
    """`file:line` of a Python function; empty for another one."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""
