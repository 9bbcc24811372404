"""Usual calls of an operator, for trials: its own list, the script's, by its schema, torch's samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from tracer.base.boundary import torch_operator
from tracer.compare.trial_arguments import MAYBE_TENSOR, OPTIONAL, in_form_of, other_arguments, plain_form
from tracer.compare.trial_samples import SIZES, USUAL, Operands, Sample, tensors_in, with_tensors

_MOST_USUAL = 3
_MOST_WITH_OPTIONS = 3
"""More usual calls, for flags, words, modes and tensors that may be missing"""
_LARGEST_MODE = 4
"""An int may be a word: a kind of padding, a reduction"""
_MOST_ELEMENTS = 1 << 16
"""Of a call that others are made of"""


def bases_of(
    operator: str, device: str, of_script: Sequence[Sample] = (), of_torch: Sequence[Sample] = ()
) -> tuple[list[Sample], list[Sample]]:
    """Usual calls, which others are made of, and some that are only made as they are.

    of_script   calls that a script makes
    of_torch    calls in torch's own samples of the operator
    """
    op = torch_operator(operator)
    plain = plain_form(op)
    made = _LISTS.get(_name(plain), _by_schema)
    own = [form for sample in made(plain, device) for form in in_form_of(op, sample)]
    drawn = [sample for sample in own if sample.kind == USUAL]
    wide = _spread([sample for sample in of_torch if sample.call is op and ", float32," in sample.name])
    general = drawn if made is not _by_schema else wide or drawn
    if made is _by_schema and not any(str(one.real_type) == MAYBE_TENSOR for one in op._schema.arguments):
        general = [*drawn, *wide]  # stock need not check that a tensor which may be missing is there
    known = [*of_script[: _MOST_USUAL - 1], *general]
    by_name = {sample.name: sample for sample in known}
    usual = [*islice(filter(_accepts, by_name.values()), _MOST_USUAL)] or general
    usual += [*_with_other_options(usual, wide), *_with_generator(usual[:1])]
    return [replace(sample, kind=USUAL) for sample in usual], [one for one in own if one.kind != USUAL]


def has_list(operator: str) -> bool:
    return _name(plain_form(torch_operator(operator))) in _LISTS


def _name(op: Any) -> str:
    return str(op._schema.name)


def _spread(samples: Sequence[Sample]) -> list[Sample]:
    """The largest of each number of dimensions first."""
    by_size = sorted(samples, key=lambda sample: (_is_thin(sample), -_elements(sample)))
    by_size = [*{_form(sample): sample for sample in reversed(by_size)}.values()][::-1]
    largest = {_dimensions(sample): sample for sample in reversed(by_size)}
    return [*sorted(largest.values(), key=lambda sample: -_dimensions(sample)), *by_size]


def _with_other_options(usual: Sequence[Sample], others: Sequence[Sample]) -> list[Sample]:
    """Each next one is that with the most options which none before has."""
    seen: set[tuple[str, str]] = set().union(*map(_options, usual))
    left = {sample.name: (sample, _options(sample)) for sample in others}
    found: list[Sample] = []
    while left and len(found) < _MOST_WITH_OPTIONS:
        name, (sample, options) = max(left.items(), key=lambda item: len(item[1][1] - seen))
        if options <= seen:
            break
        del left[name]
        if _accepts(sample):
            found.append(sample)
            seen |= options
    return found


def _with_generator(samples: Sequence[Sample]) -> list[Sample]:
    """One that each call finds as it was: the same numbers are drawn."""
    return [
        one
        for sample in samples
        for one in other_arguments(sample, (f"{OPTIONAL}Generator]",))
        if not one.name.endswith("None")
    ]


def _options(sample: Sample) -> set[tuple[str, str]]:
    """Flags, words, small whole numbers, and whether what may be missing is missing."""
    positional, named = sample.make()
    schema = getattr(sample.call, "_schema", None)
    if schema is None:
        return set()
    given = named | dict(zip([one.name for one in schema.arguments], positional, strict=False))
    found = set()
    for argument in schema.arguments:
        value = given.get(argument.name, argument.default_value)
        may_be_missing = str(argument.real_type).startswith(OPTIONAL)
        if isinstance(value, (bool, str)) or (type(value) is int and abs(value) <= _LARGEST_MODE):
            found.add((argument.name, str(value)))
        elif may_be_missing:
            found.add((argument.name, "missing" if value is None else "given"))
    return found


def _is_thin(sample: Sample) -> bool:
    """Along a dimension of size 1 nothing is added up."""
    return any(1 in one.shape for one in tensors_in(sample.make()))


def _form(sample: Sample) -> str:
    return str(with_tensors(sample.make(), lambda tensors: [tuple(one.shape) for one in tensors]))


def _dimensions(sample: Sample) -> int:
    return next((one.ndim for one in tensors_in(sample.make())), 0)


def _elements(sample: Sample) -> int:
    return sum(one.numel() for one in tensors_in(sample.make()))


def _accepts(sample: Sample) -> bool:
    """Whether stock computes it; what is large is not asked."""
    try:
        positional, named = sample.make()
        if sum(one.numel() for one in tensors_in((positional, named))) > _MOST_ELEMENTS:
            return False
        sample.call(*positional, **named)
    except Exception:
        return False
    return True


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


def _products(op: Any, device: str) -> Iterator[Sample]:
    import torch

    for name, (m, k, n) in _PRODUCTS.items():

        def make(m: int = m, k: int = k, n: int = n) -> Operands:
            return [torch.randn(m, k, device=device), torch.randn(k, n, device=device)], {}

        yield Sample(USUAL if not name else SIZES, name, make, op)


def _batches(op: Any, device: str) -> Iterator[Sample]:
    """Each batch is other products."""
    import torch

    for sample in _products(op, device):

        def make(sample: Sample = sample) -> Operands:
            batch = [sample.make()[0] for _ in range(3)]
            return [torch.stack(matrices) for matrices in zip(*batch, strict=True)], {}

        yield replace(sample, make=make)


def _sums(op: Any, device: str) -> Iterator[Sample]:
    import torch

    for name, (m, k, n) in _PRODUCTS.items():

        def make(m: int = m, k: int = k, n: int = n) -> Operands:
            matrices = torch.randn(m, k, device=device), torch.randn(k, n, device=device)
            return [torch.randn(n, device=device), *matrices], {}

        yield Sample(USUAL if not name else SIZES, name, make, op)

    def scaled(bias: tuple[int, ...], **factors: float) -> Callable[[], Operands]:
        def make() -> Operands:
            matrices = torch.randn(_M, _K, device=device), torch.randn(_K, _N, device=device)
            added = torch.randn(bias, device=device)
            return [added * float("nan") if not factors.get("beta", 1) else added, *matrices], factors

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
        yield Sample(SIZES, name, scaled(bias, **factors), op)


def _cats(op: Any, device: str) -> Iterator[Sample]:
    import torch

    def make() -> Operands:
        return [[torch.randn(6, 8, 4, 5, device=device) * 50 for _ in range(2)], 1], {}

    def of(*shapes: tuple[int, ...], dim: int = 0) -> Callable[[], Operands]:
        return lambda: ([[torch.randn(shape, device=device) for shape in shapes], dim], {})

    yield Sample(USUAL, "", make, op)
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
        yield Sample(SIZES, name, made, op)


def _grus(op: Any, device: str) -> Iterator[Sample]:
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

    yield Sample(USUAL, "", of(5, 3), op)
    for name, made in {
        "without bias": of(5, 3, bias=False),
        "one step": of(1, 3),
        "one sequence": of(5, 1),
        "two layers": of(5, 3, num_layers=2),
        "long": of(70, 2),
    }.items():
        yield Sample(SIZES, name, made, op)


def _number(place: int) -> float:
    """1, 1.5, 2, ...: a lower limit is below an upper one."""
    return 1 + place / 2


_DRAWN: dict[str, Callable[[Any, str, int], Any]] = {
    "Tensor": lambda torch, device, _: torch.randn(3, 4, device=device),
    "List[Tensor]": lambda torch, device, _: [torch.randn(3, 4, device=device) for _ in range(2)],
    "List[int]": lambda *_: [1, 1],
    "List[bool]": lambda *_: [True, True, True],
    "List[float]": lambda *_: [0.5, 1.5],
    "List[number]": lambda *_: [0.5, 1.5],
    "ScalarType": lambda torch, *_: torch.float32,
    "str": lambda *_: "mean",
    "int": lambda *_: 1,
    "float": lambda *_: 0.5,
    "number": lambda torch, device, place: _number(place),
    "bool": lambda *_: False,
}


def _by_schema(op: Any, device: str) -> Iterator[Sample]:
    """Calls with what the schema asks for, and with all numbers and tensors that it takes."""
    import torch

    def make(whole: bool = False) -> Operands:
        positional, named = [], {}
        for place, argument in enumerate(op._schema.arguments):
            kind = str(argument.real_type)
            value = argument.default_value
            if whole or not (argument.has_default_value() or kind.startswith(OPTIONAL)):
                draw = _DRAWN.get(kind[len(OPTIONAL) : -1] if kind.startswith(OPTIONAL) else kind)
                value = draw(torch, device, place) if draw else value
            if argument.kwarg_only:
                named[argument.name] = value
            else:
                positional.append(value)
        return positional, named

    yield Sample(USUAL, "", make, op)
    yield Sample(USUAL, "all arguments", lambda: make(whole=True), op)


_LISTS: dict[str, Callable[[Any, str], Iterator[Sample]]] = {
    "aten::mm": _products,
    "aten::bmm": _batches,
    "aten::addmm": _sums,
    "aten::cat": _cats,
    "aten::gru": _grus,
}
