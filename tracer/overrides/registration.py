"""One kernel function in the dispatch table, from `register` to `deregister`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from tracer.base.this_torch import this_torch
from tracer.base.torch_abi import OVERRIDING_WARNING
from tracer.dispatch.table import parse_table
from tracer.overrides.target import Target


class Registration:
    """A Python function as the kernel function of an operator at a key.

    `where` is what the dispatcher says of it: `registered at WHERE`, of the form `text:number`.
    """

    def __init__(self, target: Target, function: Callable[..., Any], where: str) -> None:
        torch = this_torch()
        namespace, _, name = target.operator.partition("::")
        file, _, line = where.rpartition(":")
        self._library = torch._C._dispatch_library("IMPL", namespace, "", file, int(line))
        self._library.impl(name, target.key, function, True)  # True: it is handed the key set first

    def deregister(self) -> None:
        """Puts the previous kernel back."""
        self._library.reset()


class WithoutTheWarning:
    """The dispatcher warns, once in a process, of a kernel that replaces another: here it is meant.

    Its once-flag stays unused, so that a script that replaces one itself is still warned.
    """

    def __enter__(self) -> None:
        torch = this_torch()
        self._always = torch._C._get_warnAlways()
        self._filters = warnings.catch_warnings()
        self._filters.__enter__()
        warnings.filterwarnings("ignore", OVERRIDING_WARNING, UserWarning)
        torch._C._set_warnAlways(True)

    def __exit__(self, *error: object) -> None:
        torch = this_torch()
        torch._C._set_warnAlways(self._always)
        self._filters.__exit__(None, None, None)


def registered_at(target: Target) -> str:
    """The place where the kernel that runs at a target was registered."""
    torch = this_torch()
    entries = parse_table(torch._C._dispatch_dump_table(target.operator))
    return next((entry.registered_at for entry in entries if entry.key == target.key), "")
