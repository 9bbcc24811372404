"""Random GRUs, their results in float64, and the bounds that an override has to keep."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from lazily import nn, torch

# Name, type, whether TF32 may be used; the largest difference of a result from float64, its relative
# Frobenius norm, and that of a gradient.
STRICT, TF32, BFLOAT16, FLOAT16 = "strict", "tf32", "bfloat16", "float16"
TYPES = {STRICT: "float32", TF32: "float32", BFLOAT16: "bfloat16", FLOAT16: "float16"}
LARGEST = {STRICT: 1e-5, TF32: 5e-3, BFLOAT16: 3e-2, FLOAT16: 4e-3}
RELATIVE = {STRICT: 1e-5, TF32: 1e-3, BFLOAT16: 1e-2, FLOAT16: 1.5e-3}
GRADIENT = {STRICT: 1e-4, TF32: 5e-3, BFLOAT16: 3e-2, FLOAT16: 1e-2}
PRECISIONS = tuple(TYPES)


def type_of(precision: str) -> torch.dtype:
    return getattr(torch, TYPES[precision])


@contextmanager
def precision(name: str) -> Iterator[None]:
    """float32 with or without TF32 in the RNNs of cuDNN; nothing for other types."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = name == TF32
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


@dataclass(frozen=True)
class Shape:
    steps: int
    batch: int
    input: int
    hidden: int
    layers: int = 1
    bidirectional: bool = False
    bias: bool = True
    batch_first: bool = False
    strided: bool = False  # x is not contiguous
    output_gradient: bool = True
    hy_gradient: bool = True


def random_shape(random: random.Random) -> Shape:
    gradients = random.choice([(True, True), (True, False), (False, True)])
    return Shape(
        steps=random.choice([1, 1, 2, 3, 7]),
        batch=random.randint(1, random.choice([4, 20, 80])),
        input=random.choice([random.randint(1, 90), 32, 64]),
        hidden=random.choice([random.randint(1, 90), random.randint(1, 300), 32, 64, 128, 512]),
        layers=random.choice([1, 1, 1, 2, 3]),
        bidirectional=random.random() < 0.3,
        bias=random.random() < 0.8,
        batch_first=random.random() < 0.3,
        strided=random.random() < 0.2,
        output_gradient=gradients[0],
        hy_gradient=gradients[1],
    )


@dataclass
class Sample:
    """A module on the GPU, its input, and the gradients of its results."""

    shape: Shape
    precision: str
    seed: int = 0
    device: str = "cuda"
    module: nn.GRU = field(init=False)
    x: torch.Tensor = field(init=False)
    hx: torch.Tensor = field(init=False)
    grad_output: torch.Tensor = field(init=False)
    grad_hy: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        s, kind = self.shape, type_of(self.precision)
        torch.manual_seed(self.seed)
        self.module = nn.GRU(
            s.input, s.hidden, s.layers, bias=s.bias, batch_first=s.batch_first, bidirectional=s.bidirectional
        ).to(self.device, kind)
        first, second = (s.batch, s.steps) if s.batch_first else (s.steps, s.batch)
        directions = 2 if s.bidirectional else 1
        if s.strided:
            self.x = torch.randn(first, s.input, second, device=self.device).to(kind).transpose(1, 2)
        else:
            self.x = torch.randn(first, second, s.input, device=self.device).to(kind)
        self.hx = (
            torch.rand(s.layers * directions, s.batch, s.hidden, device=self.device).mul(2).sub(1).to(kind)
        )
        self.grad_output = torch.randn(first, second, directions * s.hidden, device=self.device).to(kind)
        self.grad_hy = torch.randn_like(self.hx)

    def forward(self) -> list[torch.Tensor]:
        with torch.no_grad(), precision(self.precision):
            return list(self.module(self.x, self.hx))

    def gradients(self) -> list[torch.Tensor]:
        """The results, and the gradients of x, hx and the weights."""
        with precision(self.precision):
            return results_and_gradients(
                self.module, self.x, self.hx, self.shape, self.grad_output, self.grad_hy
            )

    def names(self) -> list[str]:
        return ["output", "hy", "x", "hx", *(name for name, _ in self.module.named_parameters())]

    def expected(self) -> list[torch.Tensor]:
        """The same in float64, step by step, with the weights as they were rounded."""
        module = nn.GRU(
            self.module.input_size,
            self.module.hidden_size,
            self.module.num_layers,
            bias=self.module.bias,
            batch_first=self.module.batch_first,
            bidirectional=self.module.bidirectional,
        ).to(self.device, torch.float64)
        module.load_state_dict(self.module.state_dict())
        tensors = [t.double() for t in (self.x, self.hx, self.grad_output, self.grad_hy)]
        with torch.backends.cudnn.flags(enabled=False):
            return results_and_gradients(module, tensors[0], tensors[1], self.shape, tensors[2], tensors[3])


def results_and_gradients(
    module: nn.GRU,
    x: torch.Tensor,
    hx: torch.Tensor,
    shape: Shape,
    grad_output: torch.Tensor,
    grad_hy: torch.Tensor,
) -> list[torch.Tensor]:
    x, hx = x.detach().requires_grad_(), hx.detach().requires_grad_()
    output, hy = module(x, hx)
    pairs = [(output, grad_output)] * shape.output_gradient + [(hy, grad_hy)] * shape.hy_gradient
    inputs = [x, hx, *module.parameters()]
    grads = torch.autograd.grad(
        [y for y, _ in pairs], inputs, [g for _, g in pairs], allow_unused=True, materialize_grads=True
    )
    return [output.detach(), hy.detach(), *grads]


def check(sample: Sample, got: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    """Raises AssertionError that names the first tensor out of bounds."""
    bound = sample.precision
    for index, (name, y, y64) in enumerate(zip(sample.names(), got, expected, strict=False)):
        difference = (y.double() - y64).flatten()
        norm = y64.norm().item()
        relative = difference.norm().item() / max(norm, 1e-3 * y64.numel() ** 0.5)
        where = f"{name} of {sample.shape} in {bound}, seed {sample.seed}"
        assert y.shape == y64.shape, where
        if index < 2:
            assert difference.abs().max().item() <= LARGEST[bound], where
            assert relative <= RELATIVE[bound], f"{relative:.2e}: {where}"
        else:
            assert relative <= GRADIENT[bound], f"{relative:.2e}: {where}"
            if norm > 1e-3 * y64.numel() ** 0.5:
                cosine = torch.dot(y.double().flatten(), y64.flatten()).item() / (
                    y.double().norm().item() * norm
                )
                assert cosine >= 0.999, f"cosine {cosine:.4f}: {where}"


def relative_errors(got: list[torch.Tensor], expected: list[torch.Tensor]) -> list[float]:
    return [
        ((y.double() - y64).norm() / y64.norm().clamp_min(1e-12)).item()
        for y, y64 in zip(got, expected, strict=True)
    ]
