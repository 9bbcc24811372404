"""Which overrides are enabled: which of their kernels is installed at which target."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.base.locks import switching
from tracer.overrides import enabled, journal, stock
from tracer.overrides.counts import say_handed_over
from tracer.overrides.kernel_functions import Kernels, targets_of
from tracer.overrides.override import Override
from tracer.overrides.override_errors import OverrideError
from tracer.overrides.registration import WithoutTheWarning
from tracer.overrides.target import Target


@dataclass(eq=False)
class Activation:
    """One enabled override."""

    override: Override
    mode: str
    kernels: list[Kernels]


_activations: list[Activation] = []
_installed: list[Kernels] = []


def switch_on(override: Override, mode: str) -> Activation:
    """Install an override. It replaces another one at the same target.

    Raises OverrideError if it cannot be installed; then nothing has changed.
    """
    with switching:
        kernels = override.kernels(mode)
        if not kernels:
            raise OverrideError(f"override {override.name} has no kernel")
        activation = Activation(override, mode, kernels)
        _activations.append(activation)
        enabled.names.append(override.name)
        try:
            _install()
        except BaseException:
            _forget(activation)
            _install()
            raise
        journal.changed(_states())
        return activation


def switch_off(activation: Activation) -> None:
    """Deregister it, and install again what it replaced."""
    with switching:
        _forget(activation)
        _install()
        journal.changed(_states())
        for kernels in activation.kernels:
            for operator, reasons in kernels.handed_over().items():
                say_handed_over(activation.override.name, operator, reasons)


def _forget(activation: Activation) -> None:
    _activations.remove(activation)
    enabled.names.remove(activation.override.name)


def begin_journal() -> None:
    """A recording begins: its journal lists what is enabled from now on."""
    with switching:
        journal.begin(_states())


def write_journal() -> dict[str, object] | None:
    """Put what was enabled since then into the trace, and return it; None if nothing was."""
    with switching:
        return journal.write()


def _states() -> list[journal.State]:
    last: dict[Target, Activation] = {}
    for activation in _activations:
        for kernels in activation.kernels:
            last |= dict.fromkeys(targets_of(kernels), activation)
    return [
        journal.State(activation.override.name, activation.mode, target, kernels, last[target] is activation)
        for activation in _activations
        for kernels in activation.kernels
        for target in targets_of(kernels)
        if last[target] is activation or not _is_same(activation, last[target])
    ]


def _is_same(one: Activation, other: Activation) -> bool:
    return (one.override, one.mode) == (other.override, other.mode)


def _on_top() -> dict[Target, Kernels]:
    """The kernels at each target: those that were enabled last."""
    return {
        target: kernels
        for activation in _activations
        for kernels in activation.kernels
        for target in targets_of(kernels)
    }


def _install() -> None:
    """Make the table what the activations say; raises OverrideError."""
    on_top = _on_top()
    wanted: list[Kernels] = []
    for activation in reversed(_activations):
        for kernels in reversed(activation.kernels):
            is_seen = any(on_top[target] is kernels for target in targets_of(kernels))
            if is_seen and not any(kernels is other for other in wanted):
                wanted.insert(0, kernels)
    same = 0
    while same < min(len(wanted), len(_installed)) and wanted[same] is _installed[same]:
        same += 1
    while len(_installed) > same:
        _installed.pop().remove()
    for kernels in wanted[same:]:
        _put(kernels)
    stock.forget_all_but(target for kernels in _installed for target in targets_of(kernels))


def _put(kernels: Kernels) -> None:
    try:
        stock.keep(targets_of(kernels))
        with WithoutTheWarning():
            kernels.install()
    except OverrideError:
        raise
    except Exception as error:
        targets = ", ".join(map(str, targets_of(kernels)))
        first = (str(error).splitlines() or [""])[0]
        raise OverrideError(f"cannot override {targets}: {type(error).__name__}: {first}") from error
    _installed.append(kernels)
