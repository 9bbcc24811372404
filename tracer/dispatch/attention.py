"""Which backends of scaled_dot_product_attention would take the inputs of a recorded call, and why not."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tracer.analysis.recorded_call import RecordedCall, RecordedTensor
from tracer.base.boundary import StrangeTextError, torch_device, torch_dtype

OP = "aten::scaled_dot_product_attention"
_BACKENDS = {
    "flash": "FLASH_ATTENTION",
    "memory-efficient": "EFFICIENT_ATTENTION",
    "cuDNN": "CUDNN_ATTENTION",
}
_ON_CPU = ("flash",)
"""The others exist on GPUs only"""
_RAN = {"efficient": "memory-efficient", "cudnn": "cuDNN", "flash": "flash", "math": "math"}
_TENSORS = 4
"""query, key, value and attn_mask; the positions of what follows are those of _DEFAULTS"""
_DEFAULTS: dict[str, float | bool | None] = {
    "dropout_p": 0.0,
    "is_causal": False,
    "scale": None,
    "enable_gqa": False,
}
_LARGEST = 1e300
"""Beyond it no number of torch"""
_FLAGS = ("is_causal", "enable_gqa")
RECORD_VALUES = "tracer record --values scalars SCRIPT"
_BECAUSE = " not used because:"
_FIRST_WORDS = {"Flash": "flash", "Memory": "memory-efficient", "cuDNN": "cuDNN"}


@dataclass(frozen=True)
class Choice:
    """The backend that ran (None: not known), and what torch says against the other fused ones ("": nothing).

    missing      why torch could not be asked
    asked        the arguments that torch was asked with, beside the tensors
    unrecorded   names of those whose value the trace does not have; torch was asked with their default
    """

    ran: str | None
    refused: dict[str, str]
    missing: str = ""
    asked: dict[str, float | bool | None] = field(default_factory=dict)
    unrecorded: tuple[str, ...] = ()


def backend_that_ran(ops: Sequence[str]) -> str | None:
    """From the ops that the call made."""
    for op in ops:
        name = op.removeprefix("aten::_scaled_dot_product_")
        if name != op and "attention" in name:
            return next((shown for part, shown in _RAN.items() if part in name), None)
    return None


def ask(call: RecordedCall, ran: str | None) -> Choice:
    """Asks the torch here about the recorded tensors and values of a call; only torch's checks run."""
    import torch

    rows = [tensors[0] for position, tensors in sorted((call.tensors or {}).items()) if position < _TENSORS]
    device = str(rows[0].device) if rows else ""
    if len(rows) < 3 or any(not row.undefined and None in (row.shape, row.stride) for row in rows):
        return Choice(ran, {}, "the shapes of query, key and value were not recorded")
    if device.startswith("cuda") and not torch.cuda.is_available():
        return Choice(ran, {}, "torch can be asked on a machine with a GPU only")
    if not device.startswith(("cpu", "cuda")):
        return Choice(ran, {}, f"tracer does not know the backends of {device}")
    try:
        query, key, value, *rest = map(_tensor, rows)
    except (StrangeTextError, RuntimeError) as error:
        return Choice(ran, {}, f"the torch here cannot make such inputs: {str(error).splitlines()[0]}")
    tensors = (query, key, value, rest[0] if rest else None)
    shared = query.dim() > 2 and query.shape[-3] != key.shape[-3]  # heads of key and value
    recorded = _recorded_values(call.scalars or {})
    asked = {**_DEFAULTS, "enable_gqa": shared, **recorded}
    names = _ON_CPU if device.startswith("cpu") else tuple(_BACKENDS)
    refused = {name: _refusal(torch, name, tensors, asked) for name in names if name != ran}
    return Choice(ran, refused, "", asked, tuple(name for name in asked if name not in recorded))


def _recorded_values(scalars: dict[int, Any]) -> dict[str, float | bool | None]:
    """By name; without those that are not of the schema's type, such as symbolic ones."""
    named = {name: scalars[at] for at, name in enumerate(_DEFAULTS, _TENSORS) if at in scalars}
    return {name: value for name, value in named.items() if _fits(name, value)}


def _fits(name: str, value: Any) -> bool:
    if name in _FLAGS:
        return isinstance(value, bool)
    if value is None:
        return name == "scale"
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _LARGEST


def _tensor(row: RecordedTensor) -> Any:
    import torch

    if row.undefined:
        return None
    dtype, device = torch_dtype(str(row.dtype).removeprefix("torch.")), torch_device(str(row.device))
    made = torch.empty_strided(row.shape or (), row.stride or (), dtype=dtype, device=device)
    return made.requires_grad_(row.requires_grad)


def _refusal(torch: Any, name: str, tensors: tuple[Any, ...], asked: dict[str, float | bool | None]) -> str:
    """What torch says against this backend where no other is allowed; "" if it takes the inputs."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend = getattr(SDPBackend, _BACKENDS[name], None)
    if backend is None:
        return "this torch does not have it"
    with warnings.catch_warnings(record=True) as said, sdpa_kernel([backend]):
        warnings.simplefilter("always")
        try:
            chosen = torch._fused_sdp_choice(*tensors, **asked)
        except RuntimeError:  # no backend takes them; before it raises, torch says why
            chosen = None
    if chosen == backend.value:
        return ""
    return _reasons([str(warning.message) for warning in said]).get(name, "torch gives no reason")


def _reasons(said: Sequence[str]) -> dict[str, str]:
    """The first reason for each backend; torch says `Flash attention kernel not used because:` before it."""
    reasons: dict[str, str] = {}
    about = None
    for text in said:
        if _BECAUSE in text:
            about = _FIRST_WORDS.get(text.split()[0])
        elif about is not None and "runtime disabled" not in text:
            reasons.setdefault(about, _sentence(text))
    return reasons


def _sentence(text: str) -> str:
    """A warning without the place in torch's sources that it ends with."""
    return text.partition(" (Triggered internally")[0].partition("\n")[0].strip().removesuffix(".")


def choice_lines(choice: Choice) -> Iterator[str]:
    yield f"  {'backend':<14}{choice.ran or 'not known'}"
    for name, reason in choice.refused.items():
        yield f"  {'not':<14}{name}: {reason or _no_reason(choice)}"
    if choice.missing:
        yield f"  {'not':<14}the others: {choice.missing}"
    elif choice.refused:
        yield from _what_was_asked(choice)


def _no_reason(choice: Choice) -> str:
    turned_off = "it was turned off, or another came first"
    if not choice.unrecorded:
        return f"takes these inputs; {turned_off}"
    return f"takes these tensors; {_either(choice.unrecorded)} may be the reason, or {turned_off}"


def _what_was_asked(choice: Choice) -> Iterator[str]:
    values = ", ".join(f"{name}={value}" for name, value in choice.asked.items())
    yield f"  {'asked':<14}the torch here, with {values}"
    if choice.unrecorded:
        advice = f"; to record them: {RECORD_VALUES}" if len(choice.unrecorded) == len(_DEFAULTS) else ""
        yield f"  {'assumed':<14}{', '.join(choice.unrecorded)}: the trace does not have the values{advice}"


def _either(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
