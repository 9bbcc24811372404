"""Imports what the user names with `--import`, because it registers operators or a device."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from contextlib import redirect_stdout

from tracer.cli.common import fail


def import_modules(modules: Iterable[str], status: int = 1) -> None:
    """Of an error prints one line and exits with `status`. What a module prints goes to stderr."""
    for module in modules:
        if "" not in sys.path:
            sys.path.append("")  # the module may be in this folder; others are found where they were
        try:
            with redirect_stdout(sys.stderr):
                importlib.import_module(module)
        except Exception as error:
            first = (str(error).splitlines() or [type(error).__name__])[0]
            fail(f"cannot import {module}: {first}", status)
