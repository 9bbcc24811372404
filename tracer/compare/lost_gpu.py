"""Calls that end a process, or after which a GPU answers it no more: one that refuses values ends CUDA."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Any

from tracer.compare.forks import Done, in_forks
from tracer.compare.outcomes import Raised, Story
from tracer.compare.trial_arguments import ARGUMENTS
from tracer.compare.trial_samples import SIZES, Operands, Sample, leaves_of, with_tensors

_LACKS = ("not implemented", "not supported")
_OF_VALUES = ("index", "indices", "out of ", "probab", "p_in", "target")


def is_lost() -> bool:
    """Whether CUDA ended in this process. Waits for what runs."""
    import torch

    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def end_captures() -> None:
    """One that fails leaves torch's generators in it: no random number could be drawn any more."""
    import torch

    with suppress(Exception), torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.zeros(1, device="cuda")


def would_be_lost(sample: Sample, tell: Callable[[Sample, str, int], Story] | None = None) -> bool:
    """Whether stock refuses the values of its tensors, such as an index that lies outside: its kernel for the
    CPU raises, and shapes and dtypes alone do not. `tell` may call with other values than the sample's.
    """
    if any(_refuses_values(sample, seed) for seed in (0, 1)):
        return True
    if tell is None:
        return False
    there = sample.changed(sample.kind, "", lambda tensors: _moved(tensors, "cpu"))
    try:
        story = tell(there, "cpu", 1)
    except Exception:
        return False
    return any(isinstance(seen, Raised) and seen.kind == IndexError.__name__ for seen in story.values())


def deadly(samples: Sequence[Sample]) -> set[str]:
    """The names of those, made for the CPU, with which stock ends a process there, or refuses an argument or
    a size that is no index: its code for a GPU divides by a size of 0.
    """

    def refuses(place: int) -> bool:
        sample = samples[place]
        try:
            operands = sample.make()
        except Exception:  # of an argument
            return sample.kind == ARGUMENTS
        error = _raised(sample, operands, "cpu")
        if error is None or isinstance(error, IndexError):
            return False
        return sample.kind == ARGUMENTS or (sample.kind == SIZES and _has_whole_numbers(operands))

    with closing(in_forks(len(samples), refuses)) as made:
        ends = (place for place, found in made if not isinstance(found, Done) or found.result)
        return {samples[place].name for place in ends}


def _has_whole_numbers(operands: Operands) -> bool:
    """Perhaps sizes, beside those that its tensors have."""
    return bool(leaves_of(operands, lambda leaf: type(leaf) is int))


def _refuses_values(sample: Sample, seed: int) -> bool:
    import torch

    torch.manual_seed(seed)
    try:
        operands = sample.make()
    except Exception:
        return False  # its trial says so
    error = _raised(sample, operands, "cpu")
    if error is None or _is_lacking(error) or not _is_of_values(error):
        return False
    of_shapes = _raised(sample, operands, "meta")
    return of_shapes is None or (_is_lacking(of_shapes) and isinstance(error, IndexError))


def _raised(sample: Sample, operands: Operands, device: str) -> Exception | None:
    try:
        given, named = with_tensors(operands, lambda tensors: _moved(tensors, device))
        sample.call(*given, **named)
    except Exception as error:
        return error
    return None


def _moved(tensors: list[Any], device: str) -> list[Any]:
    return [tensor.detach().to(device, copy=True) for tensor in tensors]


def _is_of_values(error: Exception) -> bool:
    """Kernels for the CPU look at dtypes too, which those for a GPU refuse before they run."""
    return isinstance(error, IndexError) or any(word in str(error).lower() for word in _OF_VALUES)


def _is_lacking(error: Exception) -> bool:
    return isinstance(error, NotImplementedError) or any(word in str(error).lower() for word in _LACKS)
