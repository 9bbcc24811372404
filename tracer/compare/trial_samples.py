"""Calls for trials: a few that fit an operator, and these with other layouts, dtypes, values and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from tracer.compare.private_results import seen

Operands = tuple[list[Any], dict[str, Any]]
"""Positional arguments and the others"""
Change = Callable[[list[Any]], list[Any]]
"""Of the tensors of a call, in order"""

LAYOUTS, DTYPES, VALUES, SIZES = "layouts", "dtypes", "special values", "sizes"
SHARED, ERRORS, USUAL, OF_SCRIPT = "shared memory", "errors", "usual calls", "calls of the script"


@dataclass(frozen=True)
class Sample:
    """A call: `make` gives operands on a device, other ones by torch's seed; `call` takes them.

    `call` returns no result that only the operator's backward reads.
    behind   what lies behind each tensor in memory, if it matters
    """

    kind: str
    name: str
    make: Callable[[], Operands]
    call: Callable[..., Any]
    behind: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "call", seen(self.call))

    def changed(self, kind: str, name: str, change: Change) -> Sample:
        """The same call with other tensors."""
        return self.titled(kind, name, lambda: with_tensors(self.make(), change))

    def titled(self, kind: str, name: str, make: Callable[[], Operands]) -> Sample:
        return Sample(kind, f"{self.name}, {name}" if self.name else name, make, self.call, self.behind)


def tensors_in(value: Any) -> list[Any]:
    import torch

    return leaves_of(value, lambda leaf: isinstance(leaf, torch.Tensor))


def leaves_of(value: Any, wanted: Callable[[Any], bool]) -> list[Any]:
    from torch.utils import _pytree as pytree

    return [leaf for leaf in pytree.tree_leaves(value) if wanted(leaf)]


def with_tensors(operands: Operands, change: Change) -> Operands:
    import torch
    from torch.utils import _pytree as pytree

    leaves, form = pytree.tree_flatten(operands)
    places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    for place, tensor in zip(places, change([leaves[n] for n in places]), strict=True):
        leaves[place] = tensor
    changed: Operands = pytree.tree_unflatten(leaves, form)
    return changed


def variants(base: Sample) -> Iterator[Sample]:
    """A call with other tensors in each way that an operator promises to take, or to refuse."""
    count = len(tensors_in(base.make()))
    if not count:
        return
    for kind, changes in (
        (LAYOUTS, _layouts()),
        (VALUES, _values()),
    ):
        for name, change in changes.items():
            yield base.changed(kind, name, lambda ts, change=change: [change(t) for t in ts])  # type: ignore[misc]
            for place in range(min(count, 3)) if count > 1 else ():
                yield base.changed(kind, f"{name} in argument {place}", _only(place, change))
    ways = {DTYPES: _dtypes, SHARED: _memory, SIZES: _sizes, ERRORS: _mismatches}
    for kind, made in ways.items():
        for name, change_all in made(count):
            yield base.changed(kind, name, change_all)


def with_other_numbers(base: Sample) -> Iterator[Sample]:
    """Calls in which an argument that is no tensor may matter where it does not in usual ones: 0 ** 0."""
    import torch

    def special(t: Any) -> Any:
        if not t.is_floating_point() or not t.numel():
            return t
        known = t.new_tensor(_SPECIAL)
        return torch.cat([known] * (t.numel() // len(known) + 1))[: t.numel()].view(t.shape)

    def with_nan(t: Any) -> Any:
        last = torch.arange(t.numel(), device=t.device).reshape(t.shape) == t.numel() - 1
        return t.masked_fill(last, float("nan")) if t.is_floating_point() else t

    def of_both_signs(t: Any) -> Any:
        middle = t.numel() // 2
        whole = torch.arange(-middle, t.numel() - middle, device=t.device).reshape(t.shape)
        return whole if t.is_floating_point() else t

    yield base.changed(VALUES, "special numbers", lambda ts: [special(t) for t in ts])
    count = len(tensors_in(base.make()))
    for place in range(min(count, 3)) if count > 1 else ():
        yield base.changed(VALUES, f"special numbers in argument {place}", _only(place, special))
    if count > 1:
        yield base.changed(SHARED, "the same tensor with a NaN", lambda ts: _one_of(with_nan(ts[0]), ts))
    yield base.changed(VALUES, "integers of both signs", lambda ts: [of_both_signs(t) for t in ts])


def with_other_forms(base: Sample) -> Iterator[Sample]:
    """The same for sizes and dtypes: a dimension of two that are equal, a flag beside float16."""
    if not tensors_in(base.make()):
        return
    many = _along(0, _LENGTHS["many"])
    yield base.changed(SIZES, "all of shape [6, 6]", lambda ts: [drawn((6, 6), t) for t in ts])
    yield base.changed(SIZES, "many rows", many)
    yield base.changed(
        DTYPES, "float16", lambda ts: [_as(t, "float16") if t.is_floating_point() else t for t in ts]
    )


def _one_of(first: Any, ts: list[Any]) -> list[Any]:
    return [first, *(first if t.shape == first.shape else t for t in ts[1:])]


_SPECIAL = [
    *(0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 3.0, -3.0, -0.0, 1e-40),
    *(float("inf"), float("-inf"), float("nan")),
]


def _only(place: int, change: Callable[[Any], Any]) -> Change:
    return lambda tensors: [change(t) if n == place else t for n, t in enumerate(tensors)]


def _layouts() -> dict[str, Callable[[Any], Any]]:
    import torch

    def transposed(t: Any) -> Any:
        return t.transpose(-1, -2).contiguous().transpose(-1, -2) if t.ndim > 1 else t

    def every_other(t: Any) -> Any:
        return torch.stack([t, t], -1)[..., 0]

    def part(t: Any) -> Any:
        wider = torch.cat([t.new_zeros(3), t.flatten(), t.new_zeros(2)])
        return wider[3 : 3 + t.numel()].view(t.shape)

    def rows_of_wider(t: Any) -> Any:
        return torch.cat([t, t[..., :1]], -1)[..., : t.shape[-1]] if t.ndim and t.numel() else t

    def expanded(t: Any) -> Any:
        return t[:1].expand(t.shape) if t.ndim and len(t) else t

    def columns_expanded(t: Any) -> Any:
        return t[..., :1].expand(t.shape) if t.ndim and t.shape[-1] else t

    def one_expanded(t: Any) -> Any:
        return t.flatten()[:1].view((1,) * t.ndim).expand(t.shape) if t.numel() else t

    def overlapping(t: Any) -> Any:
        return t.flatten().as_strided(t.shape, (1,) * t.ndim) if t.numel() else t

    def negative(t: Any) -> Any:
        return torch._neg_view(-t)

    def conjugate(t: Any) -> Any:
        return (t.to(torch.complex64) * (1 + 0.5j)).conj() if t.is_floating_point() else t

    def imaginary(t: Any) -> Any:
        return torch.complex(t, -t).conj().imag if t.dtype == torch.float32 else t

    def channels_last(t: Any) -> Any:
        last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(t.ndim)
        return t.contiguous(memory_format=last) if last else t

    return {
        "transposed": transposed,
        "every other element": every_other,
        "with a storage offset": part,
        "rows of a wider one": rows_of_wider,
        "expanded, of stride 0": expanded,
        "expanded columns": columns_expanded,
        "one element, expanded": one_expanded,
        "overlapping itself": overlapping,
        "a negative view": negative,
        "a conjugate view": conjugate,
        "an imaginary part": imaginary,
        "channels last": channels_last,
    }


def _is_whole(t: Any) -> bool:
    """Perhaps an index: on a GPU it stays as it is, since one out of range ends the CUDA context."""
    return not (t.is_floating_point() or t.is_complex() or str(t.dtype) == "torch.bool")


def _values() -> dict[str, Callable[[Any], Any]]:
    def first(value: float) -> Callable[[Any], Any]:
        def put(t: Any) -> Any:
            if not t.is_floating_point() or not t.numel():
                return t
            t = t.clone()
            t.view(-1)[: max(1, t.numel() // 7)] = value
            return t

        return put

    def whole(value: float, *part: Any) -> Callable[[Any], Any]:
        def put(t: Any) -> Any:
            if not t.is_floating_point() or not t.numel():
                return t
            t = t.clone()
            t[part if t.ndim else ...] = value
            return t

        return put

    def integer(value: int, everywhere: bool = False) -> Callable[[Any], Any]:
        def put(t: Any) -> Any:
            if not _is_whole(t) or t.is_cuda or not t.numel():
                return t
            t = t.clone()
            t.view(-1)[: None if everywhere else 1] = value
            return t

        return put

    def large(dtype: str, least: int = 2**24) -> Callable[[Any], Any]:
        def put(t: Any) -> Any:
            import torch

            if _is_whole(t) and t.is_cuda:
                return t
            return (_counted(t) * 1009 + least + 1).to(getattr(torch, dtype)) if t.numel() else t

        return put

    def bits(number: int) -> Callable[[Any], Any]:
        half = 2 ** (number - 1)
        return lambda t: t if _is_whole(t) and t.is_cuda else _counted(t) * 1009 % half + half

    def extremes(t: Any) -> Any:
        import torch

        if _is_whole(t) and t.is_cuda:
            return t
        known = torch.iinfo(torch.int64)
        return torch.where(_counted(t) % 3 == 0, known.min, _counted(t) % 5 - 2)

    def scaled(factor: float) -> Callable[[Any], Any]:
        return lambda t: t * factor if t.is_floating_point() else t

    special = {f"{value} in it": first(float(value)) for value in ("nan", "inf", "-inf", "-0.0")}
    parts = {"row": (0,), "column": (..., 0), "tensor": (...,)}
    for value, part in product(("nan", "inf", "-inf"), parts):
        special[f"{value} in a whole {part}"] = whole(float(value), *parts[part])
    return {
        **special,
        "denormal numbers": first(1e-40),
        "zeros": lambda t: t * 0 if t.is_floating_point() else t,
        "very large numbers": first(1e36),  # larger ones overflow in one order of a sum and not in another
        "far from 0": lambda t: t + 1000 if t.is_floating_point() else t,
        "times a million": scaled(1e6),
        "times a millionth": scaled(1e-6),
        "a negative integer": integer(-1),
        "an integer that is too large": integer(99),
        "one integer everywhere": integer(0, everywhere=True),
        "integers backwards": lambda t: t.flip(-1) if _is_whole(t) and t.ndim else t,
        "large integers": large("int64"),
        "very large complex numbers": lambda t: (
            _as(t, "complex64") * (1e30 + 1e30j) if t.is_floating_point() else t
        ),
        "very large integers": large("int64", 2**40),
        "large integers of 32 bits": large("int32"),
        "integers of 12 bits": bits(12),  # five of them make more than float64 has
        "integers of 15 bits": bits(15),
        "the smallest and the largest integers": extremes,
    }


_DTYPE_NAMES = (
    *("float64", "bfloat16", "float16", "complex64", "complex128"),
    *("int64", "int32", "int16", "int8", "uint8", "bool"),
)
_BESIDE = (
    ("float64", "float32"),
    ("float32", "float64"),
    ("bfloat16", "float32"),
    ("float16", "bfloat16"),
    ("int8", "int64"),
    ("int64", "float32"),
    ("bool", "int32"),
    ("float32", "complex64"),
    ("uint8", "int8"),
)


_NARROW = ("bfloat16", "float16", "int8")
"""Sums of many of them need a wider dtype"""
_NUMBERS = ("float64", "complex64", "int64")
_ALONE = ("float64", "float16", "int32", "uint8", "bool")


def _counted(t: Any) -> Any:
    """0, 1, 2, ..."""
    import torch

    return torch.arange(t.numel(), device=t.device).reshape(t.shape)


def _as(t: Any, name: str) -> Any:
    import torch

    dtype = getattr(torch, name)
    if dtype == torch.bool:
        return t > 0
    whole = not (dtype.is_floating_point or dtype.is_complex)
    return (t * 40 if whole and t.is_floating_point() else t).to(dtype)


def _dtypes(count: int) -> Iterator[tuple[str, Change]]:
    for name in _DTYPE_NAMES:
        yield name, lambda ts, name=name: [_as(t, name) for t in ts]  # type: ignore[misc]
    for first, others in _BESIDE if count > 1 else ():
        yield (
            f"{first} beside {others}",
            lambda ts, first=first, others=others: [  # type: ignore[misc]
                _as(t * 9 if t.is_floating_point() else t, others) if n else _as(t, first)
                for n, t in enumerate(ts)
            ],
        )
    for name in _NARROW:
        for place, title in ((0, "rows"), (-1, "columns")):
            many = _along(place, _LENGTHS["many"])
            yield (
                f"many {title} of {name}",
                lambda ts, name=name, many=many: [  # type: ignore[misc]
                    _as(t.abs(), name) if t.is_floating_point() else t for t in many(ts)
                ],
            )
    if count > 1:
        yield "very large integers beside small ones", _very_large_first
    for name in _ALONE if count > 1 else ():
        for place in range(min(count, 3)):
            yield f"{name} in argument {place}", _only(place, lambda t, name=name: _as(t, name))  # type: ignore[misc]
    for name in _NUMBERS if count > 1 else ():  # of no dimension: such a one promotes otherwise
        for place in range(min(count, 3)):
            number = _only(place, lambda t, name=name: _as(t.flatten()[0], name))  # type: ignore[misc]
            yield f"{name} of no dimension in argument {place}", number


def _very_large_first(ts: list[Any]) -> list[Any]:
    """No float64 has these."""
    large, *small = (_counted(t) if t.is_floating_point() else t for t in ts)
    return [large * 1009 + 2**60 + 1 if ts[0].is_floating_point() else large, *(t % 7 + 1 for t in small)]


def _memory(count: int) -> Iterator[tuple[str, Change]]:
    """Arguments that are parts of one storage, or the same tensor."""
    if count < 2:
        return

    def one_buffer(shift: int) -> Change:
        def change(ts: list[Any]) -> list[Any]:
            size = max(t.numel() + n * shift for n, t in enumerate(ts))
            buffer = drawn((size,), ts[0])
            return [
                buffer[n * shift : n * shift + t.numel()].view(t.shape) if t.dtype == buffer.dtype else t
                for n, t in enumerate(ts)
            ]

        return change

    yield "parts of one storage", one_buffer(0)
    yield "parts of one storage that overlap", one_buffer(1)
    yield "the same tensor", lambda ts: _one_of(ts[0], ts)
    yield (
        "one and its first row",
        lambda ts: [ts[0], *(ts[0][0] if _has_row(ts[0], t) else t for t in ts[1:])],
    )
    yield "one and its transpose", _with_transpose


def followed_by(value: int, ts: list[Any]) -> list[Any]:
    """The same tensors, contiguous, so that no kernel copies them, and this value behind each in memory.

    Memory of their sizes that is free has it too: a result may be what lay there.
    """

    def longer(t: Any) -> Any:
        if str(t.layout) != "torch.strided" or t.is_meta:
            return t
        whole = t.new_full((_LENGTHS["many"] + 8 * t.numel(),), value)
        whole[: t.numel()] = t.flatten()
        return whole[: t.numel()].view(t.shape)

    made = [longer(t) for t in ts]
    _ = [one.clone().fill_(value) for one in made * 32 if one.numel()]  # and freed at once
    return made


def _has_row(first: Any, other: Any) -> bool:
    return bool(first.ndim and len(first) and first.dtype == other.dtype)


def _with_transpose(ts: list[Any]) -> list[Any]:
    first = next((n for n, t in enumerate(ts) if t.ndim == 2), None)
    if first is None:
        return ts
    return [t if n <= first else ts[first].t() if t.ndim == 2 else t for n, t in enumerate(ts)]


_SIZES = ((), (0,), (1,), (7,), (3, 4), (0, 4), (4, 0), (1, 1), (2, 3, 4, 5), (2, 0, 3), (400, 301))


_LENGTHS = {"no": 0, "one": 1, "many": 1500}


def drawn(size: tuple[int, ...], like: Any) -> Any:
    import torch

    if _is_whole(like):  # perhaps places in a tensor of this size
        most = 1 if like.is_cuda else max(1, min(size, default=1))
        return torch.randint(0, most, size, device=like.device).to(like.dtype)
    return torch.randn(size, device=like.device).to(like.dtype)


def _along(place: int, length: int) -> Change:
    """Other rows or columns for the first tensor, and for those that have as many."""

    def change(ts: list[Any]) -> list[Any]:
        import torch

        size = next((t.shape[place] for t in ts if t.ndim), 0)

        def of(t: Any) -> Any:
            if not t.ndim or t.shape[place] != size or not t.numel():
                return t
            return torch.cat([t] * (length // size + 1), place).narrow(place, 0, length)

        return [of(t) for t in ts]

    return change


def _sizes(count: int) -> Iterator[tuple[str, Change]]:
    for size in _SIZES:
        yield (
            f"all of shape {list(size)}",
            lambda ts, size=size: [drawn(size, t) for t in ts],  # type: ignore[misc]
        )
    for name, length in _LENGTHS.items():
        yield f"{name} rows", _along(0, length)
        yield f"{name} columns", _along(-1, length)
    yield "an empty one of one dimension", lambda ts: [ts[0].new_empty(0), *ts[1:]]
    for place in range(min(count, 3)) if count > 1 else ():
        yield f"one row in argument {place}", _only(place, lambda t: t[:1] if t.ndim else t)
        yield f"one column in argument {place}", _only(place, lambda t: t[..., :1] if t.ndim else t)
    if count > 1:
        yield "the last one empty, of one dimension", lambda ts: [*ts[:-1], ts[-1].new_empty(0)]
        yield "a first one of size 1", lambda ts: [ts[0].flatten()[:1].reshape((1,) * ts[0].ndim), *ts[1:]]


def _mismatches(count: int) -> Iterator[tuple[str, Change]]:
    import torch

    def longer(t: Any) -> Any:
        return torch.cat([t, t[..., :1]], -1) if t.ndim and t.numel() else t

    def higher(t: Any) -> Any:
        return torch.cat([t, t[:1]], 0) if t.ndim and t.numel() else t

    for place in range(min(count, 3)):
        yield f"argument {place} is one column wider", _only(place, longer)
        yield f"argument {place} has one row more", _only(place, higher)
        yield f"argument {place} has a dimension more", _only(place, lambda t: t.unsqueeze(0))
        yield (
            f"argument {place} has a dimension less",
            _only(place, lambda t: t[0] if t.ndim and len(t) else t),
        )
        yield f"argument {place} is on meta", _only(place, lambda t: t.to("meta"))
        yield f"argument {place} is sparse", _only(place, lambda t: t.to_sparse() if t.ndim else t)
