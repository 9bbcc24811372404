"""The arguments of a recorded op call, by its schema: what each is, or why it cannot be rebuilt."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tracer.analysis.recorded_call import RecordedCall, RecordedTensor
from tracer.base.boundary import (
    DEEPEST,
    NotInTorchError,
    StrangeTextError,
    device,
    saved_tensors,
    torch_dtype,
    value,
)
from tracer.replay.replay_errors import CannotReplayError, WrongOptionError

_OBJECTS = re.compile(r"\b(?:Dict|__torch__|Storage|Stream|Future|RRef|Tuple|PyObject)\b", re.ASCII)
_LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "_mkldnn")
_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
PLAIN_KEYS = re.compile(
    r"Autograd\w*|Autocast\w*|ADInplaceOrView|BackendSelect|Composite\w+|Undefined|CPU|CUDA|Meta|HIP|XPU|MPS|"
    r"PrivateUse1|Quantized\w+|Mkldnn\w+",
    re.ASCII,
)
"""Keys that a tensor, a mode of autograd or autocast bring: a call at another key needs what brought it"""
_OF_TENSORS = re.compile(PLAIN_KEYS.pattern + r"|Conjugate|Negative", re.ASCII)


Refuse = Callable[[str], CannotReplayError]


@dataclass(frozen=True)
class TensorPlan:
    """A tensor to make. `dtype`: `float32`. `written`: the op writes into it.

    memory   which memory of the call it shares with others, and the elements before its first one there
    fit      what its values must be for the operator (see fitting.py); "": any
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    device: str
    requires_grad: bool
    conjugate: bool
    negative: bool
    written: bool
    memory: tuple[int, int] | None = None
    fit: str = ""

    @property
    def elements(self) -> int:
        """How many elements of memory it spans, from its first to its last."""
        if not all(self.shape):
            return 0
        return 1 + sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))


@dataclass(frozen=True)
class FromFile:
    """A tensor that the user gave: that of a file, or element `place` of the list in it."""

    path: str
    place: int | None
    device: str
    text: str
    requires_grad: bool
    written: bool


@dataclass(frozen=True)
class Argument:
    """`value`: a TensorPlan or FromFile, a list of such and None, or a value of Python (see script.code_of).

    `given`: recorded, default (not recorded, the schema's default), user, or dropped (it cannot be rebuilt
    and may be left out, such as a generator).
    """

    name: str
    value: Any
    given: str
    keyword: bool


@dataclass(frozen=True)
class Dtype:
    name: str


@dataclass(frozen=True)
class Device:
    name: str


@dataclass(frozen=True)
class Constant:
    """`channels_last`"""

    name: str


def plan_arguments(call: RecordedCall, schema: Any, given: dict[str, str]) -> list[Argument]:
    """By the schema of the installed torch; `given` are values of the user, by the argument's name.

    Raises CannotReplayError: which argument, and why; StrangeTextError if tracer writes no such value.
    """
    if call.tensors is None:
        raise CannotReplayError(
            f"the arguments of hop {call.call} ({call.op}) were not recorded; record without --no-shapes"
        )
    names = [argument.name for argument in schema.arguments]
    for name in given:
        if name not in names:
            raise WrongOptionError(f"{call.op} has no argument {name!r}; it has {', '.join(names)}")
    found = [
        _argument(call, argument, position, given.get(argument.name))
        for position, argument in enumerate(schema.arguments)
    ]
    for key in (call.key, call.runs_at):
        if not PLAIN_KEYS.fullmatch(key):
            raise CannotReplayError(
                f"hop {call.call} ({call.op}) ran at the key {key}, which needs what brought it "
                "(a transform or a mode); replay a hop below it"
            )
    return found


def _argument(call: RecordedCall, argument: Any, position: int, given: str | None) -> Argument:
    name = f"argument {position} {argument.name!r} of {call.op}"
    try:
        return _planned(call, argument, position, given, name)
    except NotInTorchError as error:
        raise CannotReplayError(f"{name}: {error}") from None
    except StrangeTextError as error:
        raise StrangeTextError(f"{name}: {error}") from None


def _planned(call: RecordedCall, argument: Any, position: int, given: str | None, name: str) -> Argument:
    def refuse(why: str) -> CannotReplayError:
        return CannotReplayError(f"{name} {why}")

    kind = str(argument.real_type)
    keyword = bool(argument.kwarg_only)
    written = argument.alias_info is not None and argument.alias_info.is_write
    tensors = (call.tensors or {}).get(position, [])
    recorded = None if call.scalars is None else call.scalars.get(position)
    if what := object_text(kind):
        if call.scalars is not None and position in call.scalars and recorded is None:
            return Argument(argument.name, None, "recorded", keyword)
        if given is None and call.scalars is None and argument.has_default_value():
            return Argument(argument.name, argument.default_value, "default", keyword)
        raise refuse(f"is {what}, whose content is not recorded; no --arg can give it")
    if given is not None and given.startswith("@") and "Tensor" in kind:
        return Argument(argument.name, _from_file(given[1:], kind, name, tensors, written), "user", keyword)
    if given is not None:
        return Argument(argument.name, _from_user(given, kind, name), "user", keyword)
    if "Tensor" in kind:
        plans = [_plan(tensor, written, refuse) for tensor in tensors]
        if "List" not in kind:
            return Argument(argument.name, plans[0] if plans else None, "recorded", keyword)
        if call.cut:
            raise refuse("is in a call with 64 tensors or more, and tracer records 64 of a call")
        return Argument(argument.name, _listed(plans, recorded, kind, refuse), "recorded", keyword)
    if isinstance(recorded, dict) and "unknown" in recorded:
        if recorded["unknown"] == "Generator":
            return Argument(argument.name, None, "dropped", keyword)
        raise refuse(f"({recorded['unknown']}) is not recorded; give it: --arg {argument.name}=VALUE")
    if call.scalars is not None and position in call.scalars:
        return Argument(argument.name, _typed(recorded, kind), "recorded", keyword)
    if argument.has_default_value():
        return Argument(argument.name, _typed(argument.default_value, kind), "default", keyword)
    raise refuse(
        f"({kind}) was not recorded; record with --values scalars, or give it: --arg {argument.name}=VALUE"
    )


def object_text(kind: str) -> str:
    """What an argument of this type is, if it is more than tensors, numbers and texts; else ""."""
    if found := _OBJECTS.search(kind):
        what = {"Dict": "a dictionary", "__torch__": "a script object"}.get(found[0], "an object")
        return f"{what} ({kind.removeprefix('__torch__.torch.classes.')})"
    return ""


def _plan(tensor: RecordedTensor, written: bool, refuse: Refuse) -> TensorPlan | None:
    if tensor.undefined:
        return None
    if tensor.layout not in (None, "torch.strided", "strided"):
        raise refuse(f"is a tensor of layout {tensor.layout}, whose inner tensors are not recorded")
    other = [key for key in tensor.keys if not _OF_TENSORS.fullmatch(key)]
    if other:
        raise refuse(f"is a tensor with the key {other[0]}, whose content is not recorded")
    if tensor.shape is None or tensor.dtype is None or tensor.device is None:
        raise refuse("is a tensor whose shape was not recorded (symbolic, nested, or of a Python class)")
    if "Quantized" in " ".join(tensor.keys) or tensor.dtype.removeprefix("torch.").startswith("q"):
        raise refuse(f"is a quantized tensor ({tensor.dtype}), whose scale is not recorded")
    stride = _contiguous(tensor.shape) if tensor.stride is None else tensor.stride
    if len(stride) != len(tensor.shape) or min((*tensor.shape, *stride), default=0) < 0:
        raise StrangeTextError(f"no tensor has the shape {tensor.shape} with the strides {stride}")
    dtype = tensor.dtype.removeprefix("torch.")
    item = torch_dtype(dtype).itemsize
    return TensorPlan(
        shape=tensor.shape,
        stride=stride,
        dtype=dtype,
        device=device(tensor.device),
        requires_grad=tensor.requires_grad,
        conjugate="Conjugate" in tensor.keys,
        negative="Negative" in tensor.keys,
        written=written,
        memory=_memory(tensor.memory, item, refuse),
    )


def _memory(recorded: Any, item: int, refuse: Refuse) -> tuple[int, int] | None:
    """The number of a memory, and the elements of `item` bytes before the first one."""
    match recorded:
        case None:
            return None
        case [int(number), int(offset)] if number >= 0 and offset >= 0:
            if offset % item:
                raise refuse("shares memory, and begins there within an element")
            return number, offset // item
    raise StrangeTextError(f"no memory of a call is {recorded}")


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[place + 1 :]) for place in range(len(shape)))


def _listed(plans: list[TensorPlan | None], recorded: Any, kind: str, refuse: Refuse) -> Any:
    """The tensors of a list, with None where it had None."""
    if not isinstance(recorded, dict) or "tensors" not in recorded:
        if "Optional[Tensor]" in kind:
            raise refuse("is a list with None in it, perhaps; record with --values scalars")
        return plans or None if kind.startswith("Optional") else plans
    there = recorded["tensors"]
    if not isinstance(there, list) or sum(map(bool, there)) != len(plans):
        raise refuse(f"is a list of tensors, but not just the {len(plans)} that were recorded")
    waiting = iter(plans)
    return [next(waiting) if one else None for one in there]


def _typed(recorded: Any, kind: str, depth: int = 0) -> Any:
    """A recorded value as the schema's type has it."""
    match recorded:
        case list() if depth < DEEPEST:
            return [_typed(element, kind, depth + 1) for element in recorded]
        case {"complex": [int() | float() as real, int() | float() as imaginary]}:
            return complex(real, imaginary)
        case {"device": str(name)}:
            return Device(device(name))
        case int(number) if "ScalarType" in kind:
            return Dtype(_named(_dtype_names(), number, "dtype"))
        case int(number) if "MemoryFormat" in kind:
            return Constant(_named(dict(enumerate(_FORMATS)), number, "memory format"))
        case int(number) if "Layout" in kind:
            return Constant(_named(dict(enumerate(_LAYOUTS)), number, "layout"))
    return value(recorded)


def _named(known: dict[int, str], number: int, what: str) -> str:
    if number not in known:
        raise StrangeTextError(f"no {what} of torch has the number {number}")
    return known[number]


def _dtype_names() -> dict[int, str]:
    """torch's number of each dtype; the numbers are part of its file formats, so they stay."""
    from tracer.base import extension

    return {
        int(number): str(name).removeprefix("torch.")
        for number, name in extension.load().enums()["dtypes"].items()
    }


def _from_file(path: str, kind: str, name: str, recorded: list[RecordedTensor], written: bool) -> Any:
    """Of a file that torch.save wrote: a tensor, or a list of them. Raises WrongOptionError."""
    import pickle

    import torch

    try:
        there = saved_tensors(path)
    except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise WrongOptionError(f"{name}: cannot read {path}: {first}") from None
    several = isinstance(there, (list, tuple)) and "List" in kind
    tensors = list(there) if several else [there]
    if not all(isinstance(one, torch.Tensor) for one in tensors) or several != ("List" in kind):
        wanted = "a list of tensors" if "List" in kind else "one tensor"
        raise WrongOptionError(f"{name} needs {wanted} from {path}: torch.save(VALUE, {path!r})")
    like = recorded[0] if recorded else None
    found = [
        FromFile(
            path,
            place if several else None,
            "cpu" if like is None or like.device is None else device(like.device),
            f"{one.dtype} {list(one.shape)}".removeprefix("torch."),
            bool(like and like.requires_grad and (one.is_floating_point() or one.is_complex())),
            written,
        )
        for place, one in enumerate(tensors)
    ]
    return found if several else found[0]


def _from_user(text: str, kind: str, name: str) -> Any:
    """Raises WrongOptionError."""
    import ast

    word = text.removeprefix("torch.")
    if "ScalarType" in kind and word in _dtype_names().values():
        return Dtype(word)
    if "MemoryFormat" in kind and word in _FORMATS:
        return Constant(word)
    try:
        if "Device" in kind:
            return Device(device(text))
        found = ast.literal_eval(text)
        if "Tensor" in kind and found is not None:
            raise ValueError
        return value(list(found) if isinstance(found, tuple) else found)
    except (ValueError, SyntaxError, RecursionError):
        if "str" in kind:
            return text
        instead = (
            "@FILE.pt, which torch.save wrote" if "Tensor" in kind else "a number, a list such as [1,1], True"
        )
        raise WrongOptionError(f"{name} ({kind}) cannot be {text!r}; give {instead} or None") from None
