"""What is likely behind changes."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.analysis.difference.kernel_change import KernelChange


@dataclass(frozen=True)
class Cause:
    """What is likely behind changes.

    inputs    the property of inputs that differs
    key       the dispatch key that one side has, or has more often
    kernel    the kernel function that another one replaced
    edit      the text of a line, before and after
    """

    text: str
    inputs: str = ""
    key: str = ""
    kernel: KernelChange | None = None
    edit: str = ""
