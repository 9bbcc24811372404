"""What this tracer was built with; None: built without torch, it only reads traces."""

TORCH_VERSION: str | None
TORCH_GIT: str | None
TORCH_CUDA: str | None
CUDA_HEADERS: str | None
COMPILER: str | None
OVERRIDES_MISSING: str
OVERRIDES_NVCC: str | None
PYTHON: str
