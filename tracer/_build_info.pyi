"""What this tracer was built with; None: built without torch, it only reads traces."""

TORCH_VERSION: str | None
TORCH_CUDA: str | None
COMPILER: str | None
PYTHON: str
