"""Overrides that are enabled during a `with` block."""

from __future__ import annotations

from contextlib import ContextDecorator

from tracer.overrides import names as given_names
from tracer.overrides.override_errors import OverrideError
from tracer.overrides.switch import Activation, switch_off, switch_on


class use(ContextDecorator):  # noqa: N801 (a function to its users)
    """Enable overrides for a `with` block, in all threads of the process.

        with tracer.overrides.use("mine", "gru:force"):
            model(batch)

    A name is that of a registered override, or `module:function` or `file.py:function`, which is
    imported. `:auto` (default) uses a built-in kernel only where it was measured to be faster than
    stock; `:force` uses it for every call that it can compute. Blocks nest, and you may enter one
    `use` several times. Of two overrides at one target, the one that was enabled last runs.

    Raises OverrideError for an unknown name and for an override that cannot be installed.
    """

    def __init__(self, *names: str) -> None:
        if not names:
            raise OverrideError("no override given; give one, e.g. tracer.overrides.use('mm')")
        self._chosen = [given_names.find(name) for name in names]
        self._entered: list[list[Activation]] = []

    def __enter__(self) -> use:
        on: list[Activation] = []
        try:
            for override, mode in self._chosen:
                on.append(switch_on(override, mode))
        except BaseException:
            for activation in reversed(on):
                switch_off(activation)
            raise
        self._entered.append(on)
        return self

    def __exit__(self, *_: object) -> None:
        for activation in reversed(self._entered.pop()):
            switch_off(activation)
