"""What the build adds to the package: the C++ extension, and how it was built."""

from __future__ import annotations

from types import ModuleType


def build_info() -> ModuleType:
    """The module `tracer._build_info`. Raises ImportError if tracer was not built."""
    from tracer import _build_info

    return _build_info


def native() -> ModuleType:
    """The module `tracer._C`. Raises ImportError if it does not load with this torch."""
    from tracer import _C

    return _C
