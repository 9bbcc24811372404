"""What reaches a dispatch mode. Only functions import this module."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Logging(TorchDispatchMode):
    """The operators that reach a mode, in order: through the dispatcher, and past it.

    When autograd saves a tensor, it has the mode detach it (TensorImpl::shallow_copy_and_detach) and asks
    the mode itself. The dispatcher's Python fallback excludes all keys above Python; nobody did there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.dispatched: list[str] = []
        self.direct: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        dispatched = torch._C._dispatch_tls_is_dispatch_key_excluded("PythonTLSSnapshot")
        (self.dispatched if dispatched else self.direct).append(func.name())
        return func(*args, **(kwargs or {}))
