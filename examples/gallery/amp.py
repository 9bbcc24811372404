"""Automatic mixed precision: a training step as it is, and the same under autocast to bfloat16.

    python examples/gallery/amp.py
    tracer record examples/gallery/amp.py

Step 0 is in float32, step 1 under autocast. The net uses one Linear twice.

Look at what autocast adds: one more key, `AutocastCPU` (on a GPU `AutocastCUDA`), in front of autograd, for
ops of its lists alone. Ops that gain from bfloat16, `aten::linear` here, have their inputs copied to it
there, each an `aten::to.dtype` and `aten::_to_copy`; ops that need range, `aten::mse_loss`, get float32 back.
`aten::relu` is on no list and has no such hop. A weight is cast once in a forward pass and kept: the second
use of the same Linear finds its weight and bias, and an input that is bfloat16 already, so it copies nothing.
Autograd records the copies (`ToCopyBackward0` under Backward), so gradients arrive as float32. In the names
of autocast's kernels `CastPolicy)0` casts to the lower precision and `CastPolicy)1` to float32.

Compare hops, not times: the work is tiny, and first calls set up code, as the first product of each shape in
bfloat16 does.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

WIDTH = 128


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Linear(WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first = self.shared(x)
        second = self.shared(first.relu())
        return first, self.output(second.relu())


def step(model: Net, optimiser: torch.optim.Optimizer, x: Tensor, autocast: bool) -> str:
    optimiser.zero_grad()
    with torch.autocast(x.device.type, torch.bfloat16, enabled=autocast):
        hidden, result = model(x)
        loss = nn.functional.mse_loss(result, torch.ones_like(result))
    loss.backward()
    optimiser.step()
    kinds = [hidden, loss, model.shared.weight, model.shared.weight.grad]
    hidden_kind, loss_kind, weight, gradient = (str(each.dtype).removeprefix("torch.") for each in kinds)
    return f"hidden {hidden_kind}, loss {loss_kind} {loss.item():.3f}, weight {weight}, gradient {gradient}"


def main() -> None:
    torch.set_num_threads(1)  # tensors this small gain nothing from more
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Net().to(device)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.0)  # so that both steps do the same work
    x = torch.randn(64, WIDTH, device=device)
    for autocast in (False, True):
        print(f"{'autocast' if autocast else 'as it is'}: {step(model, optimiser, x, autocast)}")


if __name__ == "__main__":
    main()
