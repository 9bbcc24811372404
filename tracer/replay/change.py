"""What is changed in a replay: an override, TF32, the dispatch key, or the number of threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tracer.replay.arguments import PLAIN_KEYS
from tracer.replay.replay_errors import WrongOptionError

_DEVICES = {name: name.lower() for name in ("CPU", "CUDA", "Meta", "XPU", "MPS", "HIP")}
_DEVICES |= {"PrivateUse1": "privateuseone"}


@dataclass(frozen=True)
class Change:
    """None: as it was."""

    override: tuple[str, ...] = ()
    tf32: bool | None = None
    key: str | None = None
    threads: int | None = None

    @property
    def title(self) -> str:
        """`override mm, threads 1`; "" if nothing is changed."""
        words = [f"override {', '.join(name.removesuffix(':force') for name in self.override)}"]
        words = words if self.override else []
        words += [f"TF32 {'on' if self.tf32 else 'off'}"] * (self.tf32 is not None)
        words += [f"key {self.key}"] * (self.key is not None)
        words += [f"{self.threads} thread{'s' * (self.threads != 1)}"] * (self.threads is not None)
        return ", ".join(words)

    @property
    def device(self) -> str | None:
        """The kind of device whose tensors the key takes; None: that of the recorded tensors."""
        key = self.key or ""
        return next((device for name, device in _DEVICES.items() if key.endswith(name)), None)

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
    if not torch._C._dispatch_has_computed_kernel_for_dispatch_key(op, key):
        raise WrongOptionError(f"--key {key}: {op} has no kernel there; to see its keys: tracer explain {op}")


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
