"""An override: a name, and what it puts into the dispatch table."""

from __future__ import annotations

from tracer.overrides import enabled
from tracer.overrides.counts import HandedOver, Ran
from tracer.overrides.kernel_functions import Kernels, targets_of
from tracer.overrides.target import Target

AUTO, FORCE = MODES = ("auto", "force")


class Override:
    """Everything that was registered under one name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._kernels: list[Kernels] = []

    def __repr__(self) -> str:
        operators = ", ".join(map(str, self.operators))
        return f"<Override {self.name}{': ' if operators else ''}{operators}>"

    @property
    def operators(self) -> list[Target]:
        """Each operator with its dispatch key."""
        return [target for kernels in self._kernels for target in targets_of(kernels)]

    @property
    def is_on(self) -> bool:
        """Whether it is enabled; it is then enabled for all threads."""
        return self.name in enabled.names

    def kernels(self, mode: str = AUTO) -> list[Kernels]:
        """The kernels to install in a mode. Your own kernels compute every call in either mode."""
        return list(self._kernels)

    def add(self, kernels: Kernels) -> None:
        """Replaces the kernels that it had at the same target."""
        taken = set(targets_of(kernels))
        self._kernels = [kept for kept in self._kernels if not taken & set(targets_of(kept))] + [kernels]

    def ran(self) -> Ran:
        """Number of calls that it computed, per operator, since it was registered."""
        counted: Ran = {}
        for kernels in self.kernels():
            for operator, count in kernels.ran().items():
                counted[operator] = counted.get(operator, 0) + count
        return counted

    def handed_over(self) -> HandedOver:
        """Number of calls that it handed over to stock, per operator and reason, since it was registered."""
        counted: HandedOver = {}
        for kernels in self.kernels():
            for operator, reasons in kernels.handed_over().items():
                into = counted.setdefault(operator, {})
                for reason, count in reasons.items():
                    into[reason] = into.get(reason, 0) + count
        return counted

    def reset_counts(self) -> None:
        """Reset the counts, if its kernels can."""
        for kernels in self.kernels():
            if reset := getattr(kernels, "reset_counts", None):
                reset()
