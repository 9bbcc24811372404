"""Which backends of scaled_dot_product_attention would take the inputs of a recorded call, and why not."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

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
_BECAUSE = " not used because:"
_FIRST_WORDS = {"Flash": "flash", "Memory": "memory-efficient", "cuDNN": "cuDNN"}


@dataclass(frozen=True)
class Choice:
    """The backend that ran (None: not known), and what torch says against the other fused ones ("": nothing).

    `missing`: why torch could not be asked.
    """

    ran: str | None
    refused: dict[str, str]
    missing: str = ""


def backend_that_ran(ops: Sequence[str]) -> str | None:
    """From the ops that the call made."""
    for op in ops:
        name = op.removeprefix("aten::_scaled_dot_product_")
        if name != op and "attention" in name:
            return next((shown for part, shown in _RAN.items() if part in name), None)
    return None


def ask(tensors: Sequence[dict[str, Any]], ran: str | None) -> Choice:
    """Asks the torch here about the recorded shapes, strides and dtypes: rows of `signatures`.

    Only its checks run. dropout_p, is_causal and scale are not recorded: torch is asked about their defaults.
    """
    import torch

    device = str(tensors[0]["device"]) if tensors else ""
    if len(tensors) < 3 or any(row["shape"] is None or row["stride"] is None for row in tensors):
        return Choice(ran, {}, "the shapes of query, key and value were not recorded")
    if device.startswith("cuda") and not torch.cuda.is_available():
        return Choice(ran, {}, "torch can be asked on a machine with a GPU only")
    if not device.startswith(("cpu", "cuda")):
        return Choice(ran, {}, f"tracer does not know the backends of {device}")
    try:
        query, key, value, *rest = map(_tensor, tensors)
    except (StrangeTextError, RuntimeError) as error:
        return Choice(ran, {}, f"the torch here cannot make such inputs: {str(error).splitlines()[0]}")
    mask = rest[0] if rest else None
    shared = query.dim() > 2 and query.shape[-3] != key.shape[-3]  # heads of key and value
    names = _ON_CPU if device.startswith("cpu") else tuple(_BACKENDS)
    return Choice(
        ran,
        {
            name: _refusal(torch, name, (query, key, value, mask), enable_gqa=shared)
            for name in names
            if name != ran
        },
    )


def _tensor(row: dict[str, Any]) -> Any:
    import torch

    dtype, device = torch_dtype(str(row["dtype"]).removeprefix("torch.")), torch_device(str(row["device"]))
    made = torch.empty_strided(row["shape"], row["stride"], dtype=dtype, device=device)
    return made.requires_grad_(bool(row["requires_grad"]))


def _refusal(torch: Any, name: str, tensors: tuple[Any, ...], *, enable_gqa: bool) -> str:
    """What torch says against this backend where no other is allowed; "" if it takes the inputs."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend = getattr(SDPBackend, _BACKENDS[name], None)
    if backend is None:
        return "this torch does not have it"
    with warnings.catch_warnings(record=True) as said, sdpa_kernel([backend]):
        warnings.simplefilter("always")
        try:
            chosen = torch._fused_sdp_choice(*tensors, 0.0, False, enable_gqa=enable_gqa)
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
        said = reason or "takes these inputs; it was turned off, or another came first"
        yield f"  {'not':<14}{name}: {said}"
    if choice.missing:
        yield f"  {'not':<14}the others: {choice.missing}"
    elif choice.refused:
        yield f"  {'asked':<14}the torch here, with is_causal=False and dropout_p=0: values are not recorded"
