"""The lottery ticket hypothesis: prune a trained net, rewind the weights that are left, train again; repeat.

    python examples/gallery/lottery_ticket.py
    tracer record examples/gallery/lottery_ticket.py

Look at what a mask costs: each forward pass of a pruned layer has one `aten::mul` more, of weight and
mask, and the product that follows has the same shape as before. Pruning single weights makes a net small
on paper; nothing here skips a zero. The ticket starts from the weights it was drawn with (Frankle and
Carbin, 2019), the control has the same masks and new weights.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.utils import prune

FEATURES, CLASSES, ROWS = 64, 10, 1000
ROUNDS, CUT = 5, 0.37  # of what is left, each time: a tenth is left after five


def blobs(rows: int, centres: Tensor) -> tuple[Tensor, Tensor]:
    """Points around the centres (classes, 3, features), three a class, so that no line parts two classes."""
    labels, which = torch.randint(CLASSES, (rows,)), torch.randint(3, (rows,))
    return centres[labels, which] + 0.9 * torch.randn(rows, FEATURES), labels


def new_net() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(FEATURES, 100), nn.ReLU(), nn.Linear(100, 50), nn.ReLU(), nn.Linear(50, CLASSES)
    )


def layers(net: nn.Sequential) -> list[nn.Linear]:
    return [layer for layer in net if isinstance(layer, nn.Linear)]


def train(net: nn.Sequential, data: tuple[Tensor, Tensor], epochs: int = 6) -> None:
    optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(epochs):
        for x, label in zip(data[0].split(100), data[1].split(100), strict=True):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(x), label).backward()
            optimiser.step()


@torch.no_grad()
def accuracy(net: nn.Sequential, data: tuple[Tensor, Tensor]) -> float:
    return (net(data[0]).argmax(1) == data[1]).float().mean().item()


@torch.no_grad()
def rewind(net: nn.Sequential, start: nn.Sequential) -> None:
    for layer, first in zip(layers(net), layers(start), strict=True):
        getattr(layer, "weight_orig", layer.weight).copy_(first.weight)  # the masks stay
        layer.bias.copy_(first.bias)


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    centres = torch.randn(CLASSES, 3, FEATURES)
    training, test = blobs(ROWS, centres), blobs(ROWS, centres)

    start = new_net()
    net = copy.deepcopy(start)
    train(net, training)
    print(f"100.0% of the weights: {accuracy(net, test):.1%} right")
    for _ in range(ROUNDS):
        weights = [(layer, "weight") for layer in layers(net)]
        prune.global_unstructured(weights, pruning_method=prune.L1Unstructured, amount=CUT)
        rewind(net, start)
        train(net, training)
        left = torch.cat([layer.weight_mask.flatten() for layer in layers(net)]).mean().item()
        print(f"{left:6.1%} of the weights: {accuracy(net, test):.1%} right")
    rewind(net, new_net())
    train(net, training)
    print(f"the same masks, new weights: {accuracy(net, test):.1%} right")
    forgotten = sum((layer.weight == 0).sum().item() for layer in layers(net))
    multiplied = sum(layer.weight.numel() for layer in layers(net))
    print(f"{forgotten:,} of {multiplied:,} weights are zero, and all are multiplied")


if __name__ == "__main__":
    main()
