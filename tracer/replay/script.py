"""The reproduction of an op call as a short Python file that needs torch only."""

from __future__ import annotations

import inspect
import keyword
import os
import re
from collections.abc import Sequence
from typing import Any

from tracer.analysis.recorded_call import RecordedCall
from tracer.base.boundary import device, literal, operator, word
from tracer.base.visible import LONGEST, visible
from tracer.replay import recipe
from tracer.replay.arguments import Constant, Device, Dtype, FromFile, TensorPlan
from tracer.replay.call import SEED, Call, autocast_device
from tracer.replay.make import integers_below, memories, plans

_ANNOTATION = re.compile(r": Any\b| -> Any|: (?:str|int)(?= = )")
_TIMED = """\
for turn in range({turns}):
    if turn == 10:  # it is warm
        {wait}begin = time.perf_counter()
    {call}
{wait}print(f"{{(time.perf_counter() - begin) * 1e4:.1f}} us a call, torch {{torch.__version__}}")
"""
_PROFILED = """\
{call}
torch.cuda.synchronize()
torch.cuda.profiler.start()
{call}
torch.cuda.synchronize()
torch.cuda.profiler.stop()
"""
_TURNS = 110


def script_of(
    recorded: RecordedCall, call: Call, modules: Sequence[str] = (), *, profiled: bool = False
) -> str:
    """Makes the arguments, and times the call. `profiled`: one call for Nsight Compute, not timed.

    `modules` are imported after torch: the user's, and no text of the trace.
    """
    at = f" of {recorded.line}" if recorded.line else ""
    below = integers_below(call.values)
    by_position = [(a.name, code_of(a.value, below)) for a in call.arguments if not a.keyword]
    by_name = [f"{word(a.name, 'a name')}={code_of(a.value, below)}" for a in call.arguments if a.keyword]
    called = f"result = {_function(call)}({', '.join(['*arguments', *by_name])})"
    guard = _guard(call.key)
    shared = [
        f"shared{int(number)} = tensor({_numbers((memory.elements,))}, (1,), {_dtype(memory.dtype)}"
        f"{_on(memory.device)}{_below(memory.dtype, below)})"
        for number, memory in sorted(memories(call.values).items())
    ]
    begin = [
        "import time",  # Python looks for the file's encoding in comments of its first two lines
        "import torch",
        *map(_import, modules),
        "",
        *map(_recipe, [recipe.tensor, *[recipe.fitted] * any(plan.fit for plan in plans(call.values))]),
        _comment(
            f"{call.name}{at}, recorded with torch {recorded.torch or 'unknown'}. The values are random."
        ),
        f"torch.manual_seed({SEED})",
        *shared,
        "arguments = [",
        *(f"    {code},  {_comment(name)}" for name, code in by_position),
        "]",
    ]
    if guard:  # until the end of the program
        begin.append(f"guard = {guard}; guard.__enter__()")
    wait = "torch.cuda.synchronize(); " if any(name.startswith("cuda") for name in call.devices) else ""
    end = (_PROFILED if profiled else _TIMED).format(wait=wait, call=called, turns=_TURNS)
    return "\n".join(begin) + "\n" + end


def code_of(value: Any, below: int) -> str:
    """The planned value as Python: words of a known form, and literals."""
    if isinstance(value, list):
        return f"[{', '.join(code_of(element, below) for element in value)}]"
    if isinstance(value, TensorPlan):
        made = _tensor(value, below)
        made = f"fitted({made}, {literal(value.fit)})" if value.fit else made
        made += ".conj()" * value.conjugate
        made = f"torch._neg_view({made})" if value.negative else made
        return made + ".requires_grad_()" * (value.requires_grad and not value.written)
    if isinstance(value, FromFile):
        made = f"torch.load({literal(os.path.abspath(value.path))}, weights_only=True)"
        made += "" if value.place is None else f"[{int(value.place)}]"
        made += f".detach().to({literal(device(value.device))})"
        return made + ".requires_grad_()" * (value.requires_grad and not value.written)
    if isinstance(value, (Dtype, Constant)):
        return f"torch.{word(value.name, 'a name')}"
    if isinstance(value, Device):
        return f'torch.device("{device(value.name)}")'
    return literal(value)


def _tensor(plan: TensorPlan, below: int) -> str:
    size, stride, dtype = _numbers(plan.shape), _numbers(plan.stride), _dtype(plan.dtype)
    if plan.memory is None:
        return f"tensor({size}, {stride}, {dtype}{_on(plan.device)}{_below(plan.dtype, below)})"
    number, before = map(int, plan.memory)
    return f"shared{number}.view({dtype}).as_strided({size}, {stride}, {before})"


def _dtype(name: str) -> str:
    return f"torch.{word(name, 'a dtype')}"


def _on(name: str) -> str:
    return "" if name == "cpu" else f', "{device(name)}"'


def _below(dtype: str, below: int) -> str:
    wide = dtype.startswith(("float", "bfloat", "complex", "bool"))
    return "" if wide or below == 2 else f", below={below}"


def _comment(text: str) -> str:
    return f"# {visible(text, LONGEST)}"


def _numbers(values: tuple[int, ...]) -> str:
    return str(tuple(map(int, values)))


def _function(call: Call) -> str:
    space, base, overload = operator(call.name)
    if keyword.iskeyword(overload):  # aten::random_.from
        return f'getattr(torch.ops.{space}.{base}, "{overload}")'
    return f"torch.ops.{space}.{base}.{overload}"


def _import(module: str) -> str:
    names = module.split(".")
    plain = all(name.isidentifier() and not keyword.iskeyword(name) for name in names)
    return f"import {module}" if plain else f"__import__({module!r})"


def _recipe(function: Any) -> str:
    source = inspect.getsource(function).replace("    import torch\n\n", "").replace("  # noqa: B905", "")
    return _ANNOTATION.sub("", source).replace("device = ", "device=").replace("below = ", "below=")


def _guard(key: str) -> str:
    """What the call needs around it to begin at this key."""
    if key.startswith("Autocast"):
        return f'torch.autocast("{autocast_device(key)}")'
    if key == "ADInplaceOrView":
        return "torch._C._AutoDispatchBelowAutograd()"
    return (
        ""
        if key.startswith(("Autograd", "BackendSelect"))
        else "torch._C._AutoDispatchBelowADInplaceOrView()"
    )
