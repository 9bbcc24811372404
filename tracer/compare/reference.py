"""The results of the built-in cases in float64, from the same (rounded) inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tracer.analysis.work import Work

Exact = dict[str, tuple[Any, Any]]
"""name -> the float64 result, and the scale of its elements (None: they have none)"""


def product(*operands: Any) -> tuple[Any, Any]:
    """A B, or bias + A B; the scale is |A| |B|, with |bias| added."""
    import torch

    *bias, a, b = (operand.detach().to(torch.float64) for operand in operands)
    exact, scale = a @ b, a.abs() @ b.abs()
    return (exact + bias[0], scale + bias[0].abs()) if bias else (exact, scale)


def gru(
    weights: Mapping[str, Any], x: Any, h: Any, layers: int, bidirectional: bool, given: Any = None
) -> Exact:
    """nn.GRU written out step by step; with `given`, the gradients of its two results, also theirs.

    `weights` by the names that nn.GRU gives them. Gradients are those of float64 autograd.
    """
    import torch

    asked = {"x": x, "h_0": h, **weights}
    wide = {name: tensor.detach().to(torch.float64) for name, tensor in asked.items()}
    if given is not None:
        for tensor in wide.values():
            tensor.requires_grad_()
    with torch.set_grad_enabled(given is not None):
        output, last = _layers(wide, layers, bidirectional)
    exact: Exact = {"output": (output.detach(), None), "h_n": (last.detach(), None)}
    if given is not None:
        given = [gradient.to(torch.float64) for gradient in given]
        gradients = torch.autograd.grad((output, last), list(wide.values()), given)
        exact |= {f"grad {name}": (gradient, None) for name, gradient in zip(wide, gradients, strict=True)}
    return exact


def with_backward(forward: Work) -> Work:
    """Of a GRU: the gradients of inputs and of weights are two more passes of the forward's size.

    Bytes: what was read is read again and has a gradient written.
    """
    moved = None if forward.bytes is None else 3 * forward.bytes
    return replace(forward, flops=3 * forward.flops, bytes=moved)


def _layers(wide: Mapping[str, Any], layers: int, bidirectional: bool) -> tuple[Any, Any]:
    import torch

    output = wide["x"]
    last: list[Any] = []
    for layer in range(layers):
        directions = []
        for reverse in (False, True) if bidirectional else (False,):
            names = f"_l{layer}{'_reverse' if reverse else ''}"
            of_direction = [
                wide.get(kind + names) for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            ]
            sequence = output.flip(0) if reverse else output
            states = _direction(sequence, wide["h_0"][len(last)], *of_direction)
            last.append(states[-1])
            directions.append(states.flip(0) if reverse else states)
        output = torch.cat(directions, -1)
    return output, torch.stack(last)


def _direction(x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
    """All states: r, z, n as in the documentation of nn.GRU, the reset gate after the product."""
    import torch

    outer = x @ w_ih.t() + (0 if b_ih is None else b_ih)
    states = []
    for step in outer:
        inner = h @ w_hh.t() + (0 if b_hh is None else b_hh)
        (xr, xz, xn), (hr, hz, hn) = step.chunk(3, -1), inner.chunk(3, -1)
        r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
        n = torch.tanh(xn + r * hn)
        h = n + z * (h - n)
        states.append(h)
    return torch.stack(states)
