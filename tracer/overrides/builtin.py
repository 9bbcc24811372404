"""The built-in overrides: CUDA kernels in the extension `tracer._overrides`."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from tracer.base import extension
from tracer.base.build import build_info
from tracer.base.this_torch import this_torch
from tracer.overrides import measured
from tracer.overrides.counts import HandedOver, Ran
from tracer.overrides.kernel_functions import Kernels, targets_of
from tracer.overrides.override import AUTO, FORCE, Override
from tracer.overrides.override_errors import BuiltinError, OverrideError
from tracer.overrides.target import Target

EXTENSION = "tracer._overrides"
NAMES = ("mm", "gru", "cat")
_OWN = "your own kernels work on any device: tracer.overrides.register"


def missing() -> str | None:
    """Why this installation cannot use them, in a sentence; None if they are built. Needs no torch."""
    if find_spec(EXTENSION) is not None:
        return None
    return (
        f"the built-in overrides ({', '.join(NAMES)}) need a GPU, and this tracer was built without "
        f"them{_why()}; with nvcc and a torch with CUDA, {extension.rebuild()}; {_OWN}"
    )


def _why() -> str:
    """The reason that the build gave, in brackets; "" if it gave none."""
    try:
        reason = build_info().OVERRIDES_MISSING
    except ImportError:
        return ""
    return f" ({reason})" if reason else ""


class BuiltinKernels:
    """The kernels of one built-in override in one mode."""

    def __init__(self, name: str, mode: str) -> None:
        self._name = name
        self._forced = mode == FORCE

    @property
    def operators(self) -> list[tuple[str, str]]:
        return native_module().operators(self._name)

    def install(self) -> None:
        native = native_module()
        if not self._forced:
            measured.load_into(native)
        native.install(self._name, self._forced)

    def remove(self) -> None:
        """The kernels of GRU's backward stay until no reserve that they need is alive."""
        native_module().remove(self._name)

    def ran(self) -> Ran:
        return native_module().ran(self._name)

    def handed_over(self) -> HandedOver:
        return native_module().handed_over(self._name)

    def reset_counts(self) -> None:
        native_module().reset_counts(self._name)


class BuiltinOverride(Override):
    """In mode auto a call goes to stock unless the kernel was measured to be faster."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._by_mode = {mode: BuiltinKernels(name, mode) for mode in (AUTO, FORCE)}

    @property
    def operators(self) -> list[Target]:
        """Empty if they cannot run."""
        try:
            return [target for kernels in self.kernels() for target in targets_of(kernels)]
        except OverrideError:
            return []

    def kernels(self, mode: str = AUTO) -> list[Kernels]:
        """Raises OverrideError if they cannot run."""
        native_module()
        return [self._by_mode[mode]]


def builtin_overrides() -> dict[str, Override]:
    return {name: BuiltinOverride(name) for name in NAMES}


def native_module() -> ModuleType:
    """The extension with the kernels. Raises BuiltinError if they cannot run here. Imports torch."""
    if reason := missing():
        raise BuiltinError(reason)
    torch = this_torch()
    if not torch.cuda.is_available():
        raise BuiltinError(
            f"the built-in overrides ({', '.join(NAMES)}) need a GPU, but torch finds none here; {_OWN}"
        )
    try:
        return import_module(EXTENSION)
    except ImportError as error:
        raise BuiltinError(
            f"the built-in overrides do not load with torch {torch.__version__} "
            f"({str(error).splitlines()[0]}); {extension.rebuild()}"
        ) from None
