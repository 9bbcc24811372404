"""What this tracer was built with; None: built without torch, it only reads traces."""

TORCH_VERSION = "2.13.0+cpu"
TORCH_CUDA = None
# The version of CUDA whose headers the CUDA part was compiled with; None: there is no CUDA part.
CUDA_HEADERS = None
COMPILER = "GNU 12.2.0"
# Why the CUDA kernels of the overrides are not there; empty where they are.
OVERRIDES_MISSING = "torch has no CUDA"
# The nvcc that compiled them.
OVERRIDES_NVCC = None
PYTHON = "3.11.7"
