"""What an override must leave alone, or give out only once: inputs and memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

TWICE = "two calls return the same memory"
INPUT = "the result is the memory of an input"


@dataclass
class Inputs:
    """Operands as they were before a call."""

    tensors: list[Any]
    copies: list[Any] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    others: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.copies = [tensor.detach().clone() for tensor in self.tensors]
        self.versions = [tensor._version for tensor in self.tensors]
        self.others = [_others_of(tensor) for tensor in self.tensors]

    def changed(self) -> str:
        for number, (tensor, copy) in enumerate(zip(self.tensors, self.copies, strict=True)):
            if not same_bytes(tensor.detach(), copy):
                return f"it changes input {number}"
            if tensor._version != self.versions[number]:
                return f"it writes to input {number}: its version counter rose"
        return ""

    def around(self) -> str:
        """Of a storage what no input has, where it is small."""
        for number, (tensor, before) in enumerate(zip(self.tensors, self.others, strict=True)):
            if before is not None and not same_bytes(_others_of(tensor), before):
                return f"it writes to memory around input {number}"
        return ""

    def written(self) -> list[tuple[int, Any]]:
        """The inputs that have other bytes than before, with their numbers."""
        pairs = enumerate(zip(self.tensors, self.copies, strict=True))
        return [(n, one) for n, (one, copy) in pairs if not same_bytes(one.detach(), copy)]

    def restore(self) -> None:
        """Gives them their values back, and counts from here."""
        import torch

        with torch.no_grad():
            for tensor, copy in zip(self.tensors, self.copies, strict=True):
                tensor.detach().copy_(copy)
        self.versions = [tensor._version for tensor in self.tensors]


def shared_memory(result: Any, others: Iterable[Any]) -> bool:
    """Whether one of the others has the storage of a result that is not empty."""
    own = _storage(result)
    return own is not None and any(own == _storage(tensor) for tensor in others)


_MOST_BYTES = 1 << 20


def _others_of(tensor: Any) -> Any:
    """A copy of its storage in which its own elements are 0; None: there is nothing else, or much."""
    own, size = tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes()
    if not own < size <= _MOST_BYTES:
        return None
    whole = tensor.detach().as_strided((size // tensor.element_size(),), (1,), 0).clone()
    whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).zero_()
    return whole


def _storage(tensor: Any) -> int | None:
    return tensor.untyped_storage().data_ptr() if tensor.numel() else None


def same_bytes(left: Any, right: Any) -> bool:
    import torch

    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if left.is_complex():
        left, right = torch.view_as_real(left.resolve_conj()), torch.view_as_real(right.resolve_conj())
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[left.element_size()]
    return bool(torch.equal(left.contiguous().view(whole), right.contiguous().view(whole)))
