"""What is changed in a replay: an override, a setting, the dispatch key, or the tensors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from tracer.base.boundary import torch_dtype
from tracer.replay.arguments import PLAIN_KEYS
from tracer.replay.make import with_tensors
from tracer.replay.replay_errors import CannotReplayError, WrongOptionError

_DEVICES = {name: name.lower() for name in ("CPU", "CUDA", "Meta", "XPU", "MPS", "HIP")}
_DEVICES |= {"PrivateUse1": "privateuseone"}
_MOST_THREADS_A_CORE = 8
_IMAGES, _VOLUMES = 4, 5


@dataclass(frozen=True)
class Change:
    """None: as it was. `strides`: `channels_last` or `contiguous`; `pad`: sizes become multiples of it."""

    override: tuple[str, ...] = ()
    tf32: bool | None = None
    key: str | None = None
    threads: int | None = None
    strides: str | None = None
    dtype: str | None = None
    pad: int | None = None

    @property
    def title(self) -> str:
        """`override mm, threads 1`; "" if nothing is changed."""
        words = [f"override {', '.join(name.removesuffix(':force') for name in self.override)}"]
        words = words if self.override else []
        words += [f"TF32 {'on' if self.tf32 else 'off'}"] * (self.tf32 is not None)
        words += [f"key {self.key}"] * (self.key is not None)
        words += [f"{self.threads} thread{'s' * (self.threads != 1)}"] * (self.threads is not None)
        words += [f"{self.strides}"] * (self.strides is not None)
        words += [f"{self.dtype}"] * (self.dtype is not None)
        words += [f"sizes in {self.pad}s"] * (self.pad is not None)
        return ", ".join(words)

    @property
    def of_settings(self) -> bool:
        """Its tensors are as they were."""
        return self.strides is None and self.dtype is None and self.pad is None

    @property
    def device(self) -> str | None:
        """The kind of device whose tensors the key takes; None: that of the recorded tensors."""
        key = self.key or ""
        return next((device for name, device in _DEVICES.items() if key.endswith(name)), None)

    def of(self, values: list[Any]) -> list[Any]:
        """The same values with the strides, the dtype and the sizes that are asked for.

        Raises WrongOptionError if no tensor of the call has them to change.
        """
        if self.of_settings:
            return values
        touched = False

        def change(tensor: Any) -> Any:
            nonlocal touched
            changed = self._changed(tensor)
            touched |= changed is not tensor
            return changed

        found: list[Any] = with_tensors(values, change)
        if not touched:
            raise WrongOptionError(
                f"{self._asked}: changes no tensor of this call (channels_last: those of 4 or 5 dimensions; "
                "dtype and pad: those of floating-point numbers)"
            )
        return found

    @property
    def _asked(self) -> str:
        given = {"--strides": self.strides, "--dtype": self.dtype, "--pad": self.pad}
        return " ".join(f"{name} {value}" for name, value in given.items() if value is not None)

    def _changed(self, tensor: Any) -> Any:
        """The same tensor where nothing is to change."""
        import torch

        found = tensor.detach()
        if self.dtype is not None and found.is_floating_point():
            found = found.to(torch_dtype(self.dtype))
        if self.pad is not None and found.is_floating_point():
            more = [-size % self.pad for size in reversed(found.shape[-2:])]
            found = torch.nn.functional.pad(found, [side for one in more for side in (0, one)])
        if self.strides == "contiguous":
            found = found.contiguous()
        elif self.strides is not None and found.ndim in (_IMAGES, _VOLUMES):
            last = torch.channels_last if found.ndim == _IMAGES else torch.channels_last_3d
            found = found.contiguous(memory_format=last)
        same = found.dtype == tensor.dtype and (found.shape, found.stride()) == (
            tensor.shape,
            tensor.stride(),
        )
        return tensor if same else found.requires_grad_(tensor.requires_grad)

    @contextmanager
    def on(self) -> Iterator[None]:
        """Makes the change during a block, except the key, at which the call itself is made."""
        from tracer import overrides

        with ExitStack() as stack:
            if self.threads is not None:
                stack.enter_context(set_threads(self.threads))
            if self.tf32 is not None:
                stack.enter_context(set_tf32(self.tf32))
            if self.override:
                stack.enter_context(overrides.use(*self.override))
            yield


def cut(results: list[Any], sizes: list[Any]) -> list[Any]:
    """What results of padded tensors have of those without padding, which have these shapes."""
    if [one.ndim for one in results] != [len(size) for size in sizes]:
        return results
    return [one[tuple(slice(n) for n in size)] for one, size in zip(results, sizes, strict=True)]


def override_names(given: Sequence[str]) -> tuple[str, ...]:
    """The names of overrides, each forced: it computes the call if it can.

    Raises OverrideError for a name that does not exist.
    """
    from tracer.compare.switch import forced
    from tracer.overrides import names

    found = tuple(forced(name.strip()) for text in given for name in text.split(",") if name.strip())
    for name in found:
        names.find(name)
    return found


def check_key(key: str, op: str) -> None:
    """Raises WrongOptionError unless the operator has a kernel at this dispatch key."""
    import torch

    known = torch._C.DispatchKey.__members__
    if key not in known:
        near = [name for name in known if name.lower() == key.lower()]
        hint = f"did you mean {near[0]}?" if near else "give one such as CPU, CUDA or AutogradCPU"
        raise WrongOptionError(f"--key {key}: not a dispatch key; {hint}")
    if not PLAIN_KEYS.fullmatch(key):
        raise WrongOptionError(
            f"--key {key}: a transform or a mode sets up what it needs; give a key of a device, of autograd "
            "or of autocast, such as CPU or AutogradCPU"
        )
    if not _has_kernel(op, key):
        raise WrongOptionError(f"--key {key}: {op} has no kernel there; to see its keys: tracer explain {op}")


def _has_kernel(op: str, key: str) -> bool:
    import torch

    try:
        return bool(torch._C._dispatch_has_computed_kernel_for_dispatch_key(op, key))
    except RuntimeError:  # an alias, such as CompositeImplicitAutograd: no call is at it
        return False


def recorded_threads(number: int) -> int:
    """A number of threads that a trace names. Raises CannotReplayError if it is none for this machine."""
    most = _MOST_THREADS_A_CORE * (os.cpu_count() or 1)
    if not 0 < number <= most:
        raise CannotReplayError(f"it would need {number:,} threads, and this machine is given {most} at most")
    return number


@contextmanager
def set_threads(number: int) -> Iterator[None]:
    import torch

    was = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(was)


@contextmanager
def set_tf32(on: bool) -> Iterator[None]:
    """Sets TF32 for products of float32 matrices and for convolutions."""
    import torch

    precision, cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if on else "highest")
    torch.backends.cudnn.allow_tf32 = on
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.allow_tf32 = cudnn
