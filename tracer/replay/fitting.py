"""Values that an operator takes, if random ones raise or give NaN: probabilities, sorted, definite..."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from tracer.analysis.recorded_call import RecordedCall
from tracer.base.boundary import torch_operator
from tracer.replay.allowed import check_allowed
from tracer.replay.arguments import Argument, TensorPlan, plan_arguments
from tracer.replay.call import Call, runner, why_not_here
from tracer.replay.make import plans, tensors_in
from tracer.replay.memory import is_for_want_of_memory
from tracer.replay.replay_errors import CannotReplayError
from tracer.replay.samples import fits_of

_BY_NAME = {"sorted_sequence": "sorted", "boundaries": "sorted"}
"""A wrong result does not say that these are not sorted"""
_PROBABILITIES, _LENGTHS = "between 0 1", "least 1, descending"
_MATRICES = ("definite", "lower", "upper")

Watching = Callable[[str], AbstractContextManager[object]]


def rebuilt(
    recorded: RecordedCall,
    watching: Watching,
    given: dict[str, str] | None = None,
    *,
    imported: bool = False,
    unsafe: bool = False,
) -> Call:
    """The recorded call with values that it takes; `given` are the user's, by the argument's name.

    Raises CannotReplayError: it cannot be made again, or its operator is not torch's, or may open files or
    run code, and the user did not allow that; NotInTorchError, StrangeTextError and WrongOptionError.
    """
    op = torch_operator(recorded.op)
    check_allowed(op, imported=imported, unsafe=unsafe)
    call = Call(op, plan_arguments(recorded, op._schema, given or {}), recorded.runs_at)
    return with_fitting_values(call, watching)


def with_fitting_values(call: Call, watching: Watching) -> Call:
    """The call with values that it takes, if random ones raise or give NaN; else the call as it is."""
    call = _fitted(call, _BY_NAME)
    if not any(True for _ in plans(call.values)) or why_not_here(call) or _works(call):
        return call
    with watching(f"reading torch's own samples of {call.name}"):
        fits = fits_of(call.name)
    return next((tried for tried in _others(call, fits) if tried != call and _works(tried)), call)


def _others(call: Call, fits: dict[str, str]) -> Iterator[Call]:
    """From torch's samples, and then what often is what an operator wants."""
    yield _fitted(call, fits)
    every = [argument.name for argument in call.arguments]
    for floats, integers in ((_PROBABILITIES, ""), ("", _LENGTHS), (_PROBABILITIES, _LENGTHS)):
        yield _fitted(call, dict.fromkeys(every, floats), dict.fromkeys(every, integers))


def _fitted(call: Call, fits: dict[str, str], of_integers: dict[str, str] | None = None) -> Call:
    """`fits` by argument: of all tensors, or of the floating-point ones if those of integers are given."""

    def of(argument: Argument) -> Argument:
        plan = argument.value
        if not isinstance(plan, TensorPlan) or plan.memory is not None:
            return argument
        wide = plan.dtype.startswith(("float", "bfloat", "complex"))
        fit = (fits if of_integers is None or wide else of_integers).get(argument.name, "")
        return replace(argument, value=replace(plan, fit=fit)) if fit and _can(plan, fit) else argument

    return replace(call, arguments=[of(argument) for argument in call.arguments])


def _can(plan: TensorPlan, fit: str) -> bool:
    if plan.dtype == "bool" or not plan.elements:
        return False
    if fit in _MATRICES:
        return len(plan.shape) > 1 and plan.shape[-1] == plan.shape[-2]
    return bool(plan.shape) or not ("sorted" in fit or "descending" in fit)


def _works(call: Call) -> bool:
    """It does not raise, and no result has a NaN. Raises what other values do not avoid: it is too large."""
    try:
        return not any(_has_nan(result) for result in tensors_in(runner(call, None, None)()))
    except CannotReplayError:
        raise
    except Exception as error:  # whatever a kernel raises; the call itself will raise it again
        if is_for_want_of_memory(error):
            raise
        return False


def _has_nan(tensor: Any) -> bool:
    import torch

    wide = tensor.is_floating_point() or tensor.is_complex()
    if not wide or tensor.layout != torch.strided or tensor.is_nested or tensor.device.type == "meta":
        return False
    return bool(tensor.isnan().any())
