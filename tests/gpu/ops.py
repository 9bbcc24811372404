"""Ops of torch, one case each. See cases.py."""

from __future__ import annotations

import torch
from cases import DEVICE, Run, case, main
from torch import Tensor, nn
from torch.nn import functional

torch.backends.cudnn.deterministic = True
GENERATOR = torch.Generator().manual_seed(0)


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=GENERATOR).to(DEVICE, dtype)


def uniform(module: nn.Module) -> nn.Module:
    """The module with weights from the generator: torch's own is seeded by time."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.rand(parameter.shape, generator=GENERATOR) * 0.2 - 0.1)
    return module.to(DEVICE)


@case
def matmul() -> Run:
    a, b = random(64, 64), random(64, 64)
    return lambda: torch.matmul(a, b)


@case
def mm_bf16() -> Run:
    a, b = random(1024, 1024, dtype=torch.bfloat16), random(1024, 1024, dtype=torch.bfloat16)
    return lambda: torch.mm(a, b)


@case
def linear() -> Run:
    layer, x = uniform(nn.Linear(128, 256)), random(64, 128)
    return lambda: layer(x)


@case
def matmul_backward() -> Run:
    weight, x = random(64, 64).requires_grad_(), random(64, 64)

    def run() -> Tensor:
        weight.grad = None
        torch.matmul(x, weight).sum().backward()
        return weight.grad

    return run


@case
def add() -> Run:
    a, b = random(256, 256), random(256, 256)
    return lambda: torch.add(a, b)


@case
def conv2d() -> Run:
    layer, x = uniform(nn.Conv2d(16, 32, 3)), random(8, 16, 32, 32)
    return lambda: layer(x)


@case
def gru() -> Run:
    layer, x = uniform(nn.GRU(32, 64)), random(5, 8, 32)
    layer.flatten_parameters()
    return lambda: layer(x)[0]


@case
def gru_backward() -> Run:
    layer, x = uniform(nn.GRU(32, 64)), random(5, 8, 32)
    layer.flatten_parameters()

    def run() -> Tensor:
        layer.zero_grad()
        layer(x)[0].square().sum().backward()
        return layer.weight_hh_l0.grad

    return run


@case
def cat() -> Run:
    a, b = random(64, 512), random(64, 1024)
    return lambda: torch.cat([a, b], dim=1)


@case
def attention() -> Run:
    query, key, value = (random(2, 8, 256, 64, dtype=torch.bfloat16) for _ in range(3))
    return lambda: functional.scaled_dot_product_attention(query, key, value)


@case
def pinned_copy() -> Run:
    host = torch.randn(1024, generator=GENERATOR).pin_memory()
    return lambda: host.to(DEVICE, non_blocking=True)


@case
def pageable_copy() -> Run:
    host = torch.randn(1024, generator=GENERATOR)
    return lambda: host.to(DEVICE)


@case
def copy_back() -> Run:
    x = random(1024)
    return lambda: x.cpu()


@case
def item() -> Run:
    x = torch.full((1,), 7.5, device=DEVICE)
    return lambda: x.item()


@case
def zeros() -> Run:
    return lambda: torch.zeros(1 << 20, dtype=torch.uint8, device=DEVICE)


@case
def adamw() -> Run:
    parameter = random(64, 64).requires_grad_()
    optimiser = torch.optim.AdamW([parameter], lr=1e-3)
    gradient = random(64, 64)

    def run() -> Tensor:
        parameter.grad = gradient.clone()
        optimiser.step()
        return parameter.detach().clone()

    return run


@case
def graph() -> dict[str, Run]:
    """Two products and an addition are captured, and replayed three times."""
    a, b = random(64, 64), random(64, 64)
    captured = torch.cuda.CUDAGraph()
    held: list[Tensor] = []

    def body() -> Tensor:
        return torch.add(torch.mm(torch.mm(a, b), b), 1.0)

    def warm_up() -> Tensor:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            result = body()
        torch.cuda.current_stream().wait_stream(side)
        return result

    def capture() -> None:
        with torch.cuda.graph(captured):
            held.append(body())

    def replay() -> Tensor:
        for _ in range(3):
            captured.replay()
        return held[0]

    return {"first": warm_up, "capture": capture, "replay": replay}


@case
def streams() -> Run:
    """The same work on two further streams, which the current one waits for."""
    a = random(256, 256)
    sides = [torch.cuda.Stream() for _ in range(2)]

    def run() -> list[Tensor]:
        results = []
        for side in sides:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                results.append(torch.mul(a, 2.0))
            torch.cuda.current_stream().wait_stream(side)
        return results

    return run


if __name__ == "__main__":
    main()
