"""Calls with other arguments beside tensors, and the forms of an operator: in place, with buffers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from math import prod
from random import Random
from typing import Any

from tracer.compare.trial_samples import (
    ERRORS,
    SHARED,
    SIZES,
    USUAL,
    Operands,
    Sample,
    tensors_in,
    with_other_forms,
    with_other_numbers,
)

ARGUMENTS, BUFFERS, NUMBERS = "other arguments", "buffers for results", "numbers for tensors"
OPTIONAL = "Optional["
_SINGLE = ("number", "float", "bool", "str")
_BESIDE_NUMBERS = ("Tensor", *_SINGLE, *(f"Optional[{kind}]" for kind in _SINGLE))
_BESIDE_FORMS = ("bool", "int", "str", "Optional[int]", "Optional[str]")
MAYBE_TENSOR = f"{OPTIONAL}Tensor]"


def other_arguments(base: Sample, kinds: Collection[str] = ()) -> Iterator[Sample]:
    """Every argument that is no tensor, one at a time, with other values of its type; other lists.

    kinds   of types: only of these
    """
    schema = getattr(base.call, "_schema", None)
    if schema is None:
        return
    positional, named = base.make()
    types = [str(argument.real_type) for argument in schema.arguments]
    # A flag may ask for a tensor that is not there: stock's native_batch_norm reads address 0 then.
    left_alone = {"bool", MAYBE_TENSOR} if {"bool", MAYBE_TENSOR} <= set(types) else set()
    for place, (argument, kind_of) in enumerate(zip(schema.arguments, types, strict=True)):
        if kind_of in left_alone or (kinds and kind_of not in kinds):
            continue
        given = place < len(positional)
        value = positional[place] if given else named.get(argument.name, argument.default_value)
        known = [*_others(kind_of, value)]
        if kind_of == "Tensor" and place and not argument.alias_info:  # x * 2.5
            known = [(NUMBERS, f"= {one}", one) for one in (2.5, 3, True)]
        if isinstance(value, list) and tensors_in(value):
            known = [*_lists(value, MAYBE_TENSOR in kind_of)]
        for kind, name, other in known:
            yield _with(base, kind, place if given else argument.name, other, f"{argument.name} {name}")


def arguments_beside_others(base: Sample) -> Iterator[Sample]:
    """Other tensors, and other arguments beside them: numbers, flags, words, dimensions."""
    for changed in with_other_numbers(base):
        yield changed
        yield from other_arguments(changed, _BESIDE_NUMBERS)
    for changed in with_other_forms(base):
        yield from other_arguments(changed, _BESIDE_FORMS)


_TOGETHER = 48


def arguments_together(base: Sample) -> Iterator[Sample]:
    """All arguments beside tensors at once: an end before its start, a flag beside a negative number."""
    schema = getattr(base.call, "_schema", None)
    if schema is None:
        return
    positional, named = base.make()
    known: list[tuple[int | str, str, list[Any]]] = []
    for place, argument in enumerate(schema.arguments):
        given = place < len(positional)
        value = positional[place] if given else named.get(argument.name, argument.default_value)
        kind = str(argument.real_type)
        kind = kind[len(OPTIONAL) : -1] if kind.startswith(OPTIONAL) else kind
        if kind in _DRAWN_TOGETHER:
            others = [one for one in _DRAWN_TOGETHER[kind] if type(one) is not type(value) or one != value]
            known.append((place if given else argument.name, argument.name, [value, *others]))
    types = {str(argument.real_type) for argument in schema.arguments}
    if len(known) < 2 or {"bool", MAYBE_TENSOR} <= types:
        return
    draws = Random(0)
    for _ in range(_TOGETHER):
        chosen = [(place, name, draws.choice(values)) for place, name, values in known]

        def make(chosen: list[tuple[int | str, str, Any]] = chosen) -> Operands:
            positional, named = base.make()
            at = {place: value for place, _, value in chosen}
            return [at.get(n, one) for n, one in enumerate(positional)], named | {
                place: value for place, value in at.items() if isinstance(place, str)
            }

        yield base.titled(ARGUMENTS, ", ".join(f"{name} = {value}" for _, name, value in chosen), make)


def _with(base: Sample, kind: str, place: int | str, other: Any, name: str) -> Sample:
    def make() -> Operands:
        positional, named = base.make()
        value = other() if callable(other) else other
        if isinstance(place, str):
            return positional, named | {place: value}
        return [*positional[:place], value, *positional[place + 1 :]], named

    return base.titled(kind, name, make)


def _others(kind: str, value: Any) -> Iterator[tuple[str, str, Any]]:
    if kind.startswith(OPTIONAL):
        if value is not None:
            yield ARGUMENTS, "None", None
        kind = kind[len(OPTIONAL) : -1]
    for other in _VALUES[kind](value) if kind in _VALUES else ():
        if type(other) is not type(value) or other != value:
            large = isinstance(other, int) and abs(other) == _FAR
            name = f": {other.__name__}" if callable(other) else f"= {other}"
            yield ERRORS if large else ARGUMENTS, name, other


_FAR = 97
"""Beyond each size, and a multiple of none"""
_WORDS = ("", "none", "tanh", "floor", "trunc", "mean", "sum", "constant", "reflect", "bilinear", "reduced")
_WIDE = 2**53 + 1
"""No float64 has it"""
_MANY = 1500
_FEW = (0, 1, 2, 3, -1)
_NUMBERS = (*_FEW, -_FAR, _FAR, _WIDE, 0.5, -1.5, 2.0, 3.0, 1e30, float("nan"), float("inf"), True)
_DRAWN_TOGETHER: dict[str, tuple[Any, ...]] = {
    "int": (*_FEW, -2),
    "bool": (False, True),
    "float": (0.0, 0.5, 1.0, 2.0, -1.5),
    "number": (*_FEW, -2, 7, 0.5, 2.0, -1.5),
}


def _near(value: Any) -> list[Any]:
    near = [value + 1] if isinstance(value, int) else []
    return list(dict.fromkeys((*near, *_FEW, -2, -3, _MANY, _FAR, -_FAR)))


def _vectors(value: Any) -> list[Any]:
    """Of integers: sizes, dimensions, strides..."""
    given = list(value) if isinstance(value, (list, tuple)) else [0, 1]
    others = [
        [one + 1 for one in given],
        [one * 2 + 1 for one in given],
        given[::-1],
        [],
        given[:1],
        [0] * len(given),
        [-1] * len(given),
        [-1 - n for n in range(len(given))],
        [-2, -1],
        [_FAR] * len(given),
        [-_FAR] * len(given),
        [*given, 1],
        [0, 0],
    ]
    return [one for n, one in enumerate(others) if one not in others[:n]]


def _real_vectors(value: Any) -> list[Any]:
    given = list(value or [0.5])
    return [[one * 2 + 1.5 for one in given], given[::-1], [0.0] * len(given), [], [-1.5] * len(given)]


def _formats(_: Any) -> list[Any]:
    import torch

    return [torch.contiguous_format, torch.preserve_format, torch.channels_last]


def _generators(_: Any) -> list[Any]:
    """One that each call finds as it was."""
    import torch

    def generator() -> Any:
        return torch.Generator().manual_seed(11)

    return [generator]


def _dtypes(_: Any) -> list[Any]:
    import torch

    return [
        torch.float64,
        torch.float32,
        torch.bfloat16,
        torch.int64,
        torch.int8,
        torch.bool,
        torch.complex64,
    ]


_VALUES: dict[str, Callable[[Any], Any]] = {
    "int": _near,
    "bool": lambda value: [not value],
    "float": lambda _: [float(one) for one in _NUMBERS],
    "number": lambda _: _NUMBERS,
    "ScalarType": _dtypes,
    "str": lambda _: _WORDS,
    "List[int]": _vectors,
    "Generator": _generators,
    "List[bool]": lambda value: [[not one for one in value or ()]],
    "List[float]": _real_vectors,
    "List[number]": _real_vectors,
    "MemoryFormat": _formats,
}


def _lists(value: list[Any], may_be_none: bool) -> Iterator[tuple[str, str, Any]]:
    """Lists of tensors."""
    first = next(iter(tensors_in(value)))
    empty = first.new_empty(0)
    yield ERRORS, ": an empty list", []
    yield SIZES, ": a list of one", value[:1]
    yield SIZES, f": a list of {130 * len(value)}", value * 130
    yield SIZES, ": in the other order", value[::-1]
    yield SHARED, ": one and a part of it", [first, first[:1] if first.ndim else first]
    yield SHARED, ": one thrice", [first] * 3
    yield SIZES, ": a legacy empty one first", [empty, *value]
    yield SIZES, ": a legacy empty one last", [*value, empty]
    if may_be_none:
        yield ARGUMENTS, ": none first", [None, *value]
        yield ARGUMENTS, ": none between one and itself", [first, None, first]


# ---- the forms of an operator -----------------------------------------------------------------------
def plain_form(op: Any) -> Any:
    """`add.Tensor` of `add_.Tensor` and of `add.out`; the operator itself where there is no such one."""
    import torch

    space, _, name = op._schema.name.partition("::")
    packet = getattr(getattr(torch.ops, space), name.rstrip("_") if _in_place(op) else name, None)
    overloads = packet.overloads() if packet is not None else ()
    known = (getattr(packet, one) for one in overloads)
    return next((one for one in known if not _writes(one) and _taken(one) == _taken(op)), op)


def _writes(op: Any) -> bool:
    return any(argument.alias_info and argument.alias_info.is_write for argument in op._schema.arguments)


def _in_place(op: Any) -> bool:
    return _writes(op) and not _buffers(op)


def _buffers(op: Any) -> list[Any]:
    return [argument for argument in op._schema.arguments if argument.is_out]


def _taken(op: Any) -> list[tuple[str, str]]:
    return [(one.name, str(one.type)) for one in op._schema.arguments if not one.is_out]


def in_form_of(op: Any, sample: Sample) -> Iterator[Sample]:
    """A call of the plain form as calls of this one: with each kind of buffer, if it takes any."""
    if sample.call is op:
        yield sample
    elif not (buffers := _buffers(op)):
        yield Sample(sample.kind, sample.name, sample.make, op)
    elif all(str(buffer.type) == "Tensor" for buffer in buffers):
        names = [buffer.name for buffer in buffers]
        for title, change in _BUFFERS.items() if sample.kind == USUAL else [*_BUFFERS.items()][:1]:
            kind = BUFFERS if title else sample.kind
            yield Sample(kind, _joined(sample.name, title), _with_buffers(sample, names, change), op)


def _joined(*names: str) -> str:
    return ", ".join(filter(None, names))


def _with_buffers(
    sample: Sample, names: list[str], change: Callable[[Any, list[Any]], Any]
) -> Callable[[], Operands]:
    def make() -> Operands:
        positional, named = sample.make()
        results = tensors_in(sample.call(*positional, **named))
        inputs = tensors_in((positional, named))
        buffers = [change(result.new_zeros(result.shape), inputs) for result in results]
        return positional, named | dict(zip(names, buffers, strict=False))

    return make


def _reordered(out: Any, inputs: list[Any]) -> Any:
    """The first dimension is the fastest."""
    first = inputs[0] if inputs else None
    if out.ndim < 2 or first is None or first.dtype != out.dtype or first.numel() != out.numel():
        return out
    strides = [prod(out.shape[:n]) for n in range(out.ndim)]
    return first.as_strided(out.shape, strides) if first.is_contiguous() else out


_BUFFERS: dict[str, Callable[[Any, list[Any]], Any]] = {
    "": lambda out, _: out,
    "an empty buffer": lambda out, _: out.new_empty(0),
    "a larger buffer": lambda out, _: out.new_zeros((*out.shape, 2)),
    "a buffer of float64": lambda out, _: out.double(),
    "a buffer of int64": lambda out, _: out.long(),
    "a buffer that is not contiguous": lambda out, _: out.new_ones((*out.shape, 2))[..., 0],
    "a buffer of stride 0": lambda out, _: out.new_zeros(()).expand(out.shape),
    "a buffer that requires gradients": lambda out, _: (
        out.requires_grad_() if out.is_floating_point() else out
    ),
    "an input as buffer": lambda out, inputs: inputs[0] if inputs else out,
    "an input's memory in another order as buffer": lambda out, inputs: _reordered(out, inputs),
    "a part of an input as buffer": lambda out, inputs: inputs[0][:1] if inputs and inputs[0].ndim else out,
}
