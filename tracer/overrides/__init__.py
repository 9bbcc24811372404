"""Overrides: your own kernel functions, or built-in ones, that replace PyTorch's (stock) kernels.

    @tracer.overrides.register("aten::mm", "CPU", name="mine")
    def my_mm(self, mat2): ...

    with tracer.overrides.use("mine"):
        model(batch)

Importing this package imports no torch.
"""

from __future__ import annotations

from tracer.overrides.override import Override
from tracer.overrides.override_errors import HandOver, OverrideError
from tracer.overrides.registry import register, registered, unregister
from tracer.overrides.use import use

__all__ = ["HandOver", "Override", "OverrideError", "register", "registered", "unregister", "use"]
