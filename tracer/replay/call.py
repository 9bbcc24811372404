"""The op call that is replayed, and how it is made."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tracer.base.boundary import is_here, word
from tracer.replay.arguments import Argument, Device
from tracer.replay.make import fresh, made, memories, plans, tensors, tensors_in
from tracer.replay.replay_errors import CannotReplayError
from tracer.report.text import size as size_text

SEED = 0
_BYTES = 8
"""Bytes of each element: they are made in float32, int64 or complex64"""
_BACKENDS = ("CPU", "CUDA", "Meta", "XPU", "MPS", "HIP", "PrivateUse1", "Composite")
_OF_TORCH = ("cpu", "meta", "cuda", "hip", "xpu", "mps")
"""Devices that need no package beside torch"""
_BY_A_PACKAGE = "which the torch here does not have; if a package makes it: --import PACKAGE"


@dataclass(frozen=True)
class Returned:
    """The tensors that a call returns."""

    elements: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Call:
    """An operator, its planned arguments, and the key at which the recorded call began."""

    op: Any
    arguments: list[Argument]
    key: str

    @property
    def name(self) -> str:
        """`aten::add.Tensor`"""
        schema = self.op._schema
        return str(schema.name) + (f".{schema.overload_name}" if schema.overload_name else "")

    @property
    def values(self) -> list[Any]:
        return [argument.value for argument in self.arguments]

    @property
    def writes(self) -> bool:
        return any(tensor.written for tensor in tensors(self.values))

    @property
    def whole(self) -> bool:
        """Nothing of its inputs is drawn, left out or not initialised."""
        known = all(argument.given in ("recorded", "user") for argument in self.arguments)
        drawn = any(plan.elements for plan in plans(self.values))
        return known and not drawn and "empty" not in self.name

    @property
    def devices(self) -> set[str]:
        """The devices of its tensors, and those that it was asked for."""
        asked = {value.name for value in self.values if isinstance(value, Device)}
        return {tensor.device for tensor in tensors(self.values)} | asked

    def is_on_cpu(self, device: str | None) -> bool:
        """Whether it is, if its tensors are on `device`; None: where they were recorded."""
        return device == "cpu" or (device is None and self.devices <= {"cpu"})

    def made(self, device: str | None = None, seed: int | None = SEED) -> list[Any]:
        """Its arguments; the same random values at each time, or without a seed others.

        Raises CannotReplayError: too large.
        """
        import torch

        self._check_size(device)
        if seed is not None:
            torch.manual_seed(seed)
        return made(self.values, device)

    @cached_property
    def bytes_of_inputs(self) -> int:
        """While they are made."""
        alone = sum(plan.elements for plan in plans(self.values) if plan.memory is None)
        shared = sum(memory.elements for memory in memories(self.values).values())
        return _BYTES * (alone + shared)

    @cached_property
    def returned(self) -> Returned:
        """What it returns, which torch tells without computing it; nothing if that depends on values."""
        import torch
        from torch._subclasses import fake_tensor

        quiet, fake_tensor.log.disabled = fake_tensor.log.disabled, True
        try:
            with fake_tensor.FakeTensorMode(allow_fallback_kernels=False), torch.no_grad():
                plain, by_name = self.split(made(self.values, "cpu"))
                found = tensors_in(self.op(*plain, **by_name))
            return Returned(
                sum(one.numel() for one in found), sum(one.numel() * one.element_size() for one in found)
            )
        except Exception:  # whatever a kernel raises; the call itself will raise it again
            return Returned()
        finally:
            fake_tensor.log.disabled = quiet

    def _check_size(self, device: str | None) -> None:
        """Of tensors on a GPU only the inputs: they are made here."""
        needed = self.bytes_of_inputs + (self.returned.bytes if self.is_on_cpu(device) else 0)
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if needed > there:
            raise CannotReplayError(
                f"the tensors of {self.name} need {size_text(needed)} of memory, and this machine has "
                f"{size_text(there)}; to run it on a larger one: --script OUT.py"
            )

    def split(self, values: list[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Arguments by position, and by name."""
        pairs = list(zip(self.arguments, values, strict=True))
        by_name = {argument.name: value for argument, value in pairs if argument.keyword}
        return [value for argument, value in pairs if not argument.keyword], by_name


def runner(
    call: Call,
    key: str | None,
    device: str | None,
    change: Callable[[list[Any]], list[Any]] = lambda values: values,
) -> Callable[[], Any]:
    """Makes the call with values that are made once; what the op writes into is made anew for each call.

    key     call the kernel at this dispatch key; None: as the recorded call began
    device  the kind of device of all tensors; None: as recorded
    change  what becomes of the values
    """
    values = change(call.made(device))
    keys = None if key is None else _key_set(key)

    def run() -> Any:
        now = values
        if call.writes:
            now = fresh(call.values, values)
        plain, by_name = call.split(now)
        with _below(call.key if key is None else key):
            if keys is not None:
                return call.op.redispatch(keys, *plain, **by_name)
            return call.op(*plain, **by_name)

    return run


def _key_set(key: str) -> Any:
    """What the dispatcher hands to a kernel at this key: the key, and those that it redispatches to."""
    import torch

    names = [key]
    if key.startswith("Autograd") and key != "AutogradOther":
        names += ["ADInplaceOrView", key.removeprefix("Autograd")]
    known = torch._C.DispatchKey.__members__
    sets = [torch._C.DispatchKeySet(known[name]) for name in names if name in known]
    found = sets[0]
    for one in sets[1:]:
        found = found | one
    return found


@contextmanager
def _below(key: str) -> Iterator[None]:
    """A call below autograd, and what it calls, run without it; one at an autocast key has autocast."""
    import torch

    with ExitStack() as stack:
        if key.startswith("Autocast"):
            stack.enter_context(torch.autocast(autocast_device(key)))
        elif key == "ADInplaceOrView":
            stack.enter_context(torch._C._AutoDispatchBelowAutograd())
        elif key.startswith(_BACKENDS):
            stack.enter_context(torch._C._AutoDispatchBelowADInplaceOrView())
        yield


def autocast_device(key: str) -> str:
    """What torch.autocast calls the device of `AutocastCPU`: of a package, as the package named it."""
    kind = word(key.removeprefix("Autocast"), "a device").lower()
    if kind != "privateuse1":
        return kind
    import torch

    return torch._C._get_privateuse1_backend_name()


def missing_package(call: Call) -> str:
    """Which device of the call comes of a package that was not imported; "" if none does."""
    for device in sorted(call.devices):
        if device.partition(":")[0] not in _OF_TORCH and not is_here(device):
            return f"the call ran on {device}, {_BY_A_PACKAGE}"
    return ""


def why_not_here(call: Call) -> str:
    """Which device of the call this machine lacks; "" if it has all."""
    if why := missing_package(call):
        return why
    return next(filter(None, map(_why_not, sorted(call.devices, reverse=True))), "")


def _why_not(device: str) -> str:
    kind, _, index = device.partition(":")
    if not is_here(kind):
        name = "GPU" if kind == "cuda" else f"{kind.upper()} device"
        return f"the call ran on {device}, and torch finds no {name} here"
    if kind != "cuda":
        return ""
    import torch

    count = torch.cuda.device_count()
    return f"the call ran on {device}, and torch finds {count} GPUs here" if int(index or 0) >= count else ""
