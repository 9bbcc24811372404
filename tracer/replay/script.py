"""The reproduction of an op call as a short Python file that needs torch only."""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Sequence
from typing import Any

from tracer.analysis.recorded_call import RecordedCall
from tracer.base.boundary import device, literal, operator, word
from tracer.base.visible import LONGEST, visible
from tracer.replay import recipe
from tracer.replay.arguments import Constant, Device, Dtype, TensorPlan
from tracer.replay.call import SEED, Call, autocast_device
from tracer.replay.make import integers_below

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
    begin = [
        "import time",  # Python looks for the file's encoding in comments of its first two lines
        "import torch",
        *map(_import, modules),
        "",
        _recipe(),
        _comment(
            f"{call.name}{at}, recorded with torch {recorded.torch or 'unknown'}. The values are random."
        ),
        f"torch.manual_seed({SEED})",
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
        words = [_numbers(value.shape), _numbers(value.stride), f"torch.{word(value.dtype, 'a dtype')}"]
        if value.device != "cpu":
            words.append(f'"{device(value.device)}"')
        if not value.dtype.startswith(("float", "bfloat", "complex", "bool")) and below != 2:
            words.append(f"below={below}")
        made = f"tensor({', '.join(words)})" + ".conj()" * value.conjugate
        made = f"torch._neg_view({made})" if value.negative else made
        return made + ".requires_grad_()" * (value.requires_grad and not value.written)
    if isinstance(value, (Dtype, Constant)):
        return f"torch.{word(value.name, 'a name')}"
    if isinstance(value, Device):
        return f'torch.device("{device(value.name)}")'
    return literal(value)


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


def _recipe() -> str:
    source = (
        inspect.getsource(recipe.tensor).replace("    import torch\n\n", "").replace("  # noqa: B905", "")
    )
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
