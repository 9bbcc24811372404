"""The overrides to compare: enables and disables them, and reads their counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tracer import overrides
from tracer.compare.cases import CPU, CUDA
from tracer.overrides import names as given_names
from tracer.overrides.counts import HandedOver, Ran
from tracer.overrides.override import FORCE, Override


class CannotCompareError(Exception):
    """The message is one line: what cannot be compared here, and what can be."""


@dataclass(frozen=True)
class Counted:
    """Calls that the overrides computed and handed over, since they were registered."""

    ran: Ran
    handed_over: HandedOver

    def since(self, before: Counted) -> tuple[Ran, HandedOver]:
        """What was counted after `before`; nothing that is zero."""
        ran = {op: count - before.ran.get(op, 0) for op, count in self.ran.items()}
        handed_over = {
            op: {why: count - before.handed_over.get(op, {}).get(why, 0) for why, count in reasons.items()}
            for op, reasons in self.handed_over.items()
        }
        left = {op: {why: n for why, n in reasons.items() if n} for op, reasons in handed_over.items()}
        return {op: n for op, n in ran.items() if n}, {op: reasons for op, reasons in left.items() if reasons}


class Switch:
    """Overrides by name, in mode force: a comparison runs the kernel for every call that it can compute.

    `operators` are (operator, dispatch key); `device` is the kind of device that they are for.
    Raises OverrideError for unknown names; CannotCompareError if torch has no such
    device here.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._chosen: list[Override] = [given_names.find(name)[0] for name in names]
        self.names = tuple(dict.fromkeys(override.name for override in self._chosen))
        self._use = overrides.use(*(forced(name) for name in names))
        self.operators = sorted({(str(op), str(key)) for o in self._chosen for op, key in _operators(o)})
        self.device = _device({key for _, key in self.operators}, ", ".join(self.names))

    def on(self) -> Any:
        """Enables them during the `with` block."""
        return self._use

    def counts(self) -> Counted:
        ran: Ran = {}
        handed_over: HandedOver = {}
        for override in self._chosen:
            for op, count in override.ran().items():
                ran[op] = ran.get(op, 0) + count
            for op, reasons in override.handed_over().items():
                of_op = handed_over.setdefault(op, {})
                for why, count in reasons.items():
                    of_op[why] = of_op.get(why, 0) + count
        return Counted(ran, handed_over)


def forced(name: str) -> str:
    """The name with the mode force."""
    given = given_names.parse(name)
    return f"{given.module}:{given.name}:{FORCE}" if given.module else f"{given.name}:{FORCE}"


def _operators(override: Override) -> list[Any]:
    """Raises OverrideError if a built-in override cannot run here."""
    return [target for kernels in override.kernels(FORCE) for target in kernels.operators]


def _device(keys: set[str], names: str) -> str:
    """The GPU, if there is one and the overrides are for it; else the CPU."""
    import torch

    if "CUDA" in keys and torch.cuda.is_available():
        return CUDA
    if "CPU" in keys:
        return CPU
    if "CUDA" in keys:
        raise CannotCompareError(
            f"{names} needs a GPU, but torch finds none here; to compare your own for the CPU: "
            "--override FILE.py:FUNCTION"
        )
    raise CannotCompareError(
        f"{names} is for {' and '.join(sorted(keys))}; give overrides for the CPU or for CUDA"
    )
