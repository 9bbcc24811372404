"""Calls for trials: a few that fit an operator, and these with other layouts, dtypes, values and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Operands = tuple[list[Any], dict[str, Any]]
"""Positional arguments and the others"""
Change = Callable[[list[Any]], list[Any]]
"""Of the tensors of a call, in order"""

LAYOUTS, DTYPES, VALUES, SIZES = "layouts", "dtypes", "special values", "sizes"
SHARED, ERRORS, USUAL = "shared memory", "errors", "usual calls"


@dataclass(frozen=True)
class Sample:
    """A call: `make` gives operands on a device, other ones by torch's seed; `call` takes them."""

    kind: str
    name: str
    make: Callable[[], Operands]
    call: Callable[..., Any]

    def changed(self, kind: str, name: str, change: Change) -> Sample:
        """The same call with other tensors."""

        def make() -> Operands:
            return with_tensors(self.make(), change)

        title = name if self.kind == USUAL and self.name == "" else f"{self.name}, {name}"
        return Sample(kind, title, make, self.call)


def tensors_in(value: Any) -> list[Any]:
    import torch
    from torch.utils import _pytree as pytree

    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


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
    yield from _other_arguments(base)


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

    def overlapping(t: Any) -> Any:
        return t.flatten().as_strided(t.shape, (1,) * t.ndim) if t.numel() else t

    def negative(t: Any) -> Any:
        return torch._neg_view(-t)

    def conjugate(t: Any) -> Any:
        return (t.to(torch.complex64) * (1 + 0.5j)).conj() if t.is_floating_point() else t

    def imaginary(t: Any) -> Any:
        return torch.complex(t, -t).conj().imag if t.dtype == torch.float32 else t

    def channels_last(t: Any) -> Any:
        return t.contiguous(memory_format=torch.channels_last) if t.ndim == 4 else t

    return {
        "transposed": transposed,
        "every other element": every_other,
        "with a storage offset": part,
        "rows of a wider one": rows_of_wider,
        "expanded, of stride 0": expanded,
        "overlapping itself": overlapping,
        "a negative view": negative,
        "a conjugate view": conjugate,
        "an imaginary part": imaginary,
        "channels last": channels_last,
    }


def _values() -> dict[str, Callable[[Any], Any]]:
    def first(value: float) -> Callable[[Any], Any]:
        def put(t: Any) -> Any:
            if not t.is_floating_point() or not t.numel():
                return t
            t = t.clone()
            t.view(-1)[: max(1, t.numel() // 7)] = value
            return t

        return put

    def large(dtype: str, least: int = 2**24) -> Callable[[Any], Any]:
        def put(t: Any) -> Any:
            import torch

            wide = torch.arange(t.numel(), device=t.device).reshape(t.shape) if t.numel() else t
            return (wide * 1009 + least + 1).to(getattr(torch, dtype)) if t.numel() else t

        return put

    def scaled(factor: float) -> Callable[[Any], Any]:
        return lambda t: t * factor if t.is_floating_point() else t

    special = {f"{value} in it": first(float(value)) for value in ("nan", "inf", "-inf", "-0.0")}
    return {
        **special,
        "denormal numbers": first(1e-40),
        "zeros": lambda t: t * 0 if t.is_floating_point() else t,
        "very large numbers": first(1e36),  # larger ones overflow in one order of a sum and not in another
        "times a million": scaled(1e6),
        "times a millionth": scaled(1e-6),
        "large integers": large("int64"),
        "very large integers": large("int64", 2**40),
        "large integers of 32 bits": large("int32"),
    }


_DTYPE_NAMES = (
    *("float64", "bfloat16", "float16", "complex64", "complex128"),
    *("int64", "int32", "int16", "int8", "uint8", "bool"),
)
_BESIDE = (
    ("float64", "float32"),
    ("float32", "float64"),
    ("bfloat16", "float32"),
    ("int8", "int64"),
    ("int64", "float32"),
    ("bool", "int32"),
    ("float32", "complex64"),
    ("uint8", "int8"),
)


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
                _as(t * 9, others) if n else _as(t, first) for n, t in enumerate(ts)
            ],
        )


def _memory(count: int) -> Iterator[tuple[str, Change]]:
    """Arguments that are parts of one storage, or the same tensor."""
    if count < 2:
        return

    def one_buffer(shift: int) -> Change:
        def change(ts: list[Any]) -> list[Any]:
            import torch

            size = max(t.numel() + n * shift for n, t in enumerate(ts))
            buffer = torch.randn(size, device=ts[0].device).to(ts[0].dtype)
            return [
                buffer[n * shift : n * shift + t.numel()].view(t.shape) if t.dtype == buffer.dtype else t
                for n, t in enumerate(ts)
            ]

        return change

    yield "parts of one storage", one_buffer(0)
    yield "parts of one storage that overlap", one_buffer(1)
    yield "the same tensor", lambda ts: [ts[0] if t.shape == ts[0].shape else t for t in ts]
    yield "one and its transpose", _with_transpose


def _with_transpose(ts: list[Any]) -> list[Any]:
    first = next((n for n, t in enumerate(ts) if t.ndim == 2), None)
    if first is None:
        return ts
    return [t if n <= first else ts[first].t() if t.ndim == 2 else t for n, t in enumerate(ts)]


_SIZES = ((), (0,), (1,), (7,), (3, 4), (0, 4), (4, 0), (1, 1), (2, 3, 4, 5), (2, 0, 3))


def _sizes(count: int) -> Iterator[tuple[str, Change]]:
    import torch

    for size in _SIZES:
        yield (
            f"all of shape {list(size)}",
            lambda ts, size=size: [  # type: ignore[misc]
                torch.randn(size, device=t.device).to(t.dtype) for t in ts
            ],
        )
    yield "an empty one of one dimension", lambda ts: [ts[0].new_empty(0), *ts[1:]]
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


def _other_arguments(base: Sample) -> Iterator[Sample]:
    """Other integers, and lists of other lengths."""
    positional, _ = base.make()
    for place, value in enumerate(positional):
        if isinstance(value, int) and not isinstance(value, bool):
            for other in (value + 1, 0, -1, -2, 99, -99):
                yield _with_argument(base, ERRORS if abs(other) == 99 else SIZES, place, other, str(other))
        if isinstance(value, list) and tensors_in(value):
            yield _with_argument(base, ERRORS, place, [], "an empty list")
            yield _with_argument(base, SIZES, place, value[:1], "a list of one")
            yield _with_argument(base, SIZES, place, value * 130, f"a list of {130 * len(value)}")
            yield _with_argument(base, SHARED, place, [value[0], value[0][:1]], "one and a part of it")
            yield _with_argument(base, SHARED, place, [value[0]] * 3, "one thrice")
            yield _with_argument(
                base, SIZES, place, [value[0].new_empty(0), *value], "a legacy empty one first"
            )
            yield _with_argument(
                base, SIZES, place, [*value, value[0].new_empty(0)], "a legacy empty one last"
            )


def _with_argument(base: Sample, kind: str, place: int, value: Any, name: str) -> Sample:
    def make() -> Operands:
        positional, named = base.make()
        return [*positional[:place], value, *positional[place + 1 :]], named

    title = f"argument {place}: {name}"
    return Sample(kind, title if base.name == "" else f"{base.name}, {title}", make, base.call)


# ---- calls that fit an operator ---------------------------------------------------------------------
def bases_of(operator: str, device: str) -> list[Sample]:
    """Usual calls of an operator, by its name without the overload."""
    made = {"aten::mm": _products, "aten::addmm": _sums, "aten::cat": _cats, "aten::gru": _grus}.get(operator)
    return list(made(device)) if made else list(_of_schema(operator, device))


_M, _K, _N = 24, 32, 40
_PRODUCTS = {
    "": (_M, _K, _N),
    "square": (32, 32, 32),
    "larger than a tile": (301, 263, 277),
    "odd sizes": (17, 31, 23),
    "one row": (1, _K, _N),
    "one column": (_M, _K, 1),
    "one inner": (_M, 1, _N),
    "no rows": (0, _K, _N),
    "no columns": (_M, _K, 0),
    "nothing to add up": (_M, 0, _N),
    "long and thin": (3, 5000, 2),
}


def _products(device: str) -> Iterator[Sample]:
    import torch

    for name, (m, k, n) in _PRODUCTS.items():

        def make(m: int = m, k: int = k, n: int = n) -> Operands:
            return [torch.randn(m, k, device=device), torch.randn(k, n, device=device)], {}

        yield Sample(USUAL if not name else SIZES, name, make, torch.mm)


def _sums(device: str) -> Iterator[Sample]:
    import torch

    for name, (m, k, n) in _PRODUCTS.items():

        def make(m: int = m, k: int = k, n: int = n) -> Operands:
            matrices = torch.randn(m, k, device=device), torch.randn(k, n, device=device)
            return [torch.randn(n, device=device), *matrices], {}

        yield Sample(USUAL if not name else SIZES, name, make, torch.addmm)

    def scaled(bias: tuple[int, ...], **factors: float) -> Callable[[], Operands]:
        def make() -> Operands:
            matrices = torch.randn(_M, _K, device=device), torch.randn(_K, _N, device=device)
            return [torch.randn(bias, device=device), *matrices], factors

        return make

    for name, bias, factors in (
        ("beta and alpha", (_N,), {"beta": 0.5, "alpha": -2.0}),
        ("beta 0 and a NaN bias", (_N,), {"beta": 0}),
        ("alpha 0", (_N,), {"alpha": 0}),
        ("a bias of two dimensions", (_M, _N), {}),
        ("a bias of one column", (_M, 1), {}),
        ("a bias of one element", (1,), {}),
        ("a bias of no dimension", (), {}),
    ):
        yield Sample(SIZES, name, scaled(bias, **factors), torch.addmm)


def _cats(device: str) -> Iterator[Sample]:
    import torch

    def make() -> Operands:
        return [[torch.randn(6, 8, 4, 5, device=device) * 50 for _ in range(2)], 1], {}

    def of(*shapes: tuple[int, ...], dim: int = 0) -> Callable[[], Operands]:
        return lambda: ([[torch.randn(shape, device=device) for shape in shapes], dim], {})

    yield Sample(USUAL, "", make, torch.cat)
    for name, made in {
        "matrices": of((5, 7), (3, 7)),
        "vectors": of((5,), (3,), (0,)),
        "other sizes": of((6, 8, 4), (6, 3, 4), dim=1),
        "an empty one": of((6, 8, 4), (6, 0, 4), dim=1),
        "all empty": of((0, 8), (0, 8)),
        "the last dimension": of((4, 5), (4, 1), (4, 9), dim=-1),
        "large ones": of((400, 300), (401, 300)),
        "many small ones": of(*[(1, 3)] * 70),
    }.items():
        yield Sample(SIZES, name, made, torch.cat)


def _grus(device: str) -> Iterator[Sample]:
    import torch

    def of(length: int, batch: int, **options: Any) -> Callable[[], Operands]:
        def make() -> Operands:
            module = torch.nn.GRU(8, 16, **options).to(device)
            weights = [weight.detach().clone() for _, weight in module.named_parameters()]
            h = torch.randn((module.num_layers, batch, 16), device=device) * 0.5
            has_bias = bool(options.get("bias", True))
            x = torch.randn((length, batch, 8), device=device)
            return [x, h, weights, has_bias, module.num_layers, 0.0, False, False, False], {}

        return make

    yield Sample(USUAL, "", of(5, 3), torch._VF.gru)
    for name, made in {
        "without bias": of(5, 3, bias=False),
        "one step": of(1, 3),
        "one sequence": of(5, 1),
        "two layers": of(5, 3, num_layers=2),
        "long": of(70, 2),
    }.items():
        yield Sample(SIZES, name, made, torch._VF.gru)


_DRAWN: dict[str, Callable[[Any, str], Any]] = {
    "Tensor": lambda torch, device: torch.randn(3, 4, device=device),
    "List[Tensor]": lambda torch, device: [torch.randn(3, 4, device=device) for _ in range(2)],
    "List[int]": lambda *_: [1, 1],
    "int": lambda *_: 1,
    "float": lambda *_: 0.5,
    "number": lambda *_: 2,
    "bool": lambda *_: False,
}


def _of_schema(operator: str, device: str) -> Iterator[Sample]:
    """A call of each overload that takes no buffer for its result, with what its schema asks for."""
    import torch

    namespace, _, name = operator.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name)
    for overload in packet.overloads():
        call = getattr(packet, overload)
        schema = call._schema
        if any(argument.is_out for argument in schema.arguments):
            continue

        def make(schema: Any = schema) -> Operands:
            positional, named = [], {}
            for argument in schema.arguments:
                if argument.has_default_value():
                    continue
                draw = _DRAWN.get(str(argument.type))
                value = draw(torch, device) if draw else None
                if argument.kwarg_only:
                    named[argument.name] = value
                else:
                    positional.append(value)
            return positional, named

        yield Sample(USUAL, schema.overload_name, make, call)
