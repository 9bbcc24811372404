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
