"""What one trial does with a call: a story of it, to be held against the same story with stock."""

from __future__ import annotations

import ctypes
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tracer.compare.global_state import changed, state
from tracer.compare.kept import TWICE, Inputs, same_bytes, shared_memory
from tracer.compare.lost_gpu import end_captures, would_be_lost
from tracer.compare.outcomes import Form, Numbers, Raised, Story, Warned, values_of
from tracer.compare.private_results import statistics_of
from tracer.compare.ties import ties_of
from tracer.compare.trial_extents import address_space, far_apart, of_each_length
from tracer.compare.trial_samples import Operands, Sample, followed_by, leaves_of, tensors_in, with_tensors

Tell = Callable[[Sample, str, int], Story]
"""A sample, the kind of device, and what torch's generator is seeded with before the call -> what happened"""

_THREADS, _CALLS_OF_A_THREAD = 2, 30
_INTERVAL = 1e-6
"""Seconds after which Python gives another thread its turn: between any two ops of an override"""
_MANY = 1000
_LEAK_SHARE = 0.25


def _operands(sample: Sample, seed: int, then: int) -> Operands:
    import torch

    torch.manual_seed(seed)
    operands = sample.make()
    if (behind := sample.behind) is not None:
        operands = with_tensors(operands, lambda ts: followed_by(behind, ts))
    torch.manual_seed(100 + then)
    return operands


def _called(sample: Sample, operands: Operands) -> Any:
    """What it returns, or Raised."""
    try:
        return sample.call(*operands[0], **operands[1])
    except (Exception, SystemExit) as error:
        return Raised.of(error)


def _told(
    result: Any, inputs: list[Any], name: str = "result", of: tuple[Sample, Operands] | None = None
) -> Story:
    """Form and values of each tensor that a call returned. `of`: where it may return places."""
    if isinstance(result, Raised):
        return {f"{name}s": result}
    tensors = tensors_in(result)
    others = leaves_of(result, lambda one: one is not None and not isinstance(one, _tensor()))
    story: Story = {f"{name}s": len(tensors)}
    if others:
        story[f"the numbers of {name}"] = Numbers(tuple(map(repr, others)))
    ties = ties_of(*of, result) if of else None
    saved = statistics_of(of[0].call) if of else ()
    if ties:
        story["the values are those at the places"] = ties.agree
    for n, tensor in enumerate(tensors):
        title = name if len(tensors) == 1 else f"{name} {n}"
        story[title] = Form.of(tensor, inputs)
        if tensor.device.type == "meta":
            continue
        values = replace(values_of(tensor, inputs), saved=n in saved)
        if ties:
            values = replace(values, picked=ties.picked) if n else replace(values, ordered=ties.values)
        story[f"the values of {title}"] = values
    return story


def plain(sample: Sample, device: str, then: int) -> Story:
    """The call, what it did to its inputs and to what all calls share, and the same call again."""
    operands = _operands(sample, 0, then)
    inputs = tensors_in(operands)
    kept = Inputs([one for one in inputs if one.layout == _strided() and one.device.type != "meta"])
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        before = state(device)
        result = _called(sample, operands)
        shared = changed(before, state(device))
    story = _told(result, inputs, of=(sample, operands))
    story["what it did to its inputs"] = kept.changed()
    story["what it did to memory around its inputs"] = kept.around()
    story |= {f"the values of input {n} afterwards": values_of(one) for n, one in kept.written()}
    story["what it did beside"] = shared
    story |= {f"the next number of generator {n}": _next_of(one) for n, one in _generators_in(operands)}
    story["warnings"] = Warned(frozenset(f"{one.category.__name__}: {one.message}" for one in warned))
    if isinstance(result, Raised):
        return story
    tensors = [one for one in tensors_in(result) if one.layout == _strided() and one.device.type != "meta"]
    copies = [one.detach().clone() for one in tensors]
    if not story["what it did to its inputs"]:
        again = tensors_in(_called(sample, operands))
        story["the same bits twice"] = all(map(same_bytes, copies, [one.detach() for one in again]))
        story["memory of two calls"] = TWICE if any(map(_shares, tensors, again)) else ""
    later = tensors_in(_called(sample, _operands(sample, 1, then)))
    story["memory of a later call"] = TWICE if any(map(_shares, tensors, later)) else ""
    unchanged = all(map(same_bytes, copies, [one.detach() for one in tensors]))
    story["an earlier result"] = "" if unchanged else "a later call changes an earlier result"
    return story


def _generators_in(operands: Operands) -> list[tuple[int, Any]]:
    import torch

    return [*enumerate(leaves_of(operands, lambda one: isinstance(one, torch.Generator)))]


def _next_of(generator: Any) -> Numbers:
    """What a copy of it draws."""
    import torch

    copy = torch.Generator(generator.device)
    copy.set_state(generator.get_state())
    drawn = torch.randint(1 << 30, (2,), generator=copy, device=generator.device)
    return Numbers(tuple(map(str, drawn.tolist())))


def _tensor() -> Any:
    import torch

    return torch.Tensor


def _strided() -> Any:
    import torch

    return torch.strided


def _shares(first: Any, second: Any) -> bool:
    return shared_memory(first, [second])


_NAMES: dict[str, Callable[[Any], Any]] = {
    "in place": lambda tensor: tensor,
    "by another name": lambda tensor: tensor.data,
}


def input_changed_in_place(sample: Sample, device: str, then: int) -> Story:
    """By ops, which count versions, and behind their back, as numpy does."""
    operands = _operands(sample, 0, then)
    _called(sample, operands)
    story: Story = {}
    for how, of in _NAMES.items():
        for tensor in tensors_in(operands):
            with _quietly():
                of(tensor).copy_(tensor.flip(0) if tensor.ndim else tensor + tensor)
        result, name = _called(sample, operands), f"result after its inputs changed {how}"
        story |= _told(result, tensors_in(operands), name, (sample, operands))
    return story


@contextmanager
def _quietly() -> Iterator[None]:
    """A tensor that cannot be changed in place stays as it is."""
    try:
        yield
    except RuntimeError:
        pass


def result_changed_in_place(sample: Sample, device: str, then: int) -> Story:
    operands = _operands(sample, 0, then)
    for tensor in tensors_in(_called(sample, operands)):
        with _quietly():
            tensor.zero_()
    name = "result after an earlier one was overwritten"
    return _told(_called(sample, operands), tensors_in(operands), name, (sample, operands))


def two_threads(sample: Sample, device: str, then: int) -> Story:
    """Each thread has operands of its own, and keeps its first result."""
    given = [_operands(sample, thread, then) for thread in range(_THREADS)]
    found: list[list[Any]] = [[] for _ in given]
    start = threading.Barrier(_THREADS)

    def run(thread: int) -> None:
        start.wait()
        for _ in range(_CALLS_OF_A_THREAD):
            found[thread].append(_called(sample, given[thread]))

    threads = [threading.Thread(target=run, args=(thread,)) for thread in range(_THREADS)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(_INTERVAL)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    story: Story = {}
    for number, results in enumerate(found):
        of = sample, given[number]
        story |= _told(results[0], tensors_in(given[number]), f"result of thread {number}", of)
        story[f"the same bits in all calls of thread {number}"] = _all_the_same(results)
    return story


def every_length(sample: Sample, device: str, then: int) -> Story:
    story: Story = {}
    for one in of_each_length(sample):
        if device == "cuda" and would_be_lost(one):  # an index lies outside then
            continue
        operands = _operands(one, 0, then)
        name = f"result of {one.name.rpartition(', ')[2]}"
        story |= _told(_called(one, operands), tensors_in(operands), name, (one, operands))
    return story


def with_far_rows(sample: Sample, device: str, then: int) -> Story:
    """All tensors so, and each alone."""
    story: Story = {}
    count = len(tensors_in(sample.make()))
    wanted = {"all": range(count)} | {f"argument {n}": range(n, n + 1) for n in range(count) if count > 1}
    with address_space(device):
        for title, places in wanted.items():
            operands = with_tensors(
                _operands(sample, 0, then),
                lambda ts, places=places: [far_apart(t) if n in places else t for n, t in enumerate(ts)],  # type: ignore[misc]
            )
            result, name = _called(sample, operands), f"result of {title} far apart"
            story |= _told(result, tensors_in(operands), name, (sample, operands))
            del operands, result
    return story


def _all_the_same(results: list[Any]) -> bool:
    first = results[0]
    if isinstance(first, Raised):
        return all(one == first for one in results)
    copies = [one.detach() for one in tensors_in(first)]
    return all(
        all(map(same_bytes, copies, [tensor.detach() for tensor in tensors_in(one)])) for one in results[1:]
    )


def gradients(sample: Sample, device: str, then: int) -> Story:
    import torch

    operands = with_tensors(_operands(sample, 0, then), _requiring)
    result = _called(sample, operands)
    story = _told(result, tensors_in(operands), of=(sample, operands))
    if isinstance(result, Raised):
        return story
    wanted = [one for one in tensors_in(operands) if one.requires_grad]
    outputs = [one for one in tensors_in(result) if one.requires_grad]
    if not wanted or not outputs:
        return story
    torch.manual_seed(7)
    given = [_drawn_like(one) for one in outputs]
    try:
        found = torch.autograd.grad(outputs, wanted, given, allow_unused=True)
    except Exception as error:
        return story | {"gradients": Raised.of(error)}
    for n, grad in enumerate(found):
        story |= {f"gradient {n}": None} if grad is None else _told(grad, [], f"gradient {n}")
    return story


def widened(tensor: Any) -> Any:
    import torch

    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def _drawn_like(tensor: Any) -> Any:
    """The same numbers in float64 as in float32."""
    import torch

    return torch.randn_like(tensor, dtype=torch.complex64 if tensor.is_complex() else torch.float32).to(
        tensor.dtype
    )


def _requiring(tensors: list[Any]) -> list[Any]:
    return [
        one.detach().requires_grad_() if one.is_floating_point() or one.is_complex() else one
        for one in tensors
    ]


def checked_gradients(sample: Sample, device: str, then: int) -> Story:
    """torch.autograd.gradcheck and gradgradcheck in float64."""
    import torch

    operands = with_tensors(
        _operands(sample, 0, then),
        lambda ts: _requiring([widened(t) for t in ts]),
    )
    tensors = [one for one in tensors_in(operands) if one.requires_grad]

    def call(*given: Any) -> Any:
        left = iter(given)
        placed = with_tensors(operands, lambda ts: [next(left) if t.requires_grad else t for t in ts])
        return tuple(one for one in tensors_in(sample.call(*placed[0], **placed[1])) if one.requires_grad)

    story: Story = {}
    for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        try:
            story[check.__name__] = check(call, tensors, raise_exception=False, fast_mode=True)
        except Exception as error:
            story[check.__name__] = Raised.of(error)
    return story


def forward_gradients(sample: Sample, device: str, then: int) -> Story:
    """Forward-mode automatic differentiation."""
    import torch

    operands = _operands(sample, 0, then)
    primals = tuple(tensors_in(operands))

    def call(*given: Any) -> Any:
        placed = with_tensors(operands, lambda _: list(given))
        return tuple(tensors_in(sample.call(*placed[0], **placed[1])))

    torch.manual_seed(7)
    try:
        found = torch.func.jvp(call, primals, tuple(_drawn_like(one) for one in primals))
    except Exception as error:
        return {"results": Raised.of(error)}
    return _told(found, [])


def _within(context: Callable[[str], AbstractContextManager[Any]]) -> Tell:
    def tell(sample: Sample, device: str, then: int) -> Story:
        operands = _operands(sample, 0, then)
        with context(device):
            return _told(_called(sample, operands), tensors_in(operands), of=(sample, operands))

    return tell


@contextmanager
def _other_default(_: str) -> Iterator[None]:
    """An override that makes a tensor without a dtype makes another one here."""
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _no_grad(_: str) -> AbstractContextManager[Any]:
    import torch

    return torch.no_grad()


def _inference(_: str) -> AbstractContextManager[Any]:
    import torch

    return torch.inference_mode()


def _autocast(device: str) -> AbstractContextManager[Any]:
    import torch

    return torch.autocast(device, torch.bfloat16)


def vmapped(sample: Sample, device: str, then: int) -> Story:
    import torch

    given = [_operands(sample, seed, then) for seed in range(3)]
    stacked = [torch.stack(parts) for parts in zip(*map(tensors_in, given), strict=True)]

    def call(*tensors: Any) -> Any:
        placed = with_tensors(given[0], lambda _: list(tensors))
        return sample.call(*placed[0], **placed[1])

    try:
        return _told(torch.func.vmap(call)(*stacked), stacked)
    except Exception as error:
        return {"results": Raised.of(error)}


def many_calls(sample: Sample, device: str, then: int) -> Story:
    """Whether a thousand calls return the same, and keep memory that grows with their results."""
    operands = _operands(sample, 0, then)
    first = _called(sample, operands)
    story = _told(first, tensors_in(operands), of=(sample, operands))
    size = sum(one.numel() * one.element_size() for one in tensors_in(first))
    same, grown = True, []
    for _ in range(2):  # what the allocator keeps for once grows in one of them only
        before = _memory_in_use(device)
        for _ in range(_MANY // 2):
            same = _all_the_same([first, _called(sample, operands)]) and same
        grown.append(_memory_in_use(device) - before)
    kept = min(grown) > _LEAK_SHARE * _MANY / 2 * max(size, 256)
    return story | {
        "the same bits in all calls": same,
        "memory": f"{_MANY:,} calls kept {sum(grown):,} bytes" if kept else "",
    }


def _memory_in_use(device: str) -> int:
    import torch

    if device == "cuda":
        return int(torch.cuda.memory_allocated())
    return _allocated() or int(Path("/proc/self/statm").read_text().split()[1]) * 4096


class _Mallinfo(ctypes.Structure):
    """struct mallinfo2 of glibc 2.33 and newer."""

    _names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks")
    _fields_ = [(name, ctypes.c_size_t) for name in (*_names, "fordblks", "keepcost")]


def _allocated() -> int:
    """Bytes that malloc has given out; 0: it does not say."""
    try:
        read = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return 0
    read.restype = _Mallinfo
    found = read()
    return int(found.uordblks + found.hblkhd)


def on_another_stream(sample: Sample, device: str, then: int) -> Story:
    import torch

    operands = _operands(sample, 0, then)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        busy = torch.randn(2048, 2048, device=device)
        for _ in range(8):  # what is not ordered behind them reads operands too early
            busy = busy @ busy.tanh()
        late = with_tensors(operands, lambda ts: [t + 0 if t.dtype != torch.bool else t.clone() for t in ts])
        result = _called(sample, late)
    torch.cuda.current_stream().wait_stream(stream)
    return _told(result, tensors_in(late))


def in_a_graph(sample: Sample, device: str, then: int) -> Story:
    """Captured into a CUDA graph, which runs again with other values."""
    import torch

    operands = _operands(sample, 0, then)
    _called(sample, operands)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            result = sample.call(*operands[0], **operands[1])
    except Exception as error:
        end_captures()
        return {"capture": Raised.of(error)}
    for tensor, other in zip(tensors_in(operands), tensors_in(_operands(sample, 1, then)), strict=True):
        tensor.copy_(other)
    graph.replay()
    torch.cuda.synchronize()
    return _told(result, tensors_in(operands))


ON_A_GPU: dict[str, Tell] = {"another stream": on_another_stream, "CUDA graphs": in_a_graph}
LENGTHS, FAR = "every length", "rows far apart"
WAYS: dict[str, Tell] = {
    "inputs changed in place": input_changed_in_place,
    "results changed in place": result_changed_in_place,
    "two threads": two_threads,
    LENGTHS: every_length,
    FAR: with_far_rows,
    "gradients": gradients,
    "gradcheck": checked_gradients,
    "forward gradients": forward_gradients,
    "no gradients": _within(_no_grad),
    "inference mode": _within(_inference),
    "autocast": _within(_autocast),
    "another default dtype": _within(_other_default),
    "vmap": vmapped,
}
ONCE: dict[str, Tell] = {f"{_MANY:,} calls": many_calls}
"""Of the first usual call only"""
