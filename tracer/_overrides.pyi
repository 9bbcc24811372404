"""The built-in overrides: CUDA kernels and their registration. Only in builds with CUDA."""

def install(name: str, forced: bool) -> None:
    """Register the kernels of an override; forced: they run wherever they can, not where they are faster."""

def remove(name: str) -> None:
    """Deregister them; those that read reserves, when no reserve is alive any more."""

def operators(name: str) -> list[tuple[str, str]]:
    """Each operator with its dispatch key."""

def ran(name: str) -> dict[str, int]: ...
def handed_over(name: str) -> dict[str, dict[str, int]]:
    """operator -> reason -> calls"""

def reset_counts(name: str) -> None: ...
def live_reserves() -> int:
    """Reserves of GRU forward passes that no backward pass has freed yet."""

def architectures() -> list[int]:
    """Compute capabilities that the kernels were compiled for: 80, 90."""

# For tuning and tests. A plan: blocks of a cluster, hidden units of a block, sequences of a cluster.
def gru_plans(pass_: str, precision: str, hidden: int) -> list[list[int]]: ...
def gru_plan(pass_: str, precision: str, batch: int, hidden: int, directions: int) -> list[int] | None: ...
def pin_gru_plan(pass_: str, plan: tuple[int, int, int] | None) -> None: ...
def pin_gru_step_tile(tile: int) -> None: ...
