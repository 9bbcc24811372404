"""What a call did, as observations by name, and in a phrase how those of an override differ from stock's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from tracer.compare.kept import same_bytes, shared_memory

INPUT = "the result is the memory of an input"
_OF_TORCH = ("requires_grad", "is_conj", "is_neg", "is_inference")
_TOLERANCE = {"float64": 1e-11, "complex128": 1e-11, "float32": 5e-5, "complex64": 5e-5}
_LOW_TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2}
"""Of an element, from stock's: by its magnitude and the usual one together"""


@dataclass(frozen=True)
class Raised:
    """An exception in place of a result."""

    kind: str
    text: str

    @classmethod
    def of(cls, error: BaseException) -> Raised:
        lines = str(error).splitlines()
        return cls(type(error).__name__, lines[0] if lines else "")

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}".rstrip(": ")


@dataclass(frozen=True)
class Form:
    """What a user of a result would notice before its values."""

    shape: tuple[int, ...]
    dtype: Any
    device: Any
    layout: Any
    strides: tuple[int, ...]
    storage_offset: int
    requires_grad: bool
    is_conj: bool
    is_neg: bool
    is_inference: bool
    memory_of: tuple[int, ...]
    """The inputs whose storage it has"""
    storage: int = field(compare=False)
    """Bytes"""

    @classmethod
    def of(cls, tensor: Any, inputs: Sequence[Any]) -> Form:
        import torch

        dense = tensor.layout == torch.strided
        return cls(
            tuple(tensor.shape),
            tensor.dtype,
            tensor.device,
            tensor.layout,
            tensor.stride() if dense and tensor.numel() else (),  # nobody steps through an empty one
            tensor.storage_offset() if dense else 0,
            tensor.requires_grad,
            tensor.is_conj(),
            tensor.is_neg(),
            tensor.is_inference(),
            tuple(n for n, one in enumerate(inputs) if dense and shared_memory(tensor, [one])),
            tensor.untyped_storage().nbytes() if dense else 0,
        )


@dataclass(frozen=True)
class Values:
    """A copy.

    moved    each element has the bytes of an element of an input, so there is no rounding
    picked   of places of equal elements in any order: what must be the same of them
    ordered  of elements in any order, or zeros of any sign: them in one order
    saved    NaN and infinity are the same
    """

    tensor: Any
    moved: bool = False
    picked: tuple[Any, ...] = ()
    ordered: Any = None
    saved: bool = False


@dataclass(frozen=True)
class Warned:
    """What it warned of. Not to warn of what stock does slowly is no difference."""

    texts: frozenset[str]


@dataclass(frozen=True)
class Numbers:
    """Results that are no tensors, as Python writes them."""

    texts: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(self.texts)


Observation = Any
"""Raised, Form, Values, Warned, Numbers or what `==` compares: a text is said as it is"""
Story = dict[str, Observation]


def values_of(tensor: Any, inputs: Sequence[Any] = ()) -> Values:
    import torch

    copy = tensor.detach()
    copy = (copy.to_dense() if copy.layout != torch.strided else copy).resolve_conj().resolve_neg().clone()
    return Values(copy, _is_moved(copy, inputs))


def difference(stock: Story, again: Story, override: Story, wide: Callable[[], Story] = dict) -> str:
    """The first one, in a phrase; "": none. What stock does otherwise `again` is not compared.

    wide   gives stock's own story in float64
    """
    for name, theirs in promised(stock, again).items():
        if name not in override:
            return f"{name}: nothing to compare, as it raised before"
        said = _differs(name, theirs, override[name])
        if said and not _is_as_near(theirs, override[name], wide, name):
            return said
    return ""


def promised(stock: Story, again: Story) -> Story:
    """What stock does in both, without properties that it lacks."""
    return {
        name: theirs
        for name, theirs in stock.items()
        if theirs is not False and name in again and not _differs(name, theirs, again[name])
    }


def _is_as_near(stock: Observation, override: Observation, wide: Callable[[], Story], name: str) -> bool:
    """Whether values are those of float64, or at most twice as far from them as stock's.

    Those of both may be all rounding, and what float32 cannot square stock's kernel may lose.
    """
    import torch

    if not isinstance(stock, Values) or not isinstance(override, Values) or stock.moved:
        return False
    truth = wide().get(name)
    if not isinstance(truth, Values) or truth.tensor.dtype not in (torch.float64, torch.complex128):
        return False
    first, second, exact = (one.tensor for one in (stock, override, truth))
    if first.dtype != second.dtype or not first.shape == second.shape == exact.shape:
        return False
    if first.dtype == exact.dtype or not (first.is_floating_point() or first.is_complex()):
        return False
    if not all(bool(one.isfinite().all()) for one in (first, second, exact)):
        return False
    if not _furthest(exact, second, _most(first.dtype)):
        return True
    theirs, ours = (float((one - exact).abs().max()) for one in (first, second))
    is_truth = theirs <= _most(first.dtype) * max(1.0, float(exact.abs().max()))  # not so of what is drawn
    return is_truth and ours <= 2 * theirs


def _most(dtype: Any) -> float:
    name = str(dtype).removeprefix("torch.")
    return _TOLERANCE.get(name) or _LOW_TOLERANCE.get(name, 1e-1)


def unsettled(stock: Story, wide: Story) -> set[str]:
    """Values where stock's own float64 kernel has NaN or infinity elsewhere: one multiplies padding, or
    squares what only float64 can square."""
    found = set()
    for name, theirs in stock.items():
        other = wide.get(name)
        if isinstance(theirs, Values) and isinstance(other, Values):
            first, second = theirs.tensor, other.tensor.to(theirs.tensor.dtype)
            if first.shape == second.shape and not bool((first.isfinite() == second.isfinite()).all()):
                found.add(name)
    return found


def _differs(name: str, stock: Observation, override: Observation) -> str:
    if isinstance(stock, Raised) or isinstance(override, Raised):
        return _other_exception(stock, override)
    if isinstance(stock, Form):
        return _prefixed(name, _other_form(stock, override))
    if isinstance(stock, Warned):
        return "; ".join(f"it warns: {text}" for text in sorted(override.texts - stock.texts))
    if isinstance(stock, Values):
        return _prefixed(name, _other_values(stock, override))
    if stock == override:
        return ""
    if isinstance(override, str):
        return override or f"{name}: nothing, but of stock: {stock}"
    return f"{name} {override}, but stock {stock}"


def _prefixed(name: str, said: str) -> str:
    return f"{name}: {said}" if said and name not in ("result", "the values of result") else said


def _other_exception(stock: Observation, override: Observation) -> str:
    if not isinstance(stock, Raised):
        return f"it raised {override}"
    if not isinstance(override, Raised):
        return f"it returned a result, but stock raises {stock}"
    same = stock.kind == override.kind
    return "" if same else f"it raised {override.kind}, but stock raises {stock}"


def _other_form(stock: Form, override: Form) -> str:
    if not isinstance(override, Form):
        return "no tensor, but stock returns one"
    if stock.memory_of != override.memory_of and override.memory_of:
        return INPUT
    for name in Form.__dataclass_fields__:
        theirs, ours = getattr(stock, name), getattr(override, name)
        if name == "strides" and _walked(stock) == _walked(override):
            continue
        if name != "storage" and theirs != ours:
            return f"{name if name in _OF_TORCH else name.replace('_', ' ')} {ours}, but stock has {theirs}"
    if override.storage > stock.storage:
        return f"the result is a part of {override.storage:,} bytes, but stock's has {stock.storage:,}"
    return ""


def _walked(form: Form) -> list[int]:
    """Strides of dimensions in which there is a step to make."""
    return [stride for size, stride in zip(form.shape, form.strides, strict=False) if size > 1]


def _other_values(stock: Values, override: Values) -> str:
    import torch

    theirs, ours = stock.tensor, override.tensor
    if theirs.shape != ours.shape or theirs.dtype != ours.dtype:
        return f"{ours.dtype} of {tuple(ours.shape)}, but stock has {theirs.dtype} of {tuple(theirs.shape)}"
    if same_bytes(theirs, ours):
        return ""
    floating = theirs.is_floating_point() or theirs.is_complex()
    if stock.picked and override.picked and all(map(_same_numbers, stock.picked, override.picked)):
        return ""
    if stock.ordered is not None and override.ordered is not None:
        return "" if _same_numbers(stock.ordered, override.ordered) else "other values than stock's"
    if not floating or (stock.moved and not _same_numbers(theirs, ours)):
        return "other values than stock's"
    theirs, ours = (torch.view_as_real(t) if t.is_complex() else t for t in (theirs, ours))
    most = _most(stock.tensor.dtype)
    theirs, ours = theirs.double(), ours.double()
    if stock.saved:
        theirs, ours = (t.masked_fill(~t.isfinite(), float("nan")) for t in (theirs, ours))
    finite = theirs.isfinite()
    if not ((theirs == ours) | (theirs.isnan() & ours.isnan()))[~finite].all():
        return "other NaN or infinity than stock's"
    theirs, ours = theirs[finite], ours[finite]
    if not ours.isfinite().all():
        return "it is not finite, but stock's is"
    furthest = _furthest(theirs, ours, most)
    if not furthest:
        return ""
    return f"an element is {furthest:.2g} times the usual magnitude from stock's, which allows {most:.2g}"


def _furthest(expected: Any, found: Any, most: float) -> float:
    """Of finite numbers: 0.0 if each is near enough, else the largest distance by the usual magnitude."""
    usual = float(expected.abs().square().mean().sqrt()) if expected.numel() else 0.0
    error = (found - expected).abs()
    if not (error > most * (expected.abs() + usual)).any():
        return 0.0
    return float(error.max()) / usual if usual else float("inf")


def _same_numbers(first: Any, second: Any) -> bool:
    """The same bytes, but of NaN, which has many."""
    if not bool(((first == first) == (second == second)).all()):
        return False
    return same_bytes(first[first == first], second[second == second])


_MOST_MOVED = 1 << 20


def _is_moved(result: Any, inputs: Sequence[Any]) -> bool:
    """Whether all bit patterns of a result are those of inputs of its dtype."""
    import torch

    same = [one.detach() for one in inputs if one.dtype == result.dtype and one.layout == torch.strided]
    if not same or not result.numel() or prod(result.shape) > _MOST_MOVED:
        return False
    known = result[result == result]  # NaN has many patterns, and no sum keeps them
    patterns = [_patterns(one.resolve_conj().resolve_neg()) for one in same]
    mine = _patterns(known)
    if not mine.any():  # 0.0 may come from anywhere, -0.0 does not
        return False
    return bool(torch.isin(mine, torch.cat(patterns)).all())


def _patterns(tensor: Any) -> Any:
    import torch

    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    return tensor.contiguous().view(whole).flatten()
